"""Why a page was or was not crawled, what happens to it next, and when: in words, from values. Pure.

Called by the command `explain` with what the databases have, and with what the scheduler says if it can be asked.
"""

import time
from typing import Any

from msgspec import Struct

from pyspider_lite import error_kinds
from pyspider_lite.models.project import ACTIVE_PROJECT, Project, ProjectState
from pyspider_lite.models.task import Task, TaskState, TaskStatus
from pyspider_lite.scheduler import rules
from pyspider_lite.scheduler.blame import APART_AFTER, Toll

_REASONS = {
    rules.SEEN: "seen (it is stored, and neither age, itag nor force_update asked for it again)",
    rules.SAME_ITAG: "same itag",
    rules.ACTIVE: "active (it waited for its turn or ran already)",
    rules.NOTHING_TO_CANCEL: "there was nothing to cancel",
    "unknown-project": "unknown project",
    "old-generation": "it was sent for an earlier project of this name",
    "overflow": "as many tasks waited as inqueue-limit allows",
}
_NOT_MODIFIED = 304


class Around(Struct, frozen=True, kw_only=True):
    """What else decides about a task."""

    now: float
    #: None: it is gone
    project: Project | None
    #: a scheduler leads now
    leads: bool
    #: the answer of the scheduler's `explain`, None if it could not be asked
    live: dict[str, Any] | None = None
    #: of the project, None if it has none yet
    state: ProjectState | None = None


def of_task(task: Task, around: Around) -> str:
    """One sentence about a stored task: what became of it, what comes next and when."""
    schedule = rules.read_stored(task.schedule)
    if task.status == TaskStatus.ACTIVE:
        return f"{task.url} {_so_far(task, schedule)}; {_next(task, schedule, around)}.{_nonsense(task)}"
    return f"{task.url} {_ended(task, schedule)}; {_again(task, schedule, around.now)}.{_nonsense(task)}"


def _nonsense(task: Task) -> str:
    try:
        rules.read_schedule(task.schedule)
    except ValueError as error:
        return f" Its {error}, so the default is taken."
    return ""


def of_stranger(page: str, project: str) -> str:
    """One sentence about a page of which nothing is stored."""
    return (
        f"{page} was never crawled: project {project} has no such task, so nothing submitted it, or each submission "
        "was dropped or is not stored yet."
    )


def of_drop(drop: dict[str, Any]) -> str:
    """One sentence about the last dropped submission of a page, as `Drop` has it."""
    times = f" (the last of {drop['times']})" if drop["times"] > 1 else ""
    reason = str(drop["reason"])
    if reason == rules.FRESH and drop["until"]:
        words = f"fresh for {span(drop['until'] - drop['time'])}, until {moment(drop['until'])}"
    else:
        words = _REASONS.get(reason, reason)
    return f"A submission of it{times} was dropped at {moment(drop['time'])}: {words}."


# --- tasks that wait or run -----------------------------------------------------------------------------------------


def _so_far(task: Task, schedule: rules.Schedule) -> str:
    if schedule.retried:
        return f"failed{_at(task)} ({_failure(task)})"
    if not task.lastcrawltime:
        return "was submitted and not crawled yet"
    if schedule.periodic and not task.unconditional:
        return f"was crawled{_at(task)} ({_success(task)}) and is again each {span(schedule.age or 0)} (auto_recrawl)"
    failed = _part(task, "process").get("ok") is False
    before = f"failed{_at(task)} ({_failure(task)})" if failed else f"was crawled{_at(task)} ({_success(task)})"
    return f"{before} and was submitted again at {moment(task.updatetime)}"


def _toll(toll: Toll) -> str:
    said = f", over which {toll.deaths} worker{'s' if toll.deaths > 1 else ''} died so far," if toll.deaths else ""
    if toll.kills >= APART_AFTER:
        said += f" which ran {toll.kills} times when all on its machine was killed and so goes alone,"
    return said


def _next(task: Task, schedule: rules.Schedule, around: Around) -> str:
    due = task.due or 0.0
    in_flight = (around.live or {}).get("in_flight", False)
    what = f"retry {schedule.retried} of {_retries(task, schedule)}" if schedule.retried else "its next run"
    if schedule.retried and schedule.periodic:
        what = f"retry {schedule.retried}"
    if task.unconditional:
        what += ", forced (the server is not asked whether the page changed),"
    what += _toll(rules.toll(task.schedule))
    if in_flight:
        return f"{what} is under way now{_after_that(task)}"
    hindrance = _hindrance(task.project, around)
    if due > around.now:
        when = f"comes at {moment(due)} (in {span(due - around.now)})"
    elif held := (around.live or {}).get("held_until"):
        when = f"comes at {moment(held)} (in {span(held - around.now)}): what ran when all was killed waits so long after each start"
    elif hindrance:
        when = f"is due since {moment(due)}" if due else "is due"
    else:
        rate = f"rate of {around.project.rate:g} a second" if around.project else "rate"
        when = f"comes as soon as the project's {rate}, better tasks and the runs in flight leave room"
        if around.live is None:
            when += ", if it is not under way already"
    return f"{what} {when}{', but ' + hindrance if hindrance else ''}{_after_that(task)}"


