"""Where every run in flight is, and which of them are lost (design, section 4; docs/architecture.md). Pure.

Time here counts only while the scheduler keeps up with ``status_queue``: `advance` adds at most a second a call, and nothing
while behind, so that an outage or a stall of ours is nobody's death.
"""

import math
from collections import Counter
from collections.abc import Iterable, KeysView
from typing import Any

from msgspec import Struct

from pyspider_lite.models.names import CONTROL_RUN, QueueName, Role, RunKey
from pyspider_lite.models.worker import Beat, Claim, Handover, Release
from pyspider_lite.scheduler.blame import MOST_SILENT, Blame, LeaseKey

#: seconds without a beat after which a worker is dead: three beats
DEAD_AFTER = 6.0
#: seconds after which a batch that should have been claimed is lost
UNCLAIMED_AFTER = 4.0
#: two batches of different senders that were put closer together than this may lie in their queue in either order
ORDER_KNOWN = 2.0
#: deaths of a worker while it ran a task after which that task fails; to have to end before the task did is one, too
POISON_AFTER = 3
#: seconds between two looks at who holds something for too long: there may be thousands of runs
_CAPS_EACH = 0.25
#: a longer gap between two calls of `advance` counts as this much
MAX_ADVANCE = 1.0

#: how far a run has come that was taken off a queue
_STAGE: dict[str, int] = {
    QueueName.TO_FETCHER: 0,
    QueueName.CONTROL: 0,
    QueueName.TO_PROCESSOR: 1,
    QueueName.RESULTS: 2,
}

#: from these queues processors take what runs a script
_SCRIPTS = (QueueName.CONTROL, QueueName.TO_PROCESSOR)


class Lost(Struct, frozen=True):
    """A run that must be given out again."""

    run: RunKey
    reason: str
    #: what `dispatch` was given with it; None for a run adopted from another leader
    ticket: Any
    #: workers that died while they ran this task, or had to end before it did
    deaths: int


class _Batch:
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


class _Lease:
    __slots__ = ("batch", "cap", "heard", "run", "ticket")

    def __init__(self, run: RunKey, batch: _Batch, ticket: Any, cap: float) -> None:
        self.run = run
        self.batch = batch
        self.ticket = ticket
        self.cap = cap
        #: when it last said that it goes on
        self.heard = -math.inf


class Worker(Struct):
    """A worker that beats."""

    beat: Beat
    #: in the clock of `advance`
    last_seen: float


