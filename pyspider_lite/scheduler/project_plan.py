"""What one transaction writes for one project, as `plan` collects it: rows, counts, and what memory takes over after the commit. Pure."""

from collections import Counter

from msgspec import Struct, field
from msgspec.structs import replace

from pyspider_lite.database.base import NewRow
from pyspider_lite.models.project import JobState, ProjectState
from pyspider_lite.models.task import DueKey, NewTask, TaskEnd, TaskPriority, TaskRestart, TaskState, TaskStatus
from pyspider_lite.scheduler import rules

_COUNT = {
    TaskStatus.ACTIVE: "active",
    TaskStatus.SUCCESS: "success",
    TaskStatus.FAILED: "failed",
    TaskStatus.BAD: "bad",
}


class ProjectPlan(Struct):
    """What is written for one project, and what memory takes over after the commit."""

    counts: ProjectState
    stored: dict[str, TaskState]
    inserts: dict[str, NewRow] = field(default_factory=dict)
    ends: dict[str, TaskEnd] = field(default_factory=dict)
    restarts: dict[str, TaskRestart] = field(default_factory=dict)
    #: written before what ends: rows of control work, which show what it was given this time
    renewed: dict[str, TaskRestart] = field(default_factory=dict)
    postponed: dict[str, NewTask] = field(default_factory=dict)
    priorities: dict[str, TaskPriority] = field(default_factory=dict)
    #: tasks that wait to run now, or later
    due: dict[str, DueKey] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    change: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    armed: bool = False
    #: the crawl is over: on_finished is entered
    ended: bool = False
    last_tick: int = 0
    #: None if nothing became of its jobs
    jobs: list[JobState] | None = None
    #: the automatic pause as it is now: until when, and why
    pause: tuple[float, str] | None = None
    #: the answer of its script, to be kept; None if it was not asked
    info: str | None = None

    def moved(self, before: tuple[int, bool] | None, after: tuple[int, bool]) -> None:
        """A task went from one (status, periodic) to another."""
        for sign, state in ((-1, before), (1, after)):
            if state is not None:
                self.change[_COUNT.get(TaskStatus(state[0]), "bad")] += sign
                if state[1] and state[0] == TaskStatus.ACTIVE:
                    self.change["periodic"] += sign

    def new_counts(self) -> ProjectState:
        """The state row after this plan."""
        counts = {name: max(0, getattr(self.counts, name) + n) for name, n in self.change.items()}
        until, reason = self.pause or (self.counts.paused_until, self.counts.pause_reason)
        return replace(
            self.counts,
            paused_until=until,
            pause_reason=reason,
            armed=(self.armed or self.counts.armed) and not self.ended,
            crawl=self.counts.crawl + self.ended,
            last_tick=max(self.last_tick, self.counts.last_tick),
            jobs=self.counts.jobs if self.jobs is None else self.jobs,
            info=self.counts.info if self.info is None else self.info,
            **counts,
        )


def shape(status: int, raw: dict[str, object]) -> tuple[int, bool]:
    """The (status, periodic) of `ProjectPlan.moved`."""
    return status, bool(raw.get("auto_recrawl")) and rules.read_stored(raw).periodic
