"""Random histories of a cluster with a counted clock: the scheduler's real lease keeping, and its real rule for reports, among workers,
queues and a table that are played. `Oracle` knows where every copy of every run really is and looks at nothing that the scheduler remembers.
"""

import random
from collections import Counter, deque
from typing import Any

from pyspider_lite.models import (
    Beat,
    Claim,
    Handover,
    ProjectState,
    QueueName,
    Release,
    Report,
    Role,
    RunKey,
    TaskState,
    TaskStatus,
)
from pyspider_lite.scheduler.leases import POISON_AFTER, Leases
from pyspider_lite.scheduler.plan import Plan, ProjectPlan

#: seconds of one step
STEP = 0.5
#: seconds that one worker may hold a run at most
CAP = 15.0
#: seconds, while everything else works, within which a run that nobody has any more is given out again
BOUND = 8.0
#: seconds within which everybody has found a server again that is back
RECONNECT = 4.0

_FETCH, _PAGES, _RESULTS = QueueName.TO_FETCHER, QueueName.TO_PROCESSOR, QueueName.RESULTS
_INBOUND = {Role.FETCHER: _FETCH, Role.PROCESSOR: _PAGES, Role.RESULT_WORKER: _RESULTS}
_HANDS = {Role.FETCHER: 10, Role.PROCESSOR: 6, Role.RESULT_WORKER: 10}
_PROJECT = "p"


class Violation(AssertionError):
    """The oracle objects."""


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
        #: silent without being dead, and not heard again since
        self.silent = False
        #: taken in this step: a broker that was not acknowledged in time gives it to another
        self.just_taken: tuple[str, list[RunKey]] | None = None
        #: these never end here
        self.stuck: set[RunKey] = set()

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
        self.holds = {batch: runs for batch, runs in self.holds.items() if runs}
        if self.role is Role.PROCESSOR:
            self.running = next(iter(self.runs), None)
        if self.world.now >= self.next_beat:
            self.beat()
        if self.world.random.random() < 0.8:
            self.world.status.extend(self.unsent)
            self.unsent.clear()

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

    def leave(self) -> None:
        """SIGTERM: gives everything back."""
        self.unsent.append(Release(worker=self.name, runs=self.runs))
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
        queue = _INBOUND[self.role]
        waiting = self.world.queues[queue]
        if waiting and len(self.runs) < _HANDS[self.role]:
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
            self._hand_over(_PAGES, done)
        elif self.role is Role.PROCESSOR:
            done = [run for run in self.runs[:4] if chance() < 0.7 and run not in self.stuck]
            with_items = [run for run in done if chance() < 0.5]
            self._hand_over(_RESULTS, with_items)
            self._report([run for run in done if run not in with_items])
        elif self.world.database:
            self._report(self.runs)

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
                self.world.put(_FETCH, batch, runs)
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
                self.leases.release(item.worker, item.runs)

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
        planned = plan.projects[_PROJECT] = ProjectPlan(counts=ProjectState(project=_PROJECT), stored=stored)
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
                self.leases.deaths.pop(one.run[:2], None)

    def _dispatch(self) -> None:
        self.leases.adopting = False
        flying = self.leases.in_flight()
        due = [run for run in self.world.due() if run[:2] not in flying]
        for start in range(0, len(due), 5):
            runs = due[start : start + 5]
            batch = f"scheduler-{self.world.number()}"
            self.leases.dispatch(batch, _FETCH, [(run, run, CAP) for run in runs])
            self.pending.append((batch, runs))


