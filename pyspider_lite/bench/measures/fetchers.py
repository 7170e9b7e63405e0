"""Whether more fetchers fetch more when the site is slow: 1, 2 and 4 of them, each page takes 100 ms to answer.

Each fetcher has so few places that the machine is not the limit: with P places it could fetch P / 0.1 pages a second; efficiency is what
part of that comes true.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from pyspider_lite.bench import site
from pyspider_lite.bench.measures import list_of_pages
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.bench.suite import Plan, Suite

NUMBERS = (1, 2, 4)
DELAY = 0.1
#: places of each fetcher
_POOL = 12
#: seconds of each run, if nothing is lost
_SECONDS = 20.0
#: of the requests, what is counted: not the start, and not the end when tasks run out
_FROM, _TO = 0.1, 0.9
_STANDSTILL = 60.0
_PROJECT = "slow"


def subjects(folder: Path, plans: Sequence[Plan], seconds: float | None) -> list[Subject]:
    """One a stack and number."""
    return [_subject(folder, plan, number, seconds or _SECONDS) for plan in plans for number in NUMBERS]


def _subject(folder: Path, plan: Plan, fetchers: int, seconds: float) -> Subject:
    name = f"fetchers {plan.name} {fetchers}"
    return Subject(name, lambda number: measure(folder / f"{name.replace(' ', '-')}-{number}", plan, fetchers, seconds))


def measure(folder: Path, plan: Plan, fetchers: int, seconds: float) -> Figures:
    """Pages a second and efficiency."""
    best = fetchers * _POOL / DELAY
    pages = round(best * seconds)
    config = {"fetcher": {"poolsize": _POOL}}
    with (
        site.Site(pages, 2_000, delay=DELAY, timed=True) as served,
        Suite(folder, plan, fetchers=fetchers, processors=2, verbose=False, config=config) as suite,
    ):
        suite.push(_PROJECT, list_of_pages(served, 0, pages))
        seen, changed = 0, time.monotonic()
        while served.answered < pages and suite.runs and time.monotonic() - changed < _STANDSTILL:
            time.sleep(0.05)
            if served.answered != seen:
                seen, changed = served.answered, time.monotonic()
        times = sorted(at for found in served.times.values() for at in found)
        twice = sum(len(found) > 1 for found in served.times.values())
    missing = pages - len(served.times)
    rate = steady(times)
    return {
        "fetchers": fetchers,
        "pages": pages,
        "pages_per_s": round(rate, 1),
        "efficiency": round(rate / best, 3),
        "problems": f"{missing} missing, {twice} fetched twice" if missing or twice else "",
    }


def steady(times: Sequence[float]) -> float:
    """Requests a second in the middle of the run; 0 if there are too few. Pure."""
    first, last = int(_FROM * len(times)), int(_TO * len(times)) - 1
    return (last - first) / (times[last] - times[first]) if last > first else 0.0
