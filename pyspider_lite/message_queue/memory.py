"""Queues inside one process, for tests and for running everything in one process. Real bytes, real bounds, real waits."""

import threading
from collections.abc import Sequence

from pyspider_lite import codec
from pyspider_lite.errors import MessageTooLarge, QueueFull
from pyspider_lite.message_queue.base import Received
from pyspider_lite.message_queue.store import Store


class _Shared:
    """A store with the condition that guards it."""

    def __init__(self) -> None:
        self.store = Store()
        self.changed = threading.Condition()


_queues: dict[tuple[str, str], _Shared] = {}
_queues_lock = threading.Lock()


class MemoryQueue:
    """The queue ``name`` in the space ``space``: all objects of this process with the same two names share it."""

    shown = ""
    patience = 0.0

    def __init__(self, space: str, name: str, *, maxsize: int = 100, late_ack: bool = False) -> None:
        self.name = name
        self._maxsize = maxsize
        self._late_ack = late_ack
        self._owed: set[int] = set()
        #: how often it was closed: a tag from before means another taking
        self._life = 0
        with _queues_lock:
            shared = _queues.setdefault((space, name), _Shared())
        self._store = shared.store
        self._changed = shared.changed

    def put(self, body: bytes, timeout: float) -> None:
        """See the contract."""
        if len(body) > codec.MAX_ENCODED:
            raise MessageTooLarge(
                f"{self.name}: a message of {len(body)} bytes is over the limit of {codec.MAX_ENCODED}"
            )
        with self._changed:
            if not self._changed.wait_for(lambda: self._store.has_room(len(body), self._maxsize), max(timeout, 0)):
                raise QueueFull(f"{self.name}: no room within {timeout:g} s")
            self._store.append(bytes(body))
            self._changed.notify_all()

    def get(self, limit: int, timeout: float) -> list[Received]:
        """See the contract."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._store), max(timeout, 0))
            entries = self._store.take(limit)
            serials = [entry.serial for entry in entries]
            if self._late_ack:
                self._owed.update(serials)
            else:
                self._store.ack(serials)
            self._changed.notify_all()
        return [Received(body, (self._life, serial) if self._late_ack else None) for serial, body in entries]

    def wake(self) -> None:
        """It waits for moments only."""

    def ack(self, received: Sequence[Received]) -> None:
        """See the contract."""
        tags = [message.tag for message in received]
        serials = {tag[1] for tag in tags if isinstance(tag, tuple) and tag[0] == self._life} & self._owed
        if serials:
            with self._changed:
                self._owed -= serials
                self._store.ack(serials)
                self._changed.notify_all()

    def qsize(self) -> int:
        """See the contract."""
        with self._changed:
            return len(self._store)

    def purge(self) -> int:
        """See the contract."""
        with self._changed:
            count = self._store.purge()
            self._changed.notify_all()
        return count

    def close(self) -> None:
        """See the contract."""
        with self._changed:
            self._store.give_back(self._owed)
            self._owed.clear()
            self._life += 1
            self._changed.notify_all()
