"""What the scheduler writes in one transaction of the taskdb (`TaskTx` of the contract)."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import sqlalchemy as sa

from pyspider_lite.codec import from_json, from_shallow_json, to_json
from pyspider_lite.database import task_rows
from pyspider_lite.database.base import NewRow
from pyspider_lite.database.dialect import insert_missing, key_in, upsert
from pyspider_lite.database.engine import Database
from pyspider_lite.database.letter_table import LetterTable
from pyspider_lite.database.names import store_key
from pyspider_lite.database.project_tables import ProjectTables
from pyspider_lite.database.schema import CONTROL, PROJECT_STATE
from pyspider_lite.errors import DataError, UnstorableValue
from pyspider_lite.models.control import Control
from pyspider_lite.models.letter import DeadLetter
from pyspider_lite.models.project import JobState, ProjectState
from pyspider_lite.models.task import NewTask, TaskEnd, TaskPriority, TaskRestart, TaskState

_STATE_FIELDS = tuple(field.name for field in msgspec.structs.fields(ProjectState))
_STATE_COLUMNS = tuple(PROJECT_STATE.c[name] for name in _STATE_FIELDS)
_CONTROL_COLUMNS = ("id", "full_id", "project", "kind", "generation", "task", "created", "size")


class OwnStatements:
    """The statements over our own tables beside the tasks."""

    def __init__(self, dialect: str) -> None:
        c = CONTROL.c
        self.control_ids = sa.select(sa.func.coalesce(c.full_id, c.id)).where(key_in(c.id))
        self.waiting_controls = (
            sa.select(sa.func.coalesce(c.full_id, c.id))
            .where(c.project == sa.bindparam("project"), c.generation.in_([sa.bindparam("generation"), ""]))
            .where(key_in(c.kind))
            .limit(sa.bindparam("limit"))
        )
        rows = sa.select(sa.func.coalesce(c.full_id, c.id), c.project, c.kind, c.generation, c.task, c.created, c.seq)
        heads = sa.select(sa.func.coalesce(c.full_id, c.id), c.project, c.kind, c.generation, c.seq, c.size)
        self.controls_by_id = rows.where(key_in(c.id))
        self.controls = rows.where(c.seq > sa.bindparam("after")).order_by(c.seq).limit(sa.bindparam("limit"))
        self.control_heads = heads.where(c.seq > sa.bindparam("after")).order_by(c.seq).limit(sa.bindparam("limit"))
        # of one kind, because the index ends with seq then, so that nothing is sorted
        self.project_control_heads = self.control_heads.where(
            c.project == sa.bindparam("project"),
            c.kind == sa.bindparam("kind"),
            c.generation.in_([sa.bindparam("generation"), ""]),
        )
        self.add_control = insert_missing(dialect, CONTROL, ["id"], _CONTROL_COLUMNS)
        self.mark_control = sa.update(CONTROL).where(c.id == sa.bindparam("key")).values(task=sa.bindparam("new_task"))
        self.delete_controls = sa.delete(CONTROL).where(key_in(c.id))
        self.all_states = sa.select(*_STATE_COLUMNS)
        self.states = self.all_states.where(key_in(PROJECT_STATE.c.project))
        self.put_state = upsert(dialect, PROJECT_STATE, ["project"], _STATE_FIELDS)


def project_state(row: Sequence[Any]) -> ProjectState:
    """A row of `OwnStatements.states`."""
    fields = dict(zip(_STATE_FIELDS, row, strict=True))
    fields["armed"] = bool(fields["armed"])
    fields["jobs"] = msgspec.convert(from_json(fields["jobs"]), list[JobState]) if fields["jobs"] else []
    fields["paused_until"] = fields["paused_until"] or 0.0
    fields["pause_reason"] = fields["pause_reason"] or ""
    fields["info"] = fields["info"] or ""
    return ProjectState(**fields)


def _state_row(state: ProjectState) -> dict[str, Any]:
    jobs = to_json(msgspec.to_builtins(state.jobs)) if state.jobs else None
    return {name: getattr(state, name) for name in _STATE_FIELDS} | {"armed": int(state.armed), "jobs": jobs}


def control(row: Sequence[Any]) -> Control:
    """A row of `OwnStatements.controls`."""
    control_id, project, kind, generation, task, created, seq = row
    return Control(
        id=control_id,
        project=project,
        kind=kind,
        generation=generation,
        task=msgspec.convert(from_shallow_json(task), NewTask),
        created=created,
        seq=seq,
    )


def _control_row(row: Control) -> dict[str, Any]:
    key, full = store_key(row.id)
    try:
        task = to_json(row.task)
    except UnstorableValue as error:
        raise DataError(f"control {row.id[:100]!a} of {row.project}: {error}") from error
    return {
        "id": key,
        "full_id": full,
        "project": row.project,
        "kind": str(row.kind),
        "generation": row.generation,
        "task": task,
        "created": row.created,
        "size": len(task),
    }


class SqlTaskTx:
    """See `TaskTx`. Rows are written sorted by key: writers that lock in the same order do not deadlock."""

    def __init__(
        self,
        database: Database,
        conn: sa.Connection,
        own: OwnStatements,
        statements: task_rows.TaskStatements,
        tables: ProjectTables,
        letters: LetterTable,
    ) -> None:
        self._database = database
        self._conn = conn
        self._own = own
        self._statements = statements
        self._tables = tables
        self._letters = letters

    def states(self, project: str, taskids: Iterable[str]) -> dict[str, TaskState]:
        if not self._tables.is_open(project):
            return {}
        found = {}
        table = self._tables.name(project)
        for keys in task_rows.chunks(store_key(taskid)[0] for taskid in taskids):
            for row in self._database.fetch(self._conn, self._statements.states, {"keys": keys}, table):
                found[row[0]] = task_rows.state(row)
        return found

    def insert(self, project: str, rows: Sequence[NewRow]) -> None:
        columns = [task_rows.insert_row(row) for row in rows]
        self._write_tasks(project, self._statements.insert, columns, "taskid")

    def end(self, project: str, rows: Sequence[TaskEnd]) -> None:
        self._write_tasks(project, self._statements.end, [task_rows.end_row(project, row) for row in rows])

    def restart(self, project: str, rows: Sequence[TaskRestart]) -> None:
        self._write_tasks(project, self._statements.restart, [task_rows.restart_row(row) for row in rows])

    def postpone(self, project: str, rows: Sequence[NewTask]) -> None:
        # the sort is stable, so of two for one task the later one is written last
        self._write_tasks(project, self._statements.postpone, [task_rows.postpone_row(row) for row in rows])

    def set_priority(self, project: str, rows: Sequence[TaskPriority]) -> None:
        self._write_tasks(project, self._statements.prioritize, [task_rows.priority_row(project, row) for row in rows])

    def existing_controls(self, ids: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for keys in task_rows.chunks(store_key(control_id)[0] for control_id in ids):
            found.update(row[0] for row in self._database.fetch(self._conn, self._own.control_ids, {"keys": keys}))
        return found

    def waiting_controls(self, project: str, generation: str, kinds: Iterable[str], limit: int) -> list[str]:
        at = {"project": project, "generation": generation, "keys": sorted(kinds), "limit": limit}
        return [row[0] for row in self._database.fetch(self._conn, self._own.waiting_controls, at)]

    def controls(self, ids: Iterable[str]) -> list[Control]:
        found: list[Control] = []
        for keys in task_rows.chunks(store_key(control_id)[0] for control_id in ids):
            for row in self._database.fetch(self._conn, self._own.controls_by_id, {"keys": keys}):
                with suppress(ValueError):
                    found.append(control(row))
        return found

    def add_controls(self, rows: Sequence[Control]) -> None:
        # in the order given: it becomes the order of seq
        self._write(self._own.add_control, [_control_row(row) for row in rows], "control work")

    def mark_controls(self, rows: Sequence[Control]) -> None:
        columns = [{"key": row["id"], "new_task": row["task"]} for row in map(_control_row, rows)]
        self._write(self._own.mark_control, columns, "control work")

    def delete_controls(self, ids: Iterable[str]) -> None:
        for keys in task_rows.chunks(sorted(store_key(control_id)[0] for control_id in ids)):
            self._database.execute(self._conn, self._own.delete_controls, {"keys": keys})

    def project_states(self, projects: Iterable[str]) -> dict[str, ProjectState]:
        found = {}
        for keys in task_rows.chunks(projects):
            for row in self._database.fetch(self._conn, self._own.states, {"keys": keys}):
                found[row[0]] = project_state(row)
        return found

    def put_project_states(self, rows: Sequence[ProjectState]) -> None:
        ordered = sorted(rows, key=lambda row: row.project)
        self._write(self._own.put_state, [_state_row(row) for row in ordered], "project states")

    def add_dead_letters(self, rows: Sequence[DeadLetter]) -> None:
        self._letters.add(self._conn, rows)

    def _write_tasks(
        self, project: str, statement: sa.UpdateBase, columns: list[dict[str, Any]], key: str = "key"
    ) -> None:
        if not columns:
            return
        if not self._tables.is_open(project):
            raise DataError(f"project {project} has no table in the taskdb; open_project makes it")
        columns.sort(key=lambda row: str(row[key]))
        self._write(statement, columns, f"tasks of {project}", self._tables.name(project))

    def _write(self, statement: sa.UpdateBase, columns: list[dict[str, Any]], what: str, table: str = "") -> None:
        self._database.write_many(self._conn, statement, columns, what, table)
