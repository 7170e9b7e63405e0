"""The messages of one queue in memory: their order, their bounds, and what was taken and not yet acknowledged.

Used by `memory` under a lock and by `builtin_server` in its one thread. It never waits.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

#: a queue holds at most this many bytes, unacknowledged messages included, whatever its maxsize
MAX_BYTES = 256 * 1024 * 1024

#: one take gives at most this many bytes, but at least one message
MAX_TAKE = 12 * 1024 * 1024


class Entry(NamedTuple):
    """One message; serials grow in the order of arrival."""

    serial: int
    body: bytes


class Store:
    """A bounded FIFO of bodies. What is given back goes to where it was, so the order of arrival always holds."""

    def __init__(self) -> None:
        self._ready: deque[Entry] = deque()
        self._taken: dict[int, Entry] = {}
        self._serial = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._ready)

    def has_room(self, size: int, maxsize: int) -> bool:
        """Whether a body of ``size`` bytes may come; ``maxsize`` 0 bounds the bytes alone."""
        return (not maxsize or len(self._ready) < maxsize) and self._bytes + size <= MAX_BYTES

    def append(self, body: bytes) -> None:
        self._serial += 1
        self._bytes += len(body)
        self._ready.append(Entry(self._serial, body))

    def take(self, limit: int) -> list[Entry]:
        """The oldest entries, as many as fit into one reply. They stay in memory until `ack` or `give_back`."""
        entries: list[Entry] = []
        size = 0
        while self._ready and len(entries) < limit:
            size += len(self._ready[0].body)
            if entries and size > MAX_TAKE:
                break
            entries.append(self._ready.popleft())
        self._taken.update((entry.serial, entry) for entry in entries)
        return entries

    def ack(self, serials: Iterable[int]) -> None:
        """These are dealt with; unknown ones are ignored."""
        for serial in serials:
            entry = self._taken.pop(serial, None)
            if entry is not None:
                self._bytes -= len(entry.body)

    def give_back(self, serials: Iterable[int]) -> None:
        """These were not dealt with; unknown ones are ignored."""
        entries = sorted(self._taken.pop(serial) for serial in serials if serial in self._taken)
        self._ready = deque(heapq.merge(entries, self._ready))

    def purge(self) -> int:
        """Drop what waits; how many there were."""
        count = len(self._ready)
        self._bytes -= sum(len(entry.body) for entry in self._ready)
        self._ready.clear()
        return count
