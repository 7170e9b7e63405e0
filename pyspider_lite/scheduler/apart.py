"""What may have killed a whole machine, the leader with it, is given out alone: when it happens again it is known what did it.
Used by `dispatch` and `control_work`, in the order in which they give out."""

import logging
import math

from pyspider_lite.scheduler.blame import LeaseKey
from pyspider_lite.scheduler.leases import Leases

logger = logging.getLogger("scheduler")

#: seconds that all else waits for the end of what is in flight before something goes alone, and for that itself; and after which a wish to
#: go alone is forgotten
QUIET, QUIET_ASKED = 30.0, 5.0


class Gate:
    """Says what may go."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        #: one of `Blame.apart` is out, and nothing goes beside it; since when
        self.shut, self._shut_at = False, -math.inf
        #: something else goes in this round
        self._others = False
        #: since when one of them waits for all else to be over, and when it was kept back last
        self._waits_since: float | None = None
        self._kept_back = -math.inf

    def begin_round(self, now: float) -> None:
        """What was in flight may be over."""
        out = any(self._leases.run_of(*key) is not None for key in self._leases.blame.apart)
        self.shut = out and now - self._shut_at < QUIET
        self._others = False
        if now - self._kept_back > QUIET_ASKED:
            self._waits_since = None

    @property
    def one_waits(self) -> bool:
        """One of them goes as soon as all else is over."""
        return self._waits_since is not None

    @property
    def holds(self) -> bool:
        """Something goes alone, or is about to: due work waits for that."""
        return self.shut or self.one_waits

    def may_go(self, key: LeaseKey, now: float) -> bool:
        """Whether nothing in flight keeps it back. Asked in the order of giving out."""
        if key not in self._leases.blame.apart:
            self._others = self._others or not self.holds
            return not self.holds
        if self.shut:
            return False
        if self._waits_since is None:
            self._waits_since = now
            logger.info("%s:%s may have killed all that ran here: it goes alone, all else waits for it", *key)
        if (self._others or len(self._leases)) and now - self._waits_since < QUIET:
            self._kept_back = now
            return False
        self.shut, self._shut_at, self._waits_since = True, now, None
        return True
