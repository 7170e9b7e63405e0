"""Which tasks a command means: given by URL or id, or chosen by state, by what they failed with and by callback. Reads the taskdb a page
at a time, so memory does not grow with the number of tasks."""

import difflib
import math
from collections.abc import Iterator

from msgspec import Struct

from pyspider_lite import error_kinds
from pyspider_lite.cli.explain import find
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import ConfigError
from pyspider_lite.models.task import Task, TaskStatus

#: rows read at once, and tasks in one order: what the scheduler commits at once
PAGE = 500
#: rows that show what is not a task: run again they would do what nobody asked for
_SHOWN_ONLY = frozenset({"on_start", "on_finished"})
#: state -> status of the rows that may be in it
_STATES = {
    "failed": TaskStatus.FAILED,
    #: failed, and is tried again
    "waiting": TaskStatus.ACTIVE,
    "succeeded": TaskStatus.SUCCESS,
    "cancelled": TaskStatus.BAD,
    #: waits or runs, and has run before
    "again": TaskStatus.ACTIVE,
    #: waits or runs for the first time
    "new": TaskStatus.ACTIVE,
}
#: the states of tasks that have run and may run again
RAN = frozenset({"failed", "waiting", "succeeded", "again"})
FAILING = frozenset({"failed", "waiting"})
ACTIVE = frozenset({"waiting", "again", "new"})
ALL = frozenset(_STATES)


class Wanted(Struct, frozen=True, kw_only=True):
    """Which tasks of a project are meant."""

    states: frozenset[str]
    #: any of these; () for whatever they failed with, or did not
    errors: tuple[str, ...] = ()
    callback: str | None = None
    #: only those that have not changed since then (database time): else what is run again might be met again
    until: float = math.inf

    @property
    def statuses(self) -> list[TaskStatus]:
        """Of the rows to be looked at."""
        return sorted({_STATES[state] for state in self.states})

    def fits(self, task: Task) -> bool:
        """Whether this task is meant."""
        if state_of(task) not in self.states or task.updatetime > self.until:
            return False
        if self.callback is not None and callback_of(task) != self.callback:
            return False
        return not self.errors or not error_kinds.of_track(task.track).isdisjoint(self.errors)


def state_of(task: Task) -> str:
    """One of the states above."""
    if task.status == TaskStatus.ACTIVE:
        return "waiting" if task.schedule.get("retried") else "again" if task.lastcrawltime else "new"
    return next((state for state, status in _STATES.items() if status == task.status), "")


def callback_of(task: Task) -> str:
    """The method that gets its page."""
    return str(task.process.get("callback") or "__call__")


def check_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """The kinds of errors as given. Raises ConfigError for a word that is none."""
    for kind in kinds:
        if not error_kinds.is_kind(kind):
            near = difflib.get_close_matches(kind, error_kinds.KINDS, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"--error {kind}: {hint}there are {', '.join(sorted(error_kinds.KINDS))}, a status as 404 or 5xx, "
                "and names of exceptions as ValueError"
            )
    return kinds


def check_project(taskdb: TaskDB, project: str) -> None:
    """Raises ConfigError if there are no tasks of it."""
    known = taskdb.projects()
    if project not in known:
        near = difflib.get_close_matches(project, known, 1)
        raise ConfigError(f"there are no tasks of a project {project}" + (f"; did you mean {near[0]}?" if near else ""))


def pages(taskdb: TaskDB, project: str, named: tuple[str, ...], wanted: Wanted | None) -> Iterator[list[Task]]:
    """The tasks that are named, or those that fit, in pages. Raises ConfigError if that is neither or both, or if one that is named is
    not there."""
    check_project(taskdb, project)
    if bool(named) == (wanted is not None):
        both = "tasks are given by URL or id, or chosen by options, not both"
        raise ConfigError(both if named else "say which tasks: give URLs or ids, or choose by the options of --help")
    return matching(taskdb, project, wanted) if wanted is not None else _named(taskdb, project, named)


def matching(taskdb: TaskDB, project: str, wanted: Wanted) -> Iterator[list[Task]]:
    """The newest first, by status. What is entered meanwhile is not looked at."""
    for status in wanted.statuses:
        after: int | None = None
        while rows := taskdb.select(project, status=status, limit=PAGE, after=after):
            after = rows[-1].seq
            if found := [task for task in rows if wanted.fits(task) and not _only_shows(task)]:
                yield found


def _named(taskdb: TaskDB, project: str, named: tuple[str, ...]) -> Iterator[list[Task]]:
    found: dict[str, Task] = {}
    for word in named:
        tasks = find(taskdb, project, word)
        if not tasks:
            raise ConfigError(f"there is no task {word} in the project {project}")
        found.update((task.taskid, task) for task in tasks)
    rows = list(found.values())
    for start in range(0, len(rows), PAGE):
        yield rows[start : start + PAGE]


def _only_shows(task: Task) -> bool:
    return task.taskid in _SHOWN_ONLY and task.status == TaskStatus.SUCCESS
