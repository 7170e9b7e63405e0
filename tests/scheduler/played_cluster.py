"""The parts of a cluster that `lease_histories` plays: workers of each role, and a leader with the scheduler's real lease keeping and its
real rule for reports.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from pyspider_lite.models.names import QueueName, Role, RunKey
from pyspider_lite.models.project import ProjectState
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Beat, Claim, Handover, Release
from pyspider_lite.scheduler.leases import POISON_AFTER, Leases
from pyspider_lite.scheduler.plan import Plan
from pyspider_lite.scheduler.project_plan import ProjectPlan

if TYPE_CHECKING:
    from lease_histories import World

#: seconds of one step
STEP = 0.5
#: seconds that one worker may hold a run at most
CAP = 15.0

FETCH, PAGES, RESULTS = QueueName.TO_FETCHER, QueueName.TO_PROCESSOR, QueueName.RESULTS
INBOUND = {Role.FETCHER: FETCH, Role.PROCESSOR: PAGES, Role.RESULT_WORKER: RESULTS}
HANDS = {Role.FETCHER: 10, Role.PROCESSOR: 6, Role.RESULT_WORKER: 10}
PROJECT = "p"


class Worker:
    """A worker of any role. What it says waits in ``unsent`` until it reaches status_queue, in its order."""

    def __init__(self, world: "World", role: Role) -> None:
        self.world, self.role = world, role
        self.name = f"{role}-{world.number()}"
        self.holds: dict[str, list[RunKey]] = {}
        self.unsent: deque[Any] = deque()
        self.running: RunKey | None = None
        #: beats: the last that was heard, and those made after it; any of them may be the last that ever is
        self.beats: deque[Beat] = deque()
        self.next_beat = 0.0
        self.frozen_at: float | None = None
        self.frozen_until = self.cut_until = 0.0
        #: until then it works and says nothing: its other threads get no time
        self.mute_until = 0.0
        #: silent without being dead, and not heard again since
        self.silent = False
        #: taken in this step: a broker that was not acknowledged in time gives it to another
        self.just_taken: tuple[str, list[RunKey]] | None = None
        #: these never end here
        self.stuck: set[RunKey] = set()
        #: the last beat named a suspect
        self.announced = False

    @property
    def frozen(self) -> bool:
        return self.world.now < self.frozen_until

    @property
    def runs(self) -> list[RunKey]:
        return [run for runs in self.holds.values() for run in runs]

    @property
    def named(self) -> set[RunKey]:
        """What the scheduler may think that it runs."""
        return {beat.running for beat in self.beats if beat.running is not None}

    def freeze(self, seconds: float) -> None:
        self.frozen_at, self.frozen_until, self.silent = self.world.now, self.world.now + seconds, True

    def cut(self, seconds: float) -> None:
        self.cut_until, self.silent = self.world.now + seconds, True

    def step(self) -> None:
        self.just_taken = None
        if self.frozen:
            return
        if self.frozen_at is not None:
            self._wake(self.world.now - self.frozen_at)
        if not self.world.broker or self.world.now < self.cut_until:
            return
        self._take()
        self._work()
        if self not in self.world.workers:
            return
        self.holds = {batch: runs for batch, runs in self.holds.items() if runs}
        if self.role is Role.PROCESSOR and not self.world.killers:
            self.running = next(iter(self.runs), None)
        if self.world.now >= self.next_beat:
            self.beat()
        if self.world.now >= self.mute_until and self.world.random.random() < 0.8:
            self._flush()

    def beat(self, leaving: bool = False) -> None:
        self.next_beat = self.world.now + 2.0
        holds = {} if leaving else {batch: list(runs) for batch, runs in self.holds.items()}
        beat = Beat(
            worker=self.name,
            role=self.role,
            host="h",
            pid=1,
            pool_size=10,
            holds=holds,
            running=None if leaving else self.running,
            leaving=leaving,
        )
        self.beats.append(beat)
        self.unsent.append(beat)

    def _flush(self) -> None:
        """A server that was frozen, and answered too late, may have the message twice: whoever put it has put it again."""
        twice = self.world.doubles and self.world.random.random() < 0.2
        for _ in range(2 if twice else 1):
            self.world.status.extend(self.unsent)
        self.unsent.clear()

    def leave(self) -> None:
        """SIGTERM: gives everything back. The callback that runs is cut off."""
        begun = [run for run in self.runs if self.role is Role.PROCESSOR and run == self.running]
        for runs, cut_off in (([run for run in self.runs if run not in begun], False), (begun, True)):
            self.unsent.append(Release(worker=self.name, runs=runs, cut_off=cut_off))
        self.world.oracle.kills.update(taskid for _, taskid, _ in begun)
        self.beat(leaving=True)
        self.holds.clear()

    def _wake(self, seconds: float) -> None:
        self.frozen_at = None
        if seconds <= 6.0 or self.role is Role.RESULT_WORKER:
            return
        # what was not started is dropped
        if self.role is Role.FETCHER:
            self.unsent.append(Release(worker=self.name, runs=self.runs))
        started = self.running if self.role is Role.PROCESSOR else None
        self.holds = {batch: [run for run in runs if run == started] for batch, runs in self.holds.items()}

    def _take(self) -> None:
        queue = INBOUND[self.role]
        waiting = self.world.queues[queue]
        if waiting and len(self.runs) < HANDS[self.role]:
            batch, runs = self.just_taken = waiting.pop(0)
            self.stuck.difference_update(runs)
            for run in runs:
                for others in self.holds.values():
                    if run in others:
                        others.remove(run)
            self.holds[batch] = list(runs)
            self.unsent.append(Claim(worker=self.name, queue=queue, batch=batch, runs=list(runs)))

    def _work(self) -> None:
        chance = self.world.random.random
        if self.role is Role.FETCHER:
            done = [run for run in self.runs if chance() < 0.4 and run not in self.stuck]
            self._hand_over(PAGES, done)
        elif self.role is Role.PROCESSOR and self.world.killers:
            self._run_scripts()
        elif self.role is Role.PROCESSOR:
            done = [run for run in self.runs[:4] if chance() < 0.7 and run not in self.stuck]
            with_items = [run for run in done if chance() < 0.5]
            self._hand_over(RESULTS, with_items)
            self._report([run for run in done if run not in with_items])
        elif self.world.database:
            self._report(self.runs)

    def _run_scripts(self) -> None:
        """As processors do among scripts that kill them: what one may have died of comes last, alone, and is named before it begins."""
        flagged, chance = self.world.flagged, self.world.random.random
        for run in sorted(self.runs, key=flagged.__contains__)[:4]:
            suspect = run in flagged
            if suspect or self.announced:
                self.running, self.announced = run if suspect else None, suspect
                self.beat()
                self._flush()
            self.running = run
            if run[1] in self.world.killers:
                self.world.oracle.died_of(self, run)
                self.world.replace(self)
                return
            if run in self.stuck or chance() > 0.7:
                return  # it goes on
            self.running = None
            if chance() < 0.5:
                self._hand_over(RESULTS, [run])
            else:
                self._report([run])

    def _hand_over(self, queue: str, runs: list[RunKey]) -> None:
        if runs:
            self._forget(runs)
            batch = f"{self.name}:{self.world.number()}"
            self.world.put(queue, batch, runs)
            self.unsent.append(Handover(worker=self.name, queue=queue, batch=batch, runs=list(runs)))

    def _report(self, runs: list[RunKey]) -> None:
        self._forget(runs)
        for project, taskid, run in runs:
            ok = self.world.random.random() < 0.85
            self.unsent.append(Report(project=project, taskid=taskid, url="u", run=run, ok=ok))

    def _forget(self, runs: list[RunKey]) -> None:
        self.holds = {batch: [run for run in held if run not in runs] for batch, held in self.holds.items()}


class Leader:
    """What `Scheduler` and its daemon do with `Leases`, in one object for one term."""

    def __init__(self, world: "World", adopt_for: float) -> None:
        self.world = world
        self.leases = Leases()
        self.adopt_until = world.now + adopt_for
        self.backlog: list[Report] = []
        self.pending: list[tuple[str, list[RunKey]]] = []
        self.sent: list[str] = []
        self.asked: float | None = None
        self.heard_at = world.now
        self.connected, self.database = True, True
        self.drained = False

    def step(self) -> None:
        world = self.world
        items = self._receive()
        self.drained = len(items) < 64 and self.connected and world.now - self.heard_at <= 1.5
        self.leases.advance(world.now + world.clock_error, drained=self.drained and self.database)
        self._publish()
        for item in items:
            self._hear(item)
        self._measure()
        self.database = world.database
        if not self.database:
            self.leases.fresh_term()
            return
        for key in list(self.leases.uncapped):
            if (self.leases.run_of(*key) or 0) < world.rows[key[1]].run:
                self.leases.end(*key)
            else:
                self.leases.set_cap(key, CAP)
        self._commit(self.backlog, {"": 1.0})
        self.backlog = []
        self._requeue_lost()
        if world.now >= self.adopt_until:
            self._dispatch()

    def _receive(self) -> list[Any]:
        """What the consumer brings; a connection that hangs brings nothing, and says nothing."""
        world = self.world
        reachable = world.broker and world.now >= world.leader_cut_until
        if not reachable:
            self.connected = False
            return []
        if world.now < world.deaf_until:
            return []
        if not self.connected or world.now - self.heard_at > 4.0:
            self.connected = True
            self.leases.fresh_term()
        self.heard_at = world.now
        return [world.status.popleft() for _ in range(min(64, len(world.status)))]

    def _publish(self) -> None:
        for batch in self.sent:
            self.leases.sent(batch)
        self.sent = []
        if self.connected:
            self.sent = [batch for batch, _ in self.pending]
            for batch, runs in self.pending:
                self.world.put(FETCH, batch, runs)
            self.pending = []

    def _hear(self, item: Any) -> None:
        match item:
            case Report():
                self.backlog.append(item)
                self.leases.reported(item.key)
            case Claim():
                self.leases.claim(item)
                self.world.oracle.claimed(item.queue, item.batch)
            case Handover():
                self.leases.hand_over(item)
            case Beat():
                self.leases.beat(item)
                self.world.oracle.heard(item)
            case Release():
                self.leases.release(item)

    def _measure(self) -> None:
        if not self.connected:
            return
        if self.asked is not None:
            for name, waiting in self.world.queues.items():
                if not waiting:
                    self.leases.seen_empty(name, self.asked)
        self.asked = self.leases.clock

    def _commit(self, reports: list[Report], delays: dict[str, float]) -> None:
        world = self.world
        if not reports:
            return
        plan = Plan(world.now, self.leases.run_of)
        stored = {report.taskid: world.rows[report.taskid] for report in reports}
        planned = plan.projects[PROJECT] = ProjectPlan(counts=ProjectState(project=PROJECT), stored=stored)
        for report in reports:
            plan.end_task(report, delays)
        for report in plan.applied:
            world.oracle.applied(report.key)
        world.rows.update(planned.stored)
        for report in reports:
            if self.leases.run_of(*report.key[:2]) == report.run:
                self.leases.end(*report.key[:2])

    def _requeue_lost(self) -> None:
        before = set(self.leases.workers)
        lost = self.leases.check(frozenset({Role.RESULT_WORKER}))
        self.world.oracle.buried(before - set(self.leases.workers))
        for one in lost:
            self.world.oracle.lost(one.run, one.reason, one.deaths)
            if one.deaths >= POISON_AFTER:
                project, taskid, run = one.run
                self._commit([Report(project=project, taskid=taskid, url="u", run=run, ok=False)], {"": -1.0})
                self.leases.blame.acquit(one.run[:2])
                self.world.oracle.poisoned.add(taskid)

    def _dispatch(self) -> None:
        self.leases.adopting = False
        flying = self.leases.in_flight()
        due = [run for run in self.world.due() if run[:2] not in flying]
        for start in range(0, len(due), 5):
            runs = due[start : start + 5]
            batch = f"scheduler-{self.world.number()}"
            self.leases.dispatch(batch, FETCH, [(run, run, CAP) for run in runs])
            for run in runs:
                (self.world.flagged.add if run[:2] in self.leases.blame.suspects else self.world.flagged.discard)(run)
            self.pending.append((batch, runs))