class Oracle:
    """Judges by what really is."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.ends: Counter[RunKey] = Counter()
        #: workers killed while the last beat that was heard of them, or a later one, named this task
        self.kills: Counter[str] = Counter()
        #: for how long nobody has had this run
        self.missing: dict[RunKey, float] = {}
        self.losses: Counter[str] = Counter()
        self.longest = 0.0
        #: where each run went last, when each batch was put, and how far each queue has come, as was heard
        self.last: dict[RunKey, tuple[str, str]] = {}
        self.put_at: dict[str, float] = {}
        self.come_to: dict[str, float] = {}
        self.claims: set[str] = set()

    def fail(self, what: str) -> None:
        raise Violation(f"{what}, at {self.world.now} s of history {self.world.seed}: {self.world.faults}")

    def applied(self, run: RunKey) -> None:
        self.ends[run] += 1
        if self.ends[run] > 1:
            self.fail(f"{run} was applied twice")

    def killed(self, worker: Worker) -> None:
        self.kills.update({taskid for _, taskid, _ in worker.named})

    def put(self, queue: str, batch: str, runs: list[RunKey]) -> None:
        self.put_at[batch] = self.world.now
        for run in runs:
            self.last[run] = queue, batch

    def claimed(self, queue: str, batch: str) -> None:
        self.claims.add(batch)
        self.come_to[queue] = max(self.come_to.get(queue, 0.0), self.put_at[batch])

    def heard(self, beat: Beat) -> None:
        for worker in self.world.workers + self.world.left:
            if worker.name == beat.worker:
                while worker.beats[0] is not beat:
                    worker.beats.popleft()
                if not worker.frozen and self.world.now >= worker.cut_until:
                    worker.silent = False

    def buried(self, names: set[str]) -> None:
        for worker in self.world.workers:
            if worker.name in names and not worker.silent:
                self.fail(f"{worker.name} lives and was taken for dead")

    def lost(self, run: RunKey, reason: str, deaths: int) -> None:
        self.losses[reason] += 1
        if reason == "its batch vanished from the queue" and any(
            run in runs for waiting in self.world.queues.values() for _, runs in waiting
        ):
            self.losses["still there"] += 1
        silent = [worker for worker in self.world.workers if worker.silent] + self.world.left
        if deaths > self.kills[run[1]] + sum(run in worker.named for worker in silent):
            self.fail(
                f"{deaths} deaths are counted against {run}, but {self.kills[run[1]]} workers were killed over it"
            )

    def look(self) -> None:
        """After each step: is a run forgotten?"""
        world = self.world
        leader = world.leader
        if leader is None or not leader.drained or not world.database or world.now < leader.adopt_until:
            self.missing.clear()
            return
        live = self._live(leader)
        missing = {
            run: 0.0 if self._nobody_can_know(run) else self.missing.get(run, -STEP) + STEP
            for run in world.due()
            if run not in live
        }
        self.missing = missing
        for run, seconds in missing.items():
            self.longest = max(self.longest, seconds)
            if seconds > BOUND:
                self.fail(f"{run} was given to nobody for {seconds} s")

    def _nobody_can_know(self, run: RunKey) -> bool:
        """Who put its batch has not come to say so; or it was taken without a word, or vanished, and of the others in the queue nobody
        has taken one that is surely later."""
        queue, batch = self.last.get(run, ("", ""))
        if not queue or batch in self.claims:
            return False
        for worker in self.world.workers:
            if worker.silent and batch.startswith(f"{worker.name}:"):
                return True
            if any(isinstance(item, Handover) and item.batch == batch for item in worker.unsent):
                return True
        return bool(self.world.queues[queue]) and self.come_to.get(queue, 0.0) < self.put_at[batch] + 2.0

    def _live(self, leader: Leader) -> set[RunKey]:
        """Runs of which somebody has a copy."""
        world = self.world
        live = {run for waiting in world.queues.values() for _, runs in waiting for run in runs}
        for worker in world.workers:
            if not worker.frozen:
                live.update(worker.runs)
                live.update(item.key for item in worker.unsent if isinstance(item, Report))
        live.update(item.key for item in world.status if isinstance(item, Report))
        live.update(report.key for report in leader.backlog)
        live.update(run for _, runs in leader.pending for run in runs)
        return live

    def end(self) -> None:
        """After the quiet time: everything is over, once."""
        world = self.world
        for taskid, row in world.rows.items():
            if row.status == TaskStatus.ACTIVE:
                self.fail(f"{taskid} is not over")
            if [self.ends[_PROJECT, taskid, run] for run in range(row.run)] != [1] * row.run:
                self.fail(f"{taskid}: not every run ended once")
        assert world.leader is not None
        leases = world.leader.leases
        if len(leases) or leases.tasks.total() or leases._batches:
            self.fail("leases are left over")


class World:
    """One history: ``seed`` decides everything in it."""

    def __init__(self, seed: int, tasks: int = 24) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.clock_error = 0.0
        self.faults: list[str] = []
        self._number = 0
        self.queues: dict[str, list[tuple[str, list[RunKey]]]] = {name: [] for name in (_FETCH, _PAGES, _RESULTS)}
        self.status: deque[Any] = deque()
        self.broker_until = self.database_until = self.deaf_until = self.leader_cut_until = 0.0
        self.rows = {
            f"t{number}": TaskState(
                taskid=f"t{number}",
                status=TaskStatus.ACTIVE,
                schedule={},
                lastcrawltime=None,
                due=self.random.uniform(0, 15),
                priority=0,
                run=0,
                seq=number,
            )
            for number in range(tasks)
        }
        self.oracle = Oracle(self)
        self.workers = [Worker(self, role) for role in _INBOUND for _ in range(2)]
        self.hiring: list[tuple[float, Role]] = []
        #: terminated; who has not heard that they leave may think that they died
        self.left: list[Worker] = []
        self.leader: Leader | None = Leader(self, 0.0)
        self.leads_at = 0.0

    def put(self, queue: str, batch: str, runs: list[RunKey]) -> None:
        self.queues[queue].append((batch, list(runs)))
        self.oracle.put(queue, batch, runs)

    def number(self) -> int:
        self._number += 1
        return self._number

    @property
    def broker(self) -> bool:
        return self.now >= self.broker_until

    @property
    def database(self) -> bool:
        return self.now >= self.database_until

    def due(self) -> list[RunKey]:
        return [
            (_PROJECT, row.taskid, row.run)
            for row in self.rows.values()
            if row.status == TaskStatus.ACTIVE and row.due is not None and row.due <= self.now
        ]

    def play(self, seconds: float = 25.0, quiet: float = 90.0) -> None:
        """Faults for so many seconds, then time for everything to end."""
        count = self.random.randrange(1, 9)
        times = sorted(self.random.uniform(0, seconds) for _ in range(count))
        while self.now < seconds:
            while times and times[0] <= self.now:
                times.pop(0)
                self._break_something()
            self._step()
        self._mend()
        end = self.now + quiet
        while self.now < end and (self.leader is None or self._open()):
            self._step()
        self.oracle.end()

    def _open(self) -> bool:
        assert self.leader is not None
        return bool(len(self.leader.leases)) or any(row.status == TaskStatus.ACTIVE for row in self.rows.values())

    def _step(self) -> None:
        self.now += STEP
        for at, role in [one for one in self.hiring if one[0] <= self.now]:
            self.hiring.remove((at, role))
            self.workers.append(Worker(self, role))
        for worker in self.random.sample(self.workers, len(self.workers)):
            worker.step()
        if self.leader is None and self.now >= self.leads_at and self.broker and self.database:
            self.queues[_FETCH].clear()
            self.leader = Leader(self, 2.5)
        if self.leader is not None:
            self.leader.step()
        self.oracle.look()

    def _mend(self) -> None:
        self.broker_until = self.database_until = self.deaf_until = 0.0
        for worker in self.workers:
            worker.frozen_until = min(worker.frozen_until, self.now)
            worker.cut_until = min(worker.cut_until, self.now)

    # --- faults ---------------------------------------------------------------------------------------------------------

    def _break_something(self) -> None:
        kind = self.random.choice(_FAULTS)
        self.faults.append(f"{kind} {self.now}")
        getattr(self, f"_{kind}")()

    def _any(self) -> Worker:
        return self.random.choice(self.workers)

    def _replace(self, worker: Worker) -> None:
        self.workers.remove(worker)
        self.hiring.append((self.now + self.random.uniform(0.5, 3.0), worker.role))

    def _kill(self) -> None:
        worker = self._any() if self.workers else None
        if worker is None:
            return
        self.oracle.killed(worker)
        if worker.just_taken and self.random.random() < 0.5:
            self.queues[_INBOUND[worker.role]].insert(0, worker.just_taken)
        self._replace(worker)

    def _kill_over_a_task(self) -> None:
        """As a task does that its workers die of."""
        busy = [worker for worker in self.workers if worker.running is not None]
        if busy:
            worker = self.random.choice(busy)
            self.oracle.killed(worker)
            self._replace(worker)

    def _terminate(self) -> None:
        worker = self._any() if self.workers else None
        if worker is not None and not worker.frozen and self.broker and self.now >= worker.cut_until:
            worker.leave()
            self.status.extend(worker.unsent)
            self._replace(worker)
            self.left.append(worker)

    def _freeze(self) -> None:
        if self.workers:
            self._any().freeze(self.random.uniform(0.5, 15))

    def _cut(self) -> None:
        if self.workers:
            self._any().cut(self.random.uniform(0.5, 15))

    def _hang(self) -> None:
        worker = self._any() if self.workers else None
        if worker is not None and worker.runs and worker.role is not Role.RESULT_WORKER:
            worker.stuck.add(worker.runs[0])

    def _broker_away(self) -> None:
        self.broker_until = max(self.broker_until, self.now + self.random.uniform(0.5, 15))
        for worker in self.workers:
            worker.cut_until = max(worker.cut_until, self.broker_until + self.random.uniform(0, RECONNECT))
        self.leader_cut_until = self.broker_until + self.random.uniform(0, RECONNECT)
        if self.random.random() < 0.3:
            self._flush_all()

    def _broker_hangs(self) -> None:
        """No connection breaks, but nothing goes through: a frozen server, dropped packets."""
        seconds = self.random.uniform(0.5, 12)
        self.deaf_until = max(self.deaf_until, self.now + seconds)
        if seconds > 5.0 and self.random.random() < 0.5:
            # for the workers, too, who may find new connections later
            for worker in self.workers:
                worker.cut_until = max(worker.cut_until, self.deaf_until + self.random.uniform(0, RECONNECT))

    def _database_away(self) -> None:
        self.database_until = max(self.database_until, self.now + self.random.uniform(0.5, 15))

    def _flush_all(self) -> None:
        for waiting in self.queues.values():
            waiting.clear()
        self.status.clear()

    def _purge(self) -> None:
        self.random.choice(list(self.queues.values())).clear()

    def _drop_message(self) -> None:
        waiting = self.random.choice(list(self.queues.values()))
        if waiting:
            waiting.pop(self.random.randrange(len(waiting)))

    def _repeat_message(self) -> None:
        waiting = self.random.choice(list(self.queues.values()))
        if waiting:
            batch, runs = self.random.choice(waiting)
            waiting.append((batch, list(runs)))

    def _clock_jumps(self) -> None:
        self.clock_error += self.random.choice((-3600.0, -30.0, -7.0, 7.0, 30.0, 3600.0))

    def _take_over(self) -> None:
        if self.leader is not None:
            self.leader = None
            self.leads_at = self.now + self.random.choice((0.0, 1.0, 6.5, 8.0))
            # one that is frozen and woken takes something before it notices
            for _ in range(min(self.random.choice((0, 0, 3)), len(self.status))):
                self.status.popleft()


_FAULTS = [
    "kill", "kill", "kill_over_a_task", "kill_over_a_task", "terminate", "freeze", "freeze", "cut", "hang", "broker_away", "broker_hangs",
    "database_away", "flush_all", "purge", "drop_message", "repeat_message", "clock_jumps", "take_over", "take_over",
]  # fmt: skip


def replay(seed: int) -> World:
    """One history; raises Violation."""
    world = World(seed)
    world.play()
    return world
