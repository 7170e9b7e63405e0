"""Control work: what the scheduler has a script do without a page."""

from enum import StrEnum

from msgspec import Struct

from pyspider_lite.models.task import NewTask


class ControlKind(StrEnum):
    """What a control row asks for."""

    INFO = "info"
    START = "start"
    CRON = "cron"
    FINISHED = "finished"
    MESSAGE = "message"
    #: not given to a processor: the scheduler itself deletes the project
    DELETE = "delete"


class ControlHead(Struct, frozen=True):
    """What a row is, without the work itself, which may be large."""

    id: str
    project: str
    kind: str
    generation: str
    seq: int
    #: characters that the work takes as JSON; 0 in a row of an earlier version
    size: int = 0


class Control(Struct, frozen=True, kw_only=True):
    """A row of the control table: work that needs no fetch, entered once, run at least once, deleted by its own report."""

    #: sender + run + index, project + tick, project + crawl ...: entering it twice is entering it once
    id: str
    project: str
    kind: str
    generation: str = ""
    #: the task it shows as: taskid, url, process.callback, fetch.save
    task: NewTask
    created: float = 0.0
    seq: int = 0
