"""One callback that submits a million URLs: what it takes in memory, and whether another project goes on meanwhile."""

import hashlib
import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path

from pyspider_lite import bootstrap
from pyspider_lite.bench import processes, site
from pyspider_lite.bench.measures import list_of_pages
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.bench.suite import Plan, Suite
from pyspider_lite.database.base import TaskDB

#: requests a second of the other project, and seconds in which they are counted before
_RATE, _BEFORE = 20.0, 10.0
#: seconds that the callback may run, and that all of it may take
_LIMIT, _PATIENCE = 900, 1_200.0
#: seconds without a URL more after which a run has failed, and between two looks
_STANDSTILL, _LOOK = 60.0, 0.1
#: of the URLs, how many are looked up one by one
_SAMPLE = 10_000
_OTHER, _LARGE = "other", "large"
_SCRIPT = """from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range({urls}):
            self.crawl("{root}/large/%d.html" % number, callback=self.page)

    def page(self, response):
        pass
"""


def subjects(folder: Path, plans: Sequence[Plan], urls: int) -> list[Subject]:
    """One a stack."""
    return [_subject(folder, plan, urls) for plan in plans]


def _subject(folder: Path, plan: Plan, urls: int) -> Subject:
    return Subject(f"submit {plan.name}", lambda number: measure(folder / f"submit-{plan.name}-{number}", plan, urls))


def measure(folder: Path, plan: Plan, urls: int) -> Figures:
    """Most memory of each role, URLs a second until all are stored, pages a second of the other project before and meanwhile."""
    patience = min(_PATIENCE, _STANDSTILL + urls / 500)
    pages = round(_RATE * (2 * _BEFORE + patience))
    config = {"processor": {"process_time_limit": _LIMIT}}
    with (
        site.Site(pages, 500, timed=True) as served,
        Suite(folder, plan, processors=1, verbose=False, config=config) as suite,
    ):
        suite.push(_OTHER, list_of_pages(served, 0, pages), f"{_RATE:g}")
        _wait_for(served, round(2 * _RATE))
        began = time.monotonic()
        time.sleep(_BEFORE)
        root = served.url.rpartition("/")[0]
        pushed = time.monotonic()
        # given out is none of them: a rate of 0
        suite.push(_LARGE, _SCRIPT.format(root=root, urls=urls), "0")
        with bootstrap.open_taskdb(suite.settings) as taskdb:
            peaks = _watch(suite, taskdb, urls, pushed + patience)
            ended = time.monotonic()
            problems = _problems(taskdb, urls, root)
        times = sorted(at for found in served.times.copy().values() for at in found)
    meanwhile = [at for at in times if pushed <= at <= ended]
    return {
        "urls": urls,
        "seconds": round(ended - pushed, 1),
        "urls_per_s": round(urls / (ended - pushed), 1),
        "peak_mb": peaks,
        "max_peak_mb": max(peaks.values()),
        "other_before_per_s": round(sum(began <= at < pushed for at in times) / (pushed - began), 1),
        "other_meanwhile_per_s": round(len(meanwhile) / (ended - pushed), 1),
        "other_longest_gap_s": round(_longest_gap([pushed, *meanwhile, ended]), 2),
        "problems": problems,
    }


def _longest_gap(times: Sequence[float]) -> float:
    return max(after - before for before, after in itertools.pairwise(times))


def _wait_for(served: site.Site, pages: int) -> None:
    end = time.monotonic() + _STANDSTILL
    while served.answered < pages:
        if time.monotonic() > end:
            raise TimeoutError(f"{pages} pages of the other project were not fetched within {_STANDSTILL:g} s")
        time.sleep(_LOOK)


def _watch(suite: Suite, taskdb: TaskDB, urls: int, end: float) -> dict[str, float]:
    """Until on_start has ended and all is stored, or nothing goes on; the most MB that a process of each role had."""
    peaks: dict[str, float] = {}
    stored, changed = -1, time.monotonic()
    while suite.runs and time.monotonic() < min(end, changed + _STANDSTILL):
        for pid in suite.pids():
            role = processes.role(pid)
            peaks[role] = max(peaks.get(role, 0.0), round(processes.peak(pid) / 1e6, 1))
        state = taskdb.project_states().get(_LARGE)
        if state is not None and state.active + state.success + state.failed != stored:
            stored, changed = state.active + state.success + state.failed, time.monotonic()
        if stored > urls:
            break
        time.sleep(_LOOK)
    return peaks


def _problems(taskdb: TaskDB, urls: int, root: str) -> str:
    """Each URL is a row, under its key; and there is no other row but that of on_start, which has succeeded."""
    stored = sum(taskdb.status_count(_LARGE).values()) - 1
    found = taskdb.get(_LARGE, ["on_start"])
    process = found[0].track["process"] if found else {}
    wrong = [] if stored == urls else [f"{stored} of {urls} URLs are stored"]
    if not process.get("ok") or process.get("follows") != urls:
        wrong.append(f"on_start ended with {process}")
    chosen = random.Random(1).sample(range(urls), min(urls, _SAMPLE))
    keys = [hashlib.md5(f"{root}/large/{number}.html".encode()).hexdigest() for number in chosen]
    missing = len(keys) - len(taskdb.get(_LARGE, keys))
    if missing:
        wrong.append(f"{missing} of {len(keys)} that were looked up are missing")
    return ", ".join(wrong)
