"""The taskdb in SQL (`TaskDB` of the contract): tasks in a table a project, and beside them what the scheduler must not lose."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from pyspider_lite.database import schema, task_rows
from pyspider_lite.database.base import Leader, Refill, TaskTx
from pyspider_lite.database.dialect import clock
from pyspider_lite.database.engine import Database
from pyspider_lite.database.letter_table import PAGE as LETTER_PAGE
from pyspider_lite.database.letter_table import LetterTable
from pyspider_lite.database.names import store_key
from pyspider_lite.database.project_tables import ProjectTables
from pyspider_lite.database.schema import CONTROL, DEAD_LETTER, LEADER, PROJECT_STATE
from pyspider_lite.database.task_transaction import OwnStatements, SqlTaskTx, control, project_state
from pyspider_lite.database.url import Target
from pyspider_lite.database.worker_table import WORKERS, WorkerTable
from pyspider_lite.errors import LostLeadership
from pyspider_lite.models.control import Control, ControlHead, ControlKind
from pyspider_lite.models.letter import DeadLetter, LetterCount
from pyspider_lite.models.project import ProjectState
from pyspider_lite.models.task import DueKey, Task
from pyspider_lite.models.worker import WorkerRow

logger = logging.getLogger(__name__)

_NEVER = 2**62
#: seconds by which a time may come back from a database as another
_ROUNDING = 0.01
#: rows that cannot be read and are told in the log
_MOST_UNREADABLE = 1000


def _prepare(conn: sa.Connection) -> None:
    schema.ensure(conn, LEADER, CONTROL, PROJECT_STATE, DEAD_LETTER, WORKERS)
    if conn.execute(sa.select(LEADER.c.id)).first() is None:
        # epoch 0 is nobody: so there is always a row to lock
        conn.execute(sa.insert(LEADER).values(id=1, epoch=0, holder="", until=0.0, rpc=""))


class SqlTaskDB:
    """See `TaskDB`."""

    def __init__(self, target: Target, database: Database | None = None) -> None:
        self._target = target
        # a commit that a power cut takes back is a page fetched again, and a sync costs more than a page
        self._database = database or Database(target, _prepare, durable=False)
        self._dialect = self._database.dialect
        self._own = OwnStatements(self._dialect)
        self._statements = task_rows.TaskStatements(self._dialect)
        self._tables = ProjectTables(self._database, target.prefix, self._complete)
        self._workers = WorkerTable(self._database)
        self._letters = LetterTable(self._database)
        self._unreadable: set[str] = set()
        #: the epoch written with last, and how often the database had been replaced when that began
        self._term: tuple[int, int] | None = None
        self._clock = sa.select(clock(self._dialect))
        #: the end of our term, as we wrote it last
        self._until = -math.inf
        self._lock_leader = sa.select(LEADER.c.epoch, LEADER.c.holder, LEADER.c.until).with_for_update()

    @contextmanager
    def begin(self, epoch: int | None) -> Iterator[TaskTx]:
        with self._database.write() as conn:
            self._check_same(epoch)
            self._check_leader(conn, epoch)
            yield SqlTaskTx(self._database, conn, self._own, self._statements, self._tables, self._letters)

    def _check_leader(self, conn: sa.Connection, epoch: int | None) -> None:
        leader = self._leader_row(conn, self._lock_leader)
        if epoch is not None and leader.epoch != epoch:
            raise LostLeadership(f"{leader.holder or 'nobody'} leads with epoch {leader.epoch}, not we with {epoch}")

    def _check_same(self, epoch: int | None) -> None:
        """A copy that was put back may have our epoch, and not what we believe of its tasks."""
        if epoch is None:
            return
        if self._term is None or self._term[0] != epoch:
            self._term = (epoch, self._database.replaced)
        if self._term[1] != self._database.replaced:
            # the next to lead may have the same number
            self._term = None
            raise LostLeadership(f"epoch {epoch} was of a database that was replaced; what is in this one is read anew")

    def _leader_row(self, conn: sa.Connection, statement: sa.Select[Any]) -> Any:
        """Raises DatabaseError when it is not there: somebody dropped the database, and another makes it anew just now, or nobody yet."""
        rows = self._database.fetch(conn, statement)
        if not rows:
            raise self._database.incomplete("the leader's row is missing")
        return rows[0]

    # --- tables ---------------------------------------------------------------------------------------------------

    def open_project(self, project: str) -> None:
        self._tables.open(project)

    def projects(self) -> set[str]:
        return self._tables.projects()

    def drop_project(self, project: str, epoch: int | None = None) -> None:
        with self._database.write() as conn:
            self._check_leader(conn, epoch)
            self._tables.drop(conn, project)
            for table in (CONTROL, PROJECT_STATE, DEAD_LETTER):
                rows = sa.delete(table).where(table.c.project == project)
                conn.execute(rows.where(CONTROL.c.kind != ControlKind.DELETE) if table is CONTROL else rows)

    def _complete(self, conn: sa.Connection, project: str) -> None:
        """Make or complete a project's table; ACTIVE rows that pyspider wrote get their due time and priority."""
        table = self._tables.name(project)
        schema.ensure_tasks(conn, table)
        for priority in list(self._statements.priorities(self._database, conn, table)):
            at = {"priority": priority}
            while rows := self._database.fetch(conn, self._statements.without_due, at, table):
                filled = [task_rows.fill_row(taskid, schedule) for taskid, schedule in rows]
                self._database.write_many(conn, self._statements.fill, filled, f"tasks of {project}", table)

    # --- tasks ----------------------------------------------------------------------------------------------------

    def get(self, project: str, taskids: Iterable[str]) -> list[Task]:
        def query(conn: sa.Connection) -> list[Task]:
            pieces = task_rows.chunks(store_key(taskid)[0] for taskid in taskids)
            table = self._tables.name(project)
            found = (self._database.fetch(conn, self._statements.get, {"keys": keys}, table) for keys in pieces)
            return [task_rows.task(row) for rows in found for row in rows]

        return self._tables.read(project, query, [])

    def select(
        self, project: str, *, status: int | None = None, limit: int = 100, after: int | None = None
    ) -> list[Task]:
        def query(conn: sa.Connection) -> list[Task]:
            newest = self._statements.newest
            if status is not None:
                column = self._statements.table.c.status
                # for `=` MariaDB reads all of the index before the page, so that each page takes longer than the one before
                one_of = self._dialect == "mysql"
                newest = newest.where(column.in_([status]) if one_of else column == status)
            at = {"limit": limit, "after": _NEVER if after is None else after}
            rows = self._database.fetch(conn, newest, at, self._tables.name(project))
            return [task_rows.task(row) for row in rows]

        return self._tables.read(project, query, [])

    def status_count(self, project: str) -> dict[int, int]:
        def query(conn: sa.Connection) -> dict[int, int]:
            return dict(
                map(tuple, self._database.fetch(conn, self._statements.count, table=self._tables.name(project)))
            )

        return self._tables.read(project, query, {})

    def refill(self, project: str, now: float, limit: int) -> Refill:
        def query(conn: sa.Connection) -> Refill:
            keys: list[DueKey] = []
            waiting: list[float] = []
            table = self._tables.name(project)
            for priority in self._statements.priorities(self._database, conn, table):
                at = {"priority": priority, "now": now}
                if len(keys) < limit:
                    rows = self._database.fetch(conn, self._statements.due, {**at, "limit": limit - len(keys)}, table)
                    keys.extend(DueKey(taskid=row[0], priority=priority, due=row[1], seq=row[2]) for row in rows)
                waiting.extend(row[0] for row in self._database.fetch(conn, self._statements.next_due, at, table))
            return Refill(keys=keys, next_due=min(waiting, default=None))

        return self._tables.read(project, query, Refill(keys=[], next_due=None))

    # --- beside the tasks -----------------------------------------------------------------------------------------

    def controls(self, after: int, limit: int) -> list[Control]:
        return self._controls(self._own.controls, {"after": after, "limit": limit})

    def control_heads(self, after: int, limit: int) -> list[ControlHead]:
        return self._control_heads(self._own.control_heads, {"after": after, "limit": limit})

    def project_control_heads(
        self, project: str, generation: str, kind: str, after: int, limit: int
    ) -> list[ControlHead]:
        at = {"project": project, "generation": generation, "kind": kind, "after": after, "limit": limit}
        return self._control_heads(self._own.project_control_heads, at)

    def _control_heads(self, statement: sa.Select[Any], at: dict[str, Any]) -> list[ControlHead]:
        with self._database.read() as conn:
            return [ControlHead(*row) for row in self._database.fetch(conn, statement, at)]

    def control_rows(self, ids: Iterable[str]) -> list[Control]:
        rows: list[Any] = []
        with self._database.read() as conn:
            for keys in task_rows.chunks(store_key(control_id)[0] for control_id in ids):
                rows += self._database.fetch(conn, self._own.controls_by_id, {"keys": keys})
        return sorted((row for row in map(self._control, rows) if row is not None), key=lambda row: row.seq)

    def _controls(self, statement: sa.Select[Any], at: dict[str, Any]) -> list[Control]:
        """A page; one of which nothing can be read is not the last."""
        while True:
            with self._database.read() as conn:
                rows = self._database.fetch(conn, statement, at)
            found = [row for row in map(self._control, rows) if row is not None]
            if found or len(rows) < at["limit"]:
                return found
            at = {**at, "after": rows[-1][-1]}

    def _control(self, row: Sequence[Any]) -> Control | None:
        """None for a row that cannot be read, which is said once: it must not keep the others from being done."""
        try:
            return control(row)
        except ValueError as error:
            if row[0] not in self._unreadable and len(self._unreadable) < _MOST_UNREADABLE:
                self._unreadable.add(row[0])
                logger.error(
                    "control work %s of %s cannot be read, and is left out: %s; see doctor", row[0], row[1], error
                )
            return None

    def project_states(self) -> dict[str, ProjectState]:
        with self._database.read() as conn:
            return {row[0]: project_state(row) for row in self._database.fetch(conn, self._own.all_states)}

    # --- dead letters ---------------------------------------------------------------------------------------------

    def dead_letters(
        self,
        limit: int = 100,
        *,
        before: int | None = None,
        kind: str | None = None,
        project: str | None = None,
        with_payload: bool = True,
    ) -> list[DeadLetter]:
        with self._database.read() as conn:
            return self._letters.page(conn, limit, before=before, kind=kind, project=project, with_payload=with_payload)

    def dead_letter(self, seq: int) -> DeadLetter | None:
        with self._database.read() as conn:
            return next(iter(self._letters.page(conn, 1, seq=seq)), None)

    def drop_dead_letters(self, seqs: Iterable[int]) -> int:
        dropped, left = 0, sorted(set(seqs))
        for start in range(0, len(left), LETTER_PAGE):
            with self._database.write() as conn:
                dropped += self._letters.drop(conn, left[start : start + LETTER_PAGE])
        return dropped

    def trim_dead_letters(self, rows: int, size: int, before: float) -> int:
        dropped = 0
        while True:
            with self._database.read() as conn:
                surplus = self._letters.surplus(conn, rows, size, before)
            if not surplus:
                return dropped
            with self._database.write() as conn:
                dropped += self._letters.drop(conn, surplus)

    def count_dead_letters(self) -> list[LetterCount]:
        with self._database.read() as conn:
            return self._letters.counts(conn)

    def time(self) -> float:
        with self._database.read() as conn:
            return float(self._database.fetch(conn, self._clock)[0][0])

    # --- workers --------------------------------------------------------------------------------------------------

    def put_workers(self, rows: Sequence[WorkerRow]) -> None:
        with self._database.write() as conn:
            self._workers.put(conn, rows)

    def workers(self) -> list[WorkerRow]:
        with self._database.read() as conn:
            return self._workers.all(conn)

    def drop_workers(self, ids: Iterable[str]) -> None:
        with self._database.write() as conn:
            self._workers.drop(conn, ids)

    # --- the leader row -------------------------------------------------------------------------------------------

    def leader(self) -> Leader | None:
        columns = (LEADER.c.epoch, LEADER.c.holder, LEADER.c.until, LEADER.c.rpc)
        with self._database.read() as conn:
            epoch, holder, until, rpc = self._leader_row(conn, sa.select(*columns))
        return Leader(epoch=epoch, holder=holder, until=until, rpc=rpc) if epoch else None

    def lead(
        self, holder: str, term: float, rpc: str, *, elected: bool = False, instead_of: Leader | None = None
    ) -> int | None:
        # without a lock at first: behind a long transaction the leader's renewal must not have to wait for a stand-by
        seen = None if elected or instead_of is not None else self.leader()
        if seen is not None and seen.holder != holder and seen.until > self.time():
            return None
        with self._database.write() as conn:
            leader = self._leader_row(conn, self._lock_leader)
            now = self._database.fetch(conn, self._clock)[0][0]
            same = instead_of is not None and (leader.epoch, leader.until) == (instead_of.epoch, instead_of.until)
            if leader.until > now and leader.holder != holder and not elected and not same:
                return None
            # by the clock, so that no epoch comes twice: the row may be deleted, or be of a backup that was put back
            epoch: int = max(leader.epoch + 1, int(now * 1000))
            conn.execute(sa.update(LEADER).values(epoch=epoch, holder=holder, until=now + term, rpc=rpc))
        self._until = now + term
        return epoch

    def renew(self, epoch: int, term: float) -> bool:
        with self._database.write() as conn:
            rows = self._database.fetch(conn, self._lock_leader)
            if not rows or rows[0].epoch != epoch or rows[0].until < self._until - _ROUNDING:
                return False
            until: float = self._database.fetch(conn, self._clock)[0][0] + term
            conn.execute(sa.update(LEADER).values(until=until))
        self._until = until
        return True

    def resign(self, epoch: int) -> None:
        with self._database.write() as conn:
            conn.execute(sa.update(LEADER).where(LEADER.c.epoch == epoch).values(until=0.0))

    def copy(self) -> "SqlTaskDB":
        copy = SqlTaskDB(self._target, self._database.copy())
        copy._tables.inherit(self._tables)
        return copy

    def close(self) -> None:
        self._database.close()
