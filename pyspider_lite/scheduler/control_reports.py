"""What becomes of a report on control work, written into a `Plan`. `on_start` and `on_finished` also show as task rows, and what failed
of them is tried again as a task is. Asked by `commit`; pure."""

from pyspider_lite.database.base import NewRow
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import DueKey, TaskEnd, TaskRestart, TaskState, TaskStatus
from pyspider_lite.scheduler import control, job_states, rules
from pyspider_lite.scheduler.plan import Plan
from pyspider_lite.scheduler.project_plan import ProjectPlan, shape


def apply(plan: Plan, report: Report, row: Control | None, retry_delay: dict[str, float]) -> None:
    """It is applied if the control row is still there, else it is stale."""
    if row is None or row.id in plan.done_controls:
        plan.stale.append(report)
        return
    plan.done_controls.add(row.id)
    plan.applied.append(report)
    project = plan.projects[report.project]
    if row.kind == ControlKind.INFO:
        project.info = control.keep_answer(row, report)
    if row.kind == ControlKind.CRON:
        project.jobs = job_states.ended(project.new_counts().jobs, row, report, plan.now)
    if row.kind == ControlKind.START:
        project.armed = True
    if row.kind in (ControlKind.START, ControlKind.FINISHED):
        schedule = row.task.schedule
        ended = rules.Ended(TaskStatus.SUCCESS, None, schedule, "success")
        if not report.ok:
            ended = plan.failed(report, schedule, retry_delay)
        _show_as_task(plan.now, project, report, row, ended)


def _show_as_task(now: float, project: ProjectPlan, report: Report, row: Control, ended: rules.Ended) -> None:
    taskid = row.task.taskid
    state = project.stored.get(taskid)
    if state is None:
        project.inserts[taskid] = NewRow(task=row.task, due=now, priority=0, updatetime=now)
    else:
        project.renewed[taskid] = TaskRestart(
            task=row.task, due=now, priority=0, run=state.run, updatetime=now, unconditional=False
        )
    run = (state.run if state else 0) + 1
    project.ends[taskid] = TaskEnd(
        taskid=taskid,
        status=ended.status,
        schedule=ended.schedule,
        due=ended.due,
        priority=0,
        run=run,
        updatetime=now,
        lastcrawltime=now,
        track=report.track,
    )
    project.moved(shape(state.status, state.schedule) if state else None, (ended.status, False))
    project.events[ended.event] += 1
    seq = state.seq if state else 0
    project.stored[taskid] = TaskState(
        taskid=taskid,
        status=ended.status,
        schedule=ended.schedule,
        lastcrawltime=now,
        due=ended.due,
        priority=0,
        run=run,
        seq=seq,
    )
    if ended.due is not None:
        project.due[taskid] = DueKey(taskid=taskid, priority=0, due=ended.due, seq=seq)
        project.gone.discard(taskid)
    else:
        # a retry of an earlier run may wait
        project.due.pop(taskid, None)
        project.gone.add(taskid)
