"""Task rows as structs and as columns, and the statements over one project's table. No transaction is begun in here."""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from pyspider_lite.codec import from_shallow_json, to_json
from pyspider_lite.database.base import NewRow
from pyspider_lite.database.dialect import insert_missing, key_in, update_many
from pyspider_lite.database.engine import ANY_TABLE, Database
from pyspider_lite.database.names import store_key
from pyspider_lite.database.schema import task_table
from pyspider_lite.errors import DataError, UnstorableValue
from pyspider_lite.models.task import NewTask, Task, TaskEnd, TaskPriority, TaskRestart, TaskState, TaskStatus

logger = logging.getLogger(__name__)

#: keys in one SELECT ... IN
CHUNK = 500

Columns = dict[str, Any]


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """``values`` without doubles, in pieces for SELECT ... IN."""
    unique = list(dict.fromkeys(values))
    for start in range(0, len(unique), CHUNK):
        yield unique[start : start + CHUNK]


class TaskStatements:
    """The statements over the tasks of a project, made once for all: `Database` is told the table with each use.

    So SQLAlchemy compiles each of them once. A set a project cost 200 KB of memory and 5 ms to compile.
    """

    def __init__(self, dialect: str) -> None:
        self.table = table = task_table(ANY_TABLE, dialect)
        c = table.c
        key = sa.func.coalesce(c.full_taskid, c.taskid)
        new = ("taskid", "full_taskid", "project", "url", "schedule", "fetch", "process")
        self.insert = insert_missing(dialect, table, ["taskid"], [*new, "status", "updatetime", "due", "priority"])
        ended = ("status", "schedule", "due", "priority", "run", "updatetime", "lastcrawltime", "track")
        self.end = update_many(dialect, table, "taskid", [*ended, "pending", "unconditional"], keep_null=["track"])
        again = ("url", "schedule", "fetch", "process", "status", "due", "priority", "run", "updatetime")
        self.restart = update_many(dialect, table, "taskid", [*again, "pending", "unconditional"])
        self.postpone = update_many(dialect, table, "taskid", ["pending"])
        self.prioritize = update_many(dialect, table, "taskid", ["schedule", "priority"])
        self.fill = update_many(dialect, table, "taskid", ["due", "priority"])
        self.states = sa.select(
            key, c.status, c.schedule, c.lastcrawltime, c.due, c.priority, c.run, c.seq, c.pending, c.unconditional
        ).where(key_in(c.taskid))
        whole = sa.select(
            *(key, c.project, c.url, c.status, c.schedule, c.fetch, c.process, c.track, c.lastcrawltime),
            *(c.updatetime, c.seq, c.due, c.priority, c.run, c.pending, c.unconditional),
        )
        self.get = whole.where(key_in(c.taskid))
        self.newest = whole.where(c.seq < sa.bindparam("after")).order_by(c.seq.desc()).limit(sa.bindparam("limit"))
        self.count = sa.select(c.status, sa.func.count()).group_by(c.status)

        active = c.status == TaskStatus.ACTIVE.value
        at: sa.BindParameter[int] = sa.bindparam("priority")
        self.top_priority = sa.select(c.priority).where(active).order_by(c.priority.desc()).limit(1)
        self.next_priority = self.top_priority.where(c.priority < at)
        self.due = (
            sa.select(key, c.due, c.seq)
            .where(active, c.priority == at, c.due <= sa.bindparam("now"))
            .order_by(c.due, c.seq)
            .limit(sa.bindparam("limit"))
        )
        self.next_due = (
            sa.select(c.due).where(active, c.priority == at, c.due > sa.bindparam("now")).order_by(c.due).limit(1)
        )
        # in the order of the index: PostgreSQL would read the whole table for what it believes to be many
        never = sa.select(c.taskid, c.schedule).where(active, c.priority == at, c.due.is_(None))
        self.without_due = never.order_by(c.due, c.seq).limit(CHUNK)

    def priorities(self, database: Database, conn: sa.Connection, table: str) -> Iterator[int]:
        """The priorities that ACTIVE tasks have, the largest first: one look into the index each."""
        rows = database.fetch(conn, self.top_priority, table=table)
        while rows:
            priority: int = rows[0][0]
            yield priority
            rows = database.fetch(conn, self.next_priority, {"priority": priority}, table)


# --- structs -> columns -----------------------------------------------------------------------------------------------


def _json(value: Any, project: str, taskid: str, column: str) -> str:
    try:
        return to_json(value)
    except UnstorableValue as error:
        raise DataError(f"task {project}:{taskid[:100]!a}: {column}: {error}") from error


def _submitted(task: NewTask) -> Columns:
    where = (task.project, task.taskid)
    return {
        "url": task.url,
        "schedule": _json(task.schedule, *where, "schedule"),
        "fetch": _json(task.fetch, *where, "fetch"),
        "process": _json(task.process, *where, "process"),
    }


