"""The scheduler's heart: `Scheduler.step(now, heard)` takes what came in, commits it, and gives out what is due. One object lives
for one term of leadership; it owns all state, is used by one thread, reads no clock and waits for nothing but the database.
"""

import logging
import math
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from pyspider_lite.consumer import Backoff
from pyspider_lite.counters import Counters
from pyspider_lite.database.base import ProjectDB, ResultDB, TaskDB
from pyspider_lite.errors import DatabaseError, LostLeadership
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.names import RunKey
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.task import NewTask, Task
from pyspider_lite.models.worker import Alone
from pyspider_lite.outages import Waiter
from pyspider_lite.scheduler import control
from pyspider_lite.scheduler.aftermath import Aftermath
from pyspider_lite.scheduler.backlog import Backlog
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.commit import Committer
from pyspider_lite.scheduler.control_work import ControlWork
from pyspider_lite.scheduler.dead_letters import DeadLetters
from pyspider_lite.scheduler.deaths import Deaths
from pyspider_lite.scheduler.deletion import Deletion
from pyspider_lite.scheduler.dispatch import Dispatcher, Outlet
from pyspider_lite.scheduler.inbox import Heard
from pyspider_lite.scheduler.known import KnownKeys
from pyspider_lite.scheduler.leases import Leases
from pyspider_lite.scheduler.listener import Listener
from pyspider_lite.scheduler.lost_runs import LostRuns
from pyspider_lite.scheduler.parts import Parts
from pyspider_lite.scheduler.plan import Plan
from pyspider_lite.scheduler.project_state import ProjectRun
from pyspider_lite.scheduler.registry import Registry
from pyspider_lite.scheduler.task_orders import Outcome, TaskOrder
from pyspider_lite.scheduler.watchdog import Repair, Watchdog, diagnose

logger = logging.getLogger("scheduler")

#: what waits for a commit; above it nothing more is taken in
MAX_BACKLOG = 5_000


class Options(Struct, frozen=True):
    """What of the configuration the scheduler looks at."""

    window: int = 5_000
    window_total: int = 1_000_000
    known_keys: int = 1_000_000
    fail_pause_num: int = 10
    active_tasks: int = 100
    inqueue_limit: int = 0
    delete_time: float = 86_400.0
    process_time_limit: float = 30.0
    #: no retry waits longer than this, seconds (`one`)
    retry_cap: float = math.inf
    #: give out cron ticks
    cron: bool = True
    #: of the settings: workers of another one may look into other databases
    config_hash: str = ""


