"""What a result worker makes of one report: rows for the resultdb, the task as a user's class sees it, and the report that goes on. Pure."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pyspider_lite.models.report import Item, Report
from pyspider_lite.models.result import TaskResult


class Work(Struct):
    """One report (or part of one) on its way through."""

    report: Report
    rows: list[TaskResult] = []
    #: why it failed here
    error: str | None = None


def rows_as_they_are(report: Report) -> list[TaskResult]:
    """The rows of a report when nobody wants to see its values."""
    return [result_row(report, report.items)] if report.items or _replaces(report) else []


def result_row(report: Report, items: list[Item], *, taskid: str = "", project: str = "", url: str = "") -> TaskResult:
    """A row of these items; a user's class may store them under another task than the report's."""
    return TaskResult(
        project=project or report.project,
        taskid=taskid or report.taskid,
        url=url or report.url,
        run=report.run,
        epoch=report.epoch,
        generation=report.generation,
        items=items,
        replace=_replaces(report),
        complete=_is_complete(report) and taskid in ("", report.taskid),
    )


def _replaces(report: Report) -> bool:
    return report.ok and report.parts > 0


def _is_complete(report: Report) -> bool:
    """Nothing of its run is stored elsewhere. Of a report in parts nobody knows all items: an earlier try of the same run may
    leave some of its own behind."""
    return report.ok and report.parts == 1


def onward(work: Work) -> Report:
    """The report without its results; with an error it ends its run as failed."""
    report = work.report
    if work.error is not None:
        track = {**report.track, "process": {**report.track.get("process", {}), **_failed(work.error)}}
        # a part that failed ends the run: the parts behind it are late reports of a run that is over
        ends = {} if report.parts else {"part": 0, "parts": 1}
        report = replace(report, ok=False, track=track, **ends)
    return replace(report, items=[], task=None)


def task_dict(report: Report) -> dict[str, Any]:
    """The task as `on_result` gets it (behaviour P40)."""
    task = report.task
    if task is None:
        return {"taskid": report.taskid, "project": report.project, "url": report.url}
    return {
        "taskid": task.taskid,
        "project": task.project,
        "url": task.url,
        "schedule": dict(task.schedule),
        "fetch": dict(task.fetch),
        "process": dict(task.process),
    }


def _failed(error: str) -> dict[str, Any]:
    """What changes in track.process (behaviour P22)."""
    return {"ok": False, "logs": error[-1000:], "exception": error}
