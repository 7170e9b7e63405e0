"""A thousand projects, one of them with a million open tasks: how long each of the others waits for its first page after Run, and what
the scheduler costs while nothing goes on. On `all`."""

import statistics
import time
from pathlib import Path

from pyspider_lite import bootstrap, configuration
from pyspider_lite.bench import filling, processes, site
from pyspider_lite.bench.measures import list_of_pages
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.bench.suite import ALL, Suite
from pyspider_lite.errors import PyspiderLiteError
from pyspider_lite.models.names import Role
from pyspider_lite.models.project import Project, ProjectStatus
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.rpc import client

PROJECTS = 1_000
#: pages a second of the large project while the others are run
_RATE = 20.0
#: seconds between two of them, for one of them, for all, and for the scheduler to lead
_PAUSE, _PATIENCE, _MOST, _START = 0.02, 30.0, 600.0, 120.0
#: seconds that the idle scheduler is looked at, and for which it settles
_IDLE, _SETTLE = 20.0, 5.0
_LARGE = "large"
_NOTHING = "from pyspider_lite import BaseHandler\n\nclass Handler(BaseHandler):\n    def page(self, response):\n        pass\n"


def subjects(folder: Path, rows: int, seconds: float | None) -> list[Subject]:
    """One; ``seconds`` for the look at it doing nothing."""
    return [
        Subject(
            "projects all", lambda number: measure(folder / f"projects-all-{number}", PROJECTS, rows, seconds or _IDLE)
        )
    ]


def measure(folder: Path, count: int, rows: int, seconds: float) -> Figures:
    """Seconds to the first page: median and worst; percent of a core of the idle scheduler."""
    # the first pages are those of the others, one each
    with site.Site(count + rows, 600, timed=True) as served:
        _enter(folder, served, count, rows)
        with Suite(folder, ALL, processors=1, verbose=False) as suite:
            rpc = _rpc(suite)
            idle = _idle(suite, seconds)
            with bootstrap.open_projectdb(suite.settings) as projectdb:
                projectdb.update(_LARGE, rate=_RATE)
            _wait_for_large(suite)
            waits = _run_all(served, rpc, count)
        twice = sum(len(times) > 1 for times in served.times.values())
        with bootstrap.open_taskdb(suite.settings) as taskdb:
            stored = taskdb.status_count(_LARGE)
    done = stored.get(TaskStatus.SUCCESS, 0)
    problems = [f"{twice} fetched twice"] if twice else []
    if len(waits) < count - 1:
        problems.append(f"only {len(waits)} of {count - 1} projects were run within {_MOST:g} s")
    if sum(stored.values()) != rows or not done:
        problems.append(f"of the {rows} tasks of the large project are stored, by status: {stored}")
    return {
        "projects": count,
        "rows": rows,
        "idle_scheduler_percent": idle,
        "first_page_p50_s": round(statistics.median(waits), 3),
        "first_page_max_s": round(max(waits), 3),
        "large_done": done,
        "problems": ", ".join(problems),
    }


def _wait_for_large(suite: Suite) -> None:
    """Until the large project is being crawled."""
    end = time.monotonic() + _START
    with bootstrap.open_taskdb(suite.settings) as taskdb:
        while not taskdb.status_count(_LARGE).get(TaskStatus.SUCCESS) and time.monotonic() < end:
            time.sleep(0.1)


def _enter(folder: Path, served: site.Site, count: int, rows: int) -> None:
    options = configuration.load(None, {"data_path": str(folder / "data")}, {}).settings
    folder.mkdir(parents=True, exist_ok=True)
    bootstrap.make_data_path(options)
    unlimited = float("inf")
    with bootstrap.open_projectdb(options, create=True) as projectdb:
        # nothing of it is given out at a rate of 0
        projectdb.insert(Project(name=_LARGE, script=_NOTHING, status=ProjectStatus.RUNNING, rate=0.0, burst=3.0))
        for index in range(1, count):
            script = list_of_pages(served, index, index + 1)
            projectdb.insert(
                Project(name=_name(index), script=script, status=ProjectStatus.RUNNING, rate=unlimited, burst=unlimited)
            )
        large = projectdb.get(_LARGE)
    assert large is not None
    filling.fill(options, None, large, count, count + rows, served.url.rpartition("/")[0])


def _name(index: int) -> str:
    return f"small_{index:04}"


def _rpc(suite: Suite) -> str:
    """Of the scheduler, once it leads."""
    end = time.monotonic() + _START
    while True:
        try:
            return bootstrap.scheduler_rpc(suite.settings)
        except PyspiderLiteError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


def _idle(suite: Suite, seconds: float) -> float:
    """After all scripts were asked what they say of themselves."""
    pid = next(pid for pid in suite.pids() if processes.role(pid) == Role.SCHEDULER)
    quiet, end = 0.0, time.monotonic() + _START
    while quiet < _SETTLE and time.monotonic() < end:
        before = suite.used()
        time.sleep(1.0)
        quiet = quiet + 1.0 if suite.used() - before < 0.25 else 0.0
    before = processes.used(pid)
    time.sleep(seconds)
    return round(100 * (processes.used(pid) - before) / seconds, 2)


def _run_all(served: site.Site, rpc: str, count: int) -> list[float]:
    """Seconds from Run to the request, of one project after the other."""
    waits: list[float] = []
    end = time.monotonic() + _MOST
    for index in range(1, count):
        if time.monotonic() > end:
            break
        on_start = {
            "taskid": "on_start",
            "project": _name(index),
            "url": "data:,on_start",
            "process": {"callback": "on_start"},
            "schedule": {"age": 0, "priority": 9, "force_update": True},
        }
        asked = time.monotonic()
        client.call(rpc, "", "newtask", on_start)
        while index not in served.times:
            if time.monotonic() - asked > _PATIENCE:
                raise TimeoutError(f"{_name(index)}: no page within {_PATIENCE:g} s after Run")
            time.sleep(0.002)
        waits.append(served.times[index][0] - asked)
        time.sleep(_PAUSE)
    return waits
