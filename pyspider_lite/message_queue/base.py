"""The contract of a message queue: bytes in, bytes out, every wait with a deadline.

A queue object has one connection and is used by one thread; a role opens one object a thread. Messages are batches of many
tasks (design, section 4), so a message costs little here. Leases in the scheduler, not the queue, guarantee that nothing
is lost: what is taken is gone, but for a queue opened with ``late_ack`` (newtask_queue), whose messages come back when their
taker goes away before `ack`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Received(NamedTuple):
    """One message taken from a queue."""

    body: bytes
    #: what `ack` needs; None where taking was acknowledging
    tag: object = None


class MessageQueue(Protocol):
    """One queue, seen by one thread."""

    name: str
    #: what logs call its broker: the URL without its password; set by `message_queue.connect`
    shown: str
    #: seconds for which it is cheap to wait in a `get`: longer than a stop may wait for it where each wait is a command to a server, and then
    #: `wake` ends it
    patience: float

    def put(self, body: bytes, timeout: float) -> None:
        """Append a message. Raises QueueFull when there is no room within ``timeout`` seconds, QueueError when the broker
        cannot be reached within it, MessageTooLarge for a body over codec.MAX_ENCODED."""
        ...

    def get(self, limit: int, timeout: float) -> list[Received]:
        """The oldest messages, at most ``limit``; waits up to ``timeout`` seconds for the first one only, [] if none came.
        Raises QueueError when the broker cannot be reached within it."""
        ...

    def ack(self, received: Sequence[Received]) -> None:
        """These messages are dealt with (late_ack queues; a no-op for the others)."""
        ...

    def qsize(self) -> int:
        """How many messages wait. Raises QueueError."""
        ...

    def purge(self) -> int:
        """Drop all messages that wait; how many there were. Raises QueueError."""
        ...

    def wake(self) -> None:
        """Have a `get` that waits return now, without a message. Called from another thread; may take as long as a command, never raises."""
        ...

    def close(self) -> None:
        """Give the connection back. Never raises; unacknowledged messages return to the queue."""
        ...
