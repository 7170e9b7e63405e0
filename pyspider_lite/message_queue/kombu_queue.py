"""A queue on a broker that kombu has a transport for: what is the same for all of them, and the plain way for any of them.

`redis_queue` and `amqp_queue` replace the steps (`_publish` and what follows it) by better ones for their broker; this file decides
deadlines, bounds, errors and the life of the connection. Rules that hold everywhere:

* One connection an object, opened when it is used. After any error it is dropped, and the next call opens another, so that no
  answer can ever be taken for that of another question. Nothing is retried here: who calls decides (`connection.Connection`).
* Every call ends within its timeout and `PATIENCE` seconds for the broker's answer. A put that raised may have arrived.
* Default exchange, routing key = queue = prefix + name. Queues of other names are never touched, so what the original left stays.
* Bodies are our bytes and no other serialiser is used. What others put there is handed out as the bytes that it is made of.
* ``maxsize`` is looked at now and then (behaviour Q7): each putter may overshoot by a tenth of it, but by one message on Redis.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import kombu

from pyspider_lite import codec
from pyspider_lite.errors import ConfigError, MessageTooLarge, QueueError, QueueFull
from pyspider_lite.log import mask_url
from pyspider_lite.message_queue.base import Received
from pyspider_lite.message_queue.broker_url import PERCENT_HINT, Broker
from pyspider_lite.message_queue.store import MAX_TAKE

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/x-pyspider-lite"
#: seconds between looks at a queue that has no room, or that can only be looked at: from, to
_FIRST_LOOK, _LAST_LOOK = 0.01, 0.25


class KombuQueue:
    """One queue on any kombu transport: it looks for messages up to four times a second, and is not for much traffic."""

    patience = 0.0
    #: seconds that what was seen of the queue's length is good for
    _look_holds = 1.0

    def __init__(
        self,
        broker: Broker,
        name: str,
        *,
        maxsize: int = 100,
        late_ack: bool = False,
        prefix: str = "",
        expires: float | None = None,
    ) -> None:
        self.name = name
        self.shown = broker.shown
        self._broker = broker
        self._key = prefix + name
        self._maxsize = maxsize
        self._late_ack = late_ack
        self._expires = expires
        self._transport: Any = None
        self._connection: Any = None
        self._channel: Any = None
        #: how often it was connected: a tag from before means nothing now
        self._life = 0
        #: how many may be put before the queue is looked at again
        self._credit = 0
        self._looked = 0.0
        self._servers = [self._describe_server(keywords) for keywords in broker.servers]

    # --- the contract ---

    def put(self, body: bytes, timeout: float) -> None:
        """See the contract."""
        if len(body) > codec.MAX_ENCODED:
            raise MessageTooLarge(
                f"{self.name}: a message of {len(body)} bytes is over the limit of {codec.MAX_ENCODED}"
            )
        with self._reach():
            if self._maxsize:
                self._wait_for_room(timeout)
            length = self._publish(body)
        self._credit = self._credit - 1 if length is None else self._maxsize - length
        if length is not None:
            self._looked = time.monotonic()

    def get(self, limit: int, timeout: float) -> list[Received]:
        """See the contract."""
        received: list[Received] = []
        size = 0
        try:
            with self._reach():
                while len(received) < limit and size < MAX_TAKE:
                    taken = self._take(0.0 if received else max(timeout, 0.0))
                    if taken is None:
                        break
                    body, tag = taken
                    received.append(Received(body, (self._life, tag) if self._late_ack else None))
                    size += len(body)
        except QueueError:
            if not received:  # else: what was taken must not be lost; the next call meets the error again
                raise
        return received

    def wake(self) -> None:
        """It waits for moments only."""

    def ack(self, received: Sequence[Received]) -> None:
        """See the contract. What an earlier connection took is ignored: it has come back already."""
        mine = [
            message.tag[1]
            for message in received
            if isinstance(message.tag, tuple) and self._channel is not None and message.tag[0] == self._life
        ]
        if mine:
            with self._reach():
                self._acknowledge(mine)

    def qsize(self) -> int:
        """See the contract."""
        with self._reach():
            return self._count()

    def purge(self) -> int:
        """See the contract."""
        with self._reach():
            count = int(self._channel.queue_purge(self._key))
            self._credit = 0
            return count

    def close(self) -> None:
        """See the contract."""
        with contextlib.suppress(Exception):
            if self._channel is not None:
                self._give_back()
        self._drop()

    def inspect(self, queues: Sequence[str]) -> tuple[str, dict[str, int]]:
        """What the broker is, and how many messages wait in those of ``queues`` (full names) that are there. Nothing that is
        made stays. Raises QueueError."""
        self.close()
        with self._reach(prepare=False):
            depths = {queue: depth for queue in queues if (depth := self._look(queue)) is not None}
            product = self._product()
        self._drop()
        return product, depths

    # --- the steps, each with an open channel; they may raise anything ---

    def _publish(self, body: bytes) -> int | None:
        """Put it; how many wait now, if that is known."""
        message = self._channel.prepare_message(body, content_type=CONTENT_TYPE, content_encoding="binary")
        self._channel.basic_publish(message, exchange="", routing_key=self._key)
        return None

    def _take(self, wait: float) -> tuple[bytes, object] | None:
        """The oldest message and what acknowledges it; waits up to ``wait`` seconds for it."""
        end = time.monotonic() + wait
        pause = _FIRST_LOOK
        while True:
            try:
                message = self._channel.basic_get(self._key, no_ack=not self._late_ack)
            except (*self._transport.connection_errors, *self._transport.channel_errors):
                raise
            except (
                Exception
            ) as error:  # it is off the queue and cannot be read: what is known of it becomes a dead letter
                logger.warning("%s: kombu cannot read a message: %r", self.name, error)
                return f"kombu cannot read this message: {error!r}".encode(), None
            if message is not None:
                return as_bytes(message.body), message.delivery_tag
            left = end - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LAST_LOOK)

    def _acknowledge(self, tags: list[Any]) -> None:
        for tag in tags:
            if tag is not None:
                self._channel.basic_ack(tag)

    def _count(self) -> int:
        return int(self._declare())

    def _look(self, queue: str) -> int | None:
        """How many messages wait in the queue of that full name; None if there is none."""
        try:
            return int(self._channel.queue_declare(queue=queue, passive=True).message_count)
        except self._transport.channel_errors:
            return None

    def _declare(self) -> int:
        """Make sure that the queue is there; how many messages wait in it."""
        return int(self._channel.queue_declare(queue=self._key, durable=True, auto_delete=False).message_count)

    def _give_back(self) -> None:
        """What was taken and not acknowledged returns to the queue."""
        if self._late_ack:
            self._channel.basic_recover(requeue=True)

    def _product(self) -> str:
        return f"{self._broker.scheme} ({self._transport.driver_name})"

    def _describe_server(self, keywords: dict[str, Any]) -> Any:
        """A kombu.Connection that is not open. Raises ConfigError."""
        try:
            server = kombu.Connection(**keywords)
            server.get_transport_cls()
        except Exception as error:  # whatever kombu says to a transport or a parameter that there is not
            reason = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise ConfigError(f"message queue {self.shown}: kombu cannot use it: {reason}") from error
        return server

    # --- the connection ---

    @contextlib.contextmanager
    def _reach(self, *, prepare: bool = True) -> Iterator[None]:
        """Within it the channel is open; what goes wrong is a QueueError, and the connection is gone."""
        try:
            if self._channel is None:
                self._open(prepare)
            yield
        except QueueFull:
            raise
        except Exception as error:  # the transports raise whatever their drivers do
            self._drop()
            raise QueueError(f"{self.shown}: {self._reason(error)}") from error
        except BaseException:
            self._drop()
            raise

    def _open(self, prepare: bool) -> None:
        errors: list[Exception] = []
        for server in self._servers:
            try:
                self._transport = server.transport
                self._connection = self._transport.establish_connection()
                self._life += 1
                self._credit = 0
                self._channel = self._open_channel()
                if prepare:
                    self._prepare()
                return
            except Exception as error:
                self._drop()
                errors.append(error)
        raise errors[0]

    def _open_channel(self) -> Any:
        return self._transport.create_channel(self._connection)

    def _prepare(self) -> None:
        """What a new channel needs."""
        self._declare()

    def _drop(self) -> None:
        """Let go of the connection, without a word to the broker if need be. Never raises, never waits long."""
        transport, connection = self._transport, self._connection
        self._transport = self._connection = self._channel = None
        if connection is not None:
            with contextlib.suppress(Exception):
                self._disconnect(transport, connection)

    def _disconnect(self, transport: Any, connection: Any) -> None:
        transport.close_connection(connection)

    def _reason(self, error: Exception) -> str:
        """What to say of an error, after the broker's URL."""
        said = getattr(error, "reply_text", None) or error  # py-amqp puts numbers before it
        text = mask_url(" ".join(str(said).split()).rstrip(".")) or type(error).__name__
        if "authentication required" in text.lower():
            return f"wants a password, and its URL has none: write :PASSWORD@ before the host ({text})"
        if self._is_refusal(error):
            return f"refuses the user or the password: {text}; {PERCENT_HINT}"
        if isinstance(error, TimeoutError) or "timed out" in text.lower() or "timeout" in type(error).__name__.lower():
            return f"does not answer: {text}"
        return f"cannot be used: {text}"

    def _is_refusal(self, error: Exception) -> bool:
        return False

    # --- bounds ---

    def _wait_for_room(self, timeout: float) -> None:
        if self._credit > 0 and time.monotonic() < self._looked + self._look_holds:
            return
        end = time.monotonic() + max(timeout, 0.0)
        pause = _FIRST_LOOK
        while True:
            room = self._maxsize - self._count()
            now = time.monotonic()
            if room > 0:
                self._looked = now
                self._credit = max(1, min(self._maxsize // 10, room // 4))
                return
            if now >= end:
                raise QueueFull(f"{self.name}: no room within {timeout:g} s")
            time.sleep(min(pause, end - now))
            pause = min(pause * 2, _LAST_LOOK)


def as_bytes(body: Any) -> bytes:
    """What a driver gives as a message's body, as bytes."""
    if isinstance(body, str):
        return body.encode("utf-8", "surrogateescape")
    return bytes(body) if body is not None else b""
