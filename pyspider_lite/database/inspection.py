"""What can be seen of tasks and results from outside: each question is bounded and walks an index, so that millions of rows do not
matter; nothing is made, completed or changed. For `doctor`; the tables must be there (`worker_table.peek` tells)."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from pyspider_lite.codec import from_shallow_json
from pyspider_lite.database import task_rows
from pyspider_lite.database.engine import ANY_TABLE, Database
from pyspider_lite.database.project_tables import ProjectTables
from pyspider_lite.database.schema import CONTROL, DEAD_LETTER, PROJECT_STATE, task_table
from pyspider_lite.database.task_transaction import OwnStatements
from pyspider_lite.database.url import Target
from pyspider_lite.models.control import ControlKind
from pyspider_lite.models.project import ProjectState
from pyspider_lite.models.task import NewTask, TaskStatus

T = TypeVar("T")

#: columns that a table of ours has, by kind: without a prefix tables of others may lie beside them
_COLUMNS = {
    "taskdb": {"taskid", "url", "status", "schedule", "fetch", "process", "track"},
    "resultdb": {"taskid", "url", "result", "updatetime"},
}
#: the counts that are kept, by the status of the tasks that they count
KEPT = {
    TaskStatus.ACTIVE: "active",
    TaskStatus.SUCCESS: "success",
    TaskStatus.FAILED: "failed",
    TaskStatus.BAD: "bad",
}
#: priorities that are looked at, the largest first
_PRIORITIES = 50
_JSON = ("schedule", "fetch", "process")
_STATE_FIELDS = ("project", "generation", *KEPT.values(), "periodic")
_STATES = sa.select(*(PROJECT_STATE.c[name] for name in _STATE_FIELDS))
#: an answer may have the word in it, too: who reads it sees that
_FAILED_ANSWERS = sa.select(PROJECT_STATE.c.project, PROJECT_STATE.c.info).where(
    PROJECT_STATE.c.info.contains('"failed"')
)

_PROJECTS_OF_CONTROLS = (
    sa.select(CONTROL.c.project).where(CONTROL.c.kind != ControlKind.DELETE).limit(sa.bindparam("limit")).subquery()
)
#: of an index, however large the messages are
_HELD = sa.select(_PROJECTS_OF_CONTROLS.c.project, sa.func.count()).group_by(_PROJECTS_OF_CONTROLS.c.project)


class Compared(Struct, frozen=True, kw_only=True):
    """The counts that are kept of a project and its rows, as they were at one moment."""

    #: None: none are kept
    kept: dict[str, int] | None
    #: rows by the same names; one more than was counted at most stands for "more than that"
    found: dict[str, int]
    #: rows whose status is none
    strange: int


class ControlSeen(Struct, frozen=True, kw_only=True):
    """A row of control work."""

    id: str
    project: str
    kind: str
    generation: str
    created: float
    #: its task can be read
    readable: bool
    #: the column of the task, as it stands
    raw: str


class Inspection:
    """One taskdb or resultdb; to be closed."""

    def __init__(self, target: Target) -> None:
        self._database = Database(target, None, durable=False)
        self._kind = target.kind
        self._tables = ProjectTables(self._database, target.prefix, _nothing)
        dialect = self._database.dialect
        self._own = OwnStatements(dialect)
        self._tasks = task_rows.TaskStatements(dialect)
        table = task_table(ANY_TABLE, dialect)
        self._few = self._own.controls.where(CONTROL.c.kind != ControlKind.MESSAGE)
        self._compare = _compare(table)
        self._strange = _first(table, _is_strange(table.c.status), "limit")
        self._recrawled = _recrawled(table)
        json = sa.select(table.c.taskid, *(table.c[name] for name in (*_JSON, "pending"))).limit(sa.bindparam("limit"))
        active = table.c.status == TaskStatus.ACTIVE.value
        self._samples = (json.order_by(table.c.seq.desc()), json.where(active).order_by(table.c.seq))

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()

    # --- tables -----------------------------------------------------------------------------------------------------------

    def projects(self) -> set[str]:
        """The projects that have a table here; as far as their names tell."""
        return self._tables.projects()

    def is_ours(self, project: str) -> bool:
        """Its table has the columns of one of ours, or of pyspider's."""
        with self._database.read() as conn:
            found = sa.inspect(conn).get_columns(self._tables.name(project))
        return _COLUMNS[self._kind] <= {column["name"] for column in found}

    def rows(self, project: str, limit: int) -> int:
        """How many rows the table has, at most ``limit``."""
        return int(self._ask(project, _RESULTS_OR_TASKS, {"limit": limit})[0][0])

    # --- tasks ------------------------------------------------------------------------------------------------------------

    def compare(self, project: str, limit: int) -> Compared:
        """Counts beside rows, in one statement: also while the scheduler writes. At most ``limit`` rows of a status are counted."""
        (row,) = self._ask(project, self._compare, {"limit": limit + 1, "project": project})
        *found, strange, generation = row[: len(KEPT) + 2]
        names = list(KEPT.values())
        kept = None if generation is None else dict(zip(names, row[len(KEPT) + 2 :], strict=True))
        return Compared(kept=kept, found=dict(zip(names, found, strict=True)), strange=strange)

    def recrawled(self, project: str, limit: int) -> tuple[int, list[dict[str, Any]]] | None:
        """The kept count ``periodic``, and the schedules of ACTIVE tasks that may be counted in it, of one moment; None if no counts
        are kept. For projects with few ACTIVE tasks: all of them are looked at."""
        rows = self._ask(project, self._recrawled, {"limit": limit, "project": project})
        return (rows[0][0], [task_rows.read_json(row[1]) for row in rows if row[1] is not None]) if rows else None

    def without_due(self, project: str) -> list[str]:
        """ACTIVE tasks that nobody will ever give out, because they have no due time; 500 a priority at most."""

        def query(conn: sa.Connection, table: str) -> list[str]:
            found: list[str] = []
            for priority in self._priorities(conn, table):
                rows = self._database.fetch(conn, self._tasks.without_due, {"priority": priority}, table)
                found += [row[0] for row in rows]
            return found

        return self._read(project, query)

    def due(self, project: str, before: float, limit: int) -> list[tuple[str, float]]:
        """Tasks that have been due since ``before``, those first that should run first: taskid and due time."""

        def query(conn: sa.Connection, table: str) -> list[tuple[str, float]]:
            found: list[tuple[str, float]] = []
            for priority in self._priorities(conn, table):
                at = {"priority": priority, "now": before, "limit": limit - len(found)}
                found += [(row[0], row[1]) for row in self._database.fetch(conn, self._tasks.due, at, table)]
                if len(found) >= limit:
                    break
            return found

        return self._read(project, query)

    def broken(self, project: str, sample: int) -> list[tuple[str, str]]:
        """Task and column that cannot be read, among the newest ``sample`` rows and as many of the oldest ACTIVE ones."""

        def query(conn: sa.Connection, table: str) -> list[tuple[str, str]]:
            answers = (self._database.fetch(conn, one, {"limit": sample}, table) for one in self._samples)
            return [pair for rows in answers for row in rows for pair in _broken(row)]

        return list(dict.fromkeys(self._read(project, query)))

    def strange(self, project: str, limit: int) -> list[str]:
        """Tasks whose status is none."""
        return [row[0] for row in self._ask(project, self._strange, {"limit": limit})]

    # --- beside the tasks -------------------------------------------------------------------------------------------------

    def states(self) -> dict[str, ProjectState]:
        """All counts that are kept; of other columns, which an older version may lack, nothing."""
        with self._database.read() as conn:
            rows = self._database.fetch(conn, _STATES)
        return {row[0]: ProjectState(**dict(zip(_STATE_FIELDS, row, strict=True))) for row in rows}

    def failed_answers(self) -> dict[str, str]:
        """What is kept of scripts that could not be asked about themselves, by project; nothing where an older version made the table."""
        with self._database.read() as conn:
            columns = {column["name"] for column in sa.inspect(conn).get_columns(PROJECT_STATE.name)}
            return dict(self._database.fetch(conn, _FAILED_ANSWERS)) if "info" in columns else {}

    def controls(self, limit: int) -> list[ControlSeen]:
        """The oldest control work; and the oldest of it that is no message, which thousands of messages would hide."""
        at = {"after": -1, "limit": limit}
        with self._database.read() as conn:
            rows = [*self._database.fetch(conn, self._own.controls, at)]
            if len(rows) == limit:
                rows += self._database.fetch(conn, self._few, at)
        return [_control(row) for row in {row[0]: row for row in rows}.values()]

    def held_controls(self, limit: int) -> dict[str, int]:
        """How many rows of control work each project has, deletions aside; at most ``limit`` rows are looked at."""
        with self._database.read() as conn:
            return dict(map(tuple, self._database.fetch(conn, _HELD, {"limit": limit})))

    def dead_letters(self, limit: int) -> int:
        """How many are kept, at most ``limit``."""
        with self._database.read() as conn:
            return int(self._database.fetch(conn, _count(DEAD_LETTER, "limit"), {"limit": limit})[0][0])

    # --- within -----------------------------------------------------------------------------------------------------------

    def _priorities(self, conn: sa.Connection, table: str) -> list[int]:
        return list(islice(self._tasks.priorities(self._database, conn, table), _PRIORITIES))

    def _read(self, project: str, query: Callable[[sa.Connection, str], T]) -> T:
        with self._database.read() as conn:
            return query(conn, self._tables.name(project))

    def _ask(self, project: str, statement: sa.Executable, parameters: dict[str, Any]) -> Sequence[Any]:
        with self._database.read() as conn:
            return self._database.fetch(conn, statement, parameters, self._tables.name(project))


