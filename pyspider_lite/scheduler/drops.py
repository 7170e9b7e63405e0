"""The submissions that were dropped last, one entry a page, so that the links of every page do not push out what is asked for.

Filled after each commit by `aftermath`, read by `remote` for the command `explain`. In memory only, bounded. Pure.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from pyspider_lite.models.task import NewTask

#: pages kept of each project
KEPT = 100
#: characters kept of a taskid and a URL
_LONGEST = 1024


class Drop(Struct, frozen=True):
    """The last dropped submission of a page."""

    #: Unix time
    time: float
    taskid: str
    url: str
    reason: str
    #: until when the page counts as fresh, if that is the reason
    until: float | None = None
    #: how often the page's submissions were dropped since it is kept here
    times: int = 1


class Drops:
    """The pages of one project whose submissions were dropped last, at most ``limit``."""

    def __init__(self, limit: int = KEPT) -> None:
        self._limit = limit
        #: by taskid; dicts keep the order of insertion
        self._drops: dict[str, Drop] = {}

    def __len__(self) -> int:
        return len(self._drops)

    def add_seen(self, now: float, tasks: Sequence[NewTask]) -> None:
        """All these were met before; in the time of the few that are kept of them."""
        times = Counter(task.taskid for task in tasks)
        last: dict[str, str] = {}
        for task in reversed(tasks):
            last.setdefault(task.taskid, task.url)
            if len(last) >= self._limit:
                break
        for taskid, url in reversed(last.items()):
            self.add(Drop(now, taskid, url, "seen"), times[taskid])

    def add(self, drop: Drop, times: int = 1) -> None:
        """A submission was dropped, so many times."""
        taskid = drop.taskid[:_LONGEST]
        before = self._drops.pop(taskid, None)
        times += before.times if before else 0
        self._drops[taskid] = Drop(drop.time, taskid, drop.url[:_LONGEST], drop.reason, drop.until, times)
        if len(self._drops) > self._limit:
            del self._drops[next(iter(self._drops))]

    def get(self, taskid: str) -> Drop | None:
        """The last one of this page, if it is still kept."""
        return self._drops.get(taskid[:_LONGEST])
