"""One database as seen by one object: its connections, its transactions, and the words for what goes wrong.

SQLAlchemy's exceptions end here: what leaves is a DatabaseError (try again later) or a DataError (this row never fits). What
differs between the products is in `sqlite`, `mysql` and `postgresql`.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from pyspider_lite.answers import asking
from pyspider_lite.database.dialect import LOCK_TABLES, UNLOCK_TABLES
from pyspider_lite.database.many import Many
from pyspider_lite.database.server import Description, Server
from pyspider_lite.database.sqlite import WRITE, SqliteFile
from pyspider_lite.database.url import Target
from pyspider_lite.errors import ConfigError, DatabaseError, DataError

logger = logging.getLogger(__name__)

_TABLE = "pyspider_lite_table"
#: stands for the name of a table in a statement that is made and compiled once for the tables of all projects
ANY_TABLE = "{table}"


class _Memory:
    """The one connection of a database in memory, and whose turn it is."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.lock = threading.RLock()
        self.users = 1


class Database:
    """Connections to ``target``, opened when they are needed and opened anew after they were lost.

    ``prepare`` makes the tables, in a write transaction before the first use; None: who only looks makes none. ``durable``: on SQLite every commit waits for
    the disk.
    """

    def __init__(
        self,
        target: Target,
        prepare: Callable[[sa.Connection], None] | None,
        *,
        durable: bool,
        memory: "_Memory | None" = None,
    ) -> None:
        self.target = target
        self._server = _server(target)
        self._prepare = prepare
        self._ready = False
        self._durable = durable
        if memory is None and target.url.drivername == "sqlite" and not target.path:
            memory = _Memory(_make_engine(self._server, durable))
        self._memory = memory
        self._engine = memory.engine if memory else _make_engine(self._server, durable)
        self._lock: AbstractContextManager[object] = memory.lock if memory else nullcontext()
        self.dialect = self._engine.dialect.name
        #: how often a table was found missing that was there before; then every table must be looked at again
        self.lost_tables = 0
        #: how often another database was found in the place of ours; then whatever is remembered of it is of no use
        self.replaced = 0
        self._many: WeakKeyDictionary[sa.UpdateBase, Many] = WeakKeyDictionary()
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
        with self._connected() as conn, conn.begin():
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
        if not self._ready and self._prepare is not None:
            with self._locked_tables() as conn:
                self._prepare(conn)
            self._ready = True

    @contextmanager
    def _locked_tables(self) -> Iterator[sa.Connection]:
        with self._begin() as conn:
            if self.dialect in LOCK_TABLES and not conn.exec_driver_sql(LOCK_TABLES[self.dialect]).scalar():
                raise DatabaseError(f"{self._shown}: another process has been changing tables for long", self._shown)
            try:
                yield conn
            finally:
                if self.dialect in UNLOCK_TABLES and not conn.invalidated:
                    conn.exec_driver_sql(UNLOCK_TABLES[self.dialect]).all()

    def _look_for_another(self) -> None:
        """What is written to a file that was replaced is lost, and nobody hears of it. Asked before each transaction, some microseconds."""
        what = self._server.replaced()
        if not what:
            return
        logger.error(
            "%s: %s while it was open; it is opened anew, and what was written since is only in the old one",
            *(self._shown, what),
        )
        self._engine.dispose()
        self._server.let_go()
        self._ready = False
        self.lost_tables += 1
        self.replaced += 1
        raise DatabaseError(f"{self._shown}: {what}; opening it anew", self._shown)

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        self._look_for_another()
        try:
            with self._lock, asking(self._shown), self._translated(), self._engine.connect() as conn:
                yield conn
        except DatabaseError as error:
            if type(error) is DatabaseError and not self._memory:
                # the next try begins with a new connection: this one may be cut, or not know of rights given since
                self._engine.dispose()
            raise

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        if self._transaction is not None:
            raise DatabaseError(f"{self._shown}: a transaction is open already; end it first", self._shown)
        with self._connected() as pooled:
            conn = pooled.execution_options(**{WRITE: True})
            transaction = conn.begin()
            self._transaction = conn
            try:
                yield conn
            except BaseException:
                # what went wrong is said, not that a lost connection cannot roll back either
                with suppress(sa.exc.SQLAlchemyError):
                    transaction.rollback()
                raise
            finally:
                self._transaction = None
            transaction.commit()

    def write_many(
        self, conn: sa.Connection, statement: sa.UpdateBase, rows: Sequence[dict[str, Any]], what: str, table: str = ""
    ) -> None:
        """One executemany; a DataError names ``what`` the rows are of. ``table`` takes the place of ANY_TABLE. All rows have the keys of
        the first, each time."""
        if not rows:
            return
        many = self._many.get(statement)
        if many is None:
            many = self._many[statement] = Many(statement, conn.dialect, list(rows[0]))
        try:
            conn.exec_driver_sql(many.text, many.parameters(rows), execution_options={_TABLE: table})
        except (sa.exc.SQLAlchemyError, OverflowError, UnicodeError) as error:
            explained = self._explained(error, rows)
            text = f"{what} ({len(rows)} rows): {explained}"
            raise type(explained)(text, explained.where) from getattr(error, "orig", None)

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

    def incomplete(self, what: str) -> DatabaseError:
        """What to raise when something of ours is missing from the tables: they are completed before the next use."""
        self._ready = False
        return DatabaseError(f"{self._shown}: {what}", self._shown)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            # neither the statement nor its values belong into a log
            raise self._explained(error) from getattr(error, "orig", None)

    @property
    def _shown(self) -> str:
        return self.target.shown

    def _explained(self, error: Exception, rows: Sequence[dict[str, Any]] = ()) -> DatabaseError:
        orig: BaseException = getattr(error, "orig", None) or error
        if self._server.lost_table(orig):
            self.lost_tables += 1
            self._ready = False
        text = _said_by(orig)
        unfit = next((reason for row in rows or [{}] if (reason := self._server.is_unfit(orig, row))), None)
        if unfit or isinstance(error, OverflowError | UnicodeError | sa.exc.DataError | sa.exc.IntegrityError):
            return DataError(f"{self._shown}: a value cannot be stored: {unfit or text}", self._shown)
        reason = self._server.reason(orig)
        return DatabaseError(f"{self._shown}: {f'{reason} ({text})' if reason else text}", self._shown)


