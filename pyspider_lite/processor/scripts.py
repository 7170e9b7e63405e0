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
from pyspider_lite.database.base import ProjectDB
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models import Project
from pyspider_lite.processor.pipe import NeedScript, Script

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

#: scripts kept, so that a new child gets the versions that the old one had
_KEPT = 400
#: seconds for which the newest version of a script is taken to be the newest
_FRESH = 1.0


def script_md5(script: str) -> str:
    """What a version of a script is called (behaviour P10): hex md5 of its UTF-8 form."""
    return hashlib.md5(script.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


class Scripts:
    """The processor's view of the projectdb."""

    def __init__(self, projectdb: ProjectDB, give_up: Callable[[], bool]) -> None:
        self._projectdb = projectdb
        self._give_up = give_up
        self._versions: OrderedDict[tuple[str, str], Project] = OrderedDict()
        #: name -> md5 of the newest version ("" for none) and when it was looked up
        self._newest: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()

    def answer(self, question: NeedScript) -> Script | None:
        """The version asked for, else the newest; None when the database did not come back before the processor has to end."""
        name, wanted = question.project, question.md5
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

    def _look_up(self, name: str, wanted: str) -> str | None:
        """The md5 of the newest version, "" if there is no such project, None if the database is away to the end."""
        md5, at = self._newest.get(name, ("", 0.0))
        if not wanted and time.monotonic() - at < _FRESH and (not md5 or (name, md5) in self._versions):
            return md5
        backoff = Backoff()
        told = False
        while not self._give_up():
            try:
                project = self._projectdb.get(name)
            except DatabaseError as error:
                if not told:
                    logger.warning("waiting for the projectdb, to load %s: %s", name, error)
                    told = True
                time.sleep(backoff.next())
                continue
            md5 = "" if project is None else script_md5(project.script)
            if project is not None:
                _remember(self._versions, (name, md5), project)
            _remember(self._newest, name, (md5, time.monotonic()))
            return md5
        return None


def _remember(kept: OrderedDict[K, V], key: K, value: V) -> bool:
    """Put at the end of a bounded mapping; True if it was not there."""
    new = key not in kept
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _KEPT:
        kept.popitem(last=False)
    return new
