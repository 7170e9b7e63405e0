"""The control rows in memory: entered, given out, ended; those that ask for a deletion are kept for `deletion.py`."""

import logging
from collections import Counter, deque
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from pyspider_lite import cron
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.project import CronJob
from pyspider_lite.models.report import Report
from pyspider_lite.scheduler import control, rules
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.blame import NOTHING
from pyspider_lite.scheduler.dispatch import Dispatcher
from pyspider_lite.scheduler.job_states import Missed, Ticks
from pyspider_lite.scheduler.plan import Plan
from pyspider_lite.scheduler.project_state import Info, ProjectRun

logger = logging.getLogger("scheduler")

#: seconds between two looks for rows that commands entered
LOOK_EVERY = 1.0
#: seconds before a script that can be loaded after all is asked about itself once more: it may load on one machine and not on another
ASK_AGAIN = 60.0
#: rows read at once, and kept in memory at most
PAGE, MAX_ROWS = 1_000, 20_000
#: row numbers before the last one seen that are looked at again
LOOK_BACK = 200


class ControlWork:
    """Everything that is not a task."""

    def __init__(
        self,
        taskdb: TaskDB,
        projects: dict[str, ProjectRun],
        dispatcher: Dispatcher,
        *,
        give_ticks: bool = True,
    ) -> None:
        self._taskdb = taskdb
        self._projects = projects
        self._dispatcher = dispatcher
        self._give_ticks = give_ticks
        #: rows known, by id
        self.rows: dict[str, Control] = {}
        self._ready: deque[str] = deque()
        self._parked: dict[str, list[str]] = {}
        #: cron rows by project and job
        self._ticks: Counter[tuple[str, str]] = Counter()
        #: rows that ask for a deletion, by id
        self.deletions: dict[str, Control] = {}
        #: rows meant for an earlier project of their name: they stay in the table until that is deleted
        self._foreign: set[str] = set()
        self._last_seq = 0
        self._looked = float("-inf")
        #: projects whose script could not be asked about itself, and then ran
        self._loaded: set[str] = set()
        #: when the next cron tick is due
        self.next_tick = 0.0

    def expire(self) -> None:
        """Look for new rows at the next step."""
        self._looked = float("-inf")

    # --- entering -------------------------------------------------------------------------------------------------------

    def ask_info(self, batch: Batch, project: ProjectRun) -> None:
        """The script is new or changed: ask it (behaviour S12), unless it has answered a leader before us. An answer that was asked
        for before is waited for."""
        row = control.info(project)
        answer, project.answered = control.kept_answer(project.answered, row), ""
        if answer is not None:
            self._take_answer(project, answer)
        elif row.id in self.rows:
            self._ready.append(row.id)
        else:
            batch.controls.append(row)

    def ask_anew(self, batch: Batch, project: ProjectRun) -> None:
        """The same, when its row may be gone from the table."""
        row = control.info(project)
        if (project.name, row.id) not in self._dispatcher.in_flight():
            self.rows.pop(row.id, None)
            batch.controls.append(row)

    def ask_again(self, batch: Batch, now: float) -> None:
        """Ask those scripts that could not be asked and ran since: what they need is there now."""
        loaded, self._loaded = self._loaded, set()
        for name in loaded:
            project = self._projects.get(name)
            if project is None or not project.active or project.info is None or project.info.answered:
                continue
            if now >= project.ask_again_at:
                project.ask_again_at = now + ASK_AGAIN
                self.ask_anew(batch, project)

    def tick(self, batch: Batch, now: float) -> None:
        """Enter the cron ticks that are due (behaviour S60)."""
        if now < self.next_tick or not self._give_ticks:
            return
        self.next_tick = now + 60.0
        for project in self._projects.values():
            if project.active and project.info is not None and (project.info.jobs or project.counts.jobs):
                if now >= project.next_tick:
                    self._tick_project(batch, project, project.info.jobs, now)
                    project.next_tick = cron.next_of(project.info.jobs, now)
                self.next_tick = min(self.next_tick, project.next_tick)

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
        waiting = self._ticks[project.name, job.name]
        if waiting >= job.max_instances:
            return f"max_instances is {job.max_instances}, and {waiting} waited or ran already"
        latest = cron.latest(job, tick)
        return cron.too_late(tick, now) if latest is not None and now > latest else ""

    def load(self, now: float) -> None:
        """Read rows that others entered; before the first commit, since reports are about them."""
        if now - self._looked < LOOK_EVERY or len(self.rows) >= MAX_ROWS:
            return
        # transactions may commit in another order than that of their numbers: look back a little
        after = max(0, self._last_seq - LOOK_BACK)
        while len(self.rows) < MAX_ROWS:
            page = self._taskdb.controls(after, PAGE)
            for row in page:
                after = row.seq
                if row.id not in self.rows and row.id not in self._foreign:
                    self._enter(row)
            self._last_seq = max(self._last_seq, after)
            if len(page) < PAGE:
                break
        self._looked = now

    def _enter(self, row: Control) -> None:
        if row.kind == ControlKind.DELETE:
            self.deletions[row.id] = row
            return
        self._dispatcher.recall(row)
        row = replace(row, task=replace(row.task, schedule=rules.with_toll(row.task.schedule, NOTHING)))
        self.rows[row.id] = row
        if row.kind == ControlKind.INFO:
            self._ready.appendleft(row.id)  # everything of the project waits for it
        else:
            self._ready.append(row.id)
        if row.kind == ControlKind.CRON:
            self._ticks[_job(row)] += 1

    # --- giving out -----------------------------------------------------------------------------------------------------

    def dispatch(self, now: float) -> None:
        """Give out what waits, as far as budget and room allow."""
        room = self._dispatcher.control_room()
        chosen: list[tuple[Control, ProjectRun]] = []
        in_flight = self._dispatcher.in_flight()
        for _ in range(len(self._ready)):
            if len(chosen) >= room:
                break
            row = self.rows.get(self._ready.popleft())
            if row is None or (row.project, row.id) in in_flight:
                continue
            project = self._projects.get(row.project)
            if project is not None and project.head.generation != row.generation != "":
                # meant for an earlier project of that name; the row goes with that one's deletion
                del self.rows[row.id]
                self._foreign.add(row.id)
            elif (
                project is not None
                and project.active
                and not self._dispatcher.gate.control_may_go((row.project, row.id), now)
            ):
                self._ready.append(row.id)
            elif project is not None and project.active:
                chosen.append((row, project))
            else:
                self._parked.setdefault(row.project, []).append(row.id)
        if chosen:
            try:
                self._dispatcher.dispatch_control(chosen)
            except DatabaseError:
                self._ready.extend(row.id for row, _ in chosen)
                raise

    def unpark(self, name: str) -> None:
        """The project is active again: what waited for it may go."""
        self._ready.extend(self._parked.pop(name, ()))

    def requeue(self, row_id: str) -> bool:
        """A control run was lost; False if this is no control row."""
        if row_id not in self.rows:
            return False
        self._ready.append(row_id)
        return True

    # --- ending ---------------------------------------------------------------------------------------------------------

    def committed(self, plan: Plan) -> None:
        """A plan was committed: its new rows are here, its ended ones are gone."""
        for row in plan.controls.values():
            if row.id not in self.rows:
                self._enter(row)
        for row_id in plan.done_controls:
            if row_id not in self.rows:
                continue
            row = self.rows.pop(row_id)
            if row.kind == ControlKind.CRON:
                self._ticks[_job(row)] -= 1

    def reported(self, report: Report, project: ProjectRun) -> None:
        """A run was done. An answer to _on_get_info is taken over (behaviour S12, H63); a broken script's is empty."""
        if report.control and report.control == control.info(project).id:
            self._take_answer(project, report.info or {}, answered=report.ok)
        elif report.ok and project.info is not None and not project.info.answered:
            self._loaded.add(project.name)

    def _take_answer(self, project: ProjectRun, answer: dict[str, Any], *, answered: bool = True) -> None:
        crawl_config = answer.get("crawl_config")
        project.info = Info(
            crawl_config=crawl_config if isinstance(crawl_config, dict) else {},
            retry_delay=rules.retry_delays(answer.get("retry_delay")),
            jobs=_jobs(project.name, answer),
            answered=answered,
        )
        project.next_tick = float("-inf")
        project.wake_at = float("-inf")
        self.next_tick = 0.0

    def forget(self, name: str) -> None:
        """The project was deleted with its rows."""
        for row_id in [row.id for row in self.rows.values() if row.project == name]:
            del self.rows[row_id]
        self._parked.pop(name, None)
        for key in [key for key in self._ticks if key[0] == name]:
            del self._ticks[key]


def _job(row: Control) -> tuple[str, str]:
    """The project and the job of a cron row."""
    save = row.task.fetch.get("save")
    return row.project, str(save.get("job", "")) if isinstance(save, dict) else ""


def _jobs(project: str, answer: dict[str, Any]) -> list[CronJob]:
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
