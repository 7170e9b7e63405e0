"""PostgreSQL through psycopg 3, which is an extra: how a connection is made, what it says when something goes wrong, what a user may do."""

import time
from collections.abc import Generator
from contextlib import closing
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

from pyspider_lite.database import deadlines
from pyspider_lite.database.server import Description, about_tables, remote_engine
from pyspider_lite.database.url import Target

T = TypeVar("T")

#: SQLSTATE, or the start of it, -> what happened
_REASONS = {
    "40001": "another transaction changed the same rows",
    "40P01": "a deadlock with another transaction",
    "53100": "the server's disk is full",
    "53300": "the server has no connection left; raise its max_connections or run fewer workers",
    "55P03": "another transaction held a lock for too long",
    "57P01": "the server ended the connection",
    "57P03": "the server is starting or being shut down",
    "25006": "the server is read-only",
    "25P03": "the server ended the transaction, which waited too long for its next statement",
    "3F000": "no schema of the search path exists; create it, or name another: ?options=-csearch_path%3DNAME",
}
#: while connecting there is no SQLSTATE: words of the message -> the same
_WORDS = {
    "too many clients": _REASONS["53300"],
    "too many connections": _REASONS["53300"],
    "remaining connection slots": _REASONS["53300"],
    "starting up": _REASONS["57P03"],
    "shutting down": _REASONS["57P03"],
    "no pg_hba.conf entry": "the server takes no connections of this user from this machine; add a line to its pg_hba.conf",
    "no password supplied": "the server wants a password; put it into the URL: USER:PASSWORD@HOST",
    "connection refused": "the server cannot be reached; check host, port, firewall and the server's listen_addresses",
    "timeout expired": "the server does not answer; check host, port and firewall",
}
_NUL = "\0"


class _Connection(psycopg.Connection[Any]):
    """A connection that waits for answers within bounds, also when the server is frozen and its machine goes on to acknowledge."""

    #: seconds, if it is not the usual
    patience: float | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """As psycopg's, but it raises OperationalError and closes the connection when the time is over."""
        return super().wait(self._bounded(gen), *args, **options)

    def _bounded(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        patience = self.patience or deadlines.ANSWER
        end = time.monotonic() + patience
        try:
            state = next(gen)
            while True:
                # psycopg says each 0.1 s that nothing came yet
                ready = yield state
                if not ready and time.monotonic() > end:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer came within {patience} s")
                state = gen.send(ready)
        except StopIteration as ended:
            result: T = ended.value
            return result


class PostgreSqlServer:
    """See `Server`."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def make_engine(self, *, durable: bool) -> sa.Engine:
        return remote_engine(self.target, self._connect)

    def _connect(self, _dialect: sa.Dialect, _record: object, arguments: Any, options: Any) -> _Connection:
        return self._log_in(arguments, options)

    def _log_in(self, arguments: Any, options: Any) -> _Connection:
        probe, count, silence = deadlines.PROBE, deadlines.PROBES, 1000 * deadlines.SILENCE
        given = {
            "connect_timeout": deadlines.CONNECT,
            "keepalives_idle": probe,
            "keepalives_interval": probe,
            "keepalives_count": count,
            "tcp_user_timeout": silence,
            # no prepared statements: a plan kept from when a table was small reads all of it once it is large (measured among
            # 40,000 tasks: 640 ms to find 500 by their ids, else 20), and pgbouncer may not carry them
            "prepare_threshold": None,
        }
        connection = _Connection.connect(*arguments, **(given | options))
        # by a statement, because pgbouncer takes no start-up options
        connection.execute(
            f"SET lock_timeout = '{deadlines.LOCK}s'; "
            f"SET idle_in_transaction_session_timeout = '{deadlines.NEXT_STATEMENT}s'; "
            # who vanished in the middle of a pipeline is not idle; the server has to miss him, or it keeps his locks
            f"SET tcp_keepalives_idle = {probe}; SET tcp_keepalives_interval = {probe}; SET tcp_keepalives_count = {count}; "
            f"SET tcp_user_timeout = {silence}"
        )
        connection.commit()
        return connection

    def reason(self, error: BaseException) -> str | None:
        state = getattr(error, "sqlstate", None)
        text = str(error)
        user, name = self.target.url.username, self.target.url.database
        if state in ("28P01", "28000") or "authentication failed" in text:
            return (
                f"the server refuses user {user!r} or the password; special characters of it must be %-encoded: "
                "@ is %40, / is %2F, % is %25"
            )
        if state == "3D000" or f'database "{name}" does not exist' in text:
            return f'the database does not exist; run as an administrator: CREATE DATABASE "{name}" OWNER "{user}"'
        if state == "42501" or "permission denied" in text:
            return (
                f"user {user!r} lacks a right; run as an administrator: "
                f'ALTER DATABASE "{name}" OWNER TO "{user}", or in it: GRANT ALL ON SCHEMA public TO "{user}"'
            )
        if state:
            return _REASONS.get(state)
        return next((reason for words, reason in _WORDS.items() if words in text.lower()), None)

    def is_unfit(self, error: BaseException, row: dict[str, Any]) -> str | None:
        for name, value in row.items():
            if isinstance(error, psycopg.DataError) and isinstance(value, str) and _NUL in value:
                return f"PostgreSQL has no NUL characters in texts, and {name.removeprefix('new_')} has one"
        return None

    def lost_table(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.errors.UndefinedTable)

    def replaced(self) -> str:
        # who restores a server's database does it through the server, which the connections hear of
        return ""

    def let_go(self) -> None:
        pass

    def describe(self) -> Description:
        arguments, options = sa.create_engine(self.target.url).dialect.create_connect_args(self.target.url)
        with closing(self._log_in(arguments, options)) as connection:
            connection.patience = deadlines.CONNECT
            return self._look(connection)

    def _look(self, connection: _Connection) -> Description:
        user, name = self.target.url.username, self.target.url.database
        rows: list[Any] = connection.execute(
            "SELECT split_part(current_setting('server_version'), ' ', 1), "
            "extract(epoch FROM clock_timestamp())::float8, pg_encoding_to_char(encoding), current_schema(), "
            "coalesce(has_schema_privilege(current_schema(), 'CREATE'), false), "
            "pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean "
            "FROM pg_database WHERE datname = current_database()"
        ).fetchall()
        version, clock, encoding, schema, allowed, read_only = rows[0]
        found = [
            f"PostgreSQL {version}",
            f"its clock differs by {clock - time.time():+.1f} s from this machine's",
            f"character set {encoding}, schema {schema}",
        ]
        problems = []
        if schema is None:
            problems.append(_REASONS["3F000"])
        elif not allowed:
            problems.append(
                f"user {user!r} may not make tables in schema {schema}; run as an administrator: "
                f'ALTER DATABASE "{name}" OWNER TO "{user}", or in it: GRANT ALL ON SCHEMA "{schema}" TO "{user}"'
            )
        if read_only:
            problems.append("the server is read-only: is it a replica, or in the middle of a fail-over?")
        if encoding != "UTF8":
            problems.append(f"the database's character set is {encoding}; create it anew with ENCODING 'UTF8'")
        columns = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        )
        return Description(found=[*found, *about_tables(self.target, columns)], problems=problems)
