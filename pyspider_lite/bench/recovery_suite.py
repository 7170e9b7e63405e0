"""The daemons that `recovery` kills and starts again."""

import contextlib
import json
import os
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

from pyspider_lite import assembly, bootstrap, settings
from pyspider_lite.bench import processes
from pyspider_lite.bench.recovery_work import COUNTS, FETCHER_NOTES, NOTES, RATES, RESULT_NOTES, SCRIPT, SLOW, Site
from pyspider_lite.bench.servers.zookeeper import ZooKeeper
from pyspider_lite.bench.suite import ALL, Plan, Suite
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.names import Role
from pyspider_lite.models.project import Project

_NUMBERS = {Role.SCHEDULER: 2, Role.FETCHER: 2, Role.PROCESSOR: 4, Role.RESULT_WORKER: 3}


class Daemons(Suite):
    """A stack with several processes of each role. Where `all` serves the queues its own workers and scheduler are there, too."""

    may_end = True

    def __init__(self, folder: Path, plan: Plan, zookeeper: bool) -> None:
        super().__init__(folder, plan, processors=_NUMBERS[Role.PROCESSOR], verbose=False)
        self._zookeeper = zookeeper
        self._taskdb: TaskDB | None = None

    def start_work(self, site: Site) -> None:
        """Store a project for each kind of work and start them."""
        if self._plan is ALL:
            # where `all` does not serve the queues yet a daemon does not start
            while not os.path.exists(settings.queue_socket(str(self.folder / "data"))):
                time.sleep(0.1)
            self.roots.append(self._popen(Role.SCHEDULER))
        with (
            bootstrap.open_projectdb(self.settings, create=True) as projectdb,
            bootstrap.open_taskdb(self.settings, create=True) as taskdb,
        ):
            for kind, rate in RATES.items():
                values = {"kind": kind, "count": COUNTS[kind], "rate": rate, "seconds": SLOW.get(kind, 0.0)}
                script = SCRIPT.format(url=site.url, **values)
                projectdb.insert(Project(name=f"work_{kind}", script=script, status="RUNNING", rate=1e6, burst=1e6))
                project = projectdb.get(f"work_{kind}")
                assert project is not None
                bootstrap.enter_on_start(taskdb, project)

    def pids_of(self, role: Role) -> list[int]:
        """Processes of a role that run."""
        return [pid for pid in self.pids() if processes.role(pid) == role]

    def leader(self) -> tuple[int, int] | None:
        """Epoch and process of who leads now."""
        if self._taskdb is None:
            self._taskdb = self._stack.enter_context(contextlib.closing(assembly.connect_taskdb(self.settings)))
        try:
            row, now = self._taskdb.leader(), self._taskdb.time()
        except DatabaseError:
            return None
        return (row.epoch, int(row.holder.split(":")[1])) if row is not None and row.until > now else None

    def taskdb_is_free(self) -> bool:
        """Of an SQLite file: nobody is writing in it."""
        with contextlib.closing(sqlite3.connect(self.folder / "data" / "task.db", timeout=0)) as file:
            try:
                file.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    def restart_missing(self) -> None:
        """Start again what was killed; the children of `all` are its own business."""
        for root in [root for root in self.roots if root.poll() is not None]:
            self.roots.remove(root)
            self.roots.append(self._popen(str(root.args[-1])))  # type: ignore[index]

    def _roles(self) -> list[str]:
        if self._plan is ALL:
            return ["all"]
        return [str(role) for role, number in _NUMBERS.items() for _ in range(number)]

    def _write_config(self) -> Path:
        path = super()._write_config()
        config: dict[str, Any] = json.loads(path.read_text())
        config["result_worker"] = {"result-cls": "recovery_result_worker.SlowResultWorker"}
        config["fetcher"] |= {"poolsize": 20, "fetcher-cls": "recovery_fetcher.NotingFetcher"}
        if self._plan is ALL:
            config["all"] = {
                "fetcher-num": _NUMBERS[Role.FETCHER],
                "processor-num": _NUMBERS[Role.PROCESSOR],
                "result-worker-num": _NUMBERS[Role.RESULT_WORKER],
            }
        if self._zookeeper:
            server = ZooKeeper()
            self.servers.append(self._stack.enter_context(server))
            config["coordination"] = server.url
        path.write_text(json.dumps(config))
        modules = {
            "recovery_notes": NOTES.format(path=str(self.folder / "events")),
            "recovery_result_worker": RESULT_NOTES.format(seconds=SLOW["result"]),
            "recovery_fetcher": FETCHER_NOTES,
        }
        for name, text in modules.items():
            (self.folder / f"{name}.py").write_text(text)
        return path

    def _popen(self, *words: str) -> "subprocess.Popen[bytes]":
        # the notes are imported from there
        environ = {**os.environ, "PYTHONPATH": str(self.folder)}
        with self._log() as log:
            return subprocess.Popen(self._words(*words), stdout=log, stderr=log, cwd=self.folder, env=environ)
