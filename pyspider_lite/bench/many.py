"""Many small projects at once: ``python -m pyspider_lite.bench --projects N``. Each crawls the same ten pages.

Besides speed it says what the suite costs when all is done and nothing is left to do: the projects are still there.
"""

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspider_lite import assembly, bootstrap, configuration
from pyspider_lite.bench import crawl, processes, site
from pyspider_lite.bench.suite import ALL, Suite
from pyspider_lite.models.project import Project, ProjectStatus

#: pages of each project
PAGES = 10
#: seconds without progress after which a run has failed, and over which idle CPU is measured
_STANDSTILL = 60.0
_IDLE = 10.0


def name(index: int) -> str:
    """The name of a project."""
    return f"many_{index:05}"


def enter(folder: Path, count: int, script: str) -> None:
    """Store ``count`` running projects in the databases of a data folder and have their on_start called."""
    options = configuration.load(None, {"data_path": str(folder)}, {}).settings
    bootstrap.make_data_path(options)
    with (
        contextlib.closing(assembly.connect_projectdb(options)) as projectdb,
        contextlib.closing(assembly.connect_taskdb(options)) as taskdb,
    ):
        for index in range(count):
            # a comment makes each script another one
            text = f"# {index}\n{script}"
            projectdb.insert(
                Project(
                    name=name(index), script=text, status=ProjectStatus.RUNNING, rate=float("inf"), burst=float("inf")
                )
            )
        for head in projectdb.heads():
            bootstrap.enter_on_start(taskdb, Project(name=head.name, generation=head.generation))


@contextlib.contextmanager
def _open(file: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=10)) as database:
        yield database


def finished(folder: Path) -> int:
    """How many projects have nothing more to do."""
    with _open(folder / "task.db") as database:
        sql = """select count(*) from "lite-project-state" where crawl > 0 and not armed and not active
            and project not in (select project from "lite-control")"""
        return int(database.execute(sql).fetchone()[0])


def problems(folder: Path, count: int, served: site.Site) -> str:
    """What is wrong with the results, "" if each project has every page exactly once."""
    expected = sorted((f"http://127.0.0.1:{served.port}/{index}.html", site.title(index)) for index in range(PAGES))
    wrong = []
    with _open(folder / "result.db") as database:
        for index in range(count):
            try:
                rows = database.execute(f"select url, result from resultdb_{name(index)}").fetchall()
            except sqlite3.OperationalError:
                rows = []
            if sorted((url, json.loads(result)["title"]) for url, result in rows) != expected:
                wrong.append(name(index))
    return f"{len(wrong)} projects, {wrong[0]} first" if wrong else ""


def measure(
    folder: Path, served: site.Site, count: int, handler: str, *, processors: int, verbose: bool
) -> dict[str, Any]:
    """Enter the projects, start `all`, wait until all are finished, then look at it doing nothing."""
    data = folder / "data"
    enter(data, count, crawl.script(handler, served.url))
    began = time.monotonic()
    with Suite(folder, ALL, processors=processors, verbose=verbose) as suite:
        figures = _watch(data, served, suite, count, began)
        words = suite.last_words()
        stopping = time.monotonic()
        suite.stop()
        figures["stop_s"] = round(time.monotonic() - stopping, 2)
    wrong = [problems(data, count, served), crawl.fetched_twice(served.answered, count * PAGES)]
    said = ", ".join(filter(None, wrong))
    figures["problems"] = said and said + words
    figures["requests"] = served.requests.total()
    return figures


def _watch(data: Path, served: site.Site, suite: Suite, count: int, began: float) -> dict[str, Any]:
    while not served.requests and suite.runs and time.monotonic() - began < _STANDSTILL:
        time.sleep(0.005)
    first = changed = time.monotonic()
    pages = 0
    while finished(data) < count and time.monotonic() - changed < _STANDSTILL and suite.runs:
        time.sleep(0.1)
        if (now := served.requests.total()) != pages:
            pages, changed = now, time.monotonic()
    wall = time.monotonic() - first
    tree = suite.pids()
    crawled = {pid: processes.cpu(pid) for pid in tree}
    # what the last reports leave to do
    time.sleep(2.0)
    before = {pid: processes.cpu(pid) for pid in tree}
    time.sleep(_IDLE)
    each = {
        f"{processes.role(pid)} {pid}": {
            "cpu_ms_page": 1000 * crawled[pid] / max(1, pages),
            "rss_mb": processes.rss(pid) / 1e6,
            "idle_percent": 100 * (processes.cpu(pid) - before[pid]) / _IDLE,
        }
        for pid in tree
    }
    return {
        "projects": count,
        "pages": pages,
        "start_s": round(first - began, 2),
        "seconds": round(wall, 2),
        "pages_per_s": round(pages / wall, 1),
        "cpu_ms_page": round(1000 * sum(crawled.values()) / max(1, pages), 3),
        "processes": each,
    }
