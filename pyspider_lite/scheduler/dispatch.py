"""Which tasks go out next: chooses due ones within budget, pace and fair shares, reads their bodies, cuts batches (design, sections 4
and 5). `sending` leases them out, `control_dispatch` does the same for control work."""

import logging
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

from pyspider_lite.database.base import TaskDB
from pyspider_lite.models.batch import TaskBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.task import DueKey, NewTask, Task, TaskStatus
from pyspider_lite.scheduler import rules
from pyspider_lite.scheduler.apart import Gate
from pyspider_lite.scheduler.blame import NOTHING
from pyspider_lite.scheduler.control_dispatch import ControlDispatcher
from pyspider_lite.scheduler.leases import Leases
from pyspider_lite.scheduler.project_state import ProjectRun
from pyspider_lite.scheduler.sending import Outlet as Outlet
from pyspider_lite.scheduler.sending import Run, Sender, to_dispatch
from pyspider_lite.scheduler.watchdog import Standing, Waiting

logger = logging.getLogger("scheduler")

#: in flight at least, whatever the pools are
MIN_BUDGET = 200
MAX_BATCH = 100
#: tasks that a project gets in its turn, as far as it has them: reading and committing costs a statement a project
MIN_SHARE = 10
#: a part of the budget so large comes on top, for projects that have next to nothing in flight: if what others have does not come back,
#: they go on all the same
RESERVE = 1 / 4
#: without them nothing that fetchers bring is over
NEEDED = (Role.PROCESSOR, Role.RESULT_WORKER)
#: projects that the watchdog looks at, at most
WATCHED = 100
#: seconds that a fetch may take when the task does not say (behaviour H55)
_FETCH_LIMIT = 120.0
_GRACE = 10.0


