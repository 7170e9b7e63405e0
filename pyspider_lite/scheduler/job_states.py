"""What became of the ticks of a project's jobs: the records that `project jobs` shows (UA20). Pure; called by `plan.py`, in the
transactions that enter ticks and end their runs."""

from msgspec import Struct
from msgspec.structs import replace

from pyspider_lite import error_kinds
from pyspider_lite.models.control import Control
from pyspider_lite.models.project import CronJob, JobState
from pyspider_lite.models.report import Report

_MAX_ERROR = 300


class Missed(Struct, frozen=True):
    """Ticks of a job that do not run."""

    job: str
    #: the last of them, and how many there are
    tick: int
    count: int
    why: str


class Ticks(Struct, frozen=True):
    """What a look at the clock came to for one project."""

    #: ticks until then are given out, or left out
    last: int
    jobs: list[CronJob] = []
    missed: list[Missed] = []


def ticked(states: list[JobState], ticks: Ticks) -> list[JobState]:
    """The jobs that the script has now, each with its record; a job that was changed keeps the one of its name."""
    known = {state.job.name: state for state in states}
    now = [replace(known.get(job.name) or JobState(job), job=job) for job in ticks.jobs]
    for missed in ticks.missed:
        now = _missed(now, missed)
    return now


def ended(states: list[JobState], row: Control, report: Report, now: float) -> list[JobState]:
    """The run that a cron row asked for is over."""
    save = row.task.fetch["save"]
    name, tick = save.get("job", ""), save["tick"]
    left_out = (report.info or {}).get("left_out")
    if left_out:
        return _missed(states, Missed(name, tick, 1, str(left_out)))
    exception = error_kinds.said(report.track.get("process"))
    error = "" if report.ok else (exception.strip().splitlines() or ["no reason is known"])[-1][:_MAX_ERROR]
    return [
        replace(state, tick=max(tick, state.tick), ended=now, error=error) if state.job.name == name else state
        for state in states
    ]


def _missed(states: list[JobState], missed: Missed) -> list[JobState]:
    return [
        replace(state, missed=state.missed + missed.count, missed_tick=missed.tick, missed_why=missed.why)
        if state.job.name == missed.job
        else state
        for state in states
    ]
