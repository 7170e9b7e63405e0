"""One database as seen by one object: its connections, its transactions, and the words for what goes wrong.

SQLAlchemy's exceptions end here: what leaves is a DatabaseError (try again later) or a DataError (this row never fits).
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from pyspider_lite.database.dialect import LOCK_TABLES, UNLOCK_TABLES
from pyspider_lite.database.url import Target
from pyspider_lite.errors import ConfigError, DatabaseError, DataError

#: seconds that a statement waits for another writer of the same SQLite file
BUSY_TIMEOUT = 30.0
#: seconds
CONNECT_TIMEOUT = 10

#: MySQL's error number
_UNKNOWN_DATABASE = 1049

_WRITE = "pyspider_lite_write"
_TABLE = "pyspider_lite_table"
#: stands for the name of a table in a statement that is made and compiled once for the tables of all projects
ANY_TABLE = "{table}"

_SQLITE_REASONS = {
    "SQLITE_BUSY": "another process holds its lock for more than 30 s",
    "SQLITE_CANTOPEN": "the file cannot be opened; check that its folder exists and may be written",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR": "the disk cannot be read or written",
    "SQLITE_NOTADB": "the file is not an SQLite database",
    "SQLITE_READONLY": "the file or its disk is read-only",
}
_SERVER_OPTIONS: dict[str, dict[str, Any]] = {
    "mysql": {"connect_timeout": CONNECT_TIMEOUT, "read_timeout": 60, "write_timeout": 60, "charset": "utf8mb4"},
    "postgresql": {"connect_timeout": CONNECT_TIMEOUT, "tcp_user_timeout": 60_000, "options": "-c lock_timeout=50s"},
}


class _Memory:
    """The one connection of a database in memory, and whose turn it is."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.lock = threading.RLock()
        self.users = 1


class Database:
    """Connections to ``target``, opened when they are needed and opened anew after they were lost.

    ``prepare`` makes the tables, in a write transaction before the first use. ``durable``: on SQLite every commit waits for
    the disk.
    """

    def __init__(
        self,
        target: Target,
        prepare: Callable[[sa.Connection], None],
        *,
        durable: bool,
        memory: "_Memory | None" = None,
    ) -> None:
        self.target = target
        self._prepare = prepare
        self._ready = False
        self._durable = durable
        if memory is None and target.url.drivername == "sqlite" and not target.path:
            memory = _Memory(_make_engine(target, durable))
        self._memory = memory
        self._engine = memory.engine if memory else _make_engine(target, durable)
        self._lock: AbstractContextManager[object] = memory.lock if memory else nullcontext()
        self.dialect = self._engine.dialect.name
        #: the open write transaction; reads of this object take part in it
        self._transaction: sa.Connection | None = None

    def copy(self) -> "Database":
        """The same database for another thread. All copies of one in memory share its only connection and take turns."""
        if self._memory:
            self._memory.users += 1
        return Database(self.target, self._prepare, durable=self._durable, memory=self._memory)

    def close(self) -> None:
        """Give the connections back. A database in memory is gone with its last copy."""
        if self._memory:
            self._memory.users -= 1
            if self._memory.users > 0:
                return
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection that sees one state of the database."""
        if self._transaction is not None:
            with self._translated():
                yield self._transaction
            return
        self._make_ready()
        with self._lock, self._translated(), self._engine.connect() as conn, conn.begin():
            yield conn

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that writes: committed at the end, rolled back if the block raises."""
        self._make_ready()
        with self._begin() as conn:
            yield conn

    @contextmanager
    def change_tables(self) -> Iterator[sa.Connection]:
        """A transaction in which tables are made or changed; one process at a time. MySQL commits after each statement."""
        self._make_ready()
        with self._locked_tables() as conn:
            yield conn

    def _make_ready(self) -> None:
        if not self._ready:
            with self._locked_tables() as conn:
                self._prepare(conn)
            self._ready = True

    @contextmanager
    def _locked_tables(self) -> Iterator[sa.Connection]:
        with self._begin() as conn:
            if self.dialect in LOCK_TABLES:
                conn.exec_driver_sql(LOCK_TABLES[self.dialect]).all()
            try:
                yield conn
            finally:
                if self.dialect in UNLOCK_TABLES:
                    conn.exec_driver_sql(UNLOCK_TABLES[self.dialect]).all()

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        if self._transaction is not None:
            raise DatabaseError(f"{self.target.shown}: a transaction is open already; end it first")
        with self._lock, self._translated(), self._engine.connect() as pooled:
            conn = pooled.execution_options(**{_WRITE: True})
            with conn.begin():
                self._transaction = conn
                try:
                    yield conn
                finally:
                    self._transaction = None

    def write_many(
        self, conn: sa.Connection, statement: sa.Executable, rows: Sequence[dict[str, Any]], what: str, table: str = ""
    ) -> None:
        """One executemany; a DataError names ``what`` the rows are of. ``table`` takes the place of ANY_TABLE."""
        if not rows:
            return
        try:
            conn.execute(statement, rows, execution_options={_TABLE: table})
        except (sa.exc.SQLAlchemyError, OverflowError, UnicodeError) as error:
            explained = self._explained(error)
            raise type(explained)(f"{what} ({len(rows)} rows): {explained}") from getattr(error, "orig", None)

    def fetch(
        self,
        conn: sa.Connection,
        statement: sa.Executable,
        parameters: dict[str, Any] | None = None,
        table: str = "",
    ) -> Sequence[Any]:
        """All rows of a SELECT. ``table`` takes the place of ANY_TABLE."""
        with self._translated():
            return conn.execute(statement, parameters, execution_options={_TABLE: table}).all()

    def execute(
        self,
        conn: sa.Connection,
        statement: sa.Executable,
        parameters: dict[str, Any] | None = None,
        table: str = "",
    ) -> int:
        """One statement that writes; how many rows it met. ``table`` takes the place of ANY_TABLE."""
        with self._translated():
            return conn.execute(statement, parameters, execution_options={_TABLE: table}).rowcount

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            # neither the statement nor its values belong into a log
            raise self._explained(error) from getattr(error, "orig", None)

    def _explained(self, error: Exception) -> DatabaseError:
        orig = getattr(error, "orig", None) or error
        name = getattr(orig, "sqlite_errorname", None) or ""
        for prefix, reason in _SQLITE_REASONS.items():
            if name.startswith(prefix):
                return DatabaseError(f"{self.target.shown}: {reason}")
        text = " ".join(str(part) for part in orig.args) if isinstance(error, sa.exc.DBAPIError) else str(error)
        text = " ".join(text.split())[:300]
        unfit = isinstance(error, OverflowError | UnicodeError | sa.exc.DataError | sa.exc.IntegrityError)
        # sqlite3 has other classes for a value that it cannot take
        unfit = unfit or name == "SQLITE_TOOBIG" or (isinstance(orig, sqlite3.Error) and "binding parameter" in text)
        if unfit:
            return DataError(f"{self.target.shown}: a value cannot be stored: {text}")
        return DatabaseError(f"{self.target.shown}: {text}")


