"""The resultdb in SQL (`ResultDB` of the contract): a table a project, one row an item (behaviour D14; design, section 8)."""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from pyspider_lite.database import schema
from pyspider_lite.database.dialect import insert_missing, key_in, turn, upsert
from pyspider_lite.database.engine import ANY_TABLE, Database
from pyspider_lite.database.names import store_key
from pyspider_lite.database.project_tables import ProjectTables
from pyspider_lite.database.schema import DROPPED, TURN
from pyspider_lite.database.task_rows import chunks
from pyspider_lite.database.url import Target
from pyspider_lite.errors import DatabaseError, DataError
from pyspider_lite.models.result import ResultRow, TaskResult

logger = logging.getLogger(__name__)

#: seconds by which clocks may differ
_CLOCK_SLACK = 60.0
#: rows in memory while results are streamed
_PAGE = 100
_NEVER = 2**62
#: seconds after which a store that began in time is late: no more than a worker has when it calls its results late
PROMPT = 3.0
_COLUMNS = ("taskid", "full_taskid", "item", "full_item", "url", "result", "updatetime", "run", "generation", "epoch")


def _prepare(conn: sa.Connection) -> None:
    schema.ensure(conn, DROPPED, TURN)


class _Statements:
    """The statements over the results of a project, made once for all as `TaskStatements`."""

    def __init__(self, dialect: str) -> None:
        table = schema.result_table(ANY_TABLE, dialect)
        c = table.c
        self.store = upsert(dialect, table, ["taskid", "item"], _COLUMNS, newest=["epoch", "run"])
        self.stored = sa.select(c.seq, c.taskid, c.epoch, c.run, c.item).where(key_in(c.taskid))
        at: sa.BindParameter[int] = sa.bindparam("at")
        later = (c.epoch > at) | ((c.epoch == at) & (c.run > sa.bindparam("run")))
        self.newer = sa.select(c.seq).where(c.taskid == sa.bindparam("key"), later).limit(1)
        self.delete = sa.delete(table).where(key_in(c.seq))
        rows = sa.select(
            sa.func.coalesce(c.full_taskid, c.taskid),
            *(c.url, c.result, c.updatetime, sa.func.coalesce(c.full_item, c.item), c.run, c.seq),
        )
        self.newest = (
            rows.where(c.seq < sa.bindparam("after"))
            .order_by(c.seq.desc())
            .limit(sa.bindparam("limit"))
            .offset(sa.bindparam("offset"))
        )
        self.get = rows.where(c.taskid == sa.bindparam("key"))
        self.count = sa.select(sa.func.count()).select_from(table)


