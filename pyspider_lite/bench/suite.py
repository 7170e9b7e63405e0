"""The suite as the benchmarks start it: `all` with what it brings along, or each daemon as a command of its own on real servers."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from pyspider_lite import assembly, configuration
from pyspider_lite.bench import processes
from pyspider_lite.bench.closing import Closing
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.servers.server import Server
from pyspider_lite.database.base import ResultDB
from pyspider_lite.errors import DatabaseError, RefusedToStart
from pyspider_lite.settings import Settings

#: seconds for SIGTERM to end the suite
_DRAIN = 45.0
_RPC_ANYWHERE = {"scheduler": {"xmlrpc_port": 0}, "fetcher": {"xmlrpc_port": 0}}


class Plan(NamedTuple):
    """Where a suite keeps its queues and rows; "" for what `all` brings along."""

    broker: type[Redis] | type[RabbitMq] | None = None
    database: type[MariaDb] | type[PostgreSql] | None = None

    @property
    def name(self) -> str:
        """As figures show it."""
        if self.broker is None or self.database is None:
            return "all"
        return f"{self.broker.name}+{self.database.name}"


ALL = Plan()
CLUSTERS = (Plan(Redis, MariaDb), Plan(RabbitMq, PostgreSql))
#: as command lines spell them (`chaos` has the same)
STACKS = {"builtin-sqlite": ALL, **{plan.name.replace("+", "-"): plan for plan in CLUSTERS}}


class SuiteEnded(RefusedToStart):
    """A daemon that is measured has ended by itself, or stands still, so whatever was measured of it says nothing."""


def last_words(log: Path) -> str:
    """To be put behind a problem, as the log may be gone when it is read: its last warning, else its last line."""
    lines = log.read_text("utf-8", "replace").splitlines()
    warnings = [line for line in lines if line.startswith(("[W ", "[E ", "[C "))]
    return f"; its log says: {(warnings or lines)[-1]}" if lines else ""


class Suite(Closing):
    """Daemons that crawl together, between `__enter__` and `__exit__`; with the servers that they need. Leaving the block raises
    `SuiteEnded` if one of them ended before it was asked to, whatever else has come of that."""

    #: those who use it end daemons themselves
    may_end = False

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        *,
        processors: int,
        verbose: bool,
        fetchers: int = 1,
        result_workers: int = 1,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._plan = plan
        self._fetchers = fetchers
        self._processors = processors
        self._result_workers = result_workers
        self._more = config or {}
        self._verbose = verbose
        self._stack = contextlib.ExitStack()
        self.folder = folder
        self.servers: list[Server] = []
        self.roots: list[subprocess.Popen[bytes]] = []
        self._resultdb: ResultDB | None = None
        #: which daemon was gone when they were to be ended
        self._ended = ""

    def start(self) -> None:
        """Start the servers and the daemons."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._config = self._write_config()
        (self.folder / "log.txt").write_bytes(b"")
        for role in self._roles():
            self.roots.append(self._popen(role))

    def __exit__(self, *raised: object) -> None:
        self.close()
        error = raised[1]
        # who interrupts it is no matter of ours
        if self._ended and not self.may_end and (error is None or isinstance(error, Exception)):
            raise SuiteEnded(self._ended) from error

    def close(self) -> None:
        """End them."""
        self.stop()
        self._stack.close()

    def stop(self) -> None:
        """End the daemons; what they stored can still be read."""
        for root in self.roots:
            if root.poll() is not None and not self._ended:
                role = cast(list[str], root.args)[-1]
                self._ended = f"`{role}` ended by itself with exit code {root.returncode}{self.last_words()}"
            root.terminate()
        end = time.monotonic() + _DRAIN
        for root in self.roots:
            try:
                root.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                root.kill()
                root.wait()
        self.roots.clear()

    def command(self, *words: str) -> None:
        """Run a command of ours to its end; RefusedToStart if it fails."""
        with self._log() as log:
            code = subprocess.run(self._words(*words), check=False, stdout=log, stderr=log).returncode
        if code:
            raise RefusedToStart(f"`{' '.join(words[:2])}` failed with exit code {code}{self.last_words()}")

    def push(self, project: str, script: str, rate: str = "unlimited") -> None:
        """Store a project and have its on_start called; that may begin before this returns, or after it."""
        file = self.folder / f"{project}.py"
        file.write_text(script)
        self.command("project", "push", str(file), "--name", project, "--rate", rate)
        self._stack.callback(self._popen("project", "run", project).wait)

    @cached_property
    def settings(self) -> Settings:
        """What the daemons were started with."""
        return configuration.load(str(self._config), {}, {}).settings

    @property
    def runs(self) -> bool:
        """None of the daemons has ended."""
        return all(root.poll() is None for root in self.roots)

    def last_words(self) -> str:
        """See `last_words`."""
        return last_words(self.folder / "log.txt")

    def pids(self) -> list[int]:
        """All processes of ours."""
        return [pid for root in self.roots for pid in processes.tree(root.pid)]

    def used(self) -> float:
        """Seconds of CPU of all our processes, those that ended on the way included."""
        return sum(map(processes.used, self.pids()))

    def server_cpu(self) -> dict[str, float]:
        """Seconds of CPU that each server has used."""
        return {
            server.name: sum(map(processes.cpu, processes.tree(server.process.pid)))
            for server in self.servers
            if server.process is not None
        }

    def count(self, project: str) -> int:
        """How many results are stored."""
        try:
            return self._results().count(project)
        except DatabaseError:
            return 0

    def rows(self, project: str) -> list[tuple[str, Any]]:
        """URL and value of each result."""
        return [(row.url, json.loads(row.result)) for row in self._results().select(project)]

    def _results(self) -> ResultDB:
        if self._resultdb is None:
            self._resultdb = self._stack.enter_context(contextlib.closing(assembly.connect_resultdb(self.settings)))
        return self._resultdb

    def _roles(self) -> Sequence[str]:
        if self._plan is ALL:
            return ["all"]
        return [
            "scheduler",
            *["result_worker"] * self._result_workers,
            *["fetcher"] * self._fetchers,
            *["processor"] * self._processors,
        ]

    def _write_config(self) -> Path:
        config: dict[str, Any] = {"data_path": str(self.folder / "data"), **_RPC_ANYWHERE}
        if self._plan is ALL:
            config["all"] = {
                "fetcher_num": self._fetchers,
                "processor_num": self._processors,
                "result_worker_num": self._result_workers,
            }
        else:
            assert self._plan.broker is not None and self._plan.database is not None
            broker = self._plan.broker()
            self.servers.append(self._stack.enter_context(broker))
            # not before the broker is in the stack: to set it up may fail or be interrupted
            database = self._plan.database()
            self.servers.append(self._stack.enter_context(database))
            config["message_queue"] = broker.url
            config |= {kind: database.url(kind) for kind in ("taskdb", "projectdb", "resultdb")}
        for section, values in self._more.items():
            config[section] = {**config.get(section, {}), **values}
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        return path

    def _words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pyspider_lite", "-c", str(self._config), *words]

    def _popen(self, *words: str) -> "subprocess.Popen[bytes]":
        with self._log() as log:
            return subprocess.Popen(self._words(*words), stderr=None if self._verbose else log, stdout=log)

    def _log(self) -> BinaryIO:
        return open(self.folder / "log.txt", "ab")
