"""One connection to a queue that comes back: what the threads of `consumer` and `heartbeat` have in common."""

import logging
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pyspider_lite.errors import MessageTooLarge, QueueFull
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.outages import Waiter

logger = logging.getLogger(__name__)

R = TypeVar("R")

Connect = Callable[[], MessageQueue]

#: seconds that one get or put may wait: a thread that is to stop hears of it that often
PATIENCE = 1.0
#: seconds between two questions whether a put may go
_MAY_AGAIN = 0.05
#: a queue that is full for this long is worth a line in the log
_FULL_IS_NEWS = 10.0


class Backoff:
    """Seconds to wait between tries: doubling from ``first`` up to ``cap``, with jitter, so that a hundred workers do not come at once."""

    def __init__(self, first: float = 0.1, cap: float = 3.0) -> None:
        self._first = first
        self._cap = cap
        self._next = first

    def next(self) -> float:
        """The wait before the next try, 50 to 100 % of the present step."""
        step, self._next = self._next, min(self._next * 2, self._cap)
        return step * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """A try went well."""
        self._next = self._first


class Connection:
    """One queue that is opened when needed, by one thread, and comes back for ever. Outages are said by `outages`."""

    def __init__(self, connect: Connect, label: str) -> None:
        self._connect = connect
        self._label = label
        self._queue: MessageQueue | None = None
        self._backoff = Backoff()
        self._ending = threading.Event()
        self._end: float | None = None
        self._waiter = Waiter()

    @property
    def waiting_since(self) -> float | None:
        """Unix time since which the queue cannot be reached; None when it can."""
        return self._waiter.since

    def call(self, work: Callable[[MessageQueue], R]) -> R | None:
        """What ``work`` gives; None when the queue could not be reached, after a wait. QueueFull and MessageTooLarge pass through."""
        try:
            if self._queue is None:
                self._queue = self._connect()
            value = work(self._queue)
        except (QueueFull, MessageTooLarge):
            self._is_there()
            raise
        except Exception as error:
            self._is_away(error)
            return None
        self._is_there()
        return value

    def put(self, body: bytes, may: Callable[[], bool] | None = None) -> bool:
        """Append ``body``, trying for ever; False only when `end` set a deadline and it passed. Raises MessageTooLarge. ``may()`` is
        asked right before each try, which waits until it is true."""
        full_since: float | None = None
        while not self.expired():
            if may is not None and not may():
                time.sleep(_MAY_AGAIN)
                continue
            try:
                if self.call(partial(_put, body, self._patience())):
                    return True
            except QueueFull:
                now = time.monotonic()
                if full_since is None:
                    full_since = now - PATIENCE
                elif full_since <= now - _FULL_IS_NEWS:
                    logger.warning("%s: the queue is full for %d s; waiting for room", self._label, _FULL_IS_NEWS)
                    full_since = float("inf")
        return False

    def end(self, timeout: float) -> None:
        """Give up after ``timeout`` seconds; waits are cut short from now on. From any thread."""
        self._end = time.monotonic() + timeout
        self._ending.set()

    def wake(self) -> None:
        """Have a `call` that waits for a message return soon. From any thread; waits for nothing itself."""
        if self._queue is not None and self.waiting_since is None:
            threading.Thread(target=self._queue.wake, daemon=True).start()

    def expired(self) -> bool:
        """The deadline set by `end` has passed."""
        return self._end is not None and time.monotonic() >= self._end

    def close(self) -> None:
        """Close the queue, if it is open; the next call opens it again."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
        self._waiter.stop()

    def _patience(self) -> float:
        return PATIENCE if self._end is None else max(0.0, min(PATIENCE, self._end - time.monotonic()))

    def _is_there(self) -> None:
        self._backoff.reset()
        self._waiter.back()

    def _is_away(self, error: Exception) -> None:
        queue, self._queue = self._queue, None
        self._waiter.away(error, (queue.shown if queue is not None else "") or self._label)
        if queue is not None:
            queue.close()
        delay = self._backoff.next()
        if self._end is None:
            self._ending.wait(delay)
        else:
            time.sleep(min(delay, 0.05))


def _put(body: bytes, timeout: float, queue: MessageQueue) -> bool:
    queue.put(body, timeout)
    return True
