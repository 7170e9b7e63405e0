"""What ran whenever a whole machine was killed, the leader with it, goes alone: when it happens again it is known what did it. Pure; used by
`dispatch` and `control_dispatch`.

A kill from outside (a power cut, no memory left) looks the same. So what ran at one kill only waits for a moment; what ran at two
goes alone, and between two such everything else has as long as it had to wait before. Whoever kills a machine again and again takes no
more than half of its time, and an innocent task is given up only if all is killed three times while it runs alone.
"""

import logging
import math
from collections.abc import Callable, Iterable, KeysView
from itertools import chain

from pyspider_lite.models.task import DueKey
from pyspider_lite.models.worker import Alone
from pyspider_lite.scheduler.blame import APART_AFTER, Blame, LeaseKey
from pyspider_lite.scheduler.leases import Leases

logger = logging.getLogger("scheduler")

#: seconds that all else has, at least: of a new leader, and between two that go alone
FREE = 10.0
#: seconds that all else waits at most for what goes alone, and while of what is in flight nothing comes to its end: more than a page may take
#: by default
LONGEST = 180.0
#: seconds after which it is forgotten that something wanted to go alone
_ASKED = 5.0


class Gate:
    """Says what may go now."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._blame: Blame = leases.blame
        #: when what ran at a kill may go, and when something may go alone again
        self._opens: float | None = None
        self._free_until = -math.inf
        #: what goes alone as soon as all else is over; what is out alone
        self._next: LeaseKey | None = None
        self._out: LeaseKey | None = None
        #: since when all else waits for it, when the last run of all else ended, and how many there were then
        self._since = self._moved = 0.0
        self._left = 0
        #: tasks that have to wait, best first, and when control work asked last
        self._parked: dict[LeaseKey, DueKey] = {}
        self._asked: dict[LeaseKey, float] = {}
        #: `Blame.changes` when all that wait were looked at; None: some came since
        self._looked_at: int | None = None

    @property
    def holds(self) -> bool:
        """Something goes alone, or is about to: all else waits."""
        return self._out is not None or self._next is not None

    @property
    def alone(self) -> Alone | None:
        """What all else waits for."""
        key = self._out or self._next
        return Alone(*key, self._since) if key is not None else None

    @property
    def parked(self) -> KeysView[LeaseKey]:
        """Tasks that wait here, and are in no window."""
        return self._parked.keys()

    def begin_round(self, now: float, wanted: Callable[[str], bool]) -> list[tuple[str, DueKey]]:
        """See what is over, and what goes alone next, of the projects that are ``wanted`` now. These tasks, each with its project, need
        not wait here any longer."""
        if self._opens is None:
            self._opens = self._free_until = now + FREE
        self._asked = {key: asked for key, asked in self._asked.items() if now - asked < _ASKED}
        over = self._out is not None and self._leases.run_of(*self._out) is None
        gone = self._next is not None and not self._wants(self._next, wanted)
        if len(self._leases) < self._left:
            self._left, self._moved = len(self._leases), now
        if over or gone or (self.holds and now - self._moved >= LONGEST):
            self._end_hold(now)
        if not self.holds and now < self._opens:
            self._adopt(now)
        if not self.holds and now >= self._free_until:
            waiting = chain(self._asked, self._parked)
            self._next = next((key for key in waiting if self._wants(key, wanted)), None)
            if self._next is not None:
                self._since = self._moved = now
                self._left = len(self._leases)
                logger.warning(
                    "%s:%s ran %d times when all that ran here was killed: it goes alone, and all else waits for it",
                    *self._next,
                    self._blame.kills(self._next),
                )
        return self._released(now)

    def _adopt(self, now: float) -> None:
        """What went alone when another scheduler led goes on to do so."""
        runs = (key for key in self._blame.tolls if self._leases.run_of(*key) is not None and self._is_apart(key))
        self._out = next(runs, None)
        self._since = self._moved = now
        self._left = len(self._leases)

    def waits_until(self, key: LeaseKey, now: float) -> float | None:
        """When a task may go beside others that ran when all that ran here was killed; None if nothing like that keeps it."""
        waits = self._opens is not None and now < self._opens and self._blame.kills(key) and not self._is_apart(key)
        return self._opens if waits else None

    def may_go(self, key: LeaseKey, now: float) -> bool:
        """Whether it may be given out now, beside others."""
        if self.holds or self._is_apart(key):
            return False
        return not self._blame.kills(key) or (self._opens is not None and now >= self._opens)

    def control_may_go(self, key: LeaseKey, now: float) -> bool:
        """Whether control work may be given out now, beside others or alone. It asks again until it may."""
        if not self._is_apart(key):
            return self.may_go(key, now)
        self._asked[key] = now
        return self._goes(key, now)

    def park(self, project: str, key: DueKey) -> None:
        """A task that may not go: it waits here."""
        self._parked[project, key.taskid] = key
        self._looked_at = None

    def over(self, project: str, taskids: Iterable[str]) -> None:
        """These were cancelled, or ended otherwise: nothing of them is to be given out."""
        for taskid in taskids if self._parked else ():
            if self._parked.pop((project, taskid), None):
                self._blame.acquit((project, taskid))

    def next_task(self, now: float) -> tuple[str, DueKey] | None:
        """The task that goes alone now."""
        key = self._next
        if key is None or key not in self._parked or not self._goes(key, now):
            return None
        return key[0], self._parked.pop(key)

    def _goes(self, key: LeaseKey, now: float) -> bool:
        if key != self._next or len(self._leases):
            return False
        self._next, self._out, self._moved = None, key, now
        return True

    def _is_apart(self, key: LeaseKey) -> bool:
        return self._blame.kills(key) >= APART_AFTER

    def _wants(self, key: LeaseKey, wanted: Callable[[str], bool]) -> bool:
        waits = key in self._asked or (key in self._parked and wanted(key[0]))
        return waits and self._is_apart(key)

    def _end_hold(self, now: float) -> None:
        self._free_until = now + max(FREE, now - self._since)
        self._next = self._out = None

    def _released(self, now: float) -> list[tuple[str, DueKey]]:
        # who may go is another one only when a toll changed
        if self._opens is None or now < self._opens or self._looked_at == self._blame.changes:
            return []
        self._looked_at = self._blame.changes
        free = [key for key in self._parked if not self._is_apart(key)]
        return [(key[0], self._parked.pop(key)) for key in free]
