"""What a crawl stands on: broker and databases, the settings for them, what can be done to them, and what is in them at the end."""

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspider_lite import assembly, configuration, message_queue
from pyspider_lite.bench.chaos import harms
from pyspider_lite.bench.chaos.audit import Audit
from pyspider_lite.bench.chaos.harms import Harm, Kind
from pyspider_lite.bench.chaos.queues import BuiltinBroker
from pyspider_lite.bench.closing import Closing
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.settings import Settings, sqlite_file

PROJECT = "chaos"
DATABASES = ("taskdb", "projectdb", "resultdb")
#: seconds for SIGTERM to end a daemon, of its own
DRAIN = 5.0
STACKS: dict[str, tuple[Any, Any]] = {
    "builtin-sqlite": (BuiltinBroker, None),
    "redis-mariadb": (Redis, MariaDb),
    "rabbitmq-postgresql": (RabbitMq, PostgreSql),
}
_CUTS = 3


class Stack(Closing):
    """The servers of a run, between `__enter__` and `__exit__`; ``folder`` gets config.json and, for SQLite, the databases."""

    def __init__(self, name: str, folder: Path) -> None:
        broker, database = STACKS[name]
        self.abilities = harms.BUILTIN if database is None else harms.SERVERS
        self.config = folder / "config.json"
        self._folder = folder
        with contextlib.ExitStack() as stack:
            self.broker = broker()
            stack.callback(self.broker.close)
            self.database = database() if database else None
            if self.database is not None:
                stack.callback(self.database.close)
            self._stack = stack.pop_all()

    def start(self) -> None:
        """Start the servers and write the config."""
        for server in (self.broker, self.database):
            if server is not None:
                server.start()
        self.config.write_text(json.dumps(self._settings()))
        self.settings: Settings = configuration.load(str(self.config), {}, {}).settings
        self._prepare()

    def close(self) -> None:
        """End them."""
        self._stack.close()

    def _settings(self) -> dict[str, Any]:
        data = self._folder / "data"
        data.mkdir()
        urls = {
            kind: self.database.url(kind) if self.database else f"sqlite+{kind}:///{data}/{kind.removesuffix('db')}.db"
            for kind in DATABASES
        }
        return {
            "data_path": str(data),
            "message_queue": self.broker.url,
            **urls,
            "drain_timeout": DRAIN,
            "health_port": 0,
            "scheduler": {"xmlrpc_port": 0},
            "fetcher": {"xmlrpc_port": 0},
        }

    def _prepare(self) -> None:
        """Make the table of results, and have the writes to it counted."""
        with contextlib.closing(assembly.connect_resultdb(self.settings)) as resultdb:
            resultdb.store([TaskResult(project=PROJECT, taskid="none", url="", run=0)])
        self.audit = Audit(self.settings.resultdb, PROJECT)
        self.audit.install()

    # --- harms ----------------------------------------------------------------------------------------------------------

    def begin(self, harm: Harm) -> Callable[[], None] | None:
        """Do harm to a server; returns what ends it, None if it is over."""
        server: Any = self.broker if harm.target == "broker" else self.database
        match harm.kind:
            case Kind.STOP | Kind.KILL:
                server.stop() if harm.kind is Kind.STOP else server.kill()
                start: Callable[[], None] = server.start
                return start
            case Kind.FREEZE:
                server.freeze()
                thaw: Callable[[], None] = server.thaw
                return thaw
            case Kind.CUT:
                for _ in range(_CUTS):
                    server.cut()
                    time.sleep(0.3)
            case Kind.FLUSH:
                self._flush()
            case Kind.LOCK:
                return self._lock()
            case _:
                raise ValueError(f"{harm.kind} is not for servers")
        return None

    def pid(self, target: str) -> int:
        """Of a server; 0 for SQLite."""
        server = self.broker if target == "broker" else self.database
        return server.process.pid if server is not None and server.process is not None else 0

    def _flush(self) -> None:
        if isinstance(self.broker, Redis):
            with self.broker.client() as client:
                client.flushall()
            return
        for name in QueueName:
            prefix = self.settings.queue_prefix
            queue = message_queue.connect(self.settings.queue_url, name, prefix=prefix)
            with contextlib.closing(queue):
                queue.purge()

    def _lock(self) -> Callable[[], None]:
        """The write locks of the files of tasks and results."""
        held = []
        for kind in ("taskdb", "resultdb"):
            file = sqlite_file(getattr(self.settings, kind))
            assert file is not None
            connection = sqlite3.connect(file, timeout=30.0, isolation_level=None, check_same_thread=False)
            connection.execute("begin immediate")
            held.append(connection)

        def release() -> None:
            for connection in held:
                connection.close()

        return release

    # --- what is in it --------------------------------------------------------------------------------------------------

    def results(self) -> Iterator[dict[str, Any]]:
        """Each row of the results, with when it was written."""
        writes = self.audit.writes()
        with contextlib.closing(assembly.connect_resultdb(self.settings)) as resultdb:
            for row in resultdb.select(PROJECT):
                yield {
                    "url": row.url,
                    "taskid": row.taskid,
                    "item": row.item,
                    "run": row.run,
                    "result": json.loads(row.result),
                    "writes": writes.get((row.taskid, row.item), []),
                }

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Each row of the tasks, then what is stored beside them: counts by status, control work, dead letters."""
        with contextlib.closing(assembly.connect_taskdb(self.settings)) as taskdb:
            after = None
            while rows := taskdb.select(PROJECT, limit=500, after=after):
                after = rows[-1].seq
                for row in rows:
                    status = TaskStatus(row.status).name.lower()
                    yield {
                        "url": row.url,
                        "taskid": row.taskid,
                        "status": status,
                        "run": row.run,
                        "updatetime": row.updatetime,
                    }
            state = taskdb.project_states()[PROJECT]
            yield {
                "counts": {status.name.lower(): getattr(state, status.name.lower()) for status in TaskStatus},
                "controls": [control.id for control in taskdb.controls(0, 100)],
                "dead_letters": [f"{letter.kind} {letter.reason}" for letter in taskdb.dead_letters()],
            }


class Done(threading.Thread):
    """Asks the taskdb which pages are done. While it does not answer, what it said before holds: pages do not become undone."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="done", daemon=True)
        self._settings = settings
        self._taskids: set[str] = set()
        self._asked: set[str] = set()
        self._ask = threading.Condition()
        self._answered = threading.Event()
        self._stopping = False

    def open_of(self, taskids: Iterable[str], timeout: float = 1.0) -> set[str]:
        """Those of these tasks that are not known to be done."""
        wanted = set(taskids)
        with self._ask:
            self._asked = wanted - self._taskids
            self._answered.clear()
            self._ask.notify()
        self._answered.wait(timeout)
        return wanted - self._taskids

    def stop(self) -> None:
        """End the thread."""
        with self._ask:
            self._stopping = True
            self._ask.notify()
        self.join(10)

    def run(self) -> None:
        with contextlib.closing(assembly.connect_taskdb(self._settings)) as taskdb:
            while True:
                with self._ask:
                    self._ask.wait_for(lambda: self._asked or self._stopping)
                    if self._stopping:
                        return
                    asked, self._asked = self._asked, set()
                with contextlib.suppress(DatabaseError):
                    rows = taskdb.get(PROJECT, sorted(asked))
                    self._taskids |= {row.taskid for row in rows if row.status == TaskStatus.SUCCESS}
                    self._answered.set()
