"""A project with millions of open tasks: how soon a scheduler begins to give them out, what it holds in memory, how fast it gives out and
takes in. All of it with a tenth of the tasks and then with all of them, in one run: neither memory nor speed may depend on their number.

The scheduler is the real daemon; the other roles are played, as for `bench --role scheduler`.
"""

import http.client
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Raw

from pyspider_lite import bootstrap, codec
from pyspider_lite.bench import filling, processes
from pyspider_lite.bench.roles import PROJECT, STANDSTILL, Station, put
from pyspider_lite.bench.roles.scheduler import DATABASES, Crowd
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.ports import free_port
from pyspider_lite.bench.servers.postgresql import SHARED_BUFFERS
from pyspider_lite.models.batch import NewTaskBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.project import Project
from pyspider_lite.models.task import TaskStatus

#: of MariaDB, while the table is filled and while it is measured
_FILL_POOL, _POOL = "4G", "1G"
#: what each keeps of its table in memory
_BUFFER_POOLS = {"mariadb": _POOL, "postgresql": SHARED_BUFFERS}
#: tasks that are given out, and as many that are submitted: a part of a tenth of the table, but not more than so many
_PART, _MOST = 2, 50_000
#: tasks in one message
_BATCH = 500


def subjects(folder: Path, databases: Sequence[str], rows: int) -> list[Subject]:
    """One a database."""
    return [_subject(folder, name, rows) for name in databases]


def _subject(folder: Path, database: str, rows: int) -> Subject:
    name = f"rows {database}"
    return Subject(name, lambda number: measure(folder / f"{name.replace(' ', '-')}-{number}", database, rows))