def _make_engine(target: Target, durable: bool) -> sa.Engine:
    dialect = target.url.get_dialect().name
    engine = _sqlite_engine(target, durable) if dialect == "sqlite" else _server_engine(target, dialect)
    sa.event.listen(engine, "before_cursor_execute", _name_table, retval=True)
    return engine


def _name_table(
    _conn: sa.Connection, _cursor: object, statement: str, parameters: Any, context: Any, _many: bool
) -> tuple[str, Any]:
    """Put a table's name into a statement that was made for all; within its quotes, and names hold none (behaviour D13)."""
    table = context.execution_options.get(_TABLE) if context is not None else None
    return (statement.replace(ANY_TABLE, table) if table else statement), parameters


def _server_engine(target: Target, dialect: str) -> sa.Engine:
    engine = sa.create_engine(
        target.url,
        connect_args=_SERVER_OPTIONS[dialect],
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        pool_size=1,
        pool_recycle=3600,
    )
    if dialect == "mysql":
        sa.event.listen(engine, "do_connect", _connect_mysql)
    return engine


def _sqlite_engine(target: Target, durable: bool) -> sa.Engine:
    options: dict[str, Any] = {"poolclass": StaticPool} if not target.path else {"pool_size": 1}
    if target.path:
        _make_folder(target)
    engine = sa.create_engine(
        target.url,
        connect_args={"timeout": BUSY_TIMEOUT, "check_same_thread": False},
        hide_parameters=True,
        **options,
    )

    @sa.event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _record: object) -> None:
        # we say BEGIN ourselves, else Python does before the first write, too late for a lock
        connection.isolation_level = None
        _use_wal(connection)
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        connection.execute("PRAGMA cache_size=-32768")

    @sa.event.listens_for(engine, "begin")
    def begin(conn: sa.Connection) -> None:
        # a transaction that reads first and writes later would fail at once if another one wrote in between
        conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get(_WRITE) else "BEGIN")

    return engine


def _connect_mysql(dialect: sa.Dialect, _record: object, arguments: Any, options: dict[str, Any]) -> Any:
    """Connect, and create the database if it is missing (behaviour D4, D6)."""
    try:
        return dialect.connect(*arguments, **options)
    except dialect.loaded_dbapi.OperationalError as error:
        if error.args[0] != _UNKNOWN_DATABASE:
            raise
    name = options["database"]
    connection = dialect.connect(*arguments, **{**options, "database": None})
    quoted = dialect.identifier_preparer.quote_identifier(name)
    connection.cursor().execute(f"CREATE DATABASE IF NOT EXISTS {quoted} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    connection.select_db(name)
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging. While another process does the same, SQLite refuses at once instead of waiting."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _make_folder(target: Target) -> None:
    """The folder of the file is made if it is missing, one level only (behaviour C22)."""
    folder = Path(target.path).parent
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise ConfigError(f"{target.shown}: the folder {folder.parent} does not exist; create it first") from None
    except OSError as error:
        raise DatabaseError(f"{target.shown}: cannot create the folder {folder}: {error.strerror}") from None
