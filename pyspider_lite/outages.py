"""What this process cannot reach, and since when. Every client that waits for a broker or a database says so here.

There is one list a process, as there is one log: the five connections of a role to one broker make one line when it goes away and
one when it is back, and the beats and `/readyz` show the same. Used by queue connections and by the roles' database clients.
"""

import logging
import threading
import time
import weakref

from pyspider_lite import answers
from pyspider_lite.errors import DatabaseError, PyspiderLiteError

logger = logging.getLogger(__name__)

#: seconds: what comes back and is away again within so many is said only if it stays away for so many; another reason likewise
_QUIET = 10.0
#: reasons that are said of one outage, and characters of one that beats carry
_REASONS, _SHOWN = 5, 200

_lock = threading.Lock()
_waiters: "weakref.WeakSet[Waiter]" = weakref.WeakSet()
#: masked URL -> when its absence was said last (monotonic)
_said: dict[str, float] = {}
#: masked URL -> why it was away at the last try
_reasons: dict[str, str] = {}
#: those of them whose return is to be said
_open: "dict[str, _Outage]" = {}


class _Outage:
    """What was said of one."""

    def __init__(self, since: float) -> None:
        #: Unix time
        self.since = since
        self.reasons: set[str] = set()

    def is_news(self, reason: str) -> bool:
        """A server that was down may refuse the password when it is up: each reason is said once, as far as there are few; but what is
        said while it goes down belongs to the first."""
        if (
            reason in self.reasons
            or len(self.reasons) >= _REASONS
            or (self.reasons and time.time() - self.since < _QUIET)
        ):
            return False
        self.reasons.add(reason)
        return True


class Waiter:
    """One client. What it waits for is forgotten with it."""

    def __init__(self) -> None:
        self._away: dict[str, float] = {}
        with _lock:
            _waiters.add(self)

    @property
    def since(self) -> float | None:
        """Unix time since which it waits for anything; None while it does not."""
        return min(self._away.values(), default=None)

    def away(self, error: BaseException, where: str = "") -> None:
        """A try failed; ``where`` is what could not be reached (a URL without its password) unless a DatabaseError names it."""
        now = time.time()
        where = where or (error.where if isinstance(error, DatabaseError) else "the database")
        with _lock:
            others = [waiter._away[where] for waiter in _waiters if waiter is not self and where in waiter._away]
            first = where not in self._away
            self._away = {where: now, **self._away}
            since = min([*others, self._away[where]])
            if first and not others:
                _open.pop(where, None)  # of somebody who stopped waiting without saying so
            reason = _reasons[where] = str(error).removeprefix(f"{where}: ")
            first_time = where not in _open
            if first_time:
                clock = time.monotonic()
                if now - since < _QUIET and clock - _said.get(where, -_QUIET) < _QUIET:
                    return
                _open[where], _said[where] = _Outage(since), clock
            outage = _open[where]
            if not outage.is_news(reason):
                return
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(outage.since))
        trace = None if isinstance(error, PyspiderLiteError) else error
        text = "waiting for %s since %s: %s" if first_time else "%s, away since %s, is away for another reason now: %s"
        logger.warning(text, where, stamp, reason, exc_info=trace)

    def back(self) -> None:
        """All that it waited for can be reached, or it waits no longer."""
        if not self._away:
            return
        with _lock:
            mine, self._away = self._away, {}
            still = {where for waiter in _waiters for where in waiter._away}
            for where in mine.keys() - still:
                _reasons.pop(where, None)
            returned = {where: _open.pop(where) for where in mine if where in _open and where not in still}
        for where, outage in returned.items():
            logger.info("%s is back after %.1f s", where, time.time() - outage.since)

    def stop(self) -> None:
        """It waits no longer, whatever became of what it waited for."""
        with _lock:
            self._away = {}


def waiting() -> dict[str, float]:
    """What cannot be reached now -> Unix time since when."""
    found: dict[str, float] = {}
    with _lock:
        for waiter in _waiters:
            for where, since in waiter._away.items():
                found[where] = min(since, found.get(where, since))
    for where, since in answers.overdue(time.time()).items():
        found[where] = min(since, found.get(where, since))
    return found


def reasons() -> dict[str, str]:
    """What cannot be reached now -> why, in the words of the last try, shortened."""
    away = waiting()
    with _lock:
        return {where: _reasons.get(where, "it was asked and does not answer")[:_SHOWN] for where in away}
