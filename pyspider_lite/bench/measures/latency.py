"""How long a task waits that somebody submits to an idle system: from the call of the scheduler's XML-RPC `newtask` to the request that the
site sees."""

import hashlib
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from pyspider_lite import bootstrap
from pyspider_lite.bench import site
from pyspider_lite.bench.measures import list_of_pages
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.bench.suite import Plan, Suite
from pyspider_lite.rpc import client

#: tasks, one at a time, and seconds between two of them
_TASKS = 200
_PAUSE = (0.05, 0.35)
#: seconds for one task, and for the project to be finished before the first
_PATIENCE = 30.0
_SETTLE = 3.0
_PROJECT = "latency"


def subjects(folder: Path, plans: Sequence[Plan], seconds: float | None) -> list[Subject]:
    """One a stack; in ``seconds`` as many tasks as fit."""
    tasks = _TASKS if seconds is None else max(20, round(seconds / (sum(_PAUSE) / 2)))
    return [_subject(folder, plan, tasks) for plan in plans]


def _subject(folder: Path, plan: Plan, tasks: int) -> Subject:
    return Subject(
        f"latency {plan.name}", lambda number: measure(folder / f"latency-{plan.name}-{number}", plan, tasks)
    )


def measure(folder: Path, plan: Plan, tasks: int) -> Figures:
    """Median and 99th percentile, milliseconds."""
    with (
        site.Site(tasks + 1, 500, timed=True) as served,
        Suite(folder, plan, processors=1, verbose=False) as suite,
    ):
        suite.push(_PROJECT, list_of_pages(served, 0, 1))
        _wait(served, 0)
        time.sleep(_SETTLE)
        rpc = bootstrap.scheduler_rpc(suite.settings)
        chance = random.Random(1)
        waits = []
        for index in range(1, tasks + 1):
            task = {
                "taskid": hashlib.md5(served.address(index).encode()).hexdigest(),
                "project": _PROJECT,
                "url": served.address(index),
                "process": {"callback": "page"},
            }
            asked = time.monotonic()
            client.call(rpc, "", "newtask", task)
            _wait(served, index)
            waits.append(served.times[index][0] - asked)
            time.sleep(chance.uniform(*_PAUSE))
        twice = sum(len(times) > 1 for times in served.times.values())
    return {
        "tasks": tasks,
        "p50_ms": round(1000 * statistics.median(waits), 2),
        "p99_ms": round(1000 * statistics.quantiles(waits, n=100, method="inclusive")[98], 2),
        "max_ms": round(1000 * max(waits), 2),
        "problems": f"{twice} fetched twice" if twice else "",
    }


def _wait(served: site.Site, index: int) -> None:
    end = time.monotonic() + _PATIENCE
    while index not in served.times:
        if time.monotonic() > end:
            raise TimeoutError(f"page {index} was not fetched within {_PATIENCE:g} s")
        time.sleep(0.002)