def describe(target: Target) -> Description:
    """What is found at ``target``; nothing is made or changed. Raises DatabaseError within some 20 s."""
    server = _server(target)
    try:
        return server.describe()
    except Exception as error:
        reason, text = server.reason(error), _said_by(error)
        shown = f"{reason} ({text})" if reason else text
        raise DatabaseError(f"{target.shown}: {shown}", target.shown) from error


def _said_by(error: BaseException) -> str:
    """The driver's own words, in one line."""
    return " ".join(" ".join(str(part) for part in error.args).split())[:300]


def _server(target: Target) -> Server:
    dialect = target.url.get_dialect().name
    if dialect == "sqlite":
        return SqliteFile(target)
    try:
        if dialect == "mysql":
            from pyspider_lite.database.mysql import MySqlServer

            return MySqlServer(target)
        from pyspider_lite.database.postgresql import PostgreSqlServer

        return PostgreSqlServer(target)
    except ImportError as error:
        # its module is there, but not what it needs itself
        raise ConfigError(f"{target.shown}: the driver cannot be loaded: {_said_by(error)}") from error


def _make_engine(server: Server, durable: bool) -> sa.Engine:
    engine = server.make_engine(durable=durable)
    sa.event.listen(engine, "before_cursor_execute", _name_table, retval=True)
    return engine


def _name_table(
    _conn: sa.Connection, _cursor: object, statement: str, parameters: Any, context: Any, _many: bool
) -> tuple[str, Any]:
    """Put a table's name into a statement that was made for all; within its quotes, and names hold none (behaviour D13)."""
    table = context.execution_options.get(_TABLE) if context is not None else None
    return (statement.replace(ANY_TABLE, table) if table else statement), parameters
