"""Answers the child's questions for scripts out of the projectdb, with a bounded memory of what was read.

Used by the processor's thread. A database that is away is waited for: the run that needs the script stays in hand.
"""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from pyspider_lite.consumer import Backoff
from pyspider_lite.database import names
from pyspider_lite.database.base import ProjectDB
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.project import Project
from pyspider_lite.outages import Waiter
from pyspider_lite.processor.pipe import NeedScript, Script

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

#: scripts kept, so that a new child gets the versions that the old one had
_KEPT = 400
#: seconds in which it is noticed that the processor stops
_STOP_NOTICED = 0.25
#: seconds for which the newest version of a script is taken to be the newest
_FRESH = 1.0


def script_md5(script: str) -> str:
    """What a version of a script is called (behaviour P10): hex md5 of its UTF-8 form."""
    return hashlib.md5(script.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


class Scripts:
    """The processor's view of the projectdb. ``give_up()``: the processor stops, do not wait for a database that is away."""

    def __init__(self, projectdb: ProjectDB, give_up: Callable[[], bool]) -> None:
        self._projectdb = projectdb
        self._give_up = give_up
        self._waiter = Waiter()
        self._versions: OrderedDict[tuple[str, str], Project] = OrderedDict()
        #: name -> md5 of the newest version ("" for none) and when it was looked up
        self._newest: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()

    def answer(self, question: NeedScript) -> Script | None:
        """The version asked for, else the newest; None when the database did not come back before the processor has to end."""
        name, wanted = question.project, question.md5
        if not names.is_possible(name):
            return Script()
        md5 = wanted if (name, wanted) in self._versions else self._look_up(name, wanted)
        if md5 is None:
            return None
        if not md5:
            return Script()
        if wanted and md5 != wanted and _remember(self._said, (name, wanted), None):
            logger.warning("%s: version %s of the script is gone; the newest, %s, is used", name, wanted, md5)
        if md5 == question.known:
            return Script(md5=md5)
        return Script(md5=md5, project=self._versions[name, md5])

    def reach(self) -> None:
        """Come back when the database answers, or the processor stops."""
        self._wait_for(self._projectdb.stamp)

    def _look_up(self, name: str, wanted: str) -> str | None:
        """The md5 of the newest version, "" if there is no such project, None if the database is away to the end."""
        md5, at = self._newest.get(name, ("", 0.0))
        if not wanted and time.monotonic() - at < _FRESH and (not md5 or (name, md5) in self._versions):
            return md5
        answer = self._wait_for(lambda: (self._projectdb.get(name),))
        if answer is None:
            return None
        (project,) = answer
        md5 = "" if project is None else script_md5(project.script)
        if project is not None:
            _remember(self._versions, (name, md5), project)
        _remember(self._newest, name, (md5, time.monotonic()))
        return md5

    def _wait_for(self, ask: Callable[[], V]) -> V | None:
        """The database's answer; None if it is away to the end."""
        backoff = Backoff()
        while True:
            try:
                answer = ask()
            except DatabaseError as error:
                self._waiter.away(error)
                until = time.monotonic() + backoff.next()
                while not self._give_up() and time.monotonic() < until:
                    time.sleep(_STOP_NOTICED)
                if self._give_up():
                    return None
            else:
                self._waiter.back()
                return answer


def _remember(kept: OrderedDict[K, V], key: K, value: V) -> bool:
    """Put at the end of a bounded mapping; True if it was not there."""
    new = key not in kept
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _KEPT:
        kept.popitem(last=False)
    return new
