"""The pages that the processor has in hand and has not started: filled by two consumers, emptied by the processor."""

import threading
from collections import deque
from collections.abc import Collection, Iterator

from pyspider_lite import codec
from pyspider_lite.models.names import QueueName, RunKey
from pyspider_lite.models.page import Page

#: batches in hand at once: one being worked on and the next; control work is short and comes one batch at a time
_BATCHES = {QueueName.CONTROL: 1, QueueName.TO_PROCESSOR: 2}

#: seconds at most that control work or pages may have had more than the other, in the account that `Inbox.used` keeps
_MOST_AHEAD = 2.0

#: pages, and bytes of them, that may wait apart
PARKED, PARKED_BYTES = 500, 32 * 1024 * 1024


class Inbox:
    """Bounded by `wait_for_room`: who puts asks first. Control work comes out first (design, section 4), as long as it takes no more time
    than the pages that wait behind it: a project with many messages is not to keep all others waiting."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._batches: dict[QueueName, deque[deque[Page]]] = {queue: deque() for queue in _BATCHES}
        #: pages of projects that have to wait
        self._parked: dict[QueueName, deque[Page]] = {queue: deque() for queue in _BATCHES}
        #: what each of them takes, bytes
        self._sizes: dict[RunKey, int] = {}
        self._parking: frozenset[str] = frozenset()
        #: pages over which a processor may have died: they come last, and alone
        self._suspects: dict[QueueName, deque[Page]] = {queue: deque() for queue in _BATCHES}
        self._paused = False
        self._held = False
        #: when projects with pages that wait apart had their last turn, counted
        self._turns: dict[str, int] = {}
        #: seconds that control work had more than pages
        self._ahead = 0.0

    def wait_for_room(self, queue: QueueName, seconds: float) -> bool:
        """Whether one more batch of ``queue`` may be taken, after at most ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._has_room(queue), seconds)

    def _has_room(self, queue: QueueName) -> bool:
        if self._paused or self._held or self.suspects or self.crowded:
            return False
        return len(self._batches[queue]) < _BATCHES[queue] and len(self._parked[queue]) < PARKED

    @property
    def crowded(self) -> bool:
        """Pages that wait apart take so many bytes that nothing more is taken."""
        return sum(self._sizes.values()) > PARKED_BYTES

    @property
    def suspects(self) -> bool:
        """Some wait, so nothing more is taken until they have run."""
        return any(self._suspects.values())

    def park(self, projects: frozenset[str]) -> None:
        """From now on the pages of these projects, and of no others, wait apart from the rest."""
        with self._changed:
            self._parking = projects
            waiting = {queue: [*self._parked[queue], *_joined(batches)] for queue, batches in self._batches.items()}
            for queue, pages in waiting.items():
                self._parked[queue].clear()
                self._batches[queue].clear()
                self._put(queue, pages)
            parked = {page.task.key for pages in self._parked.values() for page in pages}
            self._sizes = {key: size for key, size in self._sizes.items() if key in parked}
            self._changed.notify_all()

    def get_parked(self, besides: Collection[str]) -> Page | None:
        """The next page of those that wait apart, but for these projects: in turns by project, and of each control work first."""
        with self._changed:
            firsts: dict[str, tuple[QueueName, Page]] = {}
            for queue, pages in self._parked.items():
                for page in pages:
                    firsts.setdefault(page.task.project, (queue, page))
            turns = {project: self._turns.get(project, 0) for project in firsts}
            able = [project for project in firsts if project not in besides]
            if not able:
                return None
            project = min(able, key=turns.__getitem__)
            self._turns = {**turns, project: max(self._turns.values(), default=0) + 1}
            queue, page = firsts[project]
            self._parked[queue].remove(page)
            self._sizes.pop(page.task.key, None)
            return page

    def take_parked(self, suspects: bool = False) -> dict[QueueName, list[Page]]:
        """All pages that wait apart, which are here no longer; with ``suspects`` those, too."""
        with self._changed:
            return self._empty({}, suspects)

    def put(self, queue: QueueName, pages: list[Page]) -> None:
        """One batch."""
        with self._changed:
            self._put(queue, pages)
            self._changed.notify_all()

    def put_back(self, pages: list[Page]) -> None:
        """What is left of a batch that `get` gave: it comes next."""
        if not pages:
            return
        with self._changed:
            batches = self._batches[QueueName.TO_PROCESSOR]
            before = len(batches)
            self._put(QueueName.TO_PROCESSOR, pages)
            batches.rotate(len(batches) - before)
            self._changed.notify_all()

    def _put(self, queue: QueueName, pages: list[Page]) -> None:
        self._suspects[queue] += [page for page in pages if page.task.suspect]
        pages = [page for page in pages if not page.task.suspect]
        others = deque(page for page in pages if page.task.project not in self._parking)
        if others:
            self._batches[queue].append(others)
        for page in pages if self._parking else ():
            if page.task.project in self._parking:
                self._parked[queue].append(page)
                if page.task.key not in self._sizes:
                    self._sizes[page.task.key] = page_size(page)

    def get(self, timeout: float) -> list[Page]:
        """The next batch, or the next page of control work; nothing if none came within ``timeout`` seconds. Suspects come one at a time,
        when there is nothing else and nothing is parked."""
        with self._changed:
            self._changed.wait_for(self._has_page, timeout)
            control, others = self._batches[QueueName.CONTROL], self._batches[QueueName.TO_PROCESSOR]
            pages: list[Page] = []
            if control and not (others and self._ahead > 0):
                pages = [control[0].popleft()]
                if not control[0]:
                    control.popleft()
            elif others:
                pages = list(others.popleft())
            elif not self._parking:
                waiting = next((queue for queue in self._suspects.values() if queue), None)
                pages = [waiting.popleft()] if waiting else []
            if pages:
                self._changed.notify_all()
            return pages

    def used(self, control: bool, seconds: float) -> None:
        """So long control work, or pages, kept the processor busy."""
        ahead = self._ahead + (seconds if control else -seconds)
        self._ahead = max(-_MOST_AHEAD, min(_MOST_AHEAD, ahead))

    def _has_page(self) -> bool:
        return any(self._batches.values()) or (self.suspects and not self._parking)

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

    @property
    def held(self) -> bool:
        """Nothing more is to be taken, because somebody ordered so."""
        return self._held

    def hold(self, held: bool) -> None:
        """Somebody ordered that nothing more is taken, or that it is taken again; `resume` does not end this."""
        with self._changed:
            self._held = held
            self._changed.notify_all()

    def take_all(self, suspects: bool = True) -> dict[QueueName, list[Page]]:
        """Empty it: what it held, by queue. Without ``suspects`` those stay."""
        with self._changed:
            waiting = {queue: list(_joined(batches)) for queue, batches in self._batches.items()}
            for batches in self._batches.values():
                batches.clear()
            return self._empty(waiting, suspects)

    def _empty(self, waiting: dict[QueueName, list[Page]], suspects: bool) -> dict[QueueName, list[Page]]:
        taken = {}
        for queue in _BATCHES:
            last = self._suspects[queue] if suspects else deque[Page]()
            taken[queue] = [*self._parked[queue], *waiting.get(queue, ()), *last]
            self._parked[queue].clear()
            last.clear()
        self._sizes.clear()
        self._changed.notify_all()
        return {queue: pages for queue, pages in taken.items() if pages}


def page_size(page: Page) -> int:
    """What it takes in a message, bytes: not its content alone, what it saves may be as large."""
    return len(codec.pack(page))


def _joined(batches: deque[deque[Page]]) -> Iterator[Page]:
    for batch in batches:
        yield from batch
