"""What `project jobs` shows: when a project's ``@every`` methods run next, and what became of their last ticks (UA20). Pure."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from pyspider_lite import cron
from pyspider_lite.models.project import ACTIVE_PROJECT, CronJob, JobState, Project, ProjectState


def as_records(project: Project, state: ProjectState, now: float) -> list[dict[str, Any]]:
    """A record for each job that the scheduler knows of."""
    known = state.jobs if state.generation == project.generation else []
    # a tick after this one that has passed waits for a scheduler
    since = max(state.last_tick, min(project.updatetime, now))
    idle = "" if project.status in ACTIVE_PROJECT else f"never, the project is {project.status}"
    return [_record(job, idle or _next_run(job.job, since, now)) for job in known]


def as_lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The records as text."""
    for record in records:
        yield f"{record['job']}: {record['runs']}"
        yield f"  next run: {record['next run']}"
        ended = f", ended {record['ended']}, {record['result']}" if record["result"] else ""
        yield f"  last run: {record['last run'] or 'none'}{ended}"
        why = f", the last {record['last missed']}, {record['why missed']}" if record["missed"] else ""
        yield f"  missed: {record['missed']}{why}"


def _record(state: JobState, next_run: str) -> dict[str, Any]:
    return {
        "job": state.job.name,
        "runs": _runs(state.job),
        "next run": next_run,
        "last run": _moment(state.tick) if state.tick else None,
        "ended": _moment(state.ended) if state.tick else None,
        "result": (f"failed: {state.error}" if state.error else "ok") if state.tick else None,
        "missed": state.missed,
        "last missed": _moment(state.missed_tick) if state.missed else None,
        "why missed": state.missed_why or None,
    }


def _next_run(job: CronJob, since: float, now: float) -> str:
    due = cron.newest_tick(job, since, now)
    return _moment(cron.next_tick(job, now)) if due is None else f"{_moment(due)}, as soon as a scheduler runs"


def _runs(job: CronJob) -> str:
    return f"each {job.every} s" if job.every else f"cron {job.cron} {job.tz}"


def _moment(unix: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(unix)) if unix < float("inf") else "never"