def insert_row(row: NewRow) -> Columns:
    """The parameters of `TaskStatements.insert`."""
    key, full = store_key(row.task.taskid)
    return {
        "taskid": key,
        "full_taskid": full,
        "project": row.task.project,
        **_submitted(row.task),
        "status": TaskStatus.ACTIVE.value,
        "updatetime": row.updatetime,
        "due": row.due,
        "priority": row.priority,
    }


def end_row(project: str, row: TaskEnd) -> Columns:
    """The parameters of `TaskStatements.end`."""
    return {
        "key": store_key(row.taskid)[0],
        "new_status": int(row.status),
        "new_schedule": _json(row.schedule, project, row.taskid, "schedule"),
        "new_due": row.due,
        "new_priority": row.priority,
        "new_run": row.run,
        "new_updatetime": row.updatetime,
        "new_lastcrawltime": row.lastcrawltime,
        "new_track": None if row.track is None else _json(row.track, project, row.taskid, "track"),
        "new_pending": None,
        "new_unconditional": int(row.unconditional),
    }


def restart_row(row: TaskRestart) -> Columns:
    """The parameters of `TaskStatements.restart`."""
    return {
        "key": store_key(row.task.taskid)[0],
        **{f"new_{name}": value for name, value in _submitted(row.task).items()},
        "new_status": TaskStatus.ACTIVE.value,
        "new_due": row.due,
        "new_priority": row.priority,
        "new_run": row.run,
        "new_updatetime": row.updatetime,
        "new_pending": None,
        "new_unconditional": int(row.unconditional),
    }


def postpone_row(task: NewTask) -> Columns:
    """The parameters of `TaskStatements.postpone`."""
    return {"key": store_key(task.taskid)[0], "new_pending": _json(task, task.project, task.taskid, "task")}


def priority_row(project: str, row: TaskPriority) -> Columns:
    """The parameters of `TaskStatements.prioritize`."""
    return {
        "key": store_key(row.taskid)[0],
        "new_schedule": _json(row.schedule, project, row.taskid, "schedule"),
        "new_priority": row.priority,
    }


def fill_row(taskid: str, schedule: Any) -> Columns:
    """The parameters of `TaskStatements.fill`: what pyspider kept in ``schedule`` only (exetime, priority)."""
    wanted = read_json(schedule)
    return {
        "key": taskid,
        "new_due": _number(wanted.get("exetime")),
        "new_priority": int(max(-(2**63), min(2**63 - 1, _number(wanted.get("priority"))))),
    }


def _number(value: Any) -> float:
    try:
        number = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    # infinities and NaN sort nowhere
    return number if abs(number) < 1e18 else 0.0


# --- columns -> structs -----------------------------------------------------------------------------------------------


def read_json(text: str | bytes | None) -> dict[str, Any]:
    """A JSON column of a task; one that cannot be read is {}, so that one broken row does not break a page."""
    try:
        return parse_json(text)
    except ValueError:
        logger.warning("a JSON column of a task cannot be read, {} is taken instead")
        return {}


def parse_json(text: str | bytes | None) -> dict[str, Any]:
    """The same; raises ValueError for what cannot be read."""
    try:
        value = from_shallow_json(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Python's own writer, which pyspider used, also makes NaN and Infinity
        value = json.loads(text or "{}")
    return value if isinstance(value, dict) else {}


def read_pending(text: str | bytes | None) -> NewTask | None:
    """The column ``pending``; raises ValueError for what cannot be read."""
    return None if text is None else msgspec.convert(from_shallow_json(text), NewTask)


def _pending(text: str | bytes | None) -> NewTask | None:
    """The same; what cannot be read is None, so that one broken row does not stop the scheduler."""
    try:
        return read_pending(text)
    except ValueError:
        logger.warning("what a task is to become after its run cannot be read, and is left out")
        return None


def state(row: Sequence[Any]) -> TaskState:
    """A row of `TaskStatements.states`."""
    taskid, status, schedule, lastcrawltime, due, priority, run, seq, pending, unconditional = row
    return TaskState(
        taskid=taskid,
        status=status,
        schedule=read_json(schedule),
        lastcrawltime=lastcrawltime,
        due=due,
        priority=priority,
        run=run,
        seq=seq,
        pending=_pending(pending),
        unconditional=bool(unconditional),
    )


def task(row: Sequence[Any]) -> Task:
    """A row of `TaskStatements.get` and ``newest``."""
    taskid, project, url, status, schedule, fetch, process, track, lastcrawltime, updatetime, *ours = row
    seq, due, priority, run, pending, unconditional = ours
    return Task(
        taskid=taskid,
        project=project,
        url=url,
        status=status,
        schedule=read_json(schedule),
        fetch=read_json(fetch),
        process=read_json(process),
        track=read_json(track),
        lastcrawltime=lastcrawltime,
        updatetime=updatetime or 0.0,
        seq=seq,
        due=due,
        priority=priority,
        run=run,
        pending=_pending(pending),
        unconditional=bool(unconditional),
    )
