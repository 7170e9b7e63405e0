"""Looks after the calls of a user's `on_result`, which may never return: says so in the log, in beats and on `/readyz`, and ends what takes
longer than `on-result-limit`. Used by `result_worker`, for classes of users only.

A thread of its own: the one that called is in the user's code, and nothing but the end of the process ends such a call for sure. A call that
lets no other thread run (a regular expression without end, say) takes the beats with it: then a thread of `faulthandler`, which needs no
interpreter, shows where that is and ends the process. Its clock goes on while the process is stopped (SIGSTOP), so it is set only while a
call runs.
"""

import contextlib
import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable

from pyspider_lite.errors import OverdueCall
from pyspider_lite.outages import Waiter
from pyspider_lite.result_worker.rows import Work

logger = logging.getLogger(__name__)

#: seconds in a call after which it is said
SAID_AFTER = 30.0
#: seconds between two looks, and without one in a call after which the process is ended: for the scheduler it is dead since long
_LOOK, STUCK = 1.0, 30.0


class OnResultWatch(threading.Thread):
    """Looks once a second. ``name`` is the class's; what took longer than `limit` is handed to ``overdue``, in this thread, once."""

    def __init__(self, name: str, overdue: Callable[[Work], None]) -> None:
        super().__init__(name="on_result-watch", daemon=True)
        self._where = f"the end of on_result ({name})"
        #: seconds that a call may take, 0 for any; to be set before `start`
        self.limit = 0.0
        self._overdue = overdue
        self._ended = threading.Event()
        self._waiter = Waiter()
        #: what it is called for, and since when (monotonic)
        self._call: tuple[Work, float] | None = None
        #: held while the call's end by `faulthandler` is put off or called off
        self._timer = threading.Lock()
        self._stderr = _copy_of_stderr()

    def begin(self, work: Work) -> None:
        """The next call is for this."""
        self._call = (work, time.monotonic())
        self._put_off_end()

    def end(self) -> None:
        """It returned."""
        with self._timer:
            self._call = None
            faulthandler.cancel_dump_traceback_later()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._waiter.stop()

    def run(self) -> None:
        while not self._ended.wait(_LOOK):
            try:
                self._put_off_end()
                self.step(time.monotonic())
            except Exception:
                logger.exception("an error while looking after on_result; going on")

    def _put_off_end(self) -> None:
        """The process ends unless this is called again in time, or the call returns. Without this thread nobody would do so."""
        with self._timer, contextlib.suppress(RuntimeError):  # no thread is to be had: not watched in this way, then
            if self._call is not None and self.is_alive():
                faulthandler.dump_traceback_later(STUCK, exit=True, file=self._stderr)

    def step(self, now: float) -> None:
        """One look, at ``now`` (monotonic)."""
        call = self._call
        spent = now - call[1] if call is not None else 0.0
        is_overdue = 0 < self.limit <= spent
        if call is None or (spent < SAID_AFTER and not is_overdue):
            self._waiter.back()
            return
        work = call[0]
        task = f"{work.report.project}:{work.report.taskid}"
        began = time.strftime("%H:%M:%S", time.localtime(time.time() - spent))
        self._waiter.away(OverdueCall(f"it has been at work on {task} since {began}"), self._where)
        if is_overdue:
            work.error = f"on_result: did not return within {self.limit:g} s"
            logger.error(
                "%s: on_result did not return within %g s (on-result-limit): its task fails, and this worker ends, as nothing else ends "
                "the call; what else it had in hand is given to others",
                task,
                self.limit,
            )
            self._ended.set()
            self._overdue(work)


def _copy_of_stderr() -> int:
    """A file descriptor that stays when a user's class closes stderr."""
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