class Leases:
    """All runs in flight."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self.blame = Blame()
        #: workers that died since somebody asked
        self._buried: list[str] = []
        #: workers that died with the leader before us; what they said before that may still be heard
        self._gone: set[str] = set()
        #: how many are in flight: tasks by project, and control work
        self.tasks: Counter[str] = Counter()
        self.controls = 0
        #: adopted runs whose cap nobody has looked up yet
        self.uncapped: set[LeaseKey] = set()
        self._leases: dict[LeaseKey, _Lease] = {}
        self._batches: dict[str, _Batch] = {}
        self._lost: list[Lost] = []
        #: when a worker of each role was heard last, in the clock of `advance`
        self._heard: dict[str, float] = {}
        self._put = 0
        #: what a worker holds and we do not know is taken over: until something is given out, afterwards it is a run that is over
        self.adopting = True
        self._clock = 0.0
        #: when to look at caps again
        self._caps_due = 0.0
        #: when the last term began
        self._term = -math.inf
        self._wall: float | None = None

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def clock(self) -> float:
        """Seconds in which the scheduler kept up, since it began."""
        return self._clock

    def run_of(self, project: str, taskid: str) -> int | None:
        """The number of the run in flight."""
        lease = self._leases.get((project, taskid))
        return lease.run[2] if lease else None

    def in_flight(self) -> KeysView[LeaseKey]:
        """Everything in flight."""
        return self._leases.keys()

    def pool_sizes(self, role: str) -> list[int]:
        """Pool sizes of the workers of a role that are at work: alive, and neither paused nor draining."""
        beats = (worker.beat for worker in self.workers.values())
        return [beat.pool_size for beat in beats if beat.role == role and not beat.state]

    def silence(self, role: str) -> float:
        """Seconds since a worker of a role was heard last, or since we began to listen; 0 while one is taken for alive."""
        if any(worker.beat.role == role for worker in self.workers.values()):
            return 0.0
        return self._clock - self._heard.get(role, 0.0)

    # --- what happens to a run ------------------------------------------------------------------------------------------

    def dispatch(self, batch: str, queue: str, runs: Iterable[tuple[RunKey, Any, float]]) -> None:
        """Runs were handed to the publisher: key, ticket, and the seconds a worker may take at most."""
        place = self._batches[batch] = _Batch(batch, queue, None)
        for run, ticket, cap in runs:
            self._leave(run[:2])
            self._enter(_Lease(run, place, ticket, cap))

    def set_cap(self, key: LeaseKey, cap: float) -> None:
        """How many seconds a worker may take at most for a run that was adopted."""
        self.uncapped.discard(key)
        if (lease := self._leases.get(key)) is not None:
            lease.cap = cap

    def sent(self, batch: str) -> None:
        """The publisher has put the batch on its queue."""
        place = self._batches.get(batch)
        if place is not None and place.since is None:
            place.since, place.number = self._clock, self._next_number()

    def claim(self, claim: Claim) -> None:
        """A worker took a batch off its queue."""
        place = self._batches.get(claim.batch)
        if place is None:
            # nobody said yet when it was put, so it proves nothing about others
            place = self._batches[claim.batch] = _Batch(claim.batch, claim.queue, None)
        if place.since is not None and place.worker is None:
            self._later_one_claimed(place, place.since)
        place.worker, place.since, place.evidence = claim.worker, self._clock, None
        # workers further on may have been heard before this one: they have the run now
        self._move((run for run in claim.runs if not self._further_on(run, claim.queue)), place)
        self._drop_if_empty(place)

    def hand_over(self, handover: Handover) -> None:
        """A worker put runs that it held onto a queue, as a new batch."""
        place = self._batches.get(handover.batch)
        if place is None:
            place = self._batches[handover.batch] = _Batch(
                handover.batch, handover.queue, self._clock, handover.worker, self._next_number()
            )
        # a receiver's claim may have come before this: then they are in its hands already
        self._move((run for run in handover.runs if self._with(run, handover.worker)), place)
        self._drop_if_empty(place)

    def release(self, release: Release) -> None:
        """A worker gives back what is not over. What it had begun may be why it has to end: it is a suspect then, and counts as a death."""
        for run in release.runs:
            if self._with(run, release.worker):
                if release.cut_off:
                    self.blame.count(run[:2])
                    self.blame.suspect([run[:2]])
                self._lose(run[:2], "cut off" if release.cut_off else "released")

    def goes_on(self, run: RunKey) -> None:
        """A part of its report is here: its time begins anew."""
        lease = self._leases.get(run[:2])
        if lease is not None and lease.run == run:
            lease.heard = self._clock

    def reported(self, run: RunKey) -> None:
        """All that it reports is here and waits for the commit: from now on it cannot be lost, whatever its worker says."""
        lease = self._leases.get(run[:2])
        if lease is not None and lease.run == run:
            self._move([run], _Batch("", "", None))

    def end(self, project: str, taskid: str) -> Any:
        """The run is over; its ticket, None if it was not in flight."""
        key = (project, taskid)
        self.blame.acquit(key)
        lease = self._leases.get(key)
        self._leave(key)
        return lease.ticket if lease else None

    def died_before(self, workers: Iterable[str]) -> None:
        """These are dead for certain, and who is to blame for that is found out without us."""
        self._gone.update(workers)

    def take_buried(self) -> list[str]:
        """Workers whose deaths were counted since the last call."""
        buried, self._buried = self._buried, []
        return buried

    def forget(self, project: str) -> None:
        """The project is gone: nothing of it is in flight, whoever works on it."""
        for key in [key for key in self._leases if key[0] == project]:
            self._leave(key)
        self.blame.forget(project)
        self._lost = [lost for lost in self._lost if lost.run[0] != project]

    def seen_empty(self, queue: str, asked: float) -> None:
        """The queue held no message when it was measured, which was not before ``asked`` (in the time of `clock`)."""
        for place in self._batches.values():
            waits = place.worker is None and place.evidence is None
            if waits and place.queue == queue and place.since is not None and max(place.since, self._term) < asked:
                place.evidence = self._clock

    # --- beats and time -------------------------------------------------------------------------------------------------

    def beat(self, beat: Beat) -> None:
        """A worker lives and says what it holds. What it no longer holds is lost; what a new leader does not know is adopted."""
        if beat.worker in self._gone:
            return
        self.blame.absolve(beat.worker)
        if beat.leaving:
            self._bury(beat.worker, died=False)
            return
        self.workers[beat.worker] = Worker(beat, self._clock)
        self._heard[beat.role] = self._clock
        held: set[LeaseKey] = set()
        for batch, runs in beat.holds.items():
            place = self._batches.get(batch)
            if place is None:
                place = self._batches[batch] = _Batch(batch, "", self._clock)
                place.worker = beat.worker
            elif place.worker is None:
                # the claim was lost on its way
                place.worker, place.since, place.evidence = beat.worker, self._clock, None
            for run in runs:
                held.add(run[:2])
                if self.adopting and run[:2] not in self._leases:
                    self._enter(_Lease(run, place, None, math.inf))
                    self.uncapped.add(run[:2])
            self._drop_if_empty(place)
        self._lose_what_is_gone(beat.worker, held)

    def _lose_what_is_gone(self, worker: str, held: set[LeaseKey]) -> None:
        for place in [place for place in self._batches.values() if place.worker == worker]:
            for key in list(place.keys - held):
                self._lose(key, "no longer with its worker")

    def advance(self, now: float, *, drained: bool) -> None:
        """Time went by. ``drained``: everything that workers said until now has been heard; only then the time since the last such call
        counts. With hundreds of workers it takes several calls to hear what they said in the time of one."""
        if self._wall is None or drained or now < self._wall:
            if self._wall is not None:
                self._clock += max(0.0, min(now - self._wall, MAX_ADVANCE))
            self._wall = now

    def fresh_term(self) -> None:
        """After a reconnect or a takeover: everybody gets a new term, which begins with the next `advance`. The order in which batches were
        put stays known, and what had left its queue by then."""
        self._term = self._clock
        self._wall = None
        for worker in self.workers.values():
            worker.last_seen = self._clock
        for place in self._batches.values():
            if place.evidence is not None:
                # who took it has a whole term to say so
                place.evidence = self._clock + DEAD_AFTER - UNCLAIMED_AFTER
            if place.worker is not None:
                place.since = self._clock

    def check(self, held_back: frozenset[str] = frozenset()) -> list[Lost]:
        """Everything lost since the last call. Workers of the roles in ``held_back`` wait for room in their outgoing queue:
        their caps do not count."""
        for name, worker in list(self.workers.items()):
            if self._clock - worker.last_seen > DEAD_AFTER:
                self._bury(name, died=True)
        caps = self._caps_are_due()
        for place in list(self._batches.values()):
            if place.worker is None:
                if place.evidence is not None and self._clock - place.evidence > UNCLAIMED_AFTER:
                    # who took it may have died of it before the claim was sent
                    self._lose_unseen(place, "its batch vanished from the queue")
            elif place.worker not in self.workers:
                # claimed by somebody of whom no beat was ever seen
                if self._clock - (place.since or 0) > DEAD_AFTER:
                    self._lose_unseen(place, "its worker is unknown")
            elif self.workers[place.worker].beat.role in held_back:
                place.since = self._clock
            elif caps:
                self._check_caps(place)
        lost, self._lost = self._lost, []
        return lost

    def _caps_are_due(self) -> bool:
        due = self._clock >= self._caps_due
        if due:
            self._caps_due = self._clock + _CAPS_EACH
        return due

    def lose_unheld(self, reason: str) -> None:
        """No queue has them: what no worker holds is lost."""
        for place in [place for place in self._batches.values() if place.worker is None]:
            self._lose_all(place, reason)

    def _check_caps(self, place: _Batch) -> None:
        since = place.since or 0.0
        for key in list(place.keys):
            lease = self._leases[key]
            if self._clock - max(since, lease.heard) > lease.cap:
                self._lose(key, "past its time limit")

    # --- within ---------------------------------------------------------------------------------------------------------

    def _with(self, run: RunKey, worker: str) -> bool:
        lease = self._leases.get(run[:2])
        return lease is not None and lease.run == run and lease.batch.worker == worker

    def _further_on(self, run: RunKey, queue: str) -> bool:
        """Its lease is with a worker or on a queue behind ``queue``: what was said of it there came before an earlier claim."""
        lease = self._leases.get(run[:2])
        if lease is None or lease.run != run:
            return False
        return _STAGE.get(lease.batch.queue, 0) > _STAGE.get(queue, 0)

    def _move(self, runs: Iterable[RunKey], place: _Batch) -> None:
        for run in runs:
            lease = self._leases.get(run[:2])
            if lease is not None and lease.run == run and lease.batch is not place:
                lease.batch.keys.discard(run[:2])
                self._drop_if_empty(lease.batch)
                lease.batch = place
                place.keys.add(run[:2])

    def _next_number(self) -> int:
        self._put += 1
        return self._put

    def _later_one_claimed(self, claimed: _Batch, since: float) -> None:
        """Queues are first in, first out: what was put earlier is no longer there."""
        for place in self._batches.values():
            waits = place.worker is None and place.evidence is None
            if not waits or place.queue != claimed.queue or place.since is None:
                continue
            if place.number < claimed.number if place.sender == claimed.sender else place.since < since - ORDER_KNOWN:
                place.evidence = self._clock

    def _bury(self, name: str, *, died: bool) -> None:
        worker = self.workers.pop(name, None)
        self._buried = [*self._buried[-MOST_SILENT:], name] if died else self._buried
        running = worker.beat.running if worker and died else None
        if running and self._with(running, name):
            self.blame.count_silent(name, running[:2])
        ran_scripts = died and worker is not None and worker.beat.role == Role.PROCESSOR
        for place in [place for place in self._batches.values() if place.worker == name]:
            if ran_scripts:
                self.blame.suspect(place.keys)
            self._lose_all(place, "its worker died" if died else "its worker left")

    def _lose_unseen(self, place: _Batch, reason: str) -> None:
        if place.queue in _SCRIPTS:
            self.blame.suspect(place.keys)
        self._lose_all(place, reason)

    def _lose_all(self, place: _Batch, reason: str) -> None:
        for key in list(place.keys):
            self._lose(key, reason)
        self._batches.pop(place.id, None)

    def _lose(self, key: LeaseKey, reason: str) -> None:
        lease = self._leases[key]
        self._lost.append(Lost(lease.run, reason, lease.ticket, self.blame.deaths(key)))
        self._leave(key)

    def _enter(self, lease: _Lease) -> None:
        key = lease.run[:2]
        self._leases[key] = lease
        lease.batch.keys.add(key)
        if lease.run[2] == CONTROL_RUN:
            self.controls += 1
        else:
            self.tasks[key[0]] += 1

    def _leave(self, key: LeaseKey) -> None:
        lease = self._leases.pop(key, None)
        if lease is not None:
            if lease.run[2] == CONTROL_RUN:
                self.controls -= 1
            else:
                self.tasks[key[0]] -= 1
            self.uncapped.discard(key)
            lease.batch.keys.discard(key)
            self._drop_if_empty(lease.batch)

    def _drop_if_empty(self, place: _Batch) -> None:
        if not place.keys:
            self._batches.pop(place.id, None)
