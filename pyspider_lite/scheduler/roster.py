"""The list of workers in the taskdb, which `cluster list` reads: the leader writes down whom it hears, every scheduler itself.

A thread with a connection of its own, so that the list costs the scheduler's loop nothing; nothing depends on it but what people
see. Started by `daemon`.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import DatabaseError, DataError
from pyspider_lite.models.batch import StatusBatch
from pyspider_lite.models.worker import Beat, WorkerRow
from pyspider_lite.outages import Waiter

logger = logging.getLogger("scheduler")

#: seconds between two rounds, and from news to the round that they bring about: others may come with it
_EACH, _GATHER = 2.0, 0.1
#: the rate is over so many seconds, measured at points so far apart
_RATE_OVER, _RATE_STEP = 60.0, 5.0
#: seconds after which a worker that was not heard is taken off the list, and between two looks for such
_FORGET_AFTER, _FORGET_EACH = 86_400.0, 600.0
#: workers remembered between two rounds, and in the rates
_MOST = 10_000


class Roster(threading.Thread):
    """Writes the list; owns ``taskdb``. ``own()`` gives this scheduler's own beat; in ``leading`` it also cleans up."""

    def __init__(self, taskdb: TaskDB, own: Callable[[], Beat], leading: Callable[[], bool]) -> None:
        super().__init__(name="roster", daemon=True)
        self._taskdb = taskdb
        self._own = own
        self._leading = leading
        self._lock = threading.Lock()
        #: the last beat of each, with the time (monotonic) at which it was heard; since the last round that went well
        self._heard: dict[str, tuple[Beat, float]] = {}
        self._points: dict[str, deque[tuple[float, int]]] = {}
        self._forgot_at = float("-inf")
        self._ending = threading.Event()
        self._wake = threading.Event()

    def hear(self, batch: StatusBatch) -> None:
        """What workers said. From any thread."""
        now = time.monotonic()
        for item in batch.items:
            if isinstance(item, Beat) and (len(self._heard) < _MOST or item.worker in self._heard):
                with self._lock:
                    self._heard[item.worker] = (item, now)
                if item.worker not in self._points:
                    self._wake.set()

    def changed(self) -> None:
        """This scheduler's own beat says something new: write it down at once."""
        self._wake.set()

    def stop(self) -> None:
        """Take this scheduler off the list."""
        self._ending.set()
        self._wake.set()
        if self.is_alive():
            self.join(5.0)

    def run(self) -> None:
        waiter = Waiter()
        while not self._ending.is_set():
            try:
                self._round()
                waiter.back()
            except Exception as error:
                waiter.away(error)
            if self._wake.wait(_EACH):
                self._ending.wait(_GATHER)
            self._wake.clear()
        if waiter.since is None:
            with contextlib.suppress(DatabaseError):
                self._taskdb.drop_workers([self._own().worker])
        self._taskdb.close()

    def _round(self) -> None:
        with self._lock:
            heard, self._heard = self._heard, {}
        try:
            self._write(heard)
        except DataError:
            raise  # with one that cannot be stored, all are heard again soon
        except DatabaseError:
            with self._lock:
                self._heard = {**heard, **self._heard}
            raise

    def _write(self, heard: dict[str, tuple[Beat, float]]) -> None:
        began = time.monotonic()
        offset = self._taskdb.time() - began
        rows = [
            WorkerRow(beat=beat, seen=offset + at, rate=self._rate(beat, at))
            for beat, at in heard.values()
            if not beat.leaving
        ]
        own = self._own()
        self._taskdb.put_workers([*rows, WorkerRow(beat=own, seen=offset + began)])
        left = [worker for worker, (beat, _) in heard.items() if beat.leaving]
        if self._leading() and began - self._forgot_at > _FORGET_EACH:
            oldest = offset + began - _FORGET_AFTER
            left += [row.beat.worker for row in self._taskdb.workers() if row.seen < oldest]
            self._forgot_at = began
        if left:
            self._taskdb.drop_workers(left)
            for worker in left:
                self._points.pop(worker, None)

    def _rate(self, beat: Beat, heard: float) -> float:
        """Tasks a second over the last minute, by the worker's clock: beats that had to wait are heard all at once. It is asked once a
        beat."""
        now = beat.time or heard
        points = self._points.setdefault(beat.worker, deque([(now, beat.progress)]))
        if now < points[-1][0]:  # its clock was set back
            points.clear()
            points.append((now, beat.progress))
        while len(points) > 1 and points[1][0] <= now - _RATE_OVER:
            points.popleft()
        since, before = points[0]
        if now - points[-1][0] >= _RATE_STEP:
            points.append((now, beat.progress))
            if len(self._points) > _MOST:
                self._points.clear()
        return max(0, beat.progress - before) / (now - since) if now > since else 0.0
