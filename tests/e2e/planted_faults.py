"""Starts a daemon of the suite with faults that it must not have: `python planted_faults.py FAULT+FAULT ARGUMENTS...`.

Chaos must find each of them; the product knows nothing of this.
"""

import itertools
import sys
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from pyspider_lite import cli
from pyspider_lite.database.resultdb import SqlResultDB
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.models.report import Report
from pyspider_lite.models.result import TaskResult
from pyspider_lite.processor.outbox import ResultOutbox

#: one in so many; a daemon does not live long, so it begins in the middle
RARE, FIRST = 500, 250


def drop_reports() -> None:
    """A report is lost on its way to the scheduler, and its worker believes that it arrived."""
    said, counted = Heartbeat.report, itertools.count(FIRST)

    def report(self: Heartbeat, report: Report) -> None:
        if next(counted) % RARE:
            said(self, report)
        else:
            self.forget([report.key])

    Heartbeat.report = report  # type: ignore[method-assign]


def write_twice() -> None:
    """A result is stored once more."""
    stored, counted = SqlResultDB.store, itertools.count(FIRST)

    def store(self: SqlResultDB, results: Sequence[TaskResult], *, late: bool = False) -> None:
        stored(self, results, late=late)
        again = [result for result in results if result.items and next(counted) % RARE == 0]
        if again:
            stored(self, again)

    SqlResultDB.store = store  # type: ignore[method-assign]


def forget_follow_up() -> None:
    """Of one page the last link is not followed."""
    added = ResultOutbox.add

    def add(self: ResultOutbox, reports: Sequence[Report], size: int) -> None:
        added(self, [_without_last(report) for report in reports], size)

    ResultOutbox.add = add  # type: ignore[method-assign]


def _without_last(report: Report) -> Report:
    if not report.url.endswith("/150.html"):
        return report
    # the links back to the page's parents come after those to its children
    children = [follow for follow in report.follows if int(follow.url.rpartition("/")[2].split(".")[0]) > 150]
    return replace(report, follows=[follow for follow in report.follows if follow is not children[-1]])


FAULTS: dict[str, Any] = {"drop": drop_reports, "twice": write_twice, "forget": forget_follow_up}

if __name__ == "__main__":
    for fault in sys.argv[1].split("+"):
        FAULTS[fault]()
    sys.exit(cli.main(sys.argv[2:]))
