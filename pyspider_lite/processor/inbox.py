"""The pages that the processor has in hand and has not started: filled by two consumers, emptied by the processor."""

import threading
from collections import deque
from collections.abc import Iterator

from pyspider_lite.models import Page, QueueName

#: batches in hand at once: one being worked on and the next; control work is short and comes one batch at a time
_BATCHES = {QueueName.CONTROL: 1, QueueName.TO_PROCESSOR: 2}


class Inbox:
    """Bounded by `wait_for_room`: who puts asks first. Control work comes out first (design, section 4)."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._batches: dict[QueueName, deque[deque[Page]]] = {queue: deque() for queue in _BATCHES}
        self._paused = False
        self._held = False

    def wait_for_room(self, queue: QueueName, seconds: float) -> bool:
        """Whether one more batch of ``queue`` may be taken, after at most ``seconds``."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._paused and not self._held and len(self._batches[queue]) < _BATCHES[queue], seconds
            )

    def put(self, queue: QueueName, pages: list[Page]) -> None:
        """One batch."""
        if pages:
            with self._changed:
                self._batches[queue].append(deque(pages))
                self._changed.notify_all()

    def get(self, timeout: float) -> Page | None:
        """The next page; None if none came within ``timeout`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: any(self._batches.values()), timeout):
                return None
            batches = next(batches for batches in self._batches.values() if batches)
            page = batches[0].popleft()
            if not batches[0]:
                batches.popleft()
                self._changed.notify_all()
            return page

    def pause(self) -> None:
        """Nothing more is to be taken for now."""
        with self._changed:
            self._paused = True

    def resume(self) -> None:
        """The opposite of `pause`."""
        with self._changed:
            if self._paused:
                self._paused = False
                self._changed.notify_all()

    def hold(self, held: bool) -> None:
        """Somebody ordered that nothing more is taken, or that it is taken again; `resume` does not end this."""
        with self._changed:
            self._held = held
            self._changed.notify_all()

    def take_all(self) -> dict[QueueName, list[Page]]:
        """Empty it: what it held, by queue."""
        with self._changed:
            taken = {queue: list(_joined(batches)) for queue, batches in self._batches.items() if batches}
            for batches in self._batches.values():
                batches.clear()
            self._changed.notify_all()
            return taken


def _joined(batches: deque[deque[Page]]) -> Iterator[Page]:
    for batch in batches:
        yield from batch
