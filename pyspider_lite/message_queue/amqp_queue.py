"""A queue on RabbitMQ, or another broker that speaks AMQP 0-9-1, through kombu's pyamqp transport.

* Queues are durable and messages are not, because the scheduler's leases repair what a restart of the broker loses; but for
  ``newtask_queue``, which outsiders feed: its messages are persistent.
* Every put waits for the broker's confirm: without it a frozen broker "accepts" everything. ``mandatory`` turns a queue that was
  deleted behind our back into an error instead of silence.
* A get acknowledges on receipt. While messages flow each is fetched with basic.get, which takes one and no more; for an empty queue a
  consumer with a prefetch of 1 waits, and is cancelled before `get` returns, so that no message ever lies at a worker that is busy. Both
  are commands, so it is cheap to wait long; whether somebody wants it to end is looked at meanwhile.
* A late_ack queue keeps heartbeats going: the messages of a machine that vanished come back after a minute.
* The queue is declared only where there is none, so one that was made otherwise (a quorum queue, a policy's) is taken as it is.
"""

import time
from collections.abc import Callable
from typing import Any

import amqp
from amqp.exceptions import MessageNacked
from amqp.method_framing import frame_handler

from pyspider_lite.errors import ConfigError, QueueError, QueueFull
from pyspider_lite.message_queue.broker_url import PATIENCE, Broker
from pyspider_lite.message_queue.kombu_queue import CONTENT_TYPE, KombuQueue, as_bytes
from pyspider_lite.models.names import QueueName

#: seconds between heartbeats of those who hold messages; the broker waits for two
_HEARTBEAT = 30
#: seconds for which a wait is worth its commands, below PATIENCE as on Redis; and between two looks at whether it was woken
_LONG_WAIT, _WAKE_NOTICED = 3.0, 0.25
#: seconds that a parting may take
_GOODBYE = 1.0
#: seconds after which one may come back whom the broker refused
_REFUSED = 0.1
#: beginning of names that AMQP 0-9-1 keeps for the broker itself
_RESERVED = "amq."
#: AMQP's number of the class of methods that make a connection, login among them; those of queues are higher
_CONNECTION = 10
#: the kind of frame that begins a message's content: class, weight and size of the body, then its properties
_HEADER, _BEFORE_PROPERTIES = 2, 12