def measure(folder: Path, database: str, rows: int) -> Figures:
    """What `_Table.look` finds, as ``tenth`` and ``whole``, and how often the first goes into the second."""
    port = free_port()
    config = {"scheduler": {"no_xmlrpc": True}, "health_port": port}
    with Station(folder, Role.SCHEDULER, config, DATABASES[database]) as station:
        table = _Table(station, port, min(_MOST, rows // 10 // _PART))
        tenth = table.look(rows // 10)
        whole = table.look(rows)
    compared = {
        name: round(whole[name] / max(tenth[name], 1e-9), 3)
        for name in ("rss_mb", "dispatches_per_s", "dispatches_per_cpu_s", "inserts_per_s", "inserts_per_cpu_s")
    }
    looks = (tenth, whole)
    found = [(look["open"], look.pop("problems")) for look in looks]
    return {
        "rows": rows,
        "tenth": tenth,
        "whole": whole,
        "compared": compared,
        "noise": max(look[key] for look in looks for key in ("dispatch_noise", "insert_noise")),
        "buffer_pool": _BUFFER_POOLS.get(database, ""),
        "problems": ", ".join(f"with {number} tasks: {problems}" for number, problems in found if problems),
    }


class _Table:
    """The project's table, as large as it is by now."""

    def __init__(self, station: Station, port: int, number: int) -> None:
        self._station = station
        self._port = port
        self._number = number
        self._project: Project = station.enter_project("# nothing that is run here")
        self._filled = 0
        #: of the tasks that are submitted, none of which is among those that the table is filled with
        self._next = 10**9
        self._crowd = Crowd(station, [])
        station.drain(QueueName.CONTROL, self._crowd.answer_controls)
        station.drain(QueueName.TO_FETCHER, self._crowd.answer)
        self._new = station.queue(QueueName.NEW_TASKS)
        self._crowd.away = True
        threading.Thread(target=self._crowd.beat, name="beats", daemon=True).start()
        with bootstrap.open_taskdb(station.settings, create=True) as taskdb:
            # so that each start below is that of a scheduler which takes over
            taskdb.lead("bench", 0.0, "")

    def look(self, rows: int) -> dict[str, Any]:
        """Fill the table up to so many open tasks, and see how a scheduler does."""
        began = time.monotonic()
        self._fill(rows)
        figures: dict[str, Any] = {"open": rows, "fill_s": round(time.monotonic() - began, 1)}
        figures["file_mb"] = round(filling.size(self._station.settings, self._station.server) / 1e6, 1)
        figures |= self._give_out()
        figures |= self._take_in()
        return {**figures, "problems": self._problems()}

    def _fill(self, rows: int) -> None:
        server = self._station.server
        if isinstance(server, MariaDb):
            self._restart(server, _FILL_POOL)
        filling.fill(self._station.settings, server, self._project, self._filled, rows)
        self._filled = rows
        if isinstance(server, MariaDb):
            self._restart(server, _POOL)

    @staticmethod
    def _restart(server: MariaDb, pool: str) -> None:
        server.stop()
        server.buffer_pool = pool
        server.start()

    def _give_out(self) -> dict[str, Any]:
        crowd, station = self._crowd, self._station
        before = crowd.done
        crowd.come(self._number)
        began = time.monotonic()
        station.start()
        ready = self._ready() - began
        station.wait(lambda: crowd.first is not None, lambda: 0)
        first = (crowd.first or 0.0) - began
        start_rss, begin = self._rss(), station.cost()
        station.wait(lambda: crowd.done >= crowd.limit, lambda: crowd.done)
        station.wait(lambda: self._states()["success"] >= crowd.done, lambda: self._states()["success"])
        figures = station.figures(begin, crowd.done - before)
        rss = self._rss()
        crowd.away = True
        station.stop()
        return {
            "ready_s": round(ready, 2),
            "first_dispatch_s": round(first, 2),
            "start_rss_mb": start_rss,
            "rss_mb": rss,
            "dispatched": figures["pages"],
            "dispatches_per_s": figures["pages_per_s"],
            "dispatches_per_cpu_s": figures["pages_per_cpu_s"],
            "dispatch_server_ms": sum(figures["servers_cpu_ms_page"].values()),
            "dispatch_noise": figures["noise"],
        }

    def _take_in(self) -> dict[str, Any]:
        """New tasks, while there is no worker."""
        station = self._station
        station.start()
        self._ready()
        before = self._states()["active"]
        numbers = range(self._next, self._next + self._number)
        self._next = numbers.stop
        tasks = [Raw(codec.pack(filling.task(self._project, number))) for number in numbers]
        begin = station.cost()
        for start in range(0, len(tasks), _BATCH):
            put(self._new, NewTaskBatch(tasks=tasks[start : start + _BATCH]))
        station.wait(lambda: self._states()["active"] >= before + len(tasks), lambda: self._states()["active"])
        figures = station.figures(begin, len(tasks))
        station.stop()
        return {
            "inserted": len(tasks),
            "inserts_per_s": figures["pages_per_s"],
            "inserts_per_cpu_s": figures["pages_per_cpu_s"],
            "insert_server_ms": sum(figures["servers_cpu_ms_page"].values()),
            "insert_noise": figures["noise"],
        }

    def _ready(self) -> float:
        """time.monotonic() when the scheduler said that it leads and is ready."""
        end = time.monotonic() + STANDSTILL
        while time.monotonic() < end:
            self._station.check()
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
            try:
                connection.request("GET", "/readyz")
                answer = connection.getresponse()
                if b'"leading": true' in answer.read() and answer.status == 200:
                    return time.monotonic()
            except OSError:
                pass
            finally:
                connection.close()
            time.sleep(0.02)
        raise TimeoutError(f"the scheduler was not ready within {STANDSTILL:g} s")

    def _rss(self) -> float:
        return round(sum(map(processes.rss, self._station.pids())) / 1e6, 1)

    def _states(self) -> dict[str, int]:
        with bootstrap.open_taskdb(self._station.settings) as taskdb:
            state = taskdb.project_states()[PROJECT]
        return {"active": state.active, "success": state.success}

    def _problems(self) -> str:
        """The rows themselves are counted: each that was answered ended once, and nothing else did."""
        done = self._crowd.done
        expected = {TaskStatus.ACTIVE: self._filled + self._next - 10**9 - done, TaskStatus.SUCCESS: done}
        with bootstrap.open_taskdb(self._station.settings) as taskdb:
            stored = taskdb.status_count(PROJECT)
        counted = self._states()
        said = {TaskStatus.ACTIVE: counted["active"], TaskStatus.SUCCESS: counted["success"]}
        return "" if stored == expected == said else f"stored {stored}, counted {said}, expected {expected}"
