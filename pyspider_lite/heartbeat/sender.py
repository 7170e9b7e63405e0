"""Puts what a worker says on ``status_queue``, in the order in which it was said, with a beat each interval.

One thread owns one FIFO connection, so the scheduler hears everything in that order. Items gather into messages; what waits is bounded.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing

from pyspider_lite.errors import MessageTooLarge
from pyspider_lite.heartbeat import status_items
from pyspider_lite.message_queue.connection import Connect, Connection
from pyspider_lite.models.worker import Beat

logger = logging.getLogger(__name__)

#: one message carries at most this many items and about this many bytes
_BATCH_ITEMS = 100
_BATCH_BYTES = 1024 * 1024
#: seconds that items gather while there are many; the first after a pause goes at once
_GATHER = 0.01
#: messages in status_queue up to which it is short, and seconds between two looks
_SHORT, _LOOK = 2, 0.03
#: what may wait to be sent; who has more to say is held back
_BUFFER_ITEMS = 4000
_BUFFER_BYTES = 32 * 1024 * 1024
#: of the seconds that a worker has to stop, those for saying so past a queue that is full
_GOODBYE = 1.0
#: seconds between two looks at whether to go on waiting
_ASK = 0.25


class StatusSender:
    """The buffer of encoded items, and the thread that empties it.

    ``beat(leaving)`` makes a beat; it is called under `changed`. What beats tell of is changed under `changed` as well, together with
    the `append` of the item that says so: thus a beat agrees with all that was said before it. ``last_words`` opens status_queue
    without its bound.
    """

    def __init__(
        self, connect: Connect, interval: float, beat: Callable[[bool], bytes], last_words: Connect | None = None
    ) -> None:
        self._last_words = last_words
        self._interval = interval
        self._beat = beat
        self._connection = Connection(connect, "status_queue")
        self.changed = threading.Condition()
        self._items: deque[bytes] = deque()
        self._bytes = 0
        #: items so far, and those that the thread took out and has not put yet
        self._said = self._in_hand = 0
        self._stopping = False
        self._next_beat = 0.0
        self._last_sent = 0.0
        #: somebody asks whether status_queue is short; whether it was, and when that was looked at
        self._asked, self._short, self._looked = False, True, 0.0
        self._thread = threading.Thread(target=self._send_all, name="heartbeat", daemon=True)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def waiting_since(self) -> float | None:
        """Unix time since which status_queue cannot be reached; None when it can."""
        return self._connection.waiting_since

    def start(self) -> None:
        """The first beat goes out at once."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Send what waits, then the last beat; True if all went out in time."""
        with self.changed:
            self._stopping = True
            self._connection.end(max(timeout - _GOODBYE, timeout / 2))
            self.changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout + 1.0)
        left = list(self._items)
        # beats are of no use later
        lost = sum(not isinstance(item, Beat) for packed in left for item in status_items.unpack([packed]))
        if lost:
            logger.warning("stopped with %d status items not sent; the scheduler will give those runs out again", lost)
        return not left and not self._thread.is_alive()

    def clear(self) -> bool:
        """Whether nothing waits here and status_queue is short. As it was at the last look; the next one is taken because this was asked."""
        with self.changed:
            if not self._asked:
                self._asked = True
                self.changed.notify_all()
            return self._short and not self._items and not self._in_hand

    # --- under `changed` ---

    def wait_for_room(self, size: int) -> None:
        """Until an item of so many bytes may be said, or `stop`."""
        while not self._stopping and (
            len(self._items) >= _BUFFER_ITEMS or (self._items and self._bytes + size > _BUFFER_BYTES)
        ):
            self.changed.wait(1.0)

    def append(self, packed: bytes) -> None:
        """Say this item after all others."""
        self._items.append(packed)
        self._said += 1
        self._bytes += len(packed)
        if len(self._items) in (1, _BATCH_ITEMS) or self._bytes >= _BATCH_BYTES:
            self.changed.notify_all()

    def beat_soon(self) -> None:
        """The next beat is due now."""
        self._next_beat = 0.0
        self.changed.notify_all()

    def beat_and_wait(self, give_up: Callable[[], bool]) -> bool:
        """Say a beat, and wait until it is on status_queue. False as soon as ``give_up()``, which is asked four times a second."""
        self.append(self._beat(False))
        self.changed.notify_all()
        mark = self._said
        while self._said - len(self._items) - self._in_hand < mark:
            if give_up():
                return False
            self.changed.wait(_ASK)
        return True

    # --- the thread ---

    def _send_all(self) -> None:
        leaving = False
        while not leaving or self._items:
            with self.changed:
                self._wait_for_items()
                now = time.monotonic()
                if self._stopping and not leaving:
                    leaving = True
                    self.append(self._beat(True))
                elif now >= self._next_beat and not leaving:
                    self._next_beat = now + self._interval
                    self.append(self._beat(False))
                batch = self._next_batch()
            try:
                if batch:
                    self._send(batch)
                    self._last_sent = time.monotonic()
                self._look(now)
            except Exception:
                logger.exception("%d status items could not be sent; going on", len(batch))
            with self.changed:
                self._in_hand = 0
                self.changed.notify_all()
            if self._connection.expired():
                break
        full = bool(self._items) and self.waiting_since is None
        self._connection.close()
        if full and self._last_words is not None:
            self._say_goodbye(self._last_words)

    def _say_goodbye(self, connect: Connect) -> None:
        """status_queue stayed full. One small message more does no harm, and who is not heard to leave looks dead for a day."""
        try:
            with closing(connect()) as queue:
                queue.put(status_items.message([self._beat(True)]), _GOODBYE)
        except Exception as error:
            logger.info("nobody will hear that this worker left: %s", error)

    def _wait_for_items(self) -> None:
        """Until the next beat is due, or something was said and had its time to gather company."""
        while not self._stopping:
            now = time.monotonic()
            until = self._next_beat
            if self._items:
                if len(self._items) >= _BATCH_ITEMS or self._bytes >= _BATCH_BYTES:
                    return
                until = min(until, self._last_sent + _GATHER)
            if self._asked:
                until = min(until, self._looked + _LOOK)
            if now >= until:
                return
            self.changed.wait(until - now)

    def _look(self, now: float) -> None:
        """Is status_queue short? Only if somebody wants to know."""
        if self._asked and now >= self._looked + _LOOK:
            size = self._connection.call(lambda queue: queue.qsize())
            self._looked = now
            self._short = size is not None and size <= _SHORT
            self._asked = False

    def _next_batch(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while self._items and len(batch) < _BATCH_ITEMS and (not batch or size + len(self._items[0]) <= _BATCH_BYTES):
            batch.append(self._items.popleft())
            size += len(batch[-1])
        self._bytes -= size
        self._in_hand = len(batch)
        self.changed.notify_all()
        return batch

    def _send(self, batch: list[bytes]) -> None:
        try:
            if not self._connection.put(status_items.message(batch)):
                with self.changed:
                    self._items.extendleft(reversed(batch))
                    self._bytes += sum(map(len, batch))
        except MessageTooLarge as error:
            if len(batch) > 1:
                for packed in batch:
                    self._send([packed])
                return
            replacement = status_items.too_large(batch[0], error)
            if replacement is not None and len(replacement) < len(batch[0]):
                self._send([replacement])
