"""Fills a taskdb with open tasks, far faster than a crawl would: the rows are those of `task_rows.insert_row`, which the scheduler's
transactions write, in the order of their primary key. Used by the measures of large tables.
"""

import contextlib
import hashlib
import itertools
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pyspider_lite import bootstrap, settings
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.server import Server
from pyspider_lite.database import task_rows
from pyspider_lite.database.base import NewRow
from pyspider_lite.models.project import Project, ProjectState
from pyspider_lite.models.task import NewTask, Task

#: rows of one file that a server reads
_CHUNK = 500_000
#: seconds between the due times of two tasks
_APART = 1e-6
#: what a new row is given; the other columns have their defaults
_COLUMNS = (
    *("taskid", "full_taskid", "project", "url", "schedule", "fetch", "process"),
    *("status", "updatetime", "due", "priority"),
)
#: KiB that SQLite may have while it looks for the places of taskids in their index
_SQLITE_CACHE = 2 << 20
#: seconds for a statement that builds indexes
_PATIENCE = 3600.0

Rows = Iterator[tuple[Any, ...]]


def task(project: Project, index: int, root: str = "http://127.0.0.1:8000") -> NewTask:
    """The task of a page as ``self.crawl(url, callback=self.page)`` makes it."""
    url = f"{root}/{index}.html"
    taskid = hashlib.md5(url.encode()).hexdigest()
    return NewTask(taskid, project.name, url, process={"callback": "page"}, generation=project.generation)


def fill(
    options: settings.Settings, server: Server | None, project: Project, first: int, end: int, root: str = ""
) -> None:
    """Store the open tasks ``first`` to ``end`` of a project, all due, and count them in its state row. Raises ValueError if what came of
    it is not what the product writes. Nobody else may use the taskdb."""
    now = time.time()

    def row(index: int) -> NewRow:
        due = now - (end - index) * _APART
        made = task(project, index, root) if root else task(project, index)
        return NewRow(task=made, due=due, priority=0, updatetime=due)

    def rows() -> Rows:
        for index in range(first + 1, end):
            columns = task_rows.insert_row(row(index))
            yield tuple(columns[name] for name in _COLUMNS)

    with bootstrap.open_taskdb(options, create=True) as taskdb:
        taskdb.open_project(project.name)
        with taskdb.begin(None) as transaction:
            # the first one in the ordinary way: the others have to look like it
            transaction.insert(project.name, [row(first)])
            counts = transaction.project_states([project.name]).get(project.name)
            counts = counts or ProjectState(project=project.name, generation=project.generation)
            active = counts.active + end - first
            transaction.put_project_states([msgspec.structs.replace(counts, active=active, armed=True)])
    match server:
        case MariaDb():
            _fill_mariadb(server, project.name, rows())
        case PostgreSql():
            _fill_postgresql(server, project.name, rows())
        case _:
            file = settings.sqlite_file(options.taskdb)
            assert file is not None
            _fill_sqlite(file, f"taskdb_{project.name}", rows())
    with bootstrap.open_taskdb(options) as taskdb:
        written, filled = (_alike(taskdb.get(project.name, [row(index).task.taskid])) for index in (first, end - 1))
    if written != filled:
        raise ValueError(f"a row that was filled in differs from one that was written: {filled}, not {written}")


def _alike(found: list[Task]) -> Task:
    """Without what differs from task to task."""
    (one,) = found
    assert one.due == one.updatetime
    return msgspec.structs.replace(one, taskid="", url="", due=0.0, updatetime=0.0, seq=0)


def _fill_sqlite(file: str, table: str, rows: Rows) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        for pragma in ("journal_mode=off", "synchronous=off", f"cache_size=-{_SQLITE_CACHE}"):
            database.execute(f"pragma {pragma}").fetchall()
        places = ", ".join("?" * len(_COLUMNS))
        database.execute("begin")
        database.executemany(f'insert into "{table}" ({", ".join(_COLUMNS)}) values ({places})', rows)
        database.execute("commit")
        database.execute("pragma journal_mode=wal").fetchall()


def _fill_mariadb(server: MariaDb, table: str, rows: Rows) -> None:
    """The indexes are dropped before and built at the end, by sorting: looking for the place of each row would take hours."""
    name = f"taskdb.`{table}`"
    indexes: dict[str, list[str]] = defaultdict(list)
    unique: dict[str, bool] = {}
    for _, not_unique, index, _, column, *_ in server.execute(f"show index from {name}"):
        indexes[index].append(column)
        unique[index] = not not_unique
    del indexes["PRIMARY"]
    made = [
        f"add {'unique ' if unique[index] else ''}index `{index}` ({', '.join(f'`{column}`' for column in columns)})"
        for index, columns in indexes.items()
    ]
    server.execute(f"alter table {name} {', '.join(f'drop index `{index}`' for index in indexes)}")
    columns = ", ".join(f"`{column}`" for column in _COLUMNS)
    for path in _files(server, rows):
        server.execute(
            f"load data infile '{path}' into table {name} character set utf8mb4 ({columns})",
            patience=_PATIENCE,
        )
    server.execute(f"alter table {name} {', '.join(made)}", f"analyze table {name}", patience=_PATIENCE)


def _fill_postgresql(server: PostgreSql, table: str, rows: Rows) -> None:
    """As for MariaDB."""
    indexes = server.execute(
        f"select indexname, indexdef from pg_indexes where tablename = '{table}' and indexname not in "
        f"(select conname from pg_constraint where conrelid = '\"{table}\"'::regclass)",
        database="taskdb",
    )
    server.execute(*(f'drop index "{name}"' for name, _ in indexes), database="taskdb")
    columns = ", ".join(f'"{column}"' for column in _COLUMNS)
    for path in _files(server, rows):
        server.execute(f"copy \"{table}\" ({columns}) from '{path}'", database="taskdb")
    made = (definition for _, definition in indexes)
    server.execute("set maintenance_work_mem = '1GB'", *made, f'analyze "{table}"', database="taskdb")


def _files(server: Server, rows: Rows) -> Iterator[Path]:
    """One after the other, with some of the rows each, for the server to read."""
    path = server.folder / "rows.tsv"
    while _write(path, itertools.islice(rows, _CHUNK)):
        yield path
    path.unlink()


def _write(path: Path, rows: Rows) -> bool:
    """The rows as MariaDB and PostgreSQL read them; False if there is none."""
    with open(path, "w") as file:
        for row in rows:
            file.write("\t".join("\\N" if value is None else str(value) for value in row) + "\n")
    os.chmod(path, 0o644)
    return path.stat().st_size > 0


def size(options: settings.Settings, server: Server | None) -> int:
    """Bytes of the taskdb's files."""
    if isinstance(server, PostgreSql):
        return int(server.execute("select pg_database_size('taskdb')")[0][0])
    if server is not None:
        return sum(file.stat().st_size for file in (server.folder / "data" / "taskdb").iterdir())
    file = settings.sqlite_file(options.taskdb)
    return Path(file).stat().st_size if file else 0
