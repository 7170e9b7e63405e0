"""What `doctor` saw of a cluster, and what it calls wrong: the values between `examination`, the checks and `remedies`."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from pyspider_lite.cli.cluster_view import View
from pyspider_lite.database.inspection import Compared, ControlSeen
from pyspider_lite.models.project import ProjectHead, ProjectState

#: how sentences name the command that mends what they tell of
REPAIR = "`doctor --repair`"
#: ids that are named in a sentence
_NAMED = 3


class Remedy(StrEnum):
    """What `--repair` may do; see `remedies`."""

    COUNTS = "counts"
    DUE = "due"
    LOOK_AGAIN = "look-again"
    LEADER = "leader"
    CONTROL = "control"
    PURGE = "purge"


class Found(Struct, frozen=True):
    """One thing that is wrong."""

    #: kind of check
    check: str
    #: project, worker, queue ...: with the check it tells this thing from others
    subject: str
    #: what, where, what to do
    text: str
    remedy: Remedy | None = None


class TableSeen(Struct, kw_only=True):
    """What was seen of the tasks of a project."""

    compared: Compared
    #: kept and real number of tasks that are crawled again for ever; None where that was not counted
    periodic: tuple[int, int] | None = None
    without_due: list[str] = []
    strange: list[str] = []
    #: task and column that cannot be read
    broken: list[tuple[str, str]] = []


class Picture(Struct, kw_only=True):
    """A cluster as it was seen."""

    view: View
    #: seconds by which this machine's clock is before the database's
    ahead: float = 0.0
    #: of this program
    version: str = ""
    heads: dict[str, ProjectHead] = {}
    states: dict[str, ProjectState] = {}
    #: projects whose script could not be loaded, and why
    unloadable: dict[str, str] = {}
    #: tasks of projects that are in the projectdb
    tables: dict[str, TableSeen] = {}
    #: projects that have a table of tasks
    with_tasks: set[str] = set()
    #: rows of tasks, and of results, whose project is in no projectdb
    orphans: dict[str, int] = {}
    orphan_results: dict[str, int] = {}
    controls: list[ControlSeen] = []
    #: rows of control work by project, as far as they were counted
    held: dict[str, int] = {}
    dead_letters: int = 0
    #: answer of the scheduler's `checkup`, by project; None: it could not be asked
    live: dict[str, dict[str, Any]] | None = None
    #: due tasks that the scheduler does not know, by project: taskid and due time
    strangers: dict[str, list[tuple[str, float]]] = {}
    #: rows of a status that are counted at most
    limit: int = 0
    #: what was not looked at, or only in part, in sentences
    notes: list[str] = []


def some(names: list[str]) -> str:
    """The first of many, in words."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
