"""Where SQLite, MariaDB/MySQL and PostgreSQL differ: column types, upserts, the clock. All other SQL here is one text for all."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from pyspider_lite.database import deadlines

_MY = ("mysql", "mariadb")

#: ids, names, digests: compared byte by byte
KEY = sa.String(64).with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), *_MY)
#: a name in any script
NAME = sa.String(64).with_variant(mysql.VARCHAR(64, charset="utf8mb4", collation="utf8mb4_bin"), *_MY)
TEXT = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *_MY)
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *_MY)
#: numbers given by the database; SQLite numbers INTEGER PRIMARY KEY only
SEQ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME: sa.Double[float] = sa.Double()

#: characters of a table's name
NAME_LIMITS = {"mysql": 64, "postgresql": 63, "sqlite": 1000}

#: Unix time by the database's clock
_CLOCKS = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "mysql": "UNIX_TIMESTAMP(SYSDATE(6)) + 0.0",
    "postgresql": "EXTRACT(EPOCH FROM clock_timestamp())::float8",
}


#: statements that let one process at a time make tables in a database, true once it may, and that end it; SQLite's write lock
#: does it already. PostgreSQL's CREATE TABLE fails when two do it at once, also with IF NOT EXISTS; its lock ends with the transaction
LOCK_TABLES = {
    "mysql": f"SELECT GET_LOCK(CONCAT('pyspider_lite ', MD5(DATABASE())), {deadlines.LOCK})",
    "postgresql": "SELECT pg_advisory_xact_lock(7797366102) IS NOT NULL",
}
UNLOCK_TABLES = {"mysql": "SELECT RELEASE_LOCK(CONCAT('pyspider_lite ', MD5(DATABASE())))"}
#: PostgreSQL's number of the lock that `turn` waits for; each database has its own
_TURN = sa.literal(7797366103, sa.BigInteger)


def turn(dialect: str, row: sa.Table, *, alone: bool) -> sa.Select[Any]:
    """SELECT that waits until its transaction may run beside others of its kind, or alone, and lasts until its end. It gives a row, unless the
    one of ``row``, which others than PostgreSQL lock, has to be made first; then nothing is locked yet. SQLite's write lock does it already."""
    if dialect == "postgresql":
        # who shares a row's lock there passes those who wait for it alone, for as long as others share it; locks of this kind queue
        lock = sa.func.pg_advisory_xact_lock if alone else sa.func.pg_advisory_xact_lock_shared
        return sa.select(lock(_TURN))
    return sa.select(row.c.id).with_for_update(read=not alone)


def clock(dialect: str) -> sa.ColumnElement[float]:
    """The database's clock as an expression, Unix seconds."""
    return sa.literal_column(_CLOCKS[dialect], TIME)


def wait_for_table_change(conn: sa.Connection) -> None:
    """To be called before a statement that copies a whole table: this connection waits for it, and is closed after its transaction."""
    if conn.dialect.name == "sqlite":
        return
    driver: Any = conn.connection.dbapi_connection
    # PyMySQL has no public name for it; `postgresql` gives psycopg's connections theirs
    setattr(driver, "_read_timeout" if conn.dialect.name == "mysql" else "patience", deadlines.TABLE_CHANGE)
    conn.detach()


def key_in(column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """``column`` is one of the values given as parameter ``keys``."""
    return column.in_(sa.bindparam("keys", expanding=True))


def insert_missing(dialect: str, table: sa.Table, keys: Sequence[str], columns: Sequence[str]) -> sa.Insert:
    """INSERT that leaves a row alone whose ``keys`` exist.

    MySQL's INSERT IGNORE would also cut values that do not fit, so there a key is set to itself.
    """
    values: dict[str, Any] = {name: sa.bindparam(name) for name in columns}
    if dialect == "mysql":
        first = table.c[keys[0]]
        return mysql.insert(table).values(values).on_duplicate_key_update({first.name: first})
    make = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return make(table).values(values).on_conflict_do_nothing(index_elements=[table.c[key] for key in keys]).inline()


def upsert(
    dialect: str, table: sa.Table, keys: Sequence[str], columns: Sequence[str], *, newest: Sequence[str] = ()
) -> sa.Insert:
    """INSERT that writes over a row whose ``keys`` exist; with ``newest`` only if these columns, the first of which counts most, do not
    become smaller."""
    values: dict[str, Any] = {name: sa.bindparam(name) for name in columns}
    changed = [name for name in columns if name not in keys]
    if dialect == "mysql":
        insert = mysql.insert(table).values(values)
        if not newest:
            return insert.on_duplicate_key_update({name: insert.inserted[name] for name in changed})
        # MySQL assigns from left to right, and must compare with the old value to the end
        changed = [name for name in changed if name not in newest] + [*reversed(newest)]
        kept = _not_smaller(insert.inserted, table.c, newest)
        pairs = [(name, sa.func.IF(kept, insert.inserted[name], table.c[name])) for name in changed]
        return insert.on_duplicate_key_update(pairs)
    make = sqlite.insert if dialect == "sqlite" else postgresql.insert
    conflict = make(table).values(values)
    return conflict.on_conflict_do_update(
        index_elements=[table.c[key] for key in keys],
        set_={table.c[name]: conflict.excluded[name] for name in changed},
        where=_not_smaller(conflict.excluded, table.c, newest) if newest else None,
    ).inline()


def _not_smaller(new: Any, old: Any, columns: Sequence[str]) -> sa.ColumnElement[bool]:
    *greater, last = columns
    condition: sa.ColumnElement[bool] = new[last] >= old[last]
    for name in reversed(greater):
        condition = sa.or_(new[name] > old[name], sa.and_(new[name] == old[name], condition))
    return condition


def update_many(
    dialect: str, table: sa.Table, key: str, columns: Sequence[str], *, keep_null: Sequence[str] = ()
) -> sa.Update | sa.Insert:
    """UPDATE of existing rows for executemany; parameters are named like the columns, the key's is ``key``.

    A None for a column of ``keep_null`` leaves what is stored. pymysql sends an UPDATE a row but one upsert a batch
    (measured: 281 against 126 us a row), so MySQL gets an upsert: the rows must exist.
    """
    given: dict[str, Any] = {name: sa.bindparam(f"new_{name}", type_=table.c[name].type) for name in columns}
    if dialect == "mysql":
        insert = mysql.insert(table).values({key: sa.bindparam("key"), **given})
        return insert.on_duplicate_key_update(
            {
                name: sa.func.coalesce(insert.inserted[name], table.c[name])
                if name in keep_null
                else insert.inserted[name]
                for name in columns
            }
        )
    for name in keep_null:
        given[name] = sa.func.coalesce(given[name], table.c[name])
    return sa.update(table).where(table.c[key] == sa.bindparam("key")).values(given)
