"""Where each run in flight is: in a batch on a queue, or in a worker's hands. Pure; what that means is decided by `leases`."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pyspider_lite.models.names import CONTROL_RUN, QueueName, RunKey
from pyspider_lite.scheduler.blame import LeaseKey

#: two batches of different senders that were put closer together than this may lie in their queue in either order
ORDER_KNOWN = 2.0

#: how far a run has come that was taken off a queue
_STAGE: dict[str, int] = {
    QueueName.TO_FETCHER: 0,
    QueueName.CONTROL: 0,
    QueueName.TO_PROCESSOR: 1,
    QueueName.RESULTS: 2,
}


class Batch:
    """A batch on a queue (worker is None) or in a worker's hands."""

    __slots__ = ("evidence", "id", "keys", "number", "queue", "sender", "since", "worker")

    def __init__(self, batch: str, queue: str, since: float | None, sender: str = "", number: int = 0) -> None:
        self.id = batch
        self.queue = queue
        #: who put it ("": the scheduler), and its place among all that were put, in which each sender's are in the right order
        self.sender = sender
        self.number = number
        #: when it was put (None: not yet) or claimed
        self.since = since
        self.worker: str | None = None
        #: since when it is known to be no longer in its queue although nobody claimed it
        self.evidence: float | None = None
        self.keys: set[LeaseKey] = set()


class Lease:
    """A run in flight."""

    __slots__ = ("batch", "cap", "heard", "run", "ticket")

    def __init__(self, run: RunKey, batch: Batch, ticket: Any, cap: float) -> None:
        self.run = run
        self.batch = batch
        self.ticket = ticket
        self.cap = cap
        #: when it last said that it goes on
        self.heard = -math.inf


class Places:
    """Every lease is in one batch, and a batch without leases is forgotten; all that is counted of them agrees."""

    def __init__(self) -> None:
        self.leases: dict[LeaseKey, Lease] = {}
        self.batches: dict[str, Batch] = {}
        #: how many are in flight: tasks by project, and control work
        self.tasks: Counter[str] = Counter()
        self.controls = 0
        #: of that control work, by project
        self.controls_of: Counter[str] = Counter()
        self._put = 0

    def find(self, run: RunKey) -> Lease | None:
        """The lease of this very run."""
        lease = self.leases.get(run[:2])
        return lease if lease is not None and lease.run == run else None

    def is_with(self, run: RunKey, worker: str) -> bool:
        """Whether this worker has it."""
        lease = self.find(run)
        return lease is not None and lease.batch.worker == worker

    def is_further_on(self, run: RunKey, queue: str) -> bool:
        """Its lease is with a worker or on a queue behind ``queue``: what was said of it there came before an earlier claim."""
        lease = self.find(run)
        return lease is not None and _STAGE.get(lease.batch.queue, 0) > _STAGE.get(queue, 0)

    def on_queues(self) -> list[Batch]:
        """The batches that no worker holds."""
        return [batch for batch in self.batches.values() if batch.worker is None]

    def held_by(self, worker: str) -> list[Batch]:
        """The batches of a worker."""
        return [batch for batch in self.batches.values() if batch.worker == worker]

    # --- changes --------------------------------------------------------------------------------------------------------

    def enter(self, lease: Lease) -> None:
        """It is in flight from now on."""
        key = lease.run[:2]
        self.leases[key] = lease
        lease.batch.keys.add(key)
        if lease.run[2] == CONTROL_RUN:
            self.controls += 1
            self.controls_of[key[0]] += 1
        else:
            self.tasks[key[0]] += 1

    def leave(self, key: LeaseKey) -> Lease | None:
        """It is no longer in flight; what it was."""
        lease = self.leases.pop(key, None)
        if lease is not None:
            if lease.run[2] == CONTROL_RUN:
                self.controls -= 1
                self.controls_of[key[0]] -= 1
                if not self.controls_of[key[0]]:
                    del self.controls_of[key[0]]
            else:
                self.tasks[key[0]] -= 1
            lease.batch.keys.discard(key)
            self.drop_if_empty(lease.batch)
        return lease

    def move(self, runs: Iterable[RunKey], batch: Batch) -> None:
        """Those of the runs that are in flight are in this batch now."""
        for run in runs:
            lease = self.find(run)
            if lease is not None and lease.batch is not batch:
                lease.batch.keys.discard(run[:2])
                self.drop_if_empty(lease.batch)
                lease.batch = batch
                batch.keys.add(run[:2])

    def drop_if_empty(self, batch: Batch) -> None:
        """Forget a batch without leases."""
        if not batch.keys:
            self.batches.pop(batch.id, None)

    def next_number(self) -> int:
        """The place of what is put now among all that was put."""
        self._put += 1
        return self._put

    # --- what is no longer in its queue although nobody claimed it, known at ``clock`` ---------------------------------

    def seen_empty(self, queue: str, asked: float, clock: float) -> None:
        """The queue held no message: what was put before ``asked`` is gone."""
        for batch in self._waiting(queue):
            if batch.since is not None and batch.since < asked:
                batch.evidence = clock

    def later_one_claimed(self, claimed: Batch, since: float, clock: float) -> None:
        """Queues are first in, first out: what was put earlier is no longer there."""
        for batch in self._waiting(claimed.queue):
            if batch.since is None:
                continue
            if batch.number < claimed.number if batch.sender == claimed.sender else batch.since < since - ORDER_KNOWN:
                batch.evidence = clock

    def _waiting(self, queue: str) -> Iterator[Batch]:
        for batch in self.batches.values():
            if batch.worker is None and batch.queue == queue and batch.evidence is None:
                yield batch
