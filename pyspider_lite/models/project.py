"""A project: its row, what is counted beside its tasks, and the jobs that its script has."""

from enum import StrEnum

from msgspec import Struct


class ProjectStatus(StrEnum):
    """The states a user sets (behaviour S8). Only DEBUG and RUNNING are worked on."""

    TODO = "TODO"
    STOP = "STOP"
    CHECKING = "CHECKING"
    DEBUG = "DEBUG"
    RUNNING = "RUNNING"


ACTIVE_PROJECT = frozenset({ProjectStatus.DEBUG, ProjectStatus.RUNNING})


class Project(Struct, frozen=True, kw_only=True):
    """A row of the projectdb (behaviour S7)."""

    name: str
    group: str | None = None
    status: str = ProjectStatus.TODO
    script: str = ""
    comments: str | None = None
    #: tasks a second and bucket size; ``inf`` stands for unlimited, 0 for never
    rate: float = 1.0
    burst: float = 3.0
    updatetime: float = 0.0
    #: random, made with the row: tells a project from an earlier one of the same name; "" in rows made by pyspider
    generation: str = ""


class ProjectHead(Struct, frozen=True, kw_only=True):
    """A row of the projectdb without its script: what the scheduler looks at to see what changed."""

    name: str
    group: str | None
    status: str
    rate: float
    burst: float
    updatetime: float
    generation: str


class ProjectState(Struct, frozen=True, kw_only=True):
    """A row of the taskdb beside a project's tasks: counts, kept in the transactions that change them."""

    project: str
    generation: str = ""
    active: int = 0
    success: int = 0
    failed: int = 0
    bad: int = 0
    #: of the active ones: those with auto_recrawl, which never end by themselves
    periodic: int = 0
    #: number of the crawl going on; on_finished is entered once for each (behaviour S50)
    crawl: int = 0
    #: something was entered since the last on_finished
    armed: bool = False
    #: cron ticks until then are given out, or need not be, Unix seconds
    last_tick: int = 0
    #: the jobs of its script, and what became of them
    jobs: list["JobState"] = []
    #: automatic pause: when it is or was to end, Unix seconds, 0 if there is none (behaviour S55)
    paused_until: float = 0.0
    #: why it pauses, in words
    pause_reason: str = ""
    #: what its script says of itself, or why it could not be asked, as `control.keep_answer` wrote it; "": nothing is known
    info: str = ""

    @property
    def finished(self) -> bool:
        """No task waits or runs, periodic work aside."""
        return self.active <= self.periodic


class CronJob(Struct, frozen=True):
    """A method that runs by the clock (behaviour H31): each ``every`` seconds, or as ``cron`` says in the zone ``tz``."""

    #: the method; "" stands for all that the tick fits
    name: str = ""
    every: int = 0
    #: minute hour day-of-month month day-of-week, "" for an interval
    cron: str = ""
    tz: str = "UTC"
    #: ticks of it that may wait or run at once; one more is left out
    max_instances: int = 10
    #: seconds after which a tick that was missed is not made up for; None: made up for until the next one is due
    misfire_grace: float | None = None


class JobState(Struct, frozen=True):
    """A job as the scheduler knows it, and what became of its ticks (UA20)."""

    job: CronJob
    #: the tick that ran last (Unix time), 0 if none did; when that ended, and the last line of its exception
    tick: int = 0
    ended: float = 0.0
    error: str = ""
    #: ticks that did not run: how many, the last of them, and why
    missed: int = 0
    missed_tick: int = 0
    missed_why: str = ""
