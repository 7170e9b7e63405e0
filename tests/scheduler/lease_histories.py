"""Random histories of a cluster with a counted clock: the parts of `played_cluster` among queues and a table that are played, under faults
by chance, before the eyes of `lease_oracle`.
"""

import random
from collections import deque
from typing import Any

from lease_oracle import Oracle
from played_cluster import FETCH, INBOUND, PAGES, PROJECT, RESULTS, STEP, Leader, Worker

from pyspider_lite.models.names import Role, RunKey
from pyspider_lite.models.task import TaskState, TaskStatus

#: seconds within which everybody has found a server again that is back
RECONNECT = 4.0


class World:
    """One history: ``seed`` decides everything in it."""

    def __init__(self, seed: int, tasks: int = 24, killers: int | None = None, doubles: bool | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.clock_error = 0.0
        self.faults: list[str] = []
        self._number = 0
        self.queues: dict[str, list[tuple[str, list[RunKey]]]] = {name: [] for name in (FETCH, PAGES, RESULTS)}
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
        if killers is None:
            killers = 1 + seed // 8 % 3 if seed % 8 == 7 else 0
        #: tasks whose callback ends its processor as soon as it begins
        self.killers = {f"t{number}" for number in range(0, tasks, 7)[:killers]}
        #: what workers say comes twice now and then
        self.doubles = seed % 8 == 3 if doubles is None else doubles
        #: what may happen
        self.kinds = _FAULTS + ["slow_to_say"] * 4 if seed % 16 == 9 else _FAULTS
        #: given out last as suspects
        self.flagged: set[RunKey] = set()
        self.oracle = Oracle(self)
        self.workers = [Worker(self, role) for role in INBOUND for _ in range(2)]
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
            (PROJECT, row.taskid, row.run)
            for row in self.rows.values()
            if row.status == TaskStatus.ACTIVE and row.due is not None and row.due <= self.now
        ]

    def play(self, seconds: float = 25.0, quiet: float = 90.0) -> None:
        """Faults for so many seconds, then time for everything to end."""
        # each has to kill four, one after the other
        quiet += 90.0 * len(self.killers)
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
            self.queues[FETCH].clear()
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
        kind = self.random.choice(self.kinds)
        self.faults.append(f"{kind} {self.now}")
        getattr(self, f"_{kind}")()

    def _any(self) -> Worker:
        return self.random.choice(self.workers)

    def replace(self, worker: Worker) -> None:
        self.workers.remove(worker)
        self.hiring.append((self.now + self.random.uniform(0.5, 3.0), worker.role))

    def _kill(self) -> None:
        worker = self._any() if self.workers else None
        if worker is None:
            return
        self.oracle.killed(worker)
        if worker.just_taken and self.random.random() < 0.5:
            self.queues[INBOUND[worker.role]].insert(0, worker.just_taken)
        self.replace(worker)

    def _kill_over_a_task(self) -> None:
        """As a task does that its workers die of."""
        busy = [worker for worker in self.workers if worker.running is not None]
        if busy:
            worker = self.random.choice(busy)
            self.oracle.killed(worker)
            self.replace(worker)

    def _terminate(self) -> None:
        worker = self._any() if self.workers else None
        if worker is not None and not worker.frozen and self.broker and self.now >= worker.cut_until:
            worker.leave()
            self.status.extend(worker.unsent)
            self.replace(worker)
            self.left.append(worker)

    def _freeze(self) -> None:
        if self.workers:
            self._any().freeze(self.random.uniform(0.5, 15))

    def _cut(self) -> None:
        if self.workers:
            self._any().cut(self.random.uniform(0.5, 15))

    def _slow_to_say(self) -> None:
        """It goes on, and others have what it made before it comes to say that it took anything."""
        worker = self._any() if self.workers else None
        if worker is not None and self.now > worker.mute_until + 4.0:
            worker.mute_until = self.now + self.random.uniform(0.5, 2.5)

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
