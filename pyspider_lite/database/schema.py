"""The tables: pyspider's columns (behaviour D25 to D42) and ours (design, section 9), made new or completed.

Names of our own tables have a hyphen, so that no project's table can have them. Every function that changes something takes
a connection inside a write transaction.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, DropTable

from pyspider_lite.database.dialect import BYTES, KEY, NAME, SEQ, TEXT, TIME, wait_for_table_change
from pyspider_lite.database.names import store_key

_ZERO = sa.text("0")
_EMPTY = sa.text("''")

#: for new tables: any character, compared exactly
_MYSQL: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}

#: in the place of names in statements that are compiled once
_NAME, _INDEX = "{table}", "{{index {}}}"
#: of the indexes of a project's tasks
_PURPOSES = ("due", "state")

_own = sa.MetaData()

LEADER = sa.Table(
    "lite-leader",
    _own,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.String(255), nullable=False),
    sa.Column("until", TIME, nullable=False),
    sa.Column("rpc", sa.String(255), nullable=False),
    **_MYSQL,
)
CONTROL = sa.Table(
    "lite-control",
    _own,
    sa.Column("seq", SEQ, primary_key=True),
    sa.Column("id", KEY, nullable=False, unique=True),
    sa.Column("full_id", TEXT),
    sa.Column("project", NAME, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("generation", sa.String(64), nullable=False),
    sa.Column("task", TEXT, nullable=False),
    sa.Column("created", TIME, nullable=False),
    # of the task, so that nobody has to read it to know how large it is
    sa.Column("size", sa.BigInteger, nullable=False, server_default=_ZERO),
    sa.Index("lite-control-project-kind", "project", "kind"),
    # a number that was used must not come again: the scheduler looks for rows after the last one it saw
    sqlite_autoincrement=True,
    **_MYSQL,
)
PROJECT_STATE = sa.Table(
    "lite-project-state",
    _own,
    sa.Column("project", NAME, primary_key=True),
    sa.Column("generation", sa.String(64), nullable=False),
    *(
        sa.Column(name, sa.BigInteger, nullable=False)
        for name in ("active", "success", "failed", "bad", "periodic", "crawl")
    ),
    sa.Column("armed", sa.SmallInteger, nullable=False),
    sa.Column("last_tick", sa.BigInteger, nullable=False),
    sa.Column("jobs", TEXT),
    sa.Column("paused_until", TIME),
    sa.Column("pause_reason", TEXT),
    sa.Column("info", TEXT),
    **_MYSQL,
)
DEAD_LETTER = sa.Table(
    "lite-dead-letter",
    _own,
    sa.Column("seq", SEQ, primary_key=True),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("queue", sa.String(64), nullable=False),
    sa.Column("project", NAME, nullable=False, index=True),
    sa.Column("taskid", TEXT, nullable=False),
    sa.Column("reason", TEXT, nullable=False),
    sa.Column("payload", BYTES, nullable=False),
    sa.Column("time", TIME, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False, server_default=_ZERO),
    # bytes of the payload: a sum of them must not read 64 MiB of payloads
    sa.Column("kept", sa.BigInteger, nullable=False, server_default=_ZERO),
    # an id that was used must not come again: whoever read it would retry or purge another letter
    sqlite_autoincrement=True,
    **_MYSQL,
)
#: generations of projects whose results were dropped
DROPPED = sa.Table(
    "lite-dropped",
    _own,
    sa.Column("project", NAME, primary_key=True),
    sa.Column("generation", sa.String(64), primary_key=True),
    **_MYSQL,
)
#: one row, which who stores results locks: many at once, or one alone (`dialect.turn`)
TURN = sa.Table("lite-turn", _own, sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), **_MYSQL)
PROJECTS = sa.Table(
    "projectdb",
    _own,
    sa.Column("name", NAME, primary_key=True),
    sa.Column("group", NAME),
    sa.Column("status", sa.String(16)),
    sa.Column("script", TEXT),
    sa.Column("comments", TEXT),
    sa.Column("rate", TIME),
    sa.Column("burst", TIME),
    sa.Column("updatetime", TIME),
    sa.Column("generation", sa.String(64), nullable=False, server_default=_EMPTY),
    **_MYSQL,
)


def task_table(name: str, dialect: str, *, create: bool = False) -> sa.Table:
    """A project's tasks, for statements or (``create``) for CREATE TABLE.

    On SQLite statements take the rowid as ``seq``: a table made here has it under both names, one made by pyspider has it too.
    """
    return sa.Table(
        sa.quoted_name(name, quote=True),
        sa.MetaData(),
        _seq(dialect, create),
        sa.Column("taskid", KEY, nullable=False, unique=True),
        sa.Column("project", NAME),
        sa.Column("url", TEXT),
        sa.Column("status", sa.Integer),
        *(sa.Column(column, TEXT) for column in ("schedule", "fetch", "process", "track")),
        sa.Column("lastcrawltime", TIME),
        sa.Column("updatetime", TIME),
        sa.Column("full_taskid", TEXT),
        sa.Column("due", TIME),
        sa.Column("priority", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("pending", TEXT),
        sa.Column("unconditional", sa.SmallInteger, nullable=False, server_default=_ZERO),
        sa.Column("run", sa.BigInteger, nullable=False, server_default=_ZERO),
        **_MYSQL,
    )


def result_table(name: str, dialect: str, *, create: bool = False) -> sa.Table:
    """A project's results, one row an item; as `task_table`."""
    return sa.Table(
        sa.quoted_name(name, quote=True),
        sa.MetaData(),
        _seq(dialect, create),
        sa.Column("taskid", KEY, nullable=False),
        sa.Column("url", TEXT),
        sa.Column("result", TEXT),
        sa.Column("updatetime", TIME),
        sa.Column("full_taskid", TEXT),
        sa.Column("item", KEY, nullable=False, server_default=_EMPTY),
        sa.Column("full_item", TEXT),
        sa.Column("run", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("generation", sa.String(64), nullable=False, server_default=_EMPTY),
        sa.Column("epoch", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.UniqueConstraint("taskid", "item"),
        **_MYSQL,
    )


def _seq(dialect: str, create: bool) -> "sa.Column[int]":
    return sa.Column("rowid" if dialect == "sqlite" and not create else "seq", SEQ, key="seq", primary_key=True)


def _indexes(table: sa.Table, name: str, dialect: str) -> "tuple[sa.Index, ...]":
    """What `TaskDB.refill` walks, and `select` of one state. SQLite ends every index with the rowid by itself."""
    c = table.c
    seq = () if dialect == "sqlite" else (c.seq,)
    return (
        sa.Index(_index_name("due", name), c.status, c.priority, c.due, *seq),
        sa.Index(_index_name("state", name), c.status, *seq),
    )


def _index_name(purpose: str, table: str) -> str:
    # a name over 63 bytes is too long for PostgreSQL
    return f"lite-{purpose}-{store_key(table)[0] if len(table) < 50 else store_key(table * 2)[0][:50]}"


def ensure(conn: sa.Connection, *tables: sa.Table) -> None:
    """Make those of our own tables that are missing, and complete those that pyspider made."""
    for table in tables:
        if not sa.inspect(conn).has_table(table.name):
            table.create(conn)
        else:
            _complete(conn, table)


def ensure_tasks(conn: sa.Connection, name: str) -> None:
    """Make the table of a project's tasks, or complete one that pyspider made."""
    dialect = conn.dialect.name
    if not sa.inspect(conn).has_table(name):
        for statement in _new_tasks(conn.dialect):
            for purpose in _PURPOSES:
                statement = statement.replace(_INDEX.format(purpose), _index_name(purpose, name))
            conn.exec_driver_sql(statement.replace(_NAME, name))
        return
    table = task_table(name, dialect)
    _complete(conn, table)
    present = {found["name"] for found in sa.inspect(conn).get_indexes(name)}
    for index in _indexes(table, name, dialect):
        if index.name not in present:
            wait_for_table_change(conn)
            conn.execute(CreateIndex(index))


@lru_cache(8)
def _new_tasks(dialect: sa.Dialect) -> tuple[str, ...]:
    """The statements that make a table of tasks, with _NAME and _INDEX in the place of names: compiled once, for many projects."""
    indexes = _indexes(task_table(_NAME, dialect.name), "x", dialect.name)
    for purpose, index in zip(_PURPOSES, indexes, strict=True):
        index.name = sa.quoted_name(_INDEX.format(purpose), quote=True)
    steps: list[sa.ClauseElement] = [
        CreateTable(task_table(_NAME, dialect.name, create=True)),
        *map(CreateIndex, indexes),
    ]
    return tuple(str(step.compile(dialect=dialect)) for step in steps)


def ensure_results(conn: sa.Connection, name: str) -> None:
    """Make the table of a project's results, or rebuild one of pyspider's, whose key allows one item a task only."""
    dialect = conn.dialect.name
    inspector = sa.inspect(conn)
    if not inspector.has_table(name):
        conn.exec_driver_sql(_new_results(conn.dialect).replace(_NAME, name))
        return
    present = {column["name"] for column in inspector.get_columns(name)}
    if "item" in present:
        if "epoch" not in present:  # of a version before ours
            wait_for_table_change(conn)
            table = result_table(name, dialect)
            _alter(conn, table, [f"ADD COLUMN {_spec(conn, table.c.epoch)}"])
        return
    wait_for_table_change(conn)
    rebuilt, replaced = (result_table(own, dialect, create=True) for own in ("lite-rebuilt", "lite-replaced"))
    for left_over in (rebuilt, replaced):
        conn.execute(DropTable(left_over, if_exists=True))
    conn.execute(CreateTable(rebuilt))
    names = ["taskid", "url", "result", "updatetime"]
    old = sa.table(sa.quoted_name(name, quote=True), *(sa.column(column) for column in names))
    conn.execute(rebuilt.insert().from_select(names, sa.select(*old.c).order_by(old.c.updatetime)))
    table = result_table(name, dialect)
    _rekey(conn, result_table(rebuilt.name, dialect))
    _rename(conn, (table, replaced), (rebuilt, table))
    conn.execute(DropTable(replaced))


@lru_cache(8)
def _new_results(dialect: sa.Dialect) -> str:
    """The statement that makes a table of results, likewise."""
    return str(CreateTable(result_table(_NAME, dialect.name, create=True)).compile(dialect=dialect))


def _complete(conn: sa.Connection, table: sa.Table) -> None:
    """Add the columns that a table of pyspider's lacks, and lift its limits (behaviour D34).

    The last column comes last, when all is done: MySQL commits after each step, and a table that has it is not looked at again.
    """
    present = {column["name"] for column in sa.inspect(conn).get_columns(table.name)}
    missing = [column for column in table.columns if column.name not in present and column.name != "rowid"]
    if not missing:
        return
    wait_for_table_change(conn)
    *first, last = (f"ADD COLUMN {_spec(conn, column)}" for column in missing)
    _alter(conn, table, first)
    if "taskid" in present and "full_taskid" in table.columns:
        _rekey(conn, table)
    _alter(conn, table, [last, *_widened(conn, [column for column in table.columns if column.name in present])])


def _spec(conn: sa.Connection, column: "sa.Column[Any]") -> str:
    spec = str(CreateColumn(column).compile(dialect=conn.dialect))
    return f"{spec} UNIQUE" if column.key == "seq" else spec


def _widened(conn: sa.Connection, columns: "list[sa.Column[Any]]") -> list[str]:
    """Changes that give pyspider's columns our types: any length, any character, ids compared exactly."""
    own = [column for column in columns if column.key != "seq"]
    if conn.dialect.name == "mysql":
        return [f"MODIFY COLUMN {_spec(conn, column)}" for column in own]
    if conn.dialect.name == "postgresql":
        quote = conn.dialect.identifier_preparer.quote
        types = [(quote(column.name), column.type.compile(dialect=conn.dialect)) for column in own]
        return [f"ALTER COLUMN {name} TYPE {kind}" for name, kind in types]
    # SQLite stores what it is given, whatever the type
    return []


def _alter(conn: sa.Connection, table: sa.Table, changes: list[str]) -> None:
    quoted = conn.dialect.identifier_preparer.format_table(table)
    # a server copies the table once for all changes; SQLite copies nothing, but takes one at a time
    steps = changes if conn.dialect.name == "sqlite" else [", ".join(changes)] if changes else []
    for step in steps:
        conn.exec_driver_sql(f"ALTER TABLE {quoted} {step}")


def _rename(conn: sa.Connection, *pairs: tuple[sa.Table, sa.Table]) -> None:
    """Rename tables, all or none."""
    quote = conn.dialect.identifier_preparer.format_table
    quoted = [(quote(table), quote(to)) for table, to in pairs]
    if conn.dialect.name == "mysql":
        conn.exec_driver_sql("RENAME TABLE " + ", ".join(f"{table} TO {to}" for table, to in quoted))
        return
    for table, to in quoted:
        conn.exec_driver_sql(f"ALTER TABLE {table} RENAME TO {to}")


def _rekey(conn: sa.Connection, table: sa.Table) -> None:
    """Give rows of pyspider the keys that we look for: `store_key` of ids that are long, not ASCII or not even text."""
    change = (
        sa.update(table)
        .where(table.c.seq == sa.bindparam("at"))
        .values(taskid=sa.bindparam("new_key"), full_taskid=sa.bindparam("full"))
    )
    for rows in _pages(conn, table):
        wrong = []
        for seq, taskid in rows:
            key, full = store_key(str(taskid))
            if key != taskid:
                wrong.append({"at": seq, "new_key": key, "full": full})
        if wrong:
            conn.execute(change, wrong)


def _pages(conn: sa.Connection, table: sa.Table, size: int = 5000) -> "Iterator[list[tuple[int, object]]]":
    after = -1
    page = sa.select(table.c.seq, table.c.taskid).where(table.c.seq > sa.bindparam("after")).order_by(table.c.seq)
    while rows := [(seq, taskid) for seq, taskid in conn.execute(page.limit(size), {"after": after})]:
        yield rows
        after = rows[-1][0]
