"""Whether a project is crawled at its rate: several projects at the same time, each with enough to do; requests counted where they arrive."""

import time
from collections.abc import Sequence
from pathlib import Path

from pyspider_lite.bench import site
from pyspider_lite.bench.measures import list_of_pages
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.bench.suite import Plan, Suite

RATES = (0.2, 1.0, 10.0, 300.0)
#: requests at the beginning that may come faster, by the default burst of 3, and are not counted
_BURST = 5
_SECONDS = 60.0
#: seconds for the first requests of all projects
_PATIENCE = 60.0


def subjects(folder: Path, plans: Sequence[Plan], seconds: float | None) -> list[Subject]:
    """One a stack."""
    return [_subject(folder, plan, seconds or _SECONDS) for plan in plans]


def _subject(folder: Path, plan: Plan, seconds: float) -> Subject:
    return Subject(f"rates {plan.name}", lambda number: measure(folder / f"rates-{plan.name}-{number}", plan, seconds))


def measure(folder: Path, plan: Plan, seconds: float) -> Figures:
    """Requests a second of each project, and how far off the farthest is, percent."""
    # time for the slowest burst to be over, and then to look for so long
    span = seconds + (_BURST + 2) / min(RATES)
    counts = [round(1.2 * rate * (span + _PATIENCE)) + 2 * _BURST for rate in RATES]
    ends = [sum(counts[: place + 1]) for place in range(len(counts))]
    ranges = [range(end - count, end) for end, count in zip(ends, counts, strict=True)]
    with (
        site.Site(ends[-1], 500, timed=True) as served,
        Suite(folder, plan, processors=1, verbose=False) as suite,
    ):
        for rate, pages in zip(RATES, ranges, strict=True):
            script = list_of_pages(served, pages.start, pages.stop)
            suite.push(f"rate_{rate:g}".replace(".", "_"), script, f"{rate:g}")
        end = time.monotonic() + span + _PATIENCE
        while (begun := _begun(served, ranges)) is None or time.monotonic() < begun + span:
            if time.monotonic() > end or not suite.runs:
                break
            time.sleep(0.05)
        # the site goes on to write into its own
        seen = served.times.copy()
    times = [sorted(at for page in pages for at in seen.get(page, ())) for pages in ranges]
    twice = sum(len(requests) > 1 for requests in seen.values())
    found = {f"{rate:g}": round(per_second(one), 4) for rate, one in zip(RATES, times, strict=True)}
    off = max(abs(found[f"{rate:g}"] / rate - 1) for rate in RATES)
    problems = [f"{twice} fetched twice"] if twice else []
    if begun is None:
        problems.append(f"not every project began within {_PATIENCE:g} s")
    return {"rates": found, "off_percent": round(100 * off, 2), "problems": ", ".join(problems)}


def _begun(served: site.Site, ranges: Sequence[range]) -> float | None:
    """When the last of the projects began; None if one has not."""
    firsts = [served.times[pages.start][0] for pages in ranges if pages.start in served.times]
    return max(firsts) if len(firsts) == len(ranges) else None


def per_second(times: Sequence[float]) -> float:
    """Of requests at these times, after the burst; 0 if there are too few. Pure."""
    steady = times[_BURST:]
    return (len(steady) - 1) / (steady[-1] - steady[0]) if len(steady) > 1 else 0.0
