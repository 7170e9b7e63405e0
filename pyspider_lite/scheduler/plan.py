"""What one transaction of the scheduler will write: decided from what was read, before anything is written.

`Plan` takes ended runs first and submissions after them, keeps an overlay of the states that they leave behind (a page may end
and be crawled again in one batch), and collects rows and counts by project. `commit.py` reads before it and writes after it.
No queue, no database, no clock in here.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pyspider_lite import cron
from pyspider_lite.database.base import NewRow
from pyspider_lite.models.control import Control
from pyspider_lite.models.project import CronJob
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import DueKey, NewTask, TaskEnd, TaskPriority, TaskRestart, TaskState, TaskStatus
from pyspider_lite.scheduler import job_states, rules
from pyspider_lite.scheduler.blame import NOTHING, Toll
from pyspider_lite.scheduler.job_states import Ticks
from pyspider_lite.scheduler.project_plan import ProjectPlan, shape


class Dropped(Struct, frozen=True):
    """A submission that had no effect, and why."""

    project: str
    taskid: str
    url: str
    reason: str
    #: until when the page counts as fresh (Unix time), if that is the reason
    until: float | None = None


class Plan:
    """The writes of one transaction."""

    def __init__(
        self, now: float, in_flight: Callable[[str, str], int | None], last_due: float = float("-inf")
    ) -> None:
        self.now = now
        self._in_flight = in_flight
        #: when the newest submission that need not wait is due
        self.last_due = last_due
        self.projects: dict[str, ProjectPlan] = {}
        self.controls: dict[str, Control] = {}
        self.done_controls: set[str] = set()
        #: rows of control work with another number of deaths
        self.marked_controls: list[Control] = []
        self.applied: list[Report] = []
        self.stale: list[Report] = []
        self.dropped: list[Dropped] = []
        #: submissions without effect because they were met before: most of all links
        self.seen: list[NewTask] = []
        #: what became of orders: where it is counted, and the word; an entry for each task
        self.ordered: list[tuple[Counter[str], str]] = []

    def runs(self, name: str, state: TaskState) -> bool:
        """A run of this task is in flight, and its report will be the row's."""
        return self._in_flight(name, state.taskid) == state.run

    # --- reports --------------------------------------------------------------------------------------------------------

    def end_task(self, report: Report, retry_delay: dict[str, float]) -> None:
        """The report of a task's run: applied if its run is the row's, else stale."""
        project = self.projects[report.project]
        state = project.stored.get(report.taskid)
        if state is None or state.run != report.run or state.status != TaskStatus.ACTIVE:
            self._stale(report, state)
            return
        # the run is over: it has killed nobody
        state = replace(state, schedule=rules.with_toll(state.schedule, NOTHING))
        if report.no_status:
            # pyspider left such a task to be run again for ever; here the run just says nothing of itself (H35)
            ended = rules.Ended(TaskStatus.SUCCESS, None, state.schedule, "success")
        elif report.ok:
            ended = rules.on_success(state.schedule, now=self.now)
        else:
            ended = self.failed(report, state.schedule, retry_delay)
        self._end(project, report, state, ended)
        self.applied.append(report)

    def failed(self, report: Report, schedule: dict[str, Any], retry_delay: dict[str, float]) -> rules.Ended:
        """How a run ends that this report says has failed."""
        fetch = report.track.get("fetch") or {}
        return rules.on_failure(
            schedule,
            retry_delay,
            now=self.now,
            retry_after=report.retry_after,
            status_code=fetch.get("status_code"),
            error_kind=fetch.get("error_kind"),
        )

    def _end(self, project: ProjectPlan, report: Report, state: TaskState, ended: rules.Ended) -> None:
        end = TaskEnd(
            taskid=report.taskid,
            status=ended.status,
            schedule=ended.schedule,
            due=ended.due,
            priority=state.priority,
            run=state.run + 1,
            updatetime=self.now,
            lastcrawltime=self.now,
            track=None if report.no_status else report.track,
        )
        project.ends[report.taskid] = end
        project.moved(shape(state.status, state.schedule), shape(ended.status, ended.schedule))
        project.events[ended.event] += 1
        after = replace(
            state,
            status=ended.status,
            schedule=ended.schedule,
            lastcrawltime=self.now,
            due=ended.due,
            run=state.run + 1,
            pending=None,
            unconditional=False,
        )
        project.stored[report.taskid] = after
        if ended.due is not None:
            project.due[report.taskid] = DueKey(
                taskid=report.taskid, priority=state.priority, due=ended.due, seq=state.seq
            )
        if state.pending is not None:
            self._apply_pending(project, after, state.pending)

    def _apply_pending(self, project: ProjectPlan, state: TaskState, pending: NewTask) -> None:
        if rules.read_stored(pending.schedule).cancel:
            self.cancel(project, state)
        else:
            self._restart(project, state, pending, unconditional=True)

    def _stale(self, report: Report, state: TaskState | None) -> None:
        """Another run has the row; but if this one held the lease, a restart that waited for it is due now."""
        self.stale.append(report)
        held = self._in_flight(report.project, report.taskid) == report.run
        if state is not None and state.pending is not None and held:
            self._apply_pending(self.projects[report.project], state, state.pending)

    def note_toll(self, name: str, key: str, toll: Toll, row: Control | None) -> None:
        """What the open run of a task has cost, or the control work of ``row``."""
        if row is not None:
            if row.id not in self.done_controls:
                schedule = rules.with_toll(row.task.schedule, toll)
                self.marked_controls.append(replace(row, task=replace(row.task, schedule=schedule)))
            return
        project = self.projects.get(name)
        state = project.stored.get(key) if project is not None else None
        if project is None or state is None or state.status != TaskStatus.ACTIVE:
            return
        if key in project.ends or key in project.restarts:
            return  # another run is open now
        schedule = rules.with_toll(state.schedule, toll)
        if schedule != state.schedule:
            project.stored[key] = replace(state, schedule=schedule)
            project.priorities[key] = TaskPriority(taskid=key, priority=state.priority, schedule=schedule)

    def tick(self, name: str, ticks: Ticks) -> None:
        """The clock gave these ticks to the project's jobs."""
        project = self.projects[name]
        project.last_tick = ticks.last
        project.jobs = job_states.ticked(project.new_counts().jobs, ticks)

    # --- submissions ----------------------------------------------------------------------------------------------------

    def submit(self, task: NewTask, by: tuple[CronJob, int] | None = None) -> str | None:
        """A task to be entered, ``by`` a cron job at a tick of it; why it was dropped, or None."""
        project = self.projects[task.project]
        try:
            new = rules.read_schedule(task.schedule)
        except ValueError as error:
            return self.drop(task, f"invalid: {error}")
        state = project.stored.get(task.taskid)
        in_flight = (
            state is not None
            and task.taskid not in project.ends
            and task.taskid not in project.restarts
            and self.runs(task.project, state)
        )
        overdue = False
        if by is not None and state is not None and new.age is not None and new.age > 0:
            overdue = cron.overdue(*by, state.lastcrawltime or 0, new.age)
        decision = rules.on_request(new, state, now=self.now, in_flight=in_flight, overdue=overdue)
        match decision:
            case rules.Insert():
                self._insert(project, task, new)
            case rules.Restart(unconditional):
                assert state is not None
                self._restart(project, state, task, unconditional=unconditional)
            case rules.Postpone():
                project.postponed[task.taskid] = task
            case rules.Cancel():
                assert state is not None
                self.cancel(project, state)
            case rules.Ignore(reason, until):
                if state is not None:
                    project.known.add(task.taskid)
                return self.drop(task, reason, until)
        return None

    def drop(self, task: NewTask, reason: str, until: float | None = None) -> str:
        """A submission without effect, for this reason."""
        self.dropped.append(Dropped(task.project, task.taskid, task.url, reason, until))
        return reason

    def due(self, schedule: rules.Schedule) -> float:
        """Submissions keep their order: each is due a microsecond after the one before, in whichever transaction, and none
        after now."""
        due = rules.first_due(schedule, self.now)
        if due <= self.now:
            due = self.last_due = min(self.now, max(self.now - 0.02, self.last_due) + 1e-6)
        return due

    def _insert(self, project: ProjectPlan, task: NewTask, new: rules.Schedule) -> None:
        due = self.due(new)
        project.inserts[task.taskid] = NewRow(task=task, due=due, priority=new.priority, updatetime=self.now)
        project.stored[task.taskid] = TaskState(
            taskid=task.taskid,
            status=TaskStatus.ACTIVE,
            schedule=task.schedule,
            lastcrawltime=None,
            due=due,
            priority=new.priority,
            run=0,
            seq=0,
        )
        project.due[task.taskid] = DueKey(taskid=task.taskid, priority=new.priority, due=due, seq=0)
        project.moved(None, (TaskStatus.ACTIVE, new.periodic))
        project.events["pending"] += 1
        project.known.add(task.taskid)
        project.armed = True

    def _restart(self, project: ProjectPlan, state: TaskState, task: NewTask, *, unconditional: bool) -> None:
        new = rules.read_stored(task.schedule)
        due = self.due(new)
        inserted = project.inserts.get(task.taskid)
        run = state.run if inserted and task.taskid not in project.ends else state.run + 1
        if inserted and task.taskid not in project.ends:
            project.inserts[task.taskid] = NewRow(task=task, due=due, priority=new.priority, updatetime=self.now)
        else:
            project.restarts[task.taskid] = TaskRestart(
                task=task, due=due, priority=new.priority, run=run, updatetime=self.now, unconditional=unconditional
            )
        project.moved(shape(state.status, state.schedule), (TaskStatus.ACTIVE, new.periodic))
        project.stored[task.taskid] = replace(
            state,
            status=TaskStatus.ACTIVE,
            schedule=task.schedule,
            due=due,
            priority=new.priority,
            run=run,
            pending=None,
            unconditional=unconditional,
        )
        project.due[task.taskid] = DueKey(taskid=task.taskid, priority=new.priority, due=due, seq=state.seq)
        project.gone.discard(task.taskid)
        project.events["pending"] += 1
        project.armed = True

    def cancel(self, project: ProjectPlan, state: TaskState) -> None:
        """A stored task never runs. If its last run ends in this transaction, that one's track stays."""
        ended = project.ends.get(state.taskid)
        project.ends[state.taskid] = TaskEnd(
            taskid=state.taskid,
            status=TaskStatus.BAD,
            schedule=state.schedule,
            due=None,
            priority=state.priority,
            run=state.run + 1,
            updatetime=self.now,
            lastcrawltime=state.lastcrawltime,
            track=ended.track if ended else None,
        )
        project.moved(shape(state.status, state.schedule), (TaskStatus.BAD, False))
        project.stored[state.taskid] = replace(state, status=TaskStatus.BAD, due=None, run=state.run + 1, pending=None)
        project.due.pop(state.taskid, None)
        project.restarts.pop(state.taskid, None)
        project.gone.add(state.taskid)
