"""One daemon alone, as it is started by everybody, with its neighbours played through real queues: `bench --role NAME`.

The queues are the built-in ones, served by this process as `all` does it; CPU time is that of the whole daemon, its threads for the queues
and the processes that it starts included. One module a role; each has `measure`, which gives figures for `rounds`.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from pyspider_lite import bootstrap, codec, configuration, message_queue, settings
from pyspider_lite.bench import processes
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.server import Server
from pyspider_lite.bench.suite import SuiteEnded, last_words
from pyspider_lite.errors import QueueError
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.message_queue.builtin_server import QueueServer
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.project import Project, ProjectStatus

PROJECT = "bench"
#: seconds without progress after which a run has failed, and for SIGTERM to end the daemon
STANDSTILL, _END = 60.0, 45.0


class Cost(NamedTuple):
    """What a daemon used so far."""

    wall: float
    cpu: float
    servers: Mapping[str, float]
    #: of this process, which plays the neighbours, and of the whole machine
    own: float
    machine: float


class Station:
    """The daemon, the queues around it and its databases, between `__enter__` and `__exit__`."""

    def __init__(
        self,
        folder: Path,
        role: Role,
        config: Mapping[str, Any] | None = None,
        database: type[MariaDb] | type[PostgreSql] | None = None,
    ) -> None:
        self._folder = folder
        self._role = role
        self._config = {"data_path": str(folder / "data"), "queue_maxsize": 0, **(config or {})}
        self._database = database
        self._stack = contextlib.ExitStack()
        self._log = folder / "log.txt"
        self.server: Server | None = None
        self._daemon: subprocess.Popen[bytes] | None = None
        self.stopping = threading.Event()

    def __enter__(self) -> Self:
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            if self._database is not None:
                database = self._database()
                self.server = stack.enter_context(database)
                self._config |= {kind: database.url(kind) for kind in ("taskdb", "projectdb", "resultdb")}
            (self._folder / "config.json").write_text(json.dumps(self._config))
            queues = QueueServer(settings.queue_socket(self._config["data_path"]))
            queues.start()
            stack.callback(queues.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self.stop()
        self._stack.close()

    def start(self) -> None:
        """Start the daemon."""
        words = [sys.executable, "-m", "pyspider_lite", "-c", str(self._folder / "config.json"), str(self._role)]
        with open(self._log, "ab") as log:
            self._daemon = subprocess.Popen(words, stdout=log, stderr=log)

    def stop(self) -> None:
        """End the daemon; it may be started again."""
        if self._daemon is not None:
            self._daemon.terminate()
            try:
                self._daemon.wait(_END)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
            self._daemon = None

    @cached_property
    def settings(self) -> settings.Settings:
        """What the daemon is started with."""
        return configuration.load(str(self._folder / "config.json"), {}, {}).settings

    def enter_project(self, script: str) -> Project:
        """Store the project, running and unlimited."""
        unlimited = float("inf")
        with bootstrap.open_projectdb(self.settings, create=True) as projectdb:
            projectdb.insert(
                Project(name=PROJECT, script=script, status=ProjectStatus.RUNNING, rate=unlimited, burst=unlimited)
            )
            project = projectdb.get(PROJECT)
            assert project is not None
            return project

    def queue(self, name: QueueName) -> MessageQueue:
        """One connection, for one thread."""
        queue = message_queue.connect(self.settings.queue_url, name, maxsize=0, prefix=self.settings.queue_prefix)
        self._stack.callback(queue.close)
        return queue

    def drain(self, name: QueueName, heard: Callable[[bytes], None] = lambda body: None) -> None:
        """Take everything off a queue from now on, on a thread of its own; ``heard`` gets each body."""
        queue = self.queue(name)

        def work() -> None:
            while not self.stopping.is_set():
                with contextlib.suppress(QueueError):
                    for message in queue.get(100, 0.5):
                        heard(message.body)

        threading.Thread(target=work, name=f"drain {name}", daemon=True).start()

    def wait(self, done: Callable[[], bool], progress: Callable[[], int]) -> None:
        """Until ``done``; SuiteEnded if the daemon ended, or if ``progress`` stands still."""
        last, changed = -1, time.monotonic()
        while not done():
            self.check()
            if time.monotonic() - changed > STANDSTILL:
                raise SuiteEnded(f"the {self._role} stands still at {last}{last_words(self._log)}")
            if (now := progress()) != last:
                last, changed = now, time.monotonic()
            time.sleep(0.005)

    def check(self) -> None:
        """SuiteEnded if the daemon ended."""
        assert self._daemon is not None
        if (code := self._daemon.poll()) is not None:
            raise SuiteEnded(f"the {self._role} ended by itself with exit code {code}{last_words(self._log)}")

    def pids(self) -> list[int]:
        """The daemon and what it started."""
        assert self._daemon is not None
        return processes.tree(self._daemon.pid)

    def cost(self) -> Cost:
        """Used so far."""
        servers = {}
        if self.server is not None and self.server.process is not None:
            servers[self.server.name] = sum(map(processes.cpu, processes.tree(self.server.process.pid)))
        used = sum(map(processes.used, self.pids()))
        return Cost(time.monotonic(), used, servers, processes.cpu(os.getpid()), processes.machine_used())

    def figures(self, begin: Cost, pages: int) -> dict[str, Any]:
        """Of ``pages`` since ``begin``. ``noise``: share of the machine that all others took."""
        end = self.cost()
        cpu, wall = max(0.01, end.cpu - begin.cpu), end.wall - begin.wall
        ours = cpu + end.own - begin.own + sum(end.servers.values()) - sum(begin.servers.values())
        others = max(0.0, end.machine - begin.machine - ours)
        return {
            "pages": pages,
            "pages_per_s": round(pages / wall, 1),
            "pages_per_cpu_s": round(pages / cpu, 1),
            "cpu_ms_page": round(1000 * cpu / pages, 3),
            "servers_cpu_ms_page": {
                name: round(1000 * (used - begin.servers[name]) / pages, 3) for name, used in end.servers.items()
            },
            "rss_mb": round(sum(map(processes.peak, self.pids())) / 1e6, 1),
            "noise": round(others / max(wall, 0.01) / (os.cpu_count() or 1), 3),
        }


def put(queue: MessageQueue, *messages: msgspec.Struct) -> None:
    """Put messages, however long the queue's limit of bytes has to be waited for."""
    for message in messages:
        queue.put(codec.encode(message), STANDSTILL)
