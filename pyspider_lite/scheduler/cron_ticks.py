"""The ticks of cron jobs: which are due, which are left out and why, and how many of a job wait or run. Asked by `control_work` and
`scheduler`; pure."""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import convert

from pyspider_lite import cron
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.project import CronJob
from pyspider_lite.scheduler import control
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.job_states import Missed, Ticks
from pyspider_lite.scheduler.project_state import ProjectRun

logger = logging.getLogger("scheduler")

#: seconds between two looks when nothing is due before
_LOOK_EVERY = 60.0


class CronTicks:
    """Of all projects. Without ``give`` there are none."""

    def __init__(self, projects: Mapping[str, ProjectRun], *, give: bool) -> None:
        self._projects = projects
        self._gives = give
        #: rows that wait or are under way, by project and job
        self._rows: Counter[tuple[str, str]] = Counter()
        #: when the next one is due
        self.next = 0.0

    def look_now(self) -> None:
        """A project has other jobs."""
        self.next = 0.0

    def give(self, batch: Batch, now: float) -> None:
        """Enter the cron ticks that are due (behaviour S60)."""
        if now < self.next or not self._gives:
            return
        self.next = now + _LOOK_EVERY
        for project in self._projects.values():
            if project.active and project.info is not None and (project.info.jobs or project.counts.jobs):
                if now >= project.next_tick:
                    self._tick_project(batch, project, project.info.jobs, now)
                    project.next_tick = cron.next_of(project.info.jobs, now)
                self.next = min(self.next, project.next_tick)

    def _tick_project(self, batch: Batch, project: ProjectRun, jobs: list[CronJob], now: float) -> None:
        missed = []
        last = project.last_tick
        for tick, job in cron.due(jobs, last, now):
            project.last_tick = tick
            earlier = cron.newest_tick(job, last, tick - 1)
            if earlier is not None:
                missed.append(Missed(job.name, earlier, cron.count(job, last, earlier), "made up for by the next"))
            if why := self._left_out(project, job, tick, now):
                logger.warning("%s: %s does not run: %s", project.name, job.name, why)
                missed.append(Missed(job.name, tick, 1, why))
            else:
                batch.controls.append(control.cron(project, tick, job))
        if (
            project.last_tick > project.counts.last_tick
            or missed
            or jobs != [state.job for state in project.counts.jobs]
        ):
            # the next leader goes on from here
            batch.ticks[project.name] = Ticks(project.last_tick, jobs, missed)

    def _left_out(self, project: ProjectRun, job: CronJob, tick: int, now: float) -> str:
        """Why the job does not run at this tick; "" if it does."""
        waiting = self._rows[project.name, job.name]
        if waiting >= job.max_instances:
            return f"max_instances is {job.max_instances}, and {waiting} waited or ran already"
        latest = cron.latest(job, tick)
        return cron.too_late(tick, now) if latest is not None and now > latest else ""

    # --- rows -----------------------------------------------------------------------------------------------------------

    def entered(self, row: Control) -> None:
        """A row waits from now on."""
        if row.kind == ControlKind.CRON:
            self._rows[_job(row)] += 1

    def left(self, row: Control) -> None:
        """It does so no longer."""
        if row.kind == ControlKind.CRON:
            self._rows[_job(row)] -= 1

    def forget(self, project: str) -> None:
        """The project was deleted with its rows."""
        for key in [key for key in self._rows if key[0] == project]:
            del self._rows[key]


def _job(row: Control) -> tuple[str, str]:
    """The project and the job of a cron row."""
    save = row.task.fetch.get("save")
    return row.project, str(save.get("job", "")) if isinstance(save, dict) else ""


def jobs_in(answer: dict[str, Any], project: str) -> list[CronJob]:
    """The cron jobs in an answer to _on_get_info; a processor that is older gives intervals only."""
    raw = answer.get("jobs")
    if not isinstance(raw, list):
        raw = [{"every": int(every)} for every in answer.get("cron") or () if isinstance(every, int | float)]
    jobs = []
    for each in raw:
        try:
            job = convert(each, CronJob)
            cron.check(job)
        except ValueError as error:
            logger.error("%s: a job does not run: %s", project, error)
        else:
            jobs.append(job)
    return jobs