class SqlResultDB:
    """See `ResultDB`."""

    def __init__(self, target: Target, database: Database | None = None) -> None:
        self._target = target
        # a task is done once its results are stored, so here a commit waits for the disk
        self._database = database or Database(target, _prepare, durable=True)
        self._dialect = self._database.dialect
        self._tables = ProjectTables(self._database, target.prefix, self._complete)
        self._statements = _Statements(self._dialect)
        self._beside = turn(self._dialect, TURN, alone=False)
        self._alone = turn(self._dialect, TURN, alone=True)
        self._dropped = sa.select(DROPPED.c.project, DROPPED.c.generation).where(key_in(DROPPED.c.project))

    def _complete(self, conn: sa.Connection, project: str) -> None:
        schema.ensure_results(conn, self._tables.name(project))

    def store(self, results: Sequence[TaskResult], *, late: bool = False) -> None:
        by_project: dict[str, list[TaskResult]] = {}
        for result in results:
            by_project.setdefault(result.project, []).append(result)
        try:
            self._store(by_project, late)
        except DataError:
            raise
        except DatabaseError:
            # one of the tables may have been dropped, and its project made anew, since it was looked at; or it took too long
            self._tables.forget()
            self._store(by_project, late=True)

    def _store(self, by_project: dict[str, list[TaskResult]], late: bool) -> None:
        self._tables.open(*self._not_dropped(by_project))
        with self._database.write() as conn:
            self._take_turn(conn, late)
            began = time.monotonic()
            # asked again: a table may be dropped, and its generation noted, between the two
            kept = self._kept(conn, by_project)
            for project in sorted(kept):
                self._store_project(conn, project, kept[project])
            if not late and time.monotonic() - began > PROMPT:
                # what it read at its beginning may be wrong by now; nothing of it is committed
                raise DatabaseError(
                    f"{self._target.shown}: it took too long, and is done again alone", self._target.shown
                )

    def _take_turn(self, conn: sa.Connection, alone: bool) -> None:
        """Two stores at once do not see each other's rows, and would mix two runs: one of a late run goes alone."""
        statement = self._alone if alone else self._beside
        if not self._database.fetch(conn, statement):
            conn.execute(insert_missing(self._dialect, TURN, ["id"], ["id"]), {"id": 1})
            self._database.fetch(conn, statement)

    def _not_dropped(self, by_project: dict[str, list[TaskResult]]) -> list[str]:
        with self._database.read() as conn:
            return sorted(self._kept(conn, by_project))

    def _kept(self, conn: sa.Connection, by_project: dict[str, list[TaskResult]]) -> dict[str, list[TaskResult]]:
        """The results whose generation was not dropped, by project."""
        dropped: set[tuple[str, str]] = set()
        for names in chunks(by_project):
            dropped.update((row[0], row[1]) for row in self._database.fetch(conn, self._dropped, {"keys": names}))
        kept = {}
        for project, results in by_project.items():
            if left := [result for result in results if (project, result.generation) not in dropped]:
                kept[project] = left
        return kept

    def _store_project(self, conn: sa.Connection, project: str, results: list[TaskResult]) -> None:
        now = time.time()
        rows = [row for result in results for row in _rows(result, now)]
        # of two runs in one batch the later one must be written last; equal keys in one order against deadlocks
        rows.sort(key=lambda row: (row["taskid"], row["epoch"], row["run"]))
        last = {store_key(result.taskid)[0]: result for result in sorted(results, key=_run) if result.replace}
        table = self._tables.name(project)
        rows = self._without_late_parts(conn, table, results, rows)
        stored: dict[str, list[_Stored]] = {}
        for keys in chunks(sorted(last)):
            for seq, key, epoch, run, item in self._database.fetch(
                conn, self._statements.stored, {"keys": keys}, table
            ):
                stored.setdefault(key, []).append(_Stored(seq, (epoch, run), item))
        rows, dropped, late = _decide(rows, last, stored)
        if late:
            _say_late(project, [row for key in late for row in stored[key]], len(late), now)
        self._database.write_many(conn, self._statements.store, rows, f"results of {project}", table)
        for start in range(0, len(dropped), 500):
            self._database.execute(conn, self._statements.delete, {"keys": dropped[start : start + 500]}, table)

    def _without_late_parts(
        self, conn: sa.Connection, table: str, results: list[TaskResult], rows: list["_Row"]
    ) -> list["_Row"]:
        """Parts that do not end their run replace nothing; of a run that is late they come no more than its end does (`_decide`)."""
        late = set()
        for key, run in {(store_key(result.taskid)[0], _run(result)) for result in results if not result.replace}:
            if self._database.fetch(conn, self._statements.newer, {"key": key, "at": run[0], "run": run[1]}, table):
                late.add((key, run))
        return [row for row in rows if (row["taskid"], (row["epoch"], row["run"])) not in late] if late else rows

    def projects(self) -> set[str]:
        return self._tables.projects()

    def select(self, project: str, *, offset: int = 0, limit: int | None = None) -> Iterator[ResultRow]:
        after, left = _NEVER, _NEVER if limit is None else limit
        while left > 0:
            asked = {"after": after, "limit": min(_PAGE, left), "offset": offset}
            page = self._page(project, asked)
            yield from page
            if len(page) < asked["limit"]:
                return
            after, left, offset = page[-1].seq, left - len(page), 0

    def _page(self, project: str, asked: dict[str, int]) -> list[ResultRow]:
        def query(conn: sa.Connection) -> list[ResultRow]:
            rows = self._database.fetch(conn, self._statements.newest, asked, self._tables.name(project))
            return [_result(row) for row in rows]

        return self._tables.read(project, query, [])

    def count(self, project: str) -> int:
        def query(conn: sa.Connection) -> int:
            return int(self._database.fetch(conn, self._statements.count, table=self._tables.name(project))[0][0])

        return self._tables.read(project, query, 0)

    def get(self, project: str, taskid: str) -> list[ResultRow]:
        def query(conn: sa.Connection) -> list[ResultRow]:
            key = {"key": store_key(taskid)[0]}
            rows = self._database.fetch(conn, self._statements.get, key, self._tables.name(project))
            return sorted((_result(row) for row in rows), key=lambda row: row.seq)

        return self._tables.read(project, query, [])

    def drop(self, project: str, generation: str) -> None:
        columns = {"project": project, "generation": generation}
        with self._database.write() as conn:
            # noted first: MySQL commits before and after it drops a table, and a late result must not make the table anew
            if generation:
                conn.execute(insert_missing(self._dialect, DROPPED, list(columns), list(columns)), columns)
            self._tables.drop(conn, project)

    def copy(self) -> "SqlResultDB":
        copy = SqlResultDB(self._target, self._database.copy())
        copy._tables.inherit(self._tables)
        return copy

    def close(self) -> None:
        self._database.close()