class Dispatcher:
    """Gives tasks out; what gives out control work is its `controls`."""

    def __init__(
        self,
        taskdb: TaskDB,
        epoch: int,
        leases: Leases,
        tasks_out: Outlet,
        pages_out: Outlet,
        unsendable: Callable[[Dispatch, str], None],
        process_limit: float = 30.0,
    ) -> None:
        self._taskdb = taskdb
        self._epoch = epoch
        self._leases = leases
        self._tasks_out = tasks_out
        self._process_limit = process_limit + 5 if process_limit else math.inf
        self._control_cap = self._process_limit * 2 + _GRACE
        self._turns = 0
        #: what may go now
        self.gate = Gate(leases)
        self._sender = Sender(epoch, leases, unsendable)
        self.controls = ControlDispatcher(taskdb, leases, self.gate, self._sender, pages_out, self._control_cap)

    @property
    def tasks_sent(self) -> int:
        """Runs of tasks given out so far."""
        return self._sender.sent[QueueName.TO_FETCHER]

    @property
    def controls_sent(self) -> int:
        """Runs of control work given out so far."""
        return self._sender.sent[QueueName.CONTROL]

    def dispatch(self, projects: Sequence[ProjectRun], now: float) -> int:
        """Give out what may go now; how many tasks went."""
        pools = self._leases.pool_sizes(Role.FETCHER)
        size = max(1, min(MAX_BATCH, min(pools, default=100) // 4))
        if self.gate.holds:
            return self._dispatch_alone(projects, now)
        budget = max(MIN_BUDGET, 2 * sum(pools))
        room = budget - self._leases.tasks.total()
        # while another has due work no project may hold more than half of the budget
        cap, alone = budget // 2, budget
        if room <= 0:
            room += int(RESERVE * budget)
            cap = alone = room // 2
            projects = [project for project in projects if self._leases.tasks[project.name] < cap]
        room = min(room, self._tasks_out.room() * size)
        if room <= 0:
            return 0
        ready = self._ready(projects, room, cap, now)
        chosen = self._choose(ready, room, alone if len(ready) == 1 else cap, now)
        try:
            stamp = self._sender.stamp(now)
            tasks = [task for project, keys in chosen for task in self._read(project, keys, now, stamp)]
        except Exception:
            self._put_back(chosen, now)
            raise
        for batch in _cut(tasks, size, self._leases.blame.tolls):
            self._send_tasks(batch, self._sender.processors)
        for project in ready:
            project.wake_at = project.next_wake(now)
        return len(tasks)

    def begin_round(self, projects: Mapping[str, ProjectRun], now: float) -> None:
        """What had to wait for its turn may be chosen again; what is not wanted now holds nobody up."""

        def wanted(name: str) -> bool:
            project = projects.get(name)
            return project is not None and project.selectable(now)

        for name, key in self.gate.begin_round(now, wanted):
            if project := projects.get(name):
                project.window.add(key, now)
                project.wake_at = -math.inf

    def _dispatch_alone(self, projects: Sequence[ProjectRun], now: float) -> int:
        """The task that goes alone, when its turn has come."""
        found = self.gate.next_task(now)
        if found is None:
            return 0
        name, key = found
        project = next((one for one in projects if one.name == name), None)
        if project is None:
            return 0
        # whatever becomes of it: while it waited, it was in no window
        project.window.more = True
        if not project.selectable(now):
            return 0
        row = next(iter(self._taskdb.get(name, [key.taskid])), None)
        if row is None or row.status != TaskStatus.ACTIVE or (row.due or 0.0) > now:
            return 0
        project.bucket.take(1)
        self._send_tasks([(to_dispatch(row, project, self._sender.stamp(now), suspect=True), key)], 1)
        return 1

    def cap_adopted(self, projects: Mapping[str, ProjectRun]) -> None:
        """Look up how long the runs may take that a leader before us gave out; those that are over in the table are nobody's. Raises
        DatabaseError: what is left is looked up later."""
        wanted: dict[str, list[str]] = {}
        for name, key in self._leases.uncapped:
            wanted.setdefault(name, []).append(key)
        for name, keys in wanted.items():
            project = projects.get(name)
            tasks = {task.taskid: task for task in self._taskdb.get(name, keys)} if project else {}
            for key in keys:
                task = tasks.get(key)
                if task is None or project is None:
                    self._leases.set_cap((name, key), self._control_cap)
                elif (self._leases.run_of(name, key) or 0) < task.run:
                    # another copy of it ended long ago; the row's run must not wait for this one
                    self._leases.end(name, key)
                else:
                    self._leases.blame.recall((name, key), rules.toll(task.schedule))
                    self._leases.set_cap((name, key), self._cap(to_dispatch(task, project, self._epoch)))

    def send_now(self, new: NewTask, stored: Task | None, project: ProjectRun, now: float) -> bool:
        """Give one task out whatever its due time, pace and budget (behaviour S89); False if there is no room. One that is in
        flight stays as it is."""
        if self._tasks_out.room() <= 0:
            return False
        if self._leases.run_of(new.project, new.taskid) is None:
            run, track = (stored.run, stored.track) if stored else (0, {})
            task = Task(
                taskid=new.taskid,
                project=new.project,
                url=new.url,
                schedule=new.schedule,
                fetch=new.fetch,
                process=new.process,
                track=track,
                run=run,
            )
            project.window.remove(new.taskid)
            ticket = DueKey(taskid=new.taskid, priority=task.priority, due=task.updatetime, seq=0)
            stamp = self._sender.stamp(now)
            given = to_dispatch(task, project, stamp, self._is_suspect(new.project, new.taskid))
            self._send_tasks([(given, ticket)], self._sender.processors)
        return True

    def _ready(self, projects: Sequence[ProjectRun], room: int, cap: int, now: float) -> list[ProjectRun]:
        """Projects with something to give out, who waited longest first; no more of them than fill ``room`` with their shares."""
        waiting = sorted((project for project in projects if project.wake_at <= now), key=_turn)
        ready: list[ProjectRun] = []
        for project in waiting:
            if room <= 0:
                break
            if self._look(project, now):
                ready.append(project)
                room -= max(0, self._count(project, MIN_SHARE, cap, now))
        return ready

    def _count(self, project: ProjectRun, share: int, cap: int, now: float, chosen: int = 0) -> int:
        """How many tasks more than ``chosen`` may go of this project, when it may get ``share`` and hold ``cap``."""
        room = min(cap, project.pause.allowance(now)) - self._leases.tasks[project.name] - chosen
        return int(min(share, project.bucket.available(now), room, len(project.window)))

    def _look(self, project: ProjectRun, now: float) -> bool:
        """Something of this project may go; refills its window if it runs low."""
        if project.selectable(now) and project.bucket.available(now) >= 1:
            window = project.window
            if window.wants_refill(now):
                # what is held and due in the table are the same rows: ask for as many more
                asked = window.limit + self._leases.tasks[project.name] + len(self.gate.parked)
                answer = self._taskdb.refill(project.name, now, asked)
                window.refill(answer.keys, answer.next_due, asked, partial(self.holds, project.name), now)
            if len(window):
                return True
        project.wake_at = project.next_wake(now)
        return False

    def holds(self, project: str, taskid: str) -> bool:
        """The task is in flight, or waits until it may go alone."""
        key = (project, taskid)
        return key in self._leases.in_flight() or key in self.gate.parked

    def _choose(
        self, ready: list[ProjectRun], room: int, cap: int, now: float
    ) -> list[tuple[ProjectRun, list[DueKey]]]:
        """Equal shares, round by round; no project may hold more than ``cap`` in flight."""
        waiting = ready
        chosen: dict[str, list[DueKey]] = {project.name: [] for project in ready}
        while waiting and room > 0:
            share = max(MIN_SHARE, room // len(waiting))
            still: list[ProjectRun] = []
            for project in waiting:
                count = self._count(project, min(share, room), cap, now, len(chosen[project.name]))
                if count > 0:
                    chosen[project.name] += [key for _ in range(count) if (key := project.window.take())]
                    project.bucket.take(count)
                    room -= count
                    self._turns += 1
                    project.turn = self._turns
                    still.append(project)
            waiting = still
        return [(project, chosen[project.name]) for project in ready if chosen[project.name]]

    def _put_back(self, chosen: list[tuple[ProjectRun, list[DueKey]]], now: float) -> None:
        """What was chosen could not be read, most likely because the database went away."""
        for project, keys in chosen:
            project.bucket.take(-len(keys))
            for key in keys:
                project.window.add(key, now)

    def _read(self, project: ProjectRun, keys: list[DueKey], now: float, stamp: int) -> list[tuple[Dispatch, DueKey]]:
        """The bodies of chosen tasks, in the order chosen; what is no longer waiting to run is left out."""
        rows = {task.taskid: task for task in self._taskdb.get(project.name, [key.taskid for key in keys])}
        found: list[tuple[Dispatch, DueKey]] = []
        for key in keys:
            task = rows.get(key.taskid)
            if task is None or task.status != TaskStatus.ACTIVE:
                logger.warning("%s:%s is not there any more, left out", project.name, key.taskid)
                project.bucket.take(-1)
                continue
            if (toll := rules.toll(task.schedule)) is not NOTHING:
                self._leases.blame.recall((task.project, task.taskid), toll)
            if not self.gate.may_go((task.project, task.taskid), now):
                project.bucket.take(-1)
                self.gate.park(project.name, key)
            else:
                found.append((to_dispatch(task, project, stamp, self._is_suspect(task.project, task.taskid)), key))
        return found

    def _is_suspect(self, project: str, key: str) -> bool:
        return (project, key) in self._leases.blame.suspects

    def _send_tasks(self, batch: list[tuple[Dispatch, DueKey]], processors: int) -> None:
        def message(name: str, tasks: list[Dispatch]) -> TaskBatch:
            return TaskBatch(batch=name, epoch=self._epoch, tasks=tasks, processors=processors)

        for task, _ in batch:
            logger.debug("select %s:%s %s", task.project, task.taskid, task.url)
        runs = [Run(task, task, self._cap(task), key) for task, key in batch]
        self._sender.send(QueueName.TO_FETCHER, self._tasks_out, runs, message)

    def standing(self, projects: Iterable[ProjectRun], now: float, queued: int) -> Standing:
        """How things stand, for the watchdog: what the table has, whatever the windows say. ``queued``: messages in the work queues."""
        pools = self._leases.pool_sizes(Role.FETCHER)
        budget = max(MIN_BUDGET, 2 * sum(pools))
        fetchers = [worker.beat for worker in self._leases.workers.values() if worker.beat.role == Role.FETCHER]
        could = (p for p in projects if p.selectable(now) and p.bucket.available(now) >= 1 and p.counts.active > 0)
        return Standing(
            waiting=[found for project in islice(could, WATCHED) if (found := self._waiting(project, now))],
            in_flight=self._leases.tasks.total(),
            budget=budget,
            held=sum(worker.beat.load for worker in self._leases.workers.values()),
            queued=queued,
            free=sum(max(0, beat.pool_size - beat.load) for beat in fetchers if not beat.state),
            room=self._tasks_out.room(),
            away={what for worker in self._leases.workers.values() for what in worker.beat.waiting},
            silent={str(role): silence for role in NEEDED if (silence := self._leases.silence(role))},
        )

    def _waiting(self, project: ProjectRun, now: float) -> Waiting | None:
        keys = self._taskdb.refill(project.name, now, self._leases.tasks[project.name] + 1).keys
        due = sum(not self.holds(project.name, key.taskid) for key in keys)
        if not due:
            return None
        return Waiting(project.name, due, len(project.window), max(0.0, project.wake_at - now))

    def _cap(self, task: Dispatch) -> float:
        """Seconds that one worker may hold the task at most."""
        fetch = task.fetch.get("timeout")
        process = task.process.get("process_time_limit")
        return _GRACE + max(
            float(fetch) if isinstance(fetch, int | float) else _FETCH_LIMIT,
            float(process) + 5 if isinstance(process, int | float) and process else self._process_limit,
        )


def _turn(project: ProjectRun) -> int:
    return project.turn


def _cut(
    tasks: list[tuple[Dispatch, DueKey]], size: int, tolls: Container[tuple[str, str]]
) -> list[list[tuple[Dispatch, DueKey]]]:
    """Batches of at most ``size``; a task that a worker died over travels alone."""
    alone = [pair for pair in tasks if (pair[0].project, pair[0].taskid) in tolls]
    rest = [pair for pair in tasks if pair not in alone] if alone else tasks
    return [[pair] for pair in alone] + [rest[start : start + size] for start in range(0, len(rest), size)]
