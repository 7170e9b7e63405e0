"""After a commit: memory takes over what is now in the database. Nothing here can fail half-way for a reason outside."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from pyspider_lite import error_kinds
from pyspider_lite.counters import Counters
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.scheduler import rules
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.control_work import ControlWork
from pyspider_lite.scheduler.drops import Drop
from pyspider_lite.scheduler.known import KnownKeys
from pyspider_lite.scheduler.plan import Dropped, Plan
from pyspider_lite.scheduler.project_plan import ProjectPlan
from pyspider_lite.scheduler.project_state import PauseState, ProjectRun

logger = logging.getLogger("scheduler")

_NOT_MODIFIED = 304


class Aftermath:
    """Brings windows, leases, counts, counters and logs up to date with a committed plan."""

    def __init__(
        self,
        projects: dict[str, ProjectRun],
        known: KnownKeys,
        control: ControlWork,
        counters: Counters,
        end_lease: Any,
    ) -> None:
        self._projects = projects
        self._known = known
        self._control = control
        self._counters = counters
        self._end_lease = end_lease

    def take_over(self, batch: Batch, plan: Plan, now: float) -> None:
        """The plan of this batch was committed."""
        for report in plan.stale:
            self._stale(report, now)
        for report in plan.applied:
            self._applied(report, plan, now)
        for name, planned in plan.projects.items():
            project = self._projects.get(name)
            if project is not None:
                self._project(project, planned, now)
        self._control.committed(plan)
        self._count_dropped(plan, now)
        for outcomes, word in plan.ordered:
            outcomes[word] += 1
        for then in batch.then:
            then(plan)

    def _stale(self, report: Report, now: float) -> None:
        self._counters.event(now, report.project, "stale")
        project = self._projects.get(report.project)
        if project is not None and project.head.generation != report.generation:
            return  # the lease of that name is the new project's
        if report.parts:
            self._end_lease(report.key)
            if project is not None and not report.control:
                # the row may wait under another run number: the table knows
                project.window.more, project.window.next_due = True, now

    def _applied(self, report: Report, plan: Plan, now: float) -> None:
        if not report.parts:
            return
        self._end_lease(report.key)
        project = self._projects.get(report.project)
        if project is None:
            return
        self._count_links(report, now)
        self._control.reported(report, project)
        if report.control:
            if not report.ok:
                logger.warning("%s: %s failed: %s", report.project, report.taskid, _exception(report))
            return
        self._pause(report, project, now)
        self._log(report, plan.projects[report.project], project, now)

    def _pause(self, report: Report, project: ProjectRun, now: float) -> None:
        """The report counts for the automatic pause; what it changes is said, and stored by the next commit."""
        pause = project.pause
        match pause.record(report.ok, now):
            case PauseState.PAUSED:
                reason = (
                    f"{pause.describe()}, the last one {report.url[:200]}: {_exception(report) or 'no reason known'}"
                )
                pause.reason = reason
                logger.warning(
                    "project %s pauses for %d s, then a few tasks are tried (`project resume` does so at once): %s",
                    *(project.name, pause.until(now) - now, reason),
                )
            case PauseState.FREE:
                logger.info("project %s goes on: %s went well", project.name, report.url[:200])

    def _log(self, report: Report, planned: ProjectPlan, project: ProjectRun, now: float) -> None:
        fetch, process = report.track.get("fetch") or {}, report.track.get("process") or {}
        for name, part in (("fetch_time", fetch), ("process_time", process)):
            if isinstance(part.get("time"), int | float):
                self._counters.time(now, report.project, name, part["time"])
        end = planned.ends.get(report.taskid)
        if fetch.get("status_code") == _NOT_MODIFIED and report.ok:
            self._counters.event(now, report.project, "not-modified")
        project.log.append((now, _shown(report, int(end.status) if end else None, now)))
        if report.ok:
            logger.debug("task done %s:%s %s", report.project, report.taskid, report.url)
        elif end is not None and end.due is not None:
            logger.info(
                "task retry %s/%s %s:%s %s: %s",
                end.schedule.get("retried"),
                rules.read_stored(end.schedule).retries_after(fetch.get("status_code"), fetch.get("error_kind")),
                report.project,
                report.taskid,
                report.url,
                _exception(report),
            )
        else:
            logger.warning("task failed %s:%s %s: %s", report.project, report.taskid, report.url, _exception(report))

    def _project(self, project: ProjectRun, planned: ProjectPlan, now: float) -> None:
        project.counts = planned.new_counts()
        if planned.ended:
            _say_finished(project)
        self._known.add(project.known_as, planned.known)
        # of those that ended some may wait again: their run was thought lost
        for taskid in (*planned.gone, *planned.ends):
            project.window.remove(taskid)
        for key in planned.due.values():
            project.window.add(key, now)
        if planned.due or planned.ends:
            project.wake_at = float("-inf")
        for name, count in planned.events.items():
            self._counters.event(now, project.name, name, count)
        if logger.isEnabledFor(logging.DEBUG):
            _say(project.name, planned)

    def _count_dropped(self, plan: Plan, now: float) -> None:
        reasons = Counter((task.project, "seen") for task in plan.seen)
        for dropped in plan.dropped:
            reasons[dropped.project, dropped.reason.partition(":")[0]] += 1
            project = self._projects.get(dropped.project)
            if project is not None:
                project.drops.add(Drop(now, dropped.taskid, dropped.url, dropped.reason, dropped.until))
        for (name, reason), count in reasons.items():
            project = self._projects.get(name)
            if project is not None and reason == "seen":
                project.drops.add_seen(now, [task for task in plan.seen if task.project == name])
            # an unknown name must not become a counter of its own
            self._counters.event(now, name if project is not None else "", f"dropped-{reason}", count)
        if logger.isEnabledFor(logging.DEBUG):
            seen = [Dropped(task.project, task.taskid, task.url, "seen") for task in plan.seen]
            for one in [*plan.dropped, *seen]:
                word = "overflow task" if one.reason == "overflow" else "ignore newtask"
                logger.debug("%s %s:%s %s: %s", word, one.project, one.taskid, one.url, one.reason)

    def _count_links(self, report: Report, now: float) -> None:
        """Links that the callback dropped itself: bad-url, duplicate, same-taskid."""
        dropped = (report.track.get("process") or {}).get("dropped")
        for reason, count in dropped.items() if isinstance(dropped, dict) else ():
            if isinstance(count, int) and count > 0:
                self._counters.event(now, report.project, f"dropped-{reason}", count)


def _say(project: str, planned: ProjectPlan) -> None:
    """What became of submissions, in pyspider's words (behaviour S94)."""
    for taskid, row in planned.inserts.items():
        logger.debug("new task %s:%s %s", project, taskid, row.task.url)
    for taskid, again in planned.restarts.items():
        logger.debug("restart task %s:%s %s", project, taskid, again.task.url)
    for taskid, end in planned.ends.items():
        if end.status == TaskStatus.BAD:
            logger.debug("cancel task %s:%s", project, taskid)


def _shown(report: Report, status: int | None, now: float) -> dict[str, Any]:
    """The ended run as `get_active_tasks` shows it (behaviour S91)."""
    kept = ("ok", "time", "follows", "status_code")
    track = {
        part: {key: report.track[part][key] for key in kept if key in report.track[part]}
        for part in ("fetch", "process")
        if isinstance(report.track.get(part), dict)
    }
    return {
        "taskid": report.taskid,
        "project": report.project,
        "url": report.url,
        "status": status,
        "lastcrawltime": now,
        "updatetime": now,
        "track": track,
    }


def _say_finished(project: ProjectRun) -> None:
    counts = project.counts
    logger.info(
        "project %s: crawl %d is finished; tasks so far: %d succeeded, %d failed, %d cancelled",
        *(project.name, counts.crawl, counts.success, counts.failed, counts.bad),
    )


def _exception(report: Report) -> str:
    return error_kinds.said(report.track.get("process"))[:300]