def _after_that(task: Task) -> str:
    if task.pending is None:
        return ""
    cancels = bool(task.pending.schedule.get("cancel"))
    return f"; after the run that is under way it is {'cancelled' if cancels else 'run again'}, as a later submission wants"


def _hindrance(name: str, around: Around) -> str:
    """What keeps the whole project from being worked on, "" if nothing does."""
    project, live = around.project, around.live or {}
    if project is None:
        return f"there is no project {name} any more, so nothing gives it out"
    if project.status not in ACTIVE_PROJECT:
        return f"the project is {project.status}: `pyspider_lite project set {name} --status RUNNING` has it go on"
    for what in ("rate", "burst"):
        if getattr(project, what) <= 0:
            return f"the project's {what} is 0: `pyspider_lite project set {name} --{what} 1` changes that"
    if not around.leads:
        return "no scheduler runs now"
    if pause := of_pause(name, around.state, around.now):
        return pause
    if live.get("asked") is False:
        return "its script was not loaded yet (processors do that)"
    if alone := live.get("alone"):
        return (
            f"all waits for {alone['project']}:{alone['taskid']}, which goes alone, since {span(around.now - alone['since'])}: "
            "it ran whenever everything on its machine was killed"
        )
    return ""


def of_pause(name: str, state: ProjectState | None, now: float) -> str:
    """That the project pauses by itself, why and what happens next; "" if it does not."""
    if state is None or not state.paused_until:
        return ""
    why = f"because {state.pause_reason}"
    if state.paused_until <= now:
        return f"the project was paused, {why}; it goes on as soon as one of the few tasks that are tried now goes well"
    return (
        f"the project pauses until {moment(state.paused_until)}, {why}; then a few tasks are tried, "
        f"and `pyspider_lite project resume {name}` does so at once"
    )


# --- tasks that ended -----------------------------------------------------------------------------------------------


def _ended(task: Task, schedule: rules.Schedule) -> str:
    if task.status == TaskStatus.SUCCESS:
        return f"was crawled{_at(task)} ({_success(task)})"
    if task.status == TaskStatus.FAILED:
        return f"failed for good{_at(task)}, after {schedule.retried} of {_retries(task, schedule)} retries ({_failure(task)})"
    return f"was cancelled at {moment(task.updatetime)}"


def _again(task: Task, schedule: rules.Schedule, now: float) -> str:
    """What the same submission would do now."""
    state = TaskState(
        taskid=task.taskid,
        status=task.status,
        schedule=task.schedule,
        lastcrawltime=task.lastcrawltime,
        due=task.due,
        priority=task.priority,
        run=task.run,
        seq=task.seq,
    )
    same = rules.Schedule(age=schedule.age, itag=schedule.itag)
    decision = rules.on_request(same, state, now=now, in_flight=False)
    if not isinstance(decision, rules.Ignore):
        return f"it rests until it is submitted again: its age of {span(schedule.age or 0)} is over, so that crawls it"
    reason = f"fresh for {span(decision.until - now)}, until {moment(decision.until)}" if decision.until else ""
    others = ["force_update"]
    if task.lastcrawltime:
        others.append(f"an age under {span(now - task.lastcrawltime)}")
    others.append(f"another itag than {schedule.itag!r}" if schedule.itag else "an itag")
    return (
        f"it rests: the same submission again is dropped ({reason or decision.reason.replace('-', ' ')}), "
        f"one with {', '.join(others[:-1])} or {others[-1]} crawls it"
    )


# --- words ----------------------------------------------------------------------------------------------------------


def links_dropped(task: Task) -> str:
    """How many links of its page entered nothing, by reason; "" if none."""
    dropped = _part(task, "process").get("dropped")
    if not isinstance(dropped, dict) or not dropped:
        return ""
    return "Its callback dropped links: " + ", ".join(f"{reason} {count}" for reason, count in dropped.items()) + "."


def _at(task: Task) -> str:
    return f" at {moment(task.lastcrawltime)}" if task.lastcrawltime else ""


def _success(task: Task) -> str:
    status, follows = _part(task, "fetch").get("status_code"), _part(task, "process").get("follows")
    if status == _NOT_MODIFIED:
        return "HTTP 304: the page had not changed since the crawl before, its results stay"
    shown = f"HTTP {status}" if status else "status unknown"
    return f"{shown}, {follows} link{'' if follows == 1 else 's'}" if follows else shown


def _failure(task: Task) -> str:
    """The last line of what it failed with."""
    fetch, process = _part(task, "fetch"), _part(task, "process")
    lines = (error_kinds.said(process) or str(fetch.get("error") or "")).strip().splitlines()
    return lines[-1][:200] if lines else f"HTTP {fetch.get('status_code') or 'status unknown'}"


def _retries(task: Task, schedule: rules.Schedule) -> int:
    fetch = _part(task, "fetch")
    return schedule.retries_after(fetch.get("status_code"), fetch.get("error_kind"))


def _part(task: Task, name: str) -> dict[str, Any]:
    part = task.track.get(name)
    return part if isinstance(part, dict) else {}


def moment(unix: float) -> str:
    """A point in time, in local time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))
    except (OverflowError, ValueError, OSError):
        return "the end of time"


def span(seconds: float) -> str:
    """A length of time in its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length or (unit != "d" and seconds >= length):
            return f"{seconds / length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