class Scheduler:
    """The state of one term of leadership."""

    def __init__(
        self,
        *,
        taskdb: TaskDB,
        projectdb: ProjectDB,
        resultdb: ResultDB,
        epoch: int,
        tasks_out: Outlet,
        pages_out: Outlet,
        now: float,
        options: Options | None = None,
        adopt_for: float = 0.0,
    ) -> None:
        self._taskdb = taskdb
        options = options or Options()
        self.leases = Leases()
        self.counters = Counters()
        self._known = KnownKeys(options.known_keys)
        self._registry = Registry(
            projectdb,
            taskdb,
            window=options.window,
            window_total=options.window_total,
            fail_pause_num=options.fail_pause_num,
            active_tasks=options.active_tasks,
            gone=self._forget,
        )
        self.projects = self._registry.projects
        self._dispatcher = Dispatcher(
            taskdb, epoch, self.leases, tasks_out, pages_out, self._unsendable, options.process_time_limit
        )
        self._control = ControlWork(taskdb, self.projects, self._dispatcher, give_ticks=options.cron)
        self._deletion = Deletion(
            taskdb, projectdb, resultdb, self._registry, self._control, epoch, options.delete_time
        )
        committer = Committer(
            taskdb,
            epoch,
            self.projects,
            self._known,
            self._control.rows,
            self.leases.run_of,
            options.inqueue_limit,
            options.retry_cap,
        )
        self._aftermath = Aftermath(self.projects, self._known, self._control, self.counters, self.end_lease)
        self._parts = Parts()
        self.dead_letters = DeadLetters(taskdb)
        self.deaths = Deaths(taskdb, self.leases, self._control.rows)
        self._backlog = Backlog(committer.apply, self._committed, self._unstorable)
        self._lost = LostRuns(
            self.projects,
            self.leases,
            self._control,
            self._parts,
            self.dead_letters,
            self._backlog,
            self.counters,
            lambda: self.now,
        )
        self._retry_at = 0.0
        self._backoff = Backoff(0.2)
        self._waiter = Waiter()
        #: claims of a leader before us are heard out before anything is given out
        self._dispatch_from = now + adopt_for
        self._listener = Listener(
            self.projects, self.leases, self._parts, self.dead_letters, self.counters, options.config_hash
        )
        self._watchdog = Watchdog()
        self.now = now

    # --- the step -------------------------------------------------------------------------------------------------------

    def step(self, now: float, heard: Heard) -> float:
        """One round; when the next one is due at the latest. Raises LostLeadership when another scheduler leads."""
        self.now = now
        self.leases.advance(now, drained=heard.drained and self._waiter.since is None)
        self._listener.hear(heard, self._backlog.batch, now)
        for command in heard.commands:
            self._carry_out(command, now)
        try:
            if now >= self._retry_at:
                self._work(now)
                self._backoff.reset()
                self._waiter.back()
        except LostLeadership:
            raise
        except DatabaseError as error:
            self._database_away(error, now)
        return self._next_step(now)

    def _carry_out(self, command: Callable[["Scheduler"], None], now: float) -> None:
        """One that fails takes no other with it."""
        try:
            command(self)
        except LostLeadership:
            raise
        except DatabaseError as error:
            self._database_away(error, now)
        except Exception:
            logger.exception("a command failed; going on with the next")

    def _work(self, now: float) -> None:
        """All that needs the database, in the order that frees slots before it fills them."""
        self._refresh_projects(now)
        self._control.load(now)
        self._dispatcher.cap_adopted(self.projects)
        self.deaths.look(self._backlog.batch, self._lost.give_up_deadly)
        self._backlog.commit_all(now)
        self._look_at_projects()
        self._control.ask_again(self._backlog.batch, now)
        self._control.ticks.give(self._backlog.batch, now)
        self._backlog.commit_all(now)
        self._lost.requeue(self._listener.held_back)
        self.deaths.look(self._backlog.batch, self._lost.give_up_deadly)
        self._backlog.commit_all(now)
        if now >= self._dispatch_from:
            self._dispatcher.begin_round(self.projects, now)
            self._control.dispatch(now)
            self._dispatcher.dispatch(list(self.projects.values()), now)
            self._watch(now)
            self.leases.adopting = False
        self._deletion.step(now)
        self.dead_letters.look(now)

    def _database_away(self, error: DatabaseError, now: float) -> None:
        self._waiter.away(error)
        self._retry_at = now + self._backoff.next()
        # our own outage is nobody's death
        self.leases.fresh_term()

    def hold(self) -> None:
        """Give out nothing more in this term."""
        self._dispatch_from = math.inf

    def end(self) -> None:
        """It leads no longer, so it waits for nothing."""
        self._waiter.stop()
        self._deletion.end()

    @property
    def backlog(self) -> int:
        """Reports and submissions that wait for a commit: above MAX_BACKLOG nothing more should be taken in. From any thread."""
        return self._backlog.size

    @property
    def depths(self) -> dict[str, int]:
        """Messages in each queue, as measured last."""
        return self._listener.depths

    @property
    def alone(self) -> Alone | None:
        """What all else waits for: see `apart`."""
        return self._dispatcher.gate.alone

    def has(self, project: str, taskid: str) -> bool:
        """The task is in flight, or waits here to be given out."""
        found = self.projects.get(project)
        return (found is not None and taskid in found.window) or self._dispatcher.holds(project, taskid)

    def held_until(self, project: str, taskid: str) -> float | None:
        """See `Gate.waits_until`."""
        return self._dispatcher.gate.waits_until((project, taskid), self.now)

    def send_message(self, task: NewTask, token: str, then: Any) -> None:
        """A message from outside, kept until on_message has had it; ``then(plan)`` is called after the commit."""
        self._backlog.batch.controls.append(control.sent(task, token, self.projects[task.project]))
        self._backlog.batch.then.append(then)

    @property
    def given_out(self) -> dict[str, int]:
        """Runs given out so far, by kind."""
        return {"task": self._dispatcher.tasks_sent, "control": self._dispatcher.controls_sent}

    @property
    def idle(self) -> bool:
        """Every project is finished and nothing is under way (for `one`)."""
        return (
            not len(self.leases)
            and not self._backlog
            and not self._control.pending
            and all(
                project.finished and not project.counts.armed and (project.info is not None or not project.active)
                for project in self.projects.values()
            )
        )

    @property
    def unanswered(self) -> set[str]:
        """Projects whose script could not be asked about itself, most likely because it cannot be loaded (for `one`)."""
        return {name for name, project in self.projects.items() if project.info and not project.info.answered}

    def _next_step(self, now: float) -> float:
        wake = now + 1.0
        if now < self._retry_at:
            return min(wake, self._retry_at)
        if now < self._dispatch_from:
            return min(wake, self._dispatch_from)
        wake = now if self._control.behind else min(wake, self._control.ticks.next)
        for project in self.projects.values():
            if now < project.wake_at < wake:
                wake = project.wake_at
        return wake

    # --- what came in ---------------------------------------------------------------------------------------------------

    def keep_aside(self, queue: str, reason: str, body: bytes) -> None:
        """A message that could not be read becomes a dead letter."""
        self._listener.keep(Broken(queue=queue, reason=reason, body=body), self._backlog.batch, self.now)

    def submit(self, tasks: list[NewTask], then: Any) -> None:
        """Tasks from outside; ``then(plan)`` is called after their commit."""
        self._backlog.batch.submissions.extend(tasks)
        self._backlog.batch.then.append(then)

    def order(self, order: TaskOrder, then: Any) -> None:
        """Change stored tasks; ``then(plan)`` is called after the commit."""
        self._backlog.batch.orders.append(order)
        self._backlog.batch.then.append(then)

    def get_task(self, project: str, taskid: str) -> Task | None:
        """The task as it is stored. Raises DatabaseError."""
        return next(iter(self._taskdb.get(project, [taskid])), None)

    def send_now(self, task: NewTask) -> bool:
        """Give this out at once, under the run number of the stored task if there is one; False if there is no room."""
        stored = self.get_task(task.project, task.taskid)
        return self._dispatcher.send_now(task, stored, self.projects[task.project], self.now)

    def update_projects(self) -> None:
        """Look at the projectdb and for control rows at once."""
        self._registry.expire()
        self._control.expire()

    def look_again(self, name: str) -> bool:
        """Somebody changed the project's rows behind our back: read them again, and ask its script if nobody does; False if there is no
        such project."""
        project = self.projects.get(name)
        if project is None:
            return False
        project.window.more, project.window.next_due, project.wake_at = True, self.now, float("-inf")
        if project.active and project.info is None:
            self._control.ask_anew(self._backlog.batch, project)
        # a commit reads the counts, and sees whether the crawl is over
        self._backlog.batch.ending.add(name)
        return True

    # --- commits --------------------------------------------------------------------------------------------------------

    def _refresh_projects(self, now: float) -> None:
        for project in self._registry.refresh(now):
            self._control.ask_info(self._backlog.batch, project)
            self._control.unpark(project.name)

    def _look_at_projects(self) -> None:
        """What commits and users brought about: projects that may be finished, as everything that was heard is committed; pauses."""
        touched, self._registry.touched = self._registry.touched, set()
        for project in [self.projects[name] for name in touched if name in self.projects]:
            counts = project.counts
            if project.pause.stored != (counts.paused_until, counts.pause_reason):
                self._backlog.batch.pauses[project.name] = project.pause.stored
            if project.active and counts.armed and counts.finished:
                self._backlog.batch.ending.add(project.name)

    def _committed(self, batch: Batch, plan: Plan, now: float) -> None:
        self._aftermath.take_over(batch, plan, now)
        self._drop_stale_parts(plan)
        self._registry.touched |= plan.projects.keys()
        for name, planned in plan.projects.items():
            self._dispatcher.gate.over(name, (*planned.gone, *planned.ends))
        self.dead_letters.committed(batch.dead_letters, now)

    def _drop_stale_parts(self, plan: Plan) -> None:
        """A run that is over is waited for no longer."""
        for report in plan.stale:
            project = self.projects.get(report.project)
            if project is None or project.head.generation == report.generation:
                self._parts.drop(report.key)

    def _unstorable(self, batch: Batch, error: Exception, now: float) -> None:
        """This one thing cannot be stored, not even as failed."""
        logger.error("given up, it cannot be stored: %s", error)
        for report in batch.reports + batch.poisoned:
            self.end_lease(report.key)
        for order in batch.orders:
            order.outcomes[Outcome.INVALID] += len(order.tasks)
        self._backlog.batch.dead_letters += batch.as_dead_letters(str(error), now)
        if batch.reports or batch.poisoned or batch.submissions or batch.orders:
            # what stood beside it is not to blame
            self._backlog.batch.take_rows(batch)
        for then in batch.then:
            then(Plan(now, self.leases.run_of))

    # --- standstill -----------------------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        """Say what holds due work that nothing should hold, and have it looked for anew (design, promise 3)."""
        if not self._watchdog.barks(self.leases.clock, self._dispatcher.tasks_sent) or self._dispatcher.gate.holds:
            return
        standing = self._dispatcher.standing(self.projects.values(), now, sum(self._listener.depths.values()))
        hold = diagnose(standing)
        if hold is None:
            return
        logger.error("the crawl stood still: %s; %s", hold.cause, hold.repair.value)
        if hold.repair is Repair.LEASES:
            self.leases.lose_unheld("no worker holds it and no queue has it")
        elif hold.repair is Repair.WINDOW:
            for waiting in standing.waiting:
                project = self.projects[waiting.name]
                project.window.more, project.window.next_due = True, now
                project.wake_at = -math.inf

    # --- leases ---------------------------------------------------------------------------------------------------------

    def end_lease(self, run: RunKey) -> None:
        """The run is over, whatever came of it."""
        name, key, number = run
        if self.leases.run_of(name, key) == number:
            self.leases.end(name, key)

    def _unsendable(self, task: Dispatch, reason: str) -> None:
        self._lost.give_up_unsendable(task, reason)

    def _forget(self, project: ProjectRun) -> None:
        """The project is gone, or another one has its name: that one's tasks may have the same ids."""
        self.leases.forget(project.name)
        self._parts.forget(project.name)
        self._known.drop(project.known_as)
        self.counters.drop(project.name)
