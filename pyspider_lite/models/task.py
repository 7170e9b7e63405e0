"""A task: as it is submitted, its row in whole and in parts, and the changes that a transaction makes to the row."""

from enum import IntEnum
from typing import Any

from msgspec import Struct


class TaskStatus(IntEnum):
    """The state of a task row (behaviour S2)."""

    ACTIVE = 1
    SUCCESS = 2
    FAILED = 3
    BAD = 4


class NewTask(Struct, frozen=True, omit_defaults=True):
    """A submission (behaviour S5): from a callback, a feeder or a command."""

    taskid: str
    project: str
    url: str
    schedule: dict[str, Any] = {}
    fetch: dict[str, Any] = {}
    process: dict[str, Any] = {}
    #: generation of the project that the sender knew; "" if it knew none
    generation: str = ""


class Task(Struct, frozen=True, kw_only=True):
    """A whole task row (behaviour S1) with our columns (design, section 9)."""

    taskid: str
    project: str
    url: str
    status: int = TaskStatus.ACTIVE
    schedule: dict[str, Any] = {}
    fetch: dict[str, Any] = {}
    process: dict[str, Any] = {}
    track: dict[str, Any] = {}
    lastcrawltime: float | None = None
    updatetime: float = 0.0
    #: order of arrival
    seq: int = 0
    #: Unix time from which it may run; None when it is not waiting to run
    due: float | None = None
    priority: int = 0
    #: raised by every commit that ends or restarts a run
    run: int = 0
    #: a restart asked for while a run was in flight; the commit that ends the run applies it
    pending: NewTask | None = None
    #: the next fetch must not send validators (forced or itag changed)
    unconditional: bool = False


class TaskState(Struct, frozen=True, kw_only=True):
    """The columns of a task row that decisions are made from."""

    taskid: str
    status: int
    schedule: dict[str, Any]
    lastcrawltime: float | None
    due: float | None
    priority: int
    run: int
    seq: int
    pending: NewTask | None = None
    unconditional: bool = False


class DueKey(Struct, frozen=True, kw_only=True):
    """What the frontier holds of a task that is due."""

    taskid: str
    priority: int
    due: float
    seq: int


class TaskEnd(Struct, frozen=True, kw_only=True):
    """How a run ends: the columns written by the commit that applies its report (or cancels it: then track is None)."""

    taskid: str
    status: int
    schedule: dict[str, Any]
    due: float | None
    priority: int
    run: int
    updatetime: float
    lastcrawltime: float | None
    #: None leaves the stored track
    track: dict[str, Any] | None
    unconditional: bool = False


class TaskRestart(Struct, frozen=True, kw_only=True):
    """A stored task starts anew (behaviour S19): url, schedule, fetch and process are replaced, it is ACTIVE again."""

    task: NewTask
    due: float
    priority: int
    run: int
    updatetime: float
    unconditional: bool


class TaskPriority(Struct, frozen=True, kw_only=True):
    """A task waits with another priority from now on; which is in its schedule, too."""

    taskid: str
    priority: int
    schedule: dict[str, Any]
