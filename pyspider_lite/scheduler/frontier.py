"""The window of due tasks that one project holds in memory (design, section 5). Pure.

The window holds keys only; bodies are read at dispatch, and whatever does not fit stays in the taskdb. Order: priority
(high first), then due time, then sequence (UA25). A better newcomer evicts the worst key, which the next refill finds again.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable

from pyspider_lite.models.task import DueKey

#: sorts ascending, so that the best key is the last one and taking it costs nothing
_Entry = tuple[int, float, int, str]


def _entry(key: DueKey) -> _Entry:
    return (key.priority, -key.due, -key.seq, key.taskid)


class Window:
    """Due tasks of one project, best first; at most ``limit`` of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        #: the table may hold due tasks that are not here
        self.more = True
        #: earliest due time of the tasks that are not due yet, as far as known
        self.next_due: float = math.inf
        self._entries: list[_Entry] = []
        self._members: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, taskid: str) -> bool:
        return taskid in self._members

    def add(self, key: DueKey, now: float) -> None:
        """A task became known or due. A taskid that is here already takes the new key's place and order."""
        self.remove(key.taskid)
        if key.due > now:
            self.next_due = min(self.next_due, key.due)
            return
        entry = _entry(key)
        full = len(self._entries) >= self.limit
        if (full or self.more) and (not self._entries or entry < self._entries[0]):
            self.more = True  # worse than all that is here: others in the table may come before it
            return
        if full:
            del self._members[self._entries.pop(0)[3]]
            self.more = True
        insort(self._entries, entry)
        self._members[key.taskid] = entry

    def remove(self, taskid: str) -> None:
        """Forget a task (cancelled, or about to be added anew)."""
        entry = self._members.pop(taskid, None)
        if entry is not None:
            del self._entries[bisect_left(self._entries, entry)]

    def take(self) -> DueKey | None:
        """The best task, no longer held here; None if there is none."""
        if not self._entries:
            return None
        priority, due, seq, taskid = self._entries.pop()
        del self._members[taskid]
        return DueKey(taskid=taskid, priority=priority, due=-due, seq=-seq)

    def wants_refill(self, now: float) -> bool:
        """The table should be asked: few are left here and it holds more, or one that waited has become due."""
        if self.next_due <= now:
            return True
        return self.more and len(self._entries) <= self.limit // 4

    def refill(
        self, keys: list[DueKey], next_due: float | None, asked: int, held: Callable[[str], bool], now: float
    ) -> None:
        """Merge what the table answered to a question for its best ``asked`` keys, but for those that are ``held`` elsewhere."""
        self.more = len(keys) >= asked
        self.next_due = math.inf if next_due is None else next_due
        more = self.more
        self.more = False  # the answer begins with the best of the table: nothing outside comes before these
        for key in keys:
            if key.taskid not in self._members and not held(key.taskid):
                self.add(key, now)
        self.more = self.more or more