def _nothing(conn: sa.Connection, project: str) -> None:
    """Looking makes no tables."""


def _is_strange(status: "sa.ColumnElement[Any]") -> "sa.ColumnElement[bool]":
    # ranges, so that an index serves
    return sa.or_(status < min(TaskStatus).value, status > max(TaskStatus).value, status.is_(None))


def _first(table: sa.Table, condition: "sa.ColumnElement[bool]", limit: str) -> "sa.Select[Any]":
    return sa.select(table.c.taskid).where(condition).limit(sa.bindparam(limit))


def _count(table: sa.FromClause, limit: str, *conditions: "sa.ColumnElement[bool]") -> "sa.Select[Any]":
    """How many rows there are, at most as many as the parameter ``limit``."""
    rows = sa.select(sa.literal(1).label("one")).select_from(table).where(*conditions).limit(sa.bindparam(limit))
    return sa.select(sa.func.count()).select_from(rows.subquery())


_RESULTS_OR_TASKS = _count(sa.table(sa.quoted_name(ANY_TABLE, quote=True)), "limit")


def _compare(table: sa.Table) -> "sa.Select[Any]":
    status = table.c.status
    conditions = [status == one.value for one in KEPT] + [_is_strange(status)]
    found = [_count(table, "limit", condition).scalar_subquery() for condition in conditions]
    mine = PROJECT_STATE.c.project == sa.bindparam("project")
    kept = [sa.select(PROJECT_STATE.c[name]).where(mine).scalar_subquery() for name in ("generation", *KEPT.values())]
    return sa.select(*(column.label(f"c{number}") for number, column in enumerate([*found, *kept])))


