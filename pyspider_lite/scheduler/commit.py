"""One transaction of the scheduler: a batch of reports and submissions is read for, decided on (`plan.py`) and written, whole
or not at all (design, section 4, "one commit"). Memory changes only after it, by the caller, from the plan returned."""

import math
from collections.abc import Callable, Container, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pyspider_lite.database.base import TaskDB, TaskTx
from pyspider_lite.models.control import Control
from pyspider_lite.models.project import CronJob, ProjectState
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.scheduler import control, control_reports, rules, task_orders
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.blame import NOTHING
from pyspider_lite.scheduler.known import KnownKeys
from pyspider_lite.scheduler.plan import Plan
from pyspider_lite.scheduler.project_plan import ProjectPlan
from pyspider_lite.scheduler.project_state import ProjectRun

#: the retry delays of a task that is given up
_NEVER_AGAIN = {"": -1.0}


class _Sorted(Struct, frozen=True):
    """Submissions of one report, or those from outside."""

    #: to be decided on with what is stored
    fresh: list[NewTask]
    #: stored, and nothing but that matters for them
    seen: list[NewTask]
    projects: set[str]


class Committer:
    """Applies batches to the taskdb."""

    def __init__(
        self,
        taskdb: TaskDB,
        epoch: int,
        projects: dict[str, ProjectRun],
        known: KnownKeys,
        control_rows: dict[str, Control],
        in_flight: Callable[[str, str], int | None],
        inqueue_limit: int = 0,
        retry_cap: float = math.inf,
    ) -> None:
        self._taskdb = taskdb
        self._epoch = epoch
        self._projects = projects
        self._known = known
        self._control_rows = control_rows
        self._in_flight = in_flight
        self._inqueue_limit = inqueue_limit
        self._last_due = float("-inf")
        self._retry_cap = retry_cap

    def apply(self, batch: Batch, now: float) -> Plan:
        """The whole batch in one transaction. Raises DatabaseError: then nothing of it is written, do it again."""
        links = {id(report): self._sort(report.follows) for report in batch.reports + batch.poisoned}
        submitted = self._sort(batch.submissions)
        wanted = self._wanted(batch, [*links.values(), submitted])
        for name in sorted(wanted):
            # a project that was stopped before we began to lead has a table that we have not seen yet
            self._taskdb.open_project(name)
        with self._taskdb.begin(self._epoch) as tx:
            plan = Plan(now, self._in_flight, self._last_due)
            self._read(tx, plan, wanted)
            self._decide(tx, plan, batch, links, submitted)
            self._write(tx, plan, batch, now)
        self._last_due = plan.last_due
        return plan

    def _sort(self, tasks: Iterable[NewTask]) -> "_Sorted":
        """Nine of ten links were met before, and are looked at here only."""
        fresh: list[NewTask] = []
        seen: list[NewTask] = []
        projects: set[str] = set()
        name: str | None = None
        known: Container[str] = ()
        generation = ""
        for task in tasks:
            if task.project != name:
                name = task.project
                projects.add(name)
                project = self._projects.get(name)
                known = self._known.known(project.known_as) if project else ()
                generation = project.head.generation if project else ""
            if _is_plain(task.schedule) and task.taskid in known and task.generation in ("", generation):
                seen.append(task)
            else:
                fresh.append(task)
        return _Sorted(fresh, seen, projects)

    def _wanted(self, batch: Batch, submissions: Iterable["_Sorted"]) -> dict[str, set[str]]:
        """The tasks whose stored state the decisions need, by project."""
        wanted: dict[str, set[str]] = {name: set() for name in (*batch.ticks, *batch.ending, *batch.pauses)}
        for report in batch.reports + batch.poisoned:
            wanted.setdefault(report.project, set()).add(report.taskid)
        for tasks in submissions:
            for name in tasks.projects:
                wanted.setdefault(name, set())
            for task in tasks.fresh:
                wanted[task.project].add(task.taskid)
        for name, key in batch.tolls:
            if key not in self._control_rows:
                wanted.setdefault(name, set()).add(key)
        for order in batch.orders:
            wanted.setdefault(order.project, set()).update(order.tasks)
        return {name: ids for name, ids in wanted.items() if name in self._projects}

    def _read(self, tx: TaskTx, plan: Plan, wanted: dict[str, set[str]]) -> None:
        states = tx.project_states(wanted)
        for name, taskids in wanted.items():
            generation = self._projects[name].head.generation
            counts = states.get(name) or ProjectState(project=name, generation=generation)
            plan.projects[name] = ProjectPlan(counts=counts, stored=tx.states(name, taskids) if taskids else {})

    # --- decide ---------------------------------------------------------------------------------------------------------

    def _decide(self, tx: TaskTx, plan: Plan, batch: Batch, links: dict[int, "_Sorted"], submitted: "_Sorted") -> None:
        asked = [report.control for report in batch.reports + batch.poisoned if report.control]
        alive = self._control_work(tx, asked) if asked else {}
        for report in batch.reports:
            self._decide_report(plan, report, alive)
        for report in batch.poisoned:
            self._decide_report(plan, report, alive, _NEVER_AGAIN)
        for report in plan.applied:
            self._decide_follows(plan, report, links[id(report)], alive.get(report.control))
        self._decide_submissions(plan, submitted)
        for order in batch.orders:
            task_orders.carry_out(plan, order)
        for (name, key), toll in batch.tolls.items():
            plan.note_toll(name, key, toll, self._control_rows.get(key))
        for row in batch.controls:
            plan.controls[row.id] = row
        for name, planned in plan.projects.items():
            if name in batch.ticks:
                plan.tick(name, batch.ticks[name])
            planned.pause = batch.pauses.get(name)
            if name in batch.ending:
                self._decide_finished(tx, plan, name)

    def _control_work(self, tx: TaskTx, ids: Iterable[str]) -> dict[str, Control]:
        """Those of these rows that are still there; memory need not have them, if they were given out by a leader before us."""
        alive = tx.existing_controls(ids)
        rows = {row_id: self._control_rows[row_id] for row_id in alive if row_id in self._control_rows}
        for row in tx.controls(alive - rows.keys()):
            schedule = rules.with_toll(row.task.schedule, NOTHING)
            rows[row.id] = replace(row, task=replace(row.task, schedule=schedule))
        return rows

    def _decide_report(
        self, plan: Plan, report: Report, alive: dict[str, Control], delays: dict[str, float] | None = None
    ) -> None:
        project = self._projects.get(report.project)
        if project is None or report.generation != project.head.generation:
            plan.stale.append(report)
        elif not report.parts:
            self._decide_part(plan, report, alive)
        else:
            if delays is None:
                delays = self._delays(project)
            if report.control:
                control_reports.apply(plan, report, alive.get(report.control), delays)
            else:
                plan.end_task(report, delays)

    def _delays(self, project: ProjectRun) -> dict[str, float]:
        """Before the retries of a project. Where somebody waits for the end (`one`), nobody mends a script that cannot be loaded."""
        if project.info is None:
            return rules.capped({}, self._retry_cap)
        if not project.info.answered and self._retry_cap < math.inf:
            return rules.NO_RETRY
        return rules.capped(project.info.retry_delay, self._retry_cap)

    def _decide_part(self, plan: Plan, report: Report, alive: dict[str, Control]) -> None:
        """A part that is not the last: its follow-ups are entered, the run goes on."""
        state = plan.projects[report.project].stored.get(report.taskid)
        current = report.control in alive if report.control else state is not None and state.run == report.run
        (plan.applied if current else plan.stale).append(report)

    def _decide_follows(self, plan: Plan, report: Report, links: "_Sorted", row: Control | None) -> None:
        by = control.cron_run(row, self._projects[report.project]) if row is not None else None
        self._decide_submissions(plan, links, report.project, by)
        for index, sent in enumerate(report.messages):
            target = self._projects.get(sent.project)
            if target is not None:
                row = control.message(report, index, sent, target)
                plan.controls[row.id] = row

    def _decide_submissions(
        self, plan: Plan, tasks: "_Sorted", project: str = "", by: tuple[CronJob, int] | None = None
    ) -> None:
        """``by`` the cron job that a run of ``project`` was."""
        for task in tasks.fresh:
            self._decide_submission(plan, task, by if task.project == project else None)
        for task in tasks.seen:
            if task.taskid in plan.projects[task.project].stored:
                self._decide_submission(plan, task)
            else:
                plan.seen.append(task)

    def _decide_submission(self, plan: Plan, task: NewTask, by: tuple[CronJob, int] | None = None) -> None:
        project = plan.projects.get(task.project)
        if project is None:
            plan.drop(task, "unknown-project")
        elif task.generation and task.generation != self._projects[task.project].head.generation:
            plan.drop(task, "old-generation")
        elif self._overflows(project, task):
            plan.drop(task, "overflow")
        else:
            plan.submit(task, by)

    def _overflows(self, project: ProjectPlan, task: NewTask) -> bool:
        """The user bounds how many tasks may wait (behaviour S16)."""
        if not self._inqueue_limit or task.taskid in project.stored:
            return False
        return project.counts.active + project.change["active"] >= self._inqueue_limit

    def _decide_finished(self, tx: TaskTx, plan: Plan, name: str) -> None:
        """Enter on_finished if the project's crawl is over (behaviour S50, UA22). The rows of control work are asked, since memory
        need not have all of them."""
        project, planned = self._projects[name], plan.projects[name]
        counts = planned.new_counts()
        if not counts.armed or not counts.finished or not project.active:
            return
        done = plan.done_controls
        waiting = set(tx.waiting_controls(name, project.head.generation, control.COUNTS, len(done) + 1))
        entered = {row.id for row in plan.controls.values() if row.project == name and row.kind in control.COUNTS}
        if (waiting | entered) - done:
            return
        planned.ended = True
        row = control.finished(project, planned.new_counts())
        plan.controls[row.id] = row

    # --- write ----------------------------------------------------------------------------------------------------------

    def _write(self, tx: TaskTx, plan: Plan, batch: Batch, now: float) -> None:
        states: list[ProjectState] = []
        for name, planned in sorted(plan.projects.items()):
            self._write_project(tx, name, planned)
            after = planned.new_counts()
            if after != planned.counts or planned.inserts or planned.ends:
                states.append(after)
        if states:
            tx.put_project_states(states)
        if plan.marked_controls:
            tx.mark_controls(sorted(plan.marked_controls, key=lambda row: row.id))
        if plan.controls:
            # in the order in which they were entered, which is that of a callback's messages
            tx.add_controls([replace(row, created=now) for row in plan.controls.values()])
        if plan.done_controls:
            tx.delete_controls(sorted(plan.done_controls))
        if batch.dead_letters:
            tx.add_dead_letters(batch.dead_letters)

    def _write_project(self, tx: TaskTx, name: str, planned: ProjectPlan) -> None:
        if planned.inserts:
            tx.insert(name, list(planned.inserts.values()))
        if planned.renewed:
            tx.restart(name, list(planned.renewed.values()))
        if planned.ends:
            tx.end(name, list(planned.ends.values()))
        if planned.restarts:
            tx.restart(name, list(planned.restarts.values()))
        if planned.postponed:
            tx.postpone(name, list(planned.postponed.values()))
        if planned.priorities:
            tx.set_priority(name, list(planned.priorities.values()))


def _is_plain(schedule: dict[str, Any]) -> bool:
    """Nothing in it matters for a task that is stored. An age of 0 does."""
    return not schedule or (
        schedule.get("age") is None and not any(schedule.get(name) for name in ("itag", "force_update", "cancel"))
    )
