"""Queue I/O on threads of its own: the loops between a role and its queues. Every role uses them.

A `Consumer` owns one inbound connection, a `Publisher` one outbound connection. Both outlive everything: a broker that is away is
waited for with capped back-off for ever and is said once, not at every try (demands UA31, UC5, UC10); a message that cannot be
read is kept aside; an error in the role's own code is logged and the next message is taken.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from pyspider_lite import codec
from pyspider_lite.errors import BrokenMessage, MessageTooLarge
from pyspider_lite.message_queue.base import MessageQueue, Received
from pyspider_lite.message_queue.connection import PATIENCE
from pyspider_lite.message_queue.connection import Backoff as Backoff  # the roles use these three as well
from pyspider_lite.message_queue.connection import Connect as Connect
from pyspider_lite.message_queue.connection import Connection as Connection

logger = logging.getLogger(__name__)

M = TypeVar("M")

#: seconds that a wait for room lasts at most, or a get that is not woken: `Consumer.stop` takes that long
_STOP_NOTICED = 0.25
#: seconds between two tries to wake it
_WAKE_AGAIN = 0.1
#: messages that one consumer may have unacknowledged
_MAX_OWED = 100


class Consumer(threading.Thread, Generic[M]):
    """Takes messages of type ``kind`` off one queue and delivers them, one at a time, on its own thread.

    ``room(seconds)`` blocks up to that long until the role can take more, and says how many messages at most (None: always one).
    ``broken(queue, reason, body)`` gets what cannot be read or delivered. With ``ack`` the queue is a late_ack one:
    ``deliver(message, ack)``; ``ack()`` may be called from any thread and once is enough; it is done by the consumer's thread.
    What is not acknowledged when the connection breaks or the consumer stops comes again. With ``watch`` the queue is looked at four
    times a second, so that `last_seen` is new; else waiting costs the broker as little as it can.
    """

    def __init__(
        self,
        connect: Connect,
        kind: type[M],
        deliver: Callable[..., None],
        *,
        broken: Callable[[str, str, bytes], None],
        room: Callable[[float], int] | None = None,
        name: str = "consumer",
        ack: bool = False,
        watch: bool = False,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._connection = Connection(connect, name)
        self._watch = watch
        self._kind = kind
        self._deliver = deliver
        self._broken = broken
        self._room = room
        self._late_ack = ack
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._owed: dict[int, Received] = {}
        self._acked: list[Received] = []
        self._ack_came = threading.Event()
        self._serial = 0
        #: time.monotonic() of the last message, or of the last time that the queue was found empty
        self.last_seen = time.monotonic()

    @property
    def waiting_since(self) -> float | None:
        """Unix time since which the queue cannot be reached; None when it can."""
        return self._connection.waiting_since

    def wake(self) -> None:
        """If it waits for a message, ask ``room`` again before it takes one. From any thread; a message may come first."""
        self._connection.wake()

    def stop(self, timeout: float) -> bool:
        """Take nothing more; True when the thread has ended within ``timeout`` seconds (0: only tell it)."""
        self._stopping.set()
        self._ack_came.set()
        self._connection.end(0)
        deadline = time.monotonic() + timeout
        while self.is_alive():
            self._connection.wake()  # again, if it just began to wait
            self.join(max(0.0, min(_WAKE_AGAIN, deadline - time.monotonic())))
            if time.monotonic() >= deadline:
                break
        return not self.is_alive()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._step()
            except Exception:
                logger.exception("%s: an error while consuming; going on", self.name)
                self._stopping.wait(0.1)
        self._send_acks()
        self._connection.close()

    def _step(self) -> None:
        self._send_acks()
        owed = len(self._owed)
        if owed >= _MAX_OWED:
            self._wait_for_ack(PATIENCE)
            return
        limit = 1 if self._room is None else int(self._room(0.05 if owed else _STOP_NOTICED))
        if not limit:
            return
        # acks are owed to this connection: look at the queue without waiting, then wait for an ack
        received = self._connection.call(partial(_get, limit, 0.0 if owed else _STOP_NOTICED, self._watch))
        if received is None:
            self._forget_acks()
            return
        self.last_seen = time.monotonic()
        for message in received:
            self._take_in(message)
        if owed and not received:
            self._wait_for_ack(0.05)

    def _take_in(self, received: tuple[str, Received]) -> None:
        queue, message = received
        ack = self._owe(message) if self._late_ack else None
        try:
            value = codec.decode(message.body, self._kind)
        except BrokenMessage as error:
            reason = str(error)
        else:
            try:
                self._deliver(value, ack) if ack else self._deliver(value)
                return
            except Exception as error:
                logger.exception("%s: a message could not be delivered; it is kept as a dead letter", self.name)
                reason = f"could not be delivered: {type(error).__name__}: {error}"
        self._broken(queue, reason, message.body)
        if ack:
            ack()

    def _owe(self, message: Received) -> Callable[[], None]:
        self._serial += 1
        with self._lock:
            self._owed[self._serial] = message
        return partial(self._acknowledge, self._serial)

    def _acknowledge(self, serial: int) -> None:
        with self._lock:
            message = self._owed.pop(serial, None)
            if message is not None:
                self._acked.append(message)
        self._ack_came.set()

    def _wait_for_ack(self, timeout: float) -> None:
        if not self._stopping.is_set():
            self._ack_came.wait(timeout)

    def _send_acks(self) -> None:
        self._ack_came.clear()
        with self._lock:
            acked, self._acked = self._acked, []
        if acked and self._connection.call(partial(_ack, acked)) is None:
            self._forget_acks()

    def _forget_acks(self) -> None:
        """The connection is gone: the messages come again, and acknowledging them on a new one would mean others."""
        with self._lock:
            self._owed.clear()
            self._acked.clear()


def _get(limit: int, timeout: float, watch: bool, queue: MessageQueue) -> list[tuple[str, Received]]:
    if timeout and not watch:
        timeout = max(timeout, queue.patience)
    return [(queue.name, received) for received in queue.get(limit, timeout)]


def _ack(received: list[Received], queue: MessageQueue) -> bool:
    queue.ack(received)
    return True


class Publisher(threading.Thread):
    """Puts bodies onto one queue, in order, on its own thread, trying for ever.

    `put` hands a body over; at most ``capacity`` of them wait, so a slow queue slows its callers and nobody's memory grows. Nothing
    is put while ``may()`` is false.
    """

    def __init__(
        self, connect: Connect, *, capacity: int = 4, name: str = "publisher", may: Callable[[], bool] | None = None
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._connection = Connection(connect, name)
        self._capacity = capacity
        self._may = may
        self._changed = threading.Condition()
        self._waiting: deque[tuple[bytes, Callable[[], None] | None, Callable[[Exception], None] | None]] = deque()
        self._in_hand = 0
        self._stopping = False

    @property
    def waiting_since(self) -> float | None:
        """Unix time since which the queue cannot be reached; None when it can."""
        return self._connection.waiting_since

    @property
    def pending(self) -> int:
        """Bodies handed over and not yet on the queue."""
        return len(self._waiting) + self._in_hand

    def put(
        self,
        body: bytes,
        sent: Callable[[], None] | None = None,
        timeout: float = 30.0,
        failed: Callable[[Exception], None] | None = None,
    ) -> bool:
        """Hand ``body`` over; False when there was no room within ``timeout`` seconds, or after `stop`.

        ``sent()`` is called on the publisher's thread when the body is on the queue, ``failed(error)`` when it never will be
        because it is too large.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._stopping or len(self._waiting) < self._capacity, timeout):
                return False
            if self._stopping:
                return False
            self._waiting.append((body, sent, failed))
            self._changed.notify_all()
        return True

    def stop(self, timeout: float) -> bool:
        """Take nothing more, try to put what waits; True when everything is out within ``timeout`` seconds."""
        with self._changed:
            self._stopping = True
            self._connection.end(timeout)
            self._changed.notify_all()
        if self.ident is not None:
            self.join(timeout + PATIENCE)
        if self.pending:
            logger.warning("%s: stopped with %d messages not put", self.name, self.pending)
        return not self.pending

    def run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._waiting)
                if not self._waiting or self._connection.expired():
                    break
                body, sent, failed = self._waiting.popleft()
                self._in_hand = 1
                self._changed.notify_all()
            if self._publish(body, sent, failed):
                self._in_hand = 0
        self._connection.close()

    def _publish(
        self, body: bytes, sent: Callable[[], None] | None, failed: Callable[[Exception], None] | None
    ) -> bool:
        """False when the body was not put in time (the publisher is stopping)."""
        try:
            if not self._connection.put(body, self._may):
                return False
        except MessageTooLarge as error:
            logger.error("%s: a message was dropped: %s", self.name, error)
            self._tell(failed, error)
        except Exception as error:
            logger.exception("%s: a message was dropped; going on", self.name)
            self._tell(failed, error)
        else:
            self._tell(sent)
        return True

    def _tell(self, callback: Callable[..., None] | None, *arguments: Any) -> None:
        if callback is None:
            return
        try:
            callback(*arguments)
        except Exception:
            logger.exception("%s: an error after a put; going on", self.name)
