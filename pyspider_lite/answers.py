"""Which servers owe an answer, and since when. One that neither answers nor refuses (a table is locked, a machine is frozen) is waited for
like one that is away: `outages` tells of it, and the log. Used by the clients of databases."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

#: seconds without an answer after which that is said
LATE = 5.0
#: seconds between two looks
_LOOK = 2.0

#: who asks -> the masked URL that was asked, and when (Unix time)
_asked: dict[object, tuple[str, float]] = {}
_started = threading.Event()


@contextmanager
def asking(where: str) -> Iterator[None]:
    """While the block runs, ``where`` (a URL without its password) owes an answer."""
    if not _started.is_set():
        _started.set()
        threading.Thread(target=_watch, name="answers", daemon=True).start()
    me = object()
    _asked[me] = (where, time.time())
    try:
        yield
    finally:
        del _asked[me]


def overdue(now: float) -> dict[str, float]:
    """What has not answered for long -> since when it has been asked (both Unix time)."""
    found: dict[str, float] = {}
    for where, since in list(_asked.values()):
        if now - since > LATE:
            found[where] = min(since, found.get(where, since))
    return found


def _watch() -> None:
    said: dict[str, float] = {}
    while True:
        time.sleep(_LOOK)
        said = _say(said, time.time())


def _say(said: dict[str, float], now: float) -> dict[str, float]:
    """The log of what changed; what is overdue now."""
    late = overdue(now)
    for where in late.keys() - said.keys():
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(late[where]))
        logger.warning("waiting for %s since %s: it was asked and does not answer", where, stamp)
    for where in said.keys() - late.keys():
        logger.info("%s answers again after %.1f s", where, now - said[where])
    return late