class AmqpQueue(KombuQueue):
    """One queue of an AMQP broker."""

    #: the last look found a message: the next one will
    _flowing = False
    _woken = False
    patience = _LONG_WAIT

    def __init__(self, broker: Broker, name: str, *, prefix: str = "", **options: Any) -> None:
        if prefix.startswith(_RESERVED):
            raise ConfigError(
                f"queue-prefix {prefix}: queues whose names begin with {_RESERVED} are the broker's own; choose another prefix"
            )
        super().__init__(broker, name, prefix=prefix, **options)

    def wake(self) -> None:
        """See the contract."""
        self._woken = True

    def _describe_server(self, keywords: dict[str, Any]) -> Any:
        options = {"confirm_publish": True, "on_blocked": self._on_blocked, "frame_handler": _frames}
        heartbeat = _HEARTBEAT if self._late_ack else 0
        return super()._describe_server({**keywords, "heartbeat": heartbeat, "transport_options": options})

    def _open_channel(self) -> Any:
        # for every answer that py-amqp waits for without a limit
        self._connection.transport.sock.settimeout(PATIENCE)
        return super()._open_channel()

    def _prepare(self) -> None:
        self._flowing = False
        self._declare()
        self._channel.basic_qos(0, 1, False)

    def _look(self, queue: str) -> int | None:
        try:
            return int(self._channel.queue_declare(queue=queue, passive=True).message_count)
        except amqp.NotFound:  # py-amqp has opened the channel again
            return None

    def _declare(self) -> int:
        depth = self._look(self._key)
        if depth is None:
            arguments = {"x-expires": max(1, int(self._expires * 1000))} if self._expires else None
            declared = self._channel.queue_declare(
                queue=self._key, durable=True, auto_delete=False, arguments=arguments
            )
            depth = int(declared.message_count)
        return depth

    def _count(self) -> int:
        self._beat()
        return int(self._channel.queue_declare(queue=self._key, passive=True).message_count)

    def _publish(self, body: bytes) -> int | None:
        persistent = self.name == QueueName.NEW_TASKS
        message = self._channel.prepare_message(
            body,
            content_type=CONTENT_TYPE,
            content_encoding="binary",
            properties={"delivery_mode": 2 if persistent else 1},
        )
        try:
            self._channel.basic_publish(
                message, exchange="", routing_key=self._key, mandatory=True, timeout=PATIENCE, confirm_timeout=PATIENCE
            )
        except MessageNacked:  # by a policy that bounds the queue
            time.sleep(_REFUSED)
            raise QueueFull(f"{self.name}: the broker takes no more") from None
        return None

    def _take(self, wait: float) -> tuple[bytes, object] | None:
        self._beat()
        message = self._channel.basic_get(self._key, no_ack=False) if self._flowing or wait <= 0 else None
        if message is None and wait > 0:
            message = self._wait_for_one(wait)
        self._flowing = message is not None
        if message is None:
            return None
        if not self._late_ack:
            self._channel.basic_ack(message.delivery_tag)
        return as_bytes(message.body), message.delivery_tag

    def _wait_for_one(self, wait: float) -> Any:
        arrived: list[Any] = []
        end = time.monotonic() + wait
        consumer = self._channel.basic_consume(self._key, callback=arrived.append)
        while not (arrived or self._woken) and (left := end - time.monotonic()) > 0:
            try:
                self._connection.drain_events(timeout=min(left, _WAKE_NOTICED))
            except TimeoutError:
                self._beat()
        self._woken = False
        self._channel.basic_cancel(consumer)  # what is on its way arrives before the answer
        return arrived[0] if arrived else None

    def _acknowledge(self, tags: list[Any]) -> None:
        self._beat()
        super()._acknowledge(tags)

    def _beat(self) -> None:
        if self._late_ack:
            self._connection.heartbeat_tick()

    def _give_back(self) -> None:
        """An orderly end, which also returns what was not acknowledged; without it the broker notes a lost connection."""
        self._connection.transport.sock.settimeout(_GOODBYE)
        self._connection.close()

    def _disconnect(self, transport: Any, connection: Any) -> None:
        connection.collect()

    def _product(self) -> str:
        """Publishes to a queue that is not there: a broker that has an alarm of its memory or disk answers everything else."""
        channel, key = self._channel, f"{self._key}.check"
        # it reads the first before it stops, and nothing after it
        for _ in range(2):
            message = channel.prepare_message(b"")
            channel.basic_publish(message, exchange="", routing_key=key, timeout=PATIENCE, confirm_timeout=PATIENCE)
        properties = self._connection.server_properties
        return f"{properties.get('product', 'AMQP broker')} {properties.get('version', '')}".strip()

    def _is_refusal(self, error: Exception) -> bool:
        return isinstance(error, amqp.AccessRefused) and error.method_sig[0] <= _CONNECTION

    def _reason(self, error: Exception) -> str:
        if isinstance(error, QueueError):
            return str(error)
        text = super()._reason(error)
        if isinstance(error, amqp.AccessRefused) and not self._is_refusal(error):
            return f"its user has no right to do this: {error.reply_text}; it needs all rights on queues named {self._key} and the like"
        # what the broker says of a queue that was deleted under us: the name of a consumer, or that there is no way
        return "its queue was deleted; it is made anew" if "amq.ctag" in text or "NO_ROUTE" in text else text

    def _on_blocked(self, _reason: str) -> None:
        raise QueueError(
            "takes no messages now: it is short of memory or disk (`rabbitmqctl status` says of which, under Alarms); free some there or "
            "move its limit (vm_memory_high_watermark, disk_free_limit)"
        )


def _frames(connection: Any, callback: Any) -> Callable[[Any], Any]:
    """py-amqp's reader of frames, without the properties of messages: we need none, and a message whose properties it cannot decode
    would break the connection, go back to the queue, and break the next one."""
    handle = frame_handler(connection, callback)

    def on_frame(frame: tuple[int, int, Any]) -> Any:
        kind, channel, payload = frame
        if kind == _HEADER:
            payload = bytes(payload[:_BEFORE_PROPERTIES]) + b"\0\0"
        return handle((kind, channel, payload))

    return on_frame
