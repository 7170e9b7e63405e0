"""All workers of a simulated cluster and the queues between them. Time is an argument. Used by `counted`."""

import random
from collections import deque

from msgspec import Struct

from pyspider_lite import codec
from pyspider_lite.bench.simulation.pages import Pages
from pyspider_lite.bench.simulation.workers import Fetcher, Processor, Put, ResultWorker, Travelling, Worker
from pyspider_lite.models.batch import PageBatch, TaskBatch
from pyspider_lite.models.names import QueueName, Role

#: page batches that may wait for each processor before fetchers hold back, as in `fetcher.gauge`
_BATCHES_A_PROCESSOR = 4
_INBOUND = {
    QueueName.TO_FETCHER: Role.FETCHER,
    QueueName.TO_PROCESSOR: Role.PROCESSOR,
    QueueName.CONTROL: Role.PROCESSOR,
    QueueName.RESULTS: Role.RESULT_WORKER,
}


class Cluster(Struct, frozen=True, kw_only=True):
    """How large it is, and how long its parts take."""

    fetchers: int = 100
    processors: int = 100
    result_workers: int = 10
    poolsize: int = 100
    #: seconds that a page takes, at least and at most
    page_seconds: tuple[float, float] = (0.1, 1.0)
    #: seconds of a callback, and of storing a result
    callback_seconds: float = 0.0006
    store_seconds: float = 0.0001

    def number(self, role: Role) -> int:
        """Workers of a role."""
        return {Role.FETCHER: self.fetchers, Role.PROCESSOR: self.processors}.get(role, self.result_workers)


class Crowd:
    """Takes what the scheduler gives out (`put`), says what workers say (`say`)."""

    def __init__(self, cluster: Cluster, pages: Pages, now: float) -> None:
        self.cluster, self._pages = cluster, pages
        self._chance = random.Random(2)
        self._born = self._turn = 0
        self._queues: dict[QueueName, deque[Travelling]] = {name: deque() for name in _INBOUND}
        #: by role; who took something last comes last
        self._workers: dict[Role, deque[Worker]] = {
            role: deque(self._new(role, now) for _ in range(cluster.number(role))) for role in _INBOUND.values()
        }
        #: when each task was put on its queue first, by project and taskid
        self.given_at: dict[tuple[str, str], float] = {}
        #: runs put on scheduler2fetcher, batches of them, and how many of the runs had been put there before
        self.given = self.batches = self.again = 0
        #: what the dead had in hand and was not given out again yet, and when something of it was, last
        self._orphans: set[tuple[str, str]] = set()
        self.last_orphan_at = 0.0

    def put(self, queue: QueueName, body: bytes, now: float) -> None:
        """The scheduler put this on its queue."""
        if queue is QueueName.CONTROL:
            pages = codec.decode(body, PageBatch)
            self._queues[queue].append((pages.batch, [page.task for page in pages.pages]))
            return
        batch = codec.decode(body, TaskBatch)
        self.batches += 1
        self.given += len(batch.tasks)
        for task in batch.tasks:
            key = (task.project, task.taskid)
            self.again += key in self.given_at
            self.given_at.setdefault(key, now)
            if key in self._orphans:
                self._orphans.discard(key)
                self.last_orphan_at = now
        self._queues[queue].append((batch.batch, batch.tasks))

    def step(self, now: float) -> None:
        """Everybody goes on until now."""
        for workers in self._workers.values():
            for worker in workers:
                worker.step(now)
        for queue, role in _INBOUND.items():
            self._give(queue, self._workers[role], now)

    def say(self, now: float, room: int) -> list[bytes]:
        """Messages for status_queue that are due, at most so many; everybody has his turn."""
        everybody = [worker for workers in self._workers.values() for worker in workers]
        said: list[bytes] = []
        for offset in range(len(everybody)):
            if len(said) >= room:
                self._turn += offset
                break
            message = everybody[(self._turn + offset) % len(everybody)].say(now)
            if message is not None:
                said.append(codec.encode(message))
        return said

    def kill(self, share: float, now: float) -> int:
        """This share of the fetchers and of the processors is gone with all that it had, and others have come; how many."""
        killed = 0
        for role in (Role.FETCHER, Role.PROCESSOR):
            workers = self._workers[role]
            for _ in range(round(share * len(workers))):
                index = self._chance.randrange(len(workers))
                self._orphans.update(run[:2] for run in workers[index].runs)
                workers[index] = self._new(role, now)
                killed += 1
        return killed

    def depths(self) -> dict[str, int]:
        """Messages in each queue."""
        return {str(name): len(queue) for name, queue in self._queues.items()}

    @property
    def running(self) -> list[int]:
        """Pages that each fetcher fetches now."""
        return [worker.running for worker in self._workers[Role.FETCHER] if isinstance(worker, Fetcher)]

    def done(self, role: Role) -> list[int]:
        """Runs that each worker of a role that lives is done with."""
        return [worker.done for worker in self._workers[role]]

    def _give(self, queue: QueueName, workers: deque[Worker], now: float) -> None:
        """First come, first served, a batch each time, as with brokers."""
        waiting = self._queues[queue]
        takers = [worker for worker in workers if worker.has_room]
        while waiting and takers and not (queue is QueueName.TO_FETCHER and self._behind()):
            for worker in takers:
                if not waiting:
                    break
                worker.take(queue, waiting.popleft(), now)
                workers.remove(worker)
                workers.append(worker)
            takers = [worker for worker in takers if worker.has_room]

    def _behind(self) -> bool:
        return len(self._queues[QueueName.TO_PROCESSOR]) > _BATCHES_A_PROCESSOR * self.cluster.processors

    def _new(self, role: Role, now: float) -> Worker:
        self._born += 1
        name, put = f"{role}-{self._born}", self._put
        # not all at the same time, as nobody starts them so
        beat = now + self._chance.uniform(0.0, 2.0)
        return self._make(role, name, put, beat)

    def _make(self, role: Role, name: str, put: Put, beat: float) -> Worker:
        cluster = self.cluster
        if role is Role.FETCHER:
            return Fetcher(name, cluster.poolsize, put, beat, cluster.page_seconds, self._chance)
        if role is Role.PROCESSOR:
            return Processor(name, 1, put, beat, cluster.callback_seconds)
        return ResultWorker(name, 1, put, beat, cluster.store_seconds, self._pages.follows)

    def _put(self, queue: QueueName, batch: Travelling) -> None:
        self._queues[queue].append(batch)