def _recrawled(table: sa.Table) -> "sa.Select[Any]":
    c = table.c
    active = (c.status == TaskStatus.ACTIVE.value) & c.schedule.like("%auto_recrawl%")
    rows = sa.select(c.schedule).where(active).limit(sa.bindparam("limit")).subquery()
    beside = PROJECT_STATE.outerjoin(rows, sa.true())
    kept = PROJECT_STATE.c
    return sa.select(kept.periodic, rows.c.schedule).select_from(beside).where(kept.project == sa.bindparam("project"))


def _broken(row: Sequence[Any]) -> list[tuple[str, str]]:
    taskid, *columns, pending = row
    found = [
        (taskid, name) for name, text in zip(_JSON, columns, strict=True) if not _reads(task_rows.parse_json, text)
    ]
    return found if _reads(task_rows.read_pending, pending) else [*found, (taskid, "pending")]


def _reads(read: Callable[[Any], Any], text: Any) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _control(row: Sequence[Any]) -> ControlSeen:
    control_id, project, kind, generation, task, created, _ = row
    readable = _reads(lambda text: msgspec.convert(from_shallow_json(text), NewTask), task)
    return ControlSeen(
        id=control_id,
        project=project,
        kind=kind,
        generation=generation,
        created=created,
        readable=readable,
        raw=str(task),
    )