class _Stored(NamedTuple):
    """A row of a task that is about to get another result."""

    seq: int
    run: tuple[int, int]
    item: str


_Row = dict[str, Any]


def _decide(
    rows: list[_Row], last: dict[str, TaskResult], stored: dict[str, list[_Stored]]
) -> tuple[list[_Row], list[int], set[str]]:
    """The rows that are to be written, the ``seq`` of those that then have no place any more, by the ``last`` run of each task, and the keys of
    tasks whose run came late: a later one is stored. Items of two runs are never mixed: neither stay those of an earlier run, nor come
    those of one that is late."""
    late = {key for key, result in last.items() if any(row.run > _run(result) for row in stored.get(key, ()))}

    def has_place(row: _Row) -> bool:
        key = row["taskid"]
        if key not in last:
            return True
        run, own = (row["epoch"], row["run"]), _run(last[key])
        return run > own or (run == own and key not in late)

    def is_over(key: str, row: _Stored) -> bool:
        own = _run(last[key])
        if key in late:
            return row.run == own  # parts of it that came before
        return row.run < own or (row.run == own and last[key].complete)

    rows = [row for row in rows if has_place(row)]
    written = {(row["taskid"], row["item"]) for row in rows}
    dropped = [
        row.seq
        for key, found in stored.items()
        for row in found
        if is_over(key, row) and (key, row.item) not in written
    ]
    return rows, sorted(dropped), late


def _say_late(project: str, newer: list[_Stored], tasks: int, now: float) -> None:
    """Results are left out, because what is stored is of a later run. That is so in order, unless a clock was ahead: epochs are its time."""
    ahead = max(row.run[0] for row in newer) / 1000 - now
    if ahead > _CLOCK_SLACK:
        logger.warning(
            "%s: results of %d tasks are left out: those that are stored were given out by a scheduler whose clock was ahead, and count as newer "
            "for %.0f s; `task retry` afterwards brings them up to date",
            *(project, tasks, ahead),
        )
    else:
        logger.info(
            "%s: results of %d tasks came late and are left out: those of a later run are stored", project, tasks
        )


def _run(result: TaskResult) -> tuple[int, int]:
    """Which of two runs is the later one."""
    return result.epoch, result.run


def _rows(result: TaskResult, now: float) -> Iterator[dict[str, Any]]:
    key, full = store_key(result.taskid)
    for item in result.items:
        item_key, full_item = store_key(item.item) if item.item else ("", None)
        yield {
            "taskid": key,
            "full_taskid": full,
            "item": item_key,
            "full_item": full_item,
            "url": result.url,
            "result": item.result,
            "updatetime": now,
            "run": result.run,
            "generation": result.generation,
            "epoch": result.epoch,
        }


def _result(row: Sequence[Any]) -> ResultRow:
    taskid, url, result, updatetime, item, run, seq = row
    # a BLOB column of pyspider's (behaviour D33)
    text = result.decode("utf-8", "replace") if isinstance(result, bytes) else result
    return ResultRow(
        taskid=taskid, url=url, result=text or "null", updatetime=updatetime or 0.0, item=item, run=run, seq=seq
    )
