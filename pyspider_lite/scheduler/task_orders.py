"""What people order for stored tasks (`task retry`, `task cancel`, `task set`), decided task by task. Pure.

`remote` receives an order, `commit` has `carry_out` decide on it in a transaction that does nothing else, `aftermath` notes what became
of it. An order names each task with the run number that the orderer saw: a task that ended or was started anew since is left alone, so
the same order may come twice.
"""

from collections import Counter
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from pyspider_lite.models.task import DueKey, NewTask, TaskEnd, TaskPriority, TaskState, TaskStatus
from pyspider_lite.scheduler import rules
from pyspider_lite.scheduler.plan import Plan
from pyspider_lite.scheduler.project_plan import ProjectPlan, shape

#: tasks in one order
MAX_TASKS = 1_000


class TaskAction(StrEnum):
    """What is to be done with tasks."""

    #: run again with all retries: now, or at the exetime that its submission chose
    RETRY = "retry"
    #: never run (status BAD); one that is under way ends first
    CANCEL = "cancel"
    #: wait with another priority
    PRIORITY = "priority"


class Outcome(StrEnum):
    """What became of an order for one task."""

    DONE = "done"
    #: it was to be run again and waits for the exetime that its submission chose
    AT_EXETIME = "at its exetime"
    #: it is under way and is cancelled when its run ends
    AFTER_RUN = "after its run"
    #: it is under way, so it is not run again
    RUNNING = "under way"
    #: it waits its turn already
    WAITS = "waits already"
    #: there is nothing to cancel, or to give a priority to
    OVER = "over"
    #: it ended or was started anew since the orderer looked, or is not there
    CHANGED = "changed meanwhile"
    #: its schedule cannot be read, or it cannot be stored
    INVALID = "invalid"


class TaskOrder(Struct, frozen=True, kw_only=True):
    """One order for tasks of one project."""

    project: str
    action: TaskAction
    #: taskid -> the run number that the orderer saw
    tasks: dict[str, int]
    priority: int = 0
    #: how many tasks came to what, as far as committed; parts of one order share it
    outcomes: Counter[str] = field(default_factory=Counter)

    def halves(self) -> "list[TaskOrder]":
        """Two orders for half of the tasks each."""
        tasks = list(self.tasks.items())
        middle = len(tasks) // 2
        return [replace(self, tasks=dict(part)) for part in (tasks[:middle], tasks[middle:])]


def carry_out(plan: Plan, order: TaskOrder) -> None:
    """Decide on each task of the order; the plan has nothing else of these tasks."""
    project = plan.projects.get(order.project)
    for taskid, run in order.tasks.items():
        state = project.stored.get(taskid) if project is not None else None
        outcome = Outcome.CHANGED
        if project is not None and state is not None and state.run == run:
            try:
                outcome = _ACTIONS[order.action](plan, project, state, order)
            except ValueError:
                outcome = Outcome.INVALID
        plan.ordered.append((order.outcomes, outcome))


def _retry(plan: Plan, project: ProjectPlan, state: TaskState, order: TaskOrder) -> Outcome:
    if state.status == TaskStatus.ACTIVE:
        if plan.runs(order.project, state):
            return Outcome.RUNNING
        if (state.due or 0) <= plan.now or _waits_for_exetime(plan, state):
            return Outcome.WAITS
    schedule = rules.anew(state.schedule)
    wanted = rules.read_stored(schedule)
    due = plan.due(wanted)
    after = replace(
        state,
        status=TaskStatus.ACTIVE,
        schedule=schedule,
        due=due,
        priority=wanted.priority,
        run=state.run + 1,
        pending=None,
        unconditional=True,
    )
    project.ends[state.taskid] = TaskEnd(
        taskid=state.taskid,
        status=TaskStatus.ACTIVE,
        schedule=schedule,
        due=due,
        priority=wanted.priority,
        run=after.run,
        updatetime=plan.now,
        lastcrawltime=state.lastcrawltime,
        track=None,
        unconditional=True,
    )
    project.moved(shape(state.status, state.schedule), shape(TaskStatus.ACTIVE, schedule))
    project.stored[state.taskid] = after
    project.due[state.taskid] = _key(after)
    project.events["pending"] += 1
    project.armed = True
    return Outcome.DONE if due <= plan.now else Outcome.AT_EXETIME


def _waits_for_exetime(plan: Plan, state: TaskState) -> bool:
    return rules.read_stored(rules.anew(state.schedule)).exetime > plan.now


def _cancel(plan: Plan, project: ProjectPlan, state: TaskState, order: TaskOrder) -> Outcome:
    if state.status != TaskStatus.ACTIVE:
        return Outcome.OVER
    if plan.runs(order.project, state):
        project.postponed[state.taskid] = NewTask(state.taskid, order.project, "", schedule={"cancel": True})
        return Outcome.AFTER_RUN
    plan.cancel(project, state)
    return Outcome.DONE


def _prioritize(plan: Plan, project: ProjectPlan, state: TaskState, order: TaskOrder) -> Outcome:
    if state.status != TaskStatus.ACTIVE:
        return Outcome.OVER
    after = replace(state, schedule={**state.schedule, "priority": order.priority}, priority=order.priority)
    project.priorities[state.taskid] = TaskPriority(
        taskid=state.taskid, priority=order.priority, schedule=after.schedule
    )
    project.stored[state.taskid] = after
    # one that is under way must not get into the window; its next run has the new priority
    if not plan.runs(order.project, state):
        project.due[state.taskid] = _key(after)
    return Outcome.DONE


def _key(state: TaskState) -> DueKey:
    return DueKey(taskid=state.taskid, priority=state.priority, due=state.due or 0.0, seq=state.seq)


_ACTIONS = {TaskAction.RETRY: _retry, TaskAction.CANCEL: _cancel, TaskAction.PRIORITY: _prioritize}
