"""The judge of `lease_histories`: knows where every copy of every run really is, and looks at nothing that the scheduler remembers."""

from collections import Counter
from typing import TYPE_CHECKING

from played_cluster import PROJECT, STEP, Leader, Worker

from pyspider_lite.models.names import RunKey
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.models.worker import Beat, Handover

if TYPE_CHECKING:
    from lease_histories import World

#: seconds, while everything else works, within which a run that nobody has any more is given out again
BOUND = 8.0


class Violation(AssertionError):
    """The oracle objects."""


class Oracle:
    """Judges by what really is."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.ends: Counter[RunKey] = Counter()
        #: workers killed while the last beat that was heard of them, or a later one, named this task
        self.kills: Counter[str] = Counter()
        #: named once by a processor that another task killed: it had begun, and nobody knew yet whom to suspect
        self.beside: set[str] = set()
        self.poisoned: set[str] = set()
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

    def died_of(self, worker: Worker, run: RunKey) -> None:
        self.kills[run[1]] += 1
        self.beside |= {taskid for _, taskid, _ in worker.named}

    def put(self, queue: str, batch: str, runs: list[RunKey]) -> None:
        self.put_at[batch] = self.world.now
        for run in runs:
            self.last[run] = queue, batch
            # somebody had it, if only for a part of this step
            self.missing.pop(run, None)

    def claimed(self, queue: str, batch: str) -> None:
        self.claims.add(batch)
        self.come_to[queue] = max(self.come_to.get(queue, 0.0), self.put_at[batch])

    def heard(self, beat: Beat) -> None:
        for worker in self.world.workers + self.world.left:
            if worker.name == beat.worker and any(one is beat for one in worker.beats):
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
        known = self.kills[run[1]] + (run[1] in self.beside)
        if deaths > known + sum(run in worker.named for worker in silent):
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
            if [self.ends[PROJECT, taskid, run] for run in range(row.run)] != [1] * row.run:
                self.fail(f"{taskid}: not every run ended once")
        assert world.leader is not None
        leases = world.leader.leases
        if len(leases) or leases.tasks.total() or leases._places.batches:
            self.fail("leases are left over")
