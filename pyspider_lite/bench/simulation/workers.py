"""Played workers: what each takes, how long it has it, and all that it says, as the real ones do. Time is an argument. Used by `crowd`.

The limits of batches and the pauses in which they gather are those of `fetcher`, `processor`, `result_worker` and `heartbeat`.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from pyspider_lite.bench.roles.scheduler import report
from pyspider_lite.models.batch import StatusBatch, StatusItem
from pyspider_lite.models.names import QueueName, Role, RunKey
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Beat, Claim, Handover

#: seconds between two beats; items of one status message, and seconds that they gather
_BEAT, _ITEMS, _GATHER = 2.0, 100, 0.01
#: pages of one message to the processors, and seconds in which none came after which it goes
_PAGES, _IDLE = 20, 0.01
#: batches that a processor and a result worker have in hand at most
_BATCHES = {Role.PROCESSOR: 2, Role.RESULT_WORKER: 10}
#: what a script says of itself
_INFO: dict[str, Any] = {"crawl_config": {}, "retry_delay": {}, "cron": []}

#: a batch on a queue between workers
Travelling = tuple[str, list[Dispatch]]
#: puts a batch on a queue
Put = Callable[[QueueName, Travelling], None]


class Worker:
    """What all roles have: what is in hand, and what was not said yet."""

    role: Role

    def __init__(self, name: str, pool: int, put: Put, first_beat: float) -> None:
        self.name, self._pool, self._put = name, pool, put
        #: batch -> its runs in hand
        self.holds: dict[str, set[RunKey]] = {}
        self._batch_of: dict[RunKey, str] = {}
        #: runs that it is done with
        self.done = 0
        self._unsaid: list[StatusItem] = []
        self._beat_at, self._said_at = first_beat, 0.0
        self._serial = itertools.count(1)

    @property
    def runs(self) -> Collection[RunKey]:
        """In hand."""
        return self._batch_of.keys()

    @property
    def has_room(self) -> bool:
        """It takes another batch."""
        raise NotImplementedError

    def take(self, queue: QueueName, batch: Travelling, now: float) -> None:
        """This batch came off the queue."""
        name, tasks = batch
        runs = [task.key for task in tasks]
        for run in runs:
            self._drop(run)
            self._batch_of[run] = name
        self.holds[name] = set(runs)
        self._unsaid.append(Claim(worker=self.name, queue=queue, batch=name, runs=runs))
        self._begin(queue, batch, now)

    def step(self, now: float) -> None:
        """What is done by now goes on."""
        raise NotImplementedError

    def say(self, now: float) -> StatusBatch | None:
        """The next message for status_queue, if one is due."""
        if now >= self._beat_at:
            self._beat_at = now + _BEAT
            self._unsaid.append(self._beat())
        if not self._unsaid or (len(self._unsaid) < _ITEMS and now < self._said_at + _GATHER):
            return None
        self._said_at = now
        items, self._unsaid = self._unsaid[:_ITEMS], self._unsaid[_ITEMS:]
        return StatusBatch(items=items)

    def _begin(self, queue: QueueName, batch: Travelling, now: float) -> None:
        raise NotImplementedError

    def _beat(self) -> Beat:
        holds = {batch: list(runs) for batch, runs in self.holds.items()}
        return Beat(
            worker=self.name,
            role=self.role,
            host="simulated",
            pid=1,
            pool_size=self._pool,
            load=len(self.runs),
            progress=self.done,
            holds=holds,
        )

    def _hand_over(self, queue: QueueName, tasks: list[Dispatch]) -> None:
        batch = f"{self.name}:{next(self._serial)}"
        runs = [task.key for task in tasks]
        self._put(queue, (batch, tasks))
        self._over(runs)
        self._unsaid.append(Handover(worker=self.name, queue=queue, batch=batch, runs=runs))

    def _report(self, reports: Iterable[Report]) -> None:
        for one in reports:
            self._over([one.key])
            self._unsaid.append(one)

    def _over(self, runs: Iterable[RunKey]) -> None:
        for run in runs:
            self._drop(run)
            self.done += 1

    def _drop(self, run: RunKey) -> None:
        batch = self._batch_of.pop(run, "")
        if batch:
            self.holds[batch].discard(run)
            if not self.holds[batch]:
                del self.holds[batch]


class Fetcher(Worker):
    """Has ``pool`` places; a page takes between ``seconds[0]`` and ``seconds[1]``."""

    role = Role.FETCHER

    def __init__(
        self, name: str, pool: int, put: Put, first_beat: float, seconds: tuple[float, float], chance: random.Random
    ) -> None:
        super().__init__(name, pool, put, first_beat)
        self._seconds, self._chance = seconds, chance
        self._waiting: deque[Dispatch] = deque()
        #: until when, a number that keeps tasks from being compared, the task
        self._running: list[tuple[float, int, Dispatch]] = []
        self._pages: list[Dispatch] = []
        self._last_page = 0.0

    @property
    def running(self) -> int:
        """Places that are taken."""
        return len(self._running)

    @property
    def has_room(self) -> bool:
        return len(self._running) + len(self._waiting) < self._pool

    def _begin(self, queue: QueueName, batch: Travelling, now: float) -> None:
        self._waiting.extend(batch[1])
        self._start(now)

    def step(self, now: float) -> None:
        while self._running and self._running[0][0] <= now:
            self._pages.append(heapq.heappop(self._running)[2])
            self._last_page = now
        self._start(now)
        while len(self._pages) >= _PAGES or (self._pages and now >= self._last_page + _IDLE):
            sent, self._pages = self._pages[:_PAGES], self._pages[_PAGES:]
            self._hand_over(QueueName.TO_PROCESSOR, sent)

    def _start(self, now: float) -> None:
        while self._waiting and len(self._running) < self._pool:
            until = now + self._chance.uniform(*self._seconds)
            heapq.heappush(self._running, (until, next(self._serial), self._waiting.popleft()))


class Processor(Worker):
    """Runs one callback after the other, each for ``seconds``; each has a result. ``follows(task)``: what is on the page."""

    role = Role.PROCESSOR

    def __init__(self, name: str, pool: int, put: Put, first_beat: float, seconds: float) -> None:
        super().__init__(name, pool, put, first_beat)
        self._seconds = seconds
        self._free_at = 0.0
        self._batches: deque[tuple[float, QueueName, list[Dispatch]]] = deque()

    @property
    def has_room(self) -> bool:
        return len(self._batches) < _BATCHES[self.role]

    def _begin(self, queue: QueueName, batch: Travelling, now: float) -> None:
        self._free_at = max(now, self._free_at) + self._seconds * len(batch[1])
        self._batches.append((self._free_at, queue, batch[1]))

    def step(self, now: float) -> None:
        while self._batches and self._batches[0][0] <= now:
            _, queue, tasks = self._batches.popleft()
            if queue is QueueName.CONTROL:
                self._report(report(task, follows=[], info=_INFO) for task in tasks)
            else:
                self._hand_over(QueueName.RESULTS, tasks)


class ResultWorker(Worker):
    """Stores results, each in ``seconds``, and sends the reports on."""

    role = Role.RESULT_WORKER

    def __init__(
        self,
        name: str,
        pool: int,
        put: Put,
        first_beat: float,
        seconds: float,
        follows: Callable[[Dispatch], list[NewTask]],
    ) -> None:
        super().__init__(name, pool, put, first_beat)
        self._seconds, self._follows = seconds, follows
        self._free_at = 0.0
        self._batches: deque[tuple[float, list[Dispatch]]] = deque()

    @property
    def has_room(self) -> bool:
        return len(self._batches) < _BATCHES[self.role]

    def _begin(self, queue: QueueName, batch: Travelling, now: float) -> None:
        self._free_at = max(now, self._free_at) + self._seconds * len(batch[1])
        self._batches.append((self._free_at, batch[1]))

    def step(self, now: float) -> None:
        while self._batches and self._batches[0][0] <= now:
            self._report(report(task, follows=self._follows(task)) for task in self._batches.popleft()[1])
