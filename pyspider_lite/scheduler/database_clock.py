"""The database's time, for the scheduler: what is due is written in it."""

import time

from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import DatabaseError

#: seconds between two looks at the database's clock, and between two tries while it does not answer
_EVERY, _RETRY = 60.0, 5.0
#: seconds by which it may go back without consequences
_SLACK = 1.0


class DatabaseClock:
    """Between two looks it goes on evenly, whatever becomes of our own clock."""

    def __init__(self, taskdb: TaskDB) -> None:
        self._taskdb = taskdb
        #: the database's time at the zero of this machine's monotonic clock
        self._offset = time.time() - time.monotonic()
        self._due = float("-inf")
        #: since somebody set this to False
        self.went_back = False

    def now(self) -> float:
        """Unix time."""
        clock = time.monotonic()
        if clock >= self._due:
            try:
                offset = self._taskdb.time() - time.monotonic()
                self.went_back |= offset < self._offset - _SLACK
                self._offset = offset
                self._due = clock + _EVERY
            except DatabaseError:
                self._due = clock + _RETRY  # the step says it
        return clock + self._offset
