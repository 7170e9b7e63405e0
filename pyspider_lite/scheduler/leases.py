"""Which runs in flight are lost (design, section 4; docs/architecture.md), from what workers say and do not say. Pure.

`places` knows where each run is. Time here is that of `heard_clock`: only what goes by while the scheduler keeps up with ``status_queue``.
"""

import math
from collections.abc import Iterable, KeysView
from typing import Any

from msgspec import Struct

from pyspider_lite.models.names import QueueName, Role, RunKey
from pyspider_lite.models.worker import Beat, Claim, Handover, Release
from pyspider_lite.scheduler.blame import MOST_SILENT, Blame, LeaseKey
from pyspider_lite.scheduler.heard_clock import HeardClock
from pyspider_lite.scheduler.places import Batch, Lease, Places

#: seconds without a beat after which a worker is dead: three beats
DEAD_AFTER = 6.0
#: seconds after which a batch that should have been claimed is lost
UNCLAIMED_AFTER = 4.0
#: deaths of a worker while it ran a task after which that task fails; to have to end before the task did is one, too
POISON_AFTER = 3
#: seconds between two looks at who holds something for too long: there may be thousands of runs
_CAPS_EACH = 0.25
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
        #: `pool_sizes` as it was worked out last: each step asks, and seldom has a worker come, gone or changed
        self._pools: dict[str, list[int]] = {}
        #: workers that died since somebody asked
        self._buried: list[str] = []
        #: queues that others' code works on: what vanishes there may have ended its worker
        self._scripts: set[str] = set(_SCRIPTS)
        #: workers that died with the leader before us; what they said before that may still be heard
        self._gone: set[str] = set()
        self._places = Places()
        #: how many tasks are in flight, by project
        self.tasks = self._places.tasks
        #: how much control work is, likewise
        self.controls_of = self._places.controls_of
        #: adopted runs whose cap nobody has looked up yet
        self.uncapped: set[LeaseKey] = set()
        self._lost: list[Lost] = []
        #: when a worker of each role was heard last, in the clock of `advance`
        self._heard: dict[str, float] = {}
        #: what a worker holds and we do not know is taken over: until something is given out, afterwards it is a run that is over
        self.adopting = True
        self._clock = HeardClock()
        #: when to look at caps again
        self._caps_due = 0.0
        #: when the last term began
        self._term = -math.inf

    def __len__(self) -> int:
        return len(self._places.leases)

    @property
    def clock(self) -> float:
        """Seconds in which the scheduler kept up, since it began."""
        return self._clock.seconds

    @property
    def controls(self) -> int:
        """How much control work is in flight."""
        return self._places.controls

    def run_of(self, project: str, taskid: str) -> int | None:
        """The number of the run in flight."""
        lease = self._places.leases.get((project, taskid))
        return lease.run[2] if lease else None

    def in_flight(self) -> KeysView[LeaseKey]:
        """Everything in flight."""
        return self._places.leases.keys()

    def pool_sizes(self, role: str) -> list[int]:
        """Pool sizes of the workers of a role that are at work: alive, and neither paused nor draining."""
        pools = self._pools.get(role)
        if pools is None:
            beats = (worker.beat for worker in self.workers.values())
            pools = self._pools[role] = [beat.pool_size for beat in beats if beat.role == role and not beat.state]
        return pools

    def silence(self, role: str) -> float:
        """Seconds since a worker of a role was heard last, or since we began to listen; 0 while one is taken for alive."""
        if any(worker.beat.role == role for worker in self.workers.values()):
            return 0.0
        return self.clock - self._heard.get(role, 0.0)

    # --- what happens to a run ------------------------------------------------------------------------------------------

    def dispatch(self, batch: str, queue: str, runs: Iterable[tuple[RunKey, Any, float]]) -> None:
        """Runs were handed to the publisher: key, ticket, and the seconds a worker may take at most."""
        place = self._places.batches[batch] = Batch(batch, queue, None)
        for run, ticket, cap in runs:
            self._leave(run[:2])
            self._places.enter(Lease(run, place, ticket, cap))

    def set_cap(self, key: LeaseKey, cap: float) -> None:
        """How many seconds a worker may take at most for a run that was adopted."""
        self.uncapped.discard(key)
        if (lease := self._places.leases.get(key)) is not None:
            lease.cap = cap

    def sent(self, batch: str) -> None:
        """The publisher has put the batch on its queue."""
        place = self._places.batches.get(batch)
        if place is not None and place.since is None:
            place.since, place.number = self.clock, self._places.next_number()

    def claim(self, claim: Claim) -> None:
        """A worker took a batch off its queue."""
        place = self._places.batches.get(claim.batch)
        if place is None:
            # nobody said yet when it was put, so it proves nothing about others
            place = self._places.batches[claim.batch] = Batch(claim.batch, claim.queue, None)
        if place.since is not None and place.worker is None:
            self._places.later_one_claimed(place, place.since, self.clock)
        place.worker, place.since, place.evidence = claim.worker, self.clock, None
        # workers further on may have been heard before this one: they have the run now
        self._places.move((run for run in claim.runs if not self._places.is_further_on(run, claim.queue)), place)
        self._places.drop_if_empty(place)

    def hand_over(self, handover: Handover) -> None:
        """A worker put runs that it held onto a queue, as a new batch."""
        place = self._places.batches.get(handover.batch)
        if place is None:
            place = self._places.batches[handover.batch] = Batch(
                handover.batch, handover.queue, self.clock, handover.worker, self._places.next_number()
            )
        # a receiver's claim may have come before this: then they are in its hands already
        self._places.move((run for run in handover.runs if self._places.is_with(run, handover.worker)), place)
        self._places.drop_if_empty(place)

    def release(self, release: Release) -> None:
        """A worker gives back what is not over. What it had begun may be why it has to end: it is a suspect then, and counts as a death."""
        for run in release.runs:
            if self._places.is_with(run, release.worker):
                if release.cut_off:
                    self.blame.count(run[:2])
                    self.blame.suspect([run[:2]])
                self._lose(run[:2], "cut off" if release.cut_off else "released")

    def goes_on(self, run: RunKey) -> None:
        """A part of its report is here: its time begins anew."""
        if (lease := self._places.find(run)) is not None:
            lease.heard = self.clock

    def reported(self, run: RunKey) -> None:
        """All that it reports is here and waits for the commit: from now on it cannot be lost, whatever its worker says."""
        if self._places.find(run) is not None:
            self._places.move([run], Batch("", "", None))

    def end(self, project: str, taskid: str) -> Any:
        """The run is over; its ticket, None if it was not in flight."""
        key = (project, taskid)
        self.blame.acquit(key)
        lease = self._leave(key)
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
        for key in [key for key in self._places.leases if key[0] == project]:
            self._leave(key)
        self.blame.forget(project)
        self._lost = [lost for lost in self._lost if lost.run[0] != project]

    def seen_empty(self, queue: str, asked: float) -> None:
        """The queue held no message when it was measured, which was not before ``asked`` (in the time of `clock`)."""
        # what was measured before the term began is no news
        if asked > self._term:
            self._places.seen_empty(queue, asked, self.clock)

    # --- beats and time -------------------------------------------------------------------------------------------------

    def beat(self, beat: Beat) -> None:
        """A worker lives and says what it holds. What it no longer holds is lost; what a new leader does not know is adopted."""
        if beat.worker in self._gone:
            return
        self.blame.absolve(beat.worker)
        if beat.leaving:
            self._bury(beat.worker, died=False)
            return
        before = self.workers.get(beat.worker)
        if before is None or (before.beat.pool_size, before.beat.state) != (beat.pool_size, beat.state):
            self._pools.clear()
        self.workers[beat.worker] = Worker(beat, self.clock)
        if beat.own_class:
            self._scripts.add(QueueName.RESULTS)
        self._heard[beat.role] = self.clock
        held: set[LeaseKey] = set()
        for batch, runs in beat.holds.items():
            place = self._places.batches.get(batch)
            if place is None:
                place = self._places.batches[batch] = Batch(batch, "", self.clock)
                place.worker = beat.worker
            elif place.worker is None:
                # the claim was lost on its way
                place.worker, place.since, place.evidence = beat.worker, self.clock, None
            for run in runs:
                held.add(run[:2])
                if self.adopting and run[:2] not in self._places.leases:
                    self._places.enter(Lease(run, place, None, math.inf))
                    self.uncapped.add(run[:2])
            self._places.drop_if_empty(place)
        self._lose_what_is_gone(beat.worker, held)

    def _lose_what_is_gone(self, worker: str, held: set[LeaseKey]) -> None:
        for place in self._places.held_by(worker):
            for key in list(place.keys - held):
                self._lose(key, "no longer with its worker")

    def advance(self, now: float, *, drained: bool) -> None:
        """Time went by, as `HeardClock.advance` says it."""
        self._clock.advance(now, drained=drained)

    def fresh_term(self) -> None:
        """After a reconnect or a takeover: everybody gets a new term, which begins with the next `advance`. The order in which batches were
        put stays known, and what had left its queue by then."""
        self._term = self.clock
        self._clock.begin_anew()
        for worker in self.workers.values():
            worker.last_seen = self.clock
        for place in self._places.batches.values():
            if place.evidence is not None:
                # who took it has a whole term to say so
                place.evidence = self.clock + DEAD_AFTER - UNCLAIMED_AFTER
            if place.worker is not None:
                place.since = self.clock

    def check(self, held_back: frozenset[str] = frozenset()) -> list[Lost]:
        """Everything lost since the last call. Workers of the roles in ``held_back`` wait for room in their outgoing queue:
        their caps do not count."""
        for name, worker in list(self.workers.items()):
            if self.clock - worker.last_seen > DEAD_AFTER:
                self._bury(name, died=True)
        caps = self._caps_are_due()
        for place in list(self._places.batches.values()):
            if place.worker is None:
                if place.evidence is not None and self.clock - place.evidence > UNCLAIMED_AFTER:
                    # who took it may have died of it before the claim was sent
                    self._lose_unseen(place, "its batch vanished from the queue")
            elif place.worker not in self.workers:
                # claimed by somebody of whom no beat was ever seen
                if self.clock - (place.since or 0) > DEAD_AFTER:
                    self._lose_unseen(place, "its worker is unknown")
            elif self.workers[place.worker].beat.role in held_back:
                place.since = self.clock
            elif caps:
                self._check_caps(place)
        lost, self._lost = self._lost, []
        return lost

    def _caps_are_due(self) -> bool:
        due = self.clock >= self._caps_due
        if due:
            self._caps_due = self.clock + _CAPS_EACH
        return due

    def lose_unheld(self, reason: str) -> None:
        """No queue has them: what no worker holds is lost."""
        for place in self._places.on_queues():
            self._lose_all(place, reason)

    def _check_caps(self, place: Batch) -> None:
        since = place.since or 0.0
        for key in list(place.keys):
            lease = self._places.leases[key]
            if self.clock - max(since, lease.heard) > lease.cap:
                self._lose(key, "past its time limit")

    # --- within ---------------------------------------------------------------------------------------------------------

    def _bury(self, name: str, *, died: bool) -> None:
        worker = self.workers.pop(name, None)
        self._pools.clear()
        self._buried = [*self._buried[-MOST_SILENT:], name] if died else self._buried
        running = worker.beat.running if worker and died else None
        if running and self._places.is_with(running, name):
            self.blame.count_silent(name, running[:2])
        ran_scripts = died and worker is not None and (worker.beat.role == Role.PROCESSOR or worker.beat.own_class)
        for place in self._places.held_by(name):
            if ran_scripts:
                self.blame.suspect(place.keys)
            self._lose_all(place, "its worker died" if died else "its worker left")

    def _lose_unseen(self, place: Batch, reason: str) -> None:
        if place.queue in self._scripts:
            self.blame.suspect(place.keys)
        self._lose_all(place, reason)

    def _lose_all(self, place: Batch, reason: str) -> None:
        for key in list(place.keys):
            self._lose(key, reason)
        self._places.batches.pop(place.id, None)

    def _lose(self, key: LeaseKey, reason: str) -> None:
        lease = self._places.leases[key]
        self._lost.append(Lost(lease.run, reason, lease.ticket, self.blame.deaths(key)))
        self._leave(key)

    def _leave(self, key: LeaseKey) -> Lease | None:
        self.uncapped.discard(key)
        return self._places.leave(key)
