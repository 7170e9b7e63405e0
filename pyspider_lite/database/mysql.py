"""MariaDB and MySQL through PyMySQL: how a connection is made, what they say when something goes wrong, what a user may do."""

import logging
import socket
import time
from contextlib import closing
from typing import Any

import pymysql
import sqlalchemy as sa

from pyspider_lite.database import deadlines
from pyspider_lite.database.server import Description, about_tables, remote_engine
from pyspider_lite.database.url import Target

logger = logging.getLogger(__name__)

#: numbers of MySQL's errors
_UNKNOWN_DATABASE = 1049
_NO_SUCH_TABLE = frozenset({1051, 1146})
#: what comes of a statement larger than max_allowed_packet, if the server does not simply close the connection
_PACKET_TOO_LARGE = frozenset({1153, 2006, 2013})
_WRITES_ANYWAY = frozenset({"SUPER", "READ ONLY ADMIN", "READ_ONLY ADMIN"})
_NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "INDEX", "DROP")

_REASONS = {
    1021: "the server's disk is full",
    1040: "the server has no connection left; raise its max_connections or run fewer workers",
    1046: "the database was dropped",
    1053: "the server is being shut down",
    1114: "the server's disk or table space is full",
    1129: "the server blocks this machine after many errors; run on the server: FLUSH HOSTS",
    1130: "the server takes no connections from this machine; give the user the host '%' or this machine's address",
    1146: "the table was dropped; it is made anew",
    1153: "a row is larger than the server takes; raise its max_allowed_packet",
    1203: "this user has no connection left; raise max_user_connections or run fewer workers",
    1226: "this user has used up what the server grants it; raise its limit or run fewer workers",
    1205: "another transaction held a lock for too long",
    1213: "a deadlock with another transaction",
    1290: "the server is read-only",
    1836: "the server is read-only",
    1927: "the server ended the connection",
    2003: "the server cannot be reached; check host, port, firewall and the server's bind-address",
    2006: "the connection was lost",
    2013: "the connection was lost, or no answer came in time",
    3159: "the server wants TLS; add ?ssl_ca=FILE in a sqlalchemy+mysql+ URL",
    4031: "the server ended the connection, which was idle",
}


class _Connection(pymysql.connections.Connection):
    """TLS if the server has it, as PyMySQL 2 does, but by one context: to read the system's certificates for each connection takes 10 ms
    and a quarter of a MB, which is kept for long while a server is away."""

    _preferred: Any = None

    def _create_ssl_ctx(self, sslp: Any) -> Any:
        if sslp:
            return super()._create_ssl_ctx(sslp)  # type: ignore[misc]
        if _Connection._preferred is None:
            _Connection._preferred = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
        return _Connection._preferred


class MySqlServer:
    """See `Server`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        #: max_allowed_packet, once it is known
        self._largest = 0

    def make_engine(self, *, durable: bool) -> sa.Engine:
        return remote_engine(self.target, self._connect)

    def _connect(self, dialect: sa.Dialect, _record: object, _arguments: object, options: dict[str, Any]) -> Any:
        """Connect, and create the database if it is missing (behaviour D4, D6)."""
        try:
            return self._log_in(options)
        except pymysql.err.OperationalError as error:
            if error.args[0] != _UNKNOWN_DATABASE:
                raise
        name = options["database"]
        connection = self._log_in({**options, "database": None})
        quoted = dialect.identifier_preparer.quote_identifier(name)
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        connection.select_db(name)
        logger.info("%s did not exist: it is made", self.target.shown)
        return connection

    def _log_in(self, options: dict[str, Any]) -> Any:
        # connect_timeout ends with the first answer of the machine; the log-in reads with read_timeout
        given = {**options, "connect_timeout": deadlines.SILENCE, "read_timeout": deadlines.CONNECT}
        connection: Any = _Connection(
            **given, write_timeout=deadlines.ANSWER, charset="utf8mb4", init_command=_settings()
        )
        with connection.cursor() as cursor:
            if "MariaDB" in connection.server_version:
                cursor.execute(f"SET SESSION idle_transaction_timeout = {deadlines.NEXT_STATEMENT}")
            self._largest = _rows(cursor, "SELECT @@max_allowed_packet")[0][0]
        # PyMySQL has no public names for these
        connection._read_timeout = deadlines.ANSWER
        _notice_silence(connection._sock)
        return connection

    def reason(self, error: BaseException) -> str | None:
        number = error.args[0] if error.args else None
        name, user = self.target.url.database, self.target.url.username
        grant = f"GRANT ALL ON `{name}`.* TO '{user}'@'%'"
        if number in (1045, 1698):
            return f"the server refuses user {user!r} or the password; {self._about_password()}"
        if number in (1044, _UNKNOWN_DATABASE):
            create = f"CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4"
            return f"user {user!r} may not use or create the database; run as an administrator: {create}; {grant}"
        if number in (1142, 1143, 1227, 1370):
            return f"user {user!r} lacks a right; run as an administrator: {grant}"
        return _REASONS.get(number) if isinstance(number, int) else None

    def _about_password(self) -> str:
        password = str(self.target.url.password or "")
        if self.target.shown.startswith("mysql+"):
            hint = "in a mysql+ URL the password is taken as it stands"
            return f"{hint}, so % and what follows is not decoded" if "%" in password else hint
        return "in a sqlalchemy+ URL special characters of it must be %-encoded: @ is %40, / is %2F, % is %25"

    def is_unfit(self, error: BaseException, row: dict[str, Any]) -> str | None:
        if error.args and error.args[0] in _PACKET_TOO_LARGE and self._largest:
            size = sum(
                len(pymysql.converters.escape_string(value).encode())
                for value in row.values()
                if isinstance(value, str)
            )
            if size >= self._largest:
                return f"a row of {size:,} bytes, and the server's max_allowed_packet is {self._largest:,}"
        return None

    def lost_table(self, error: BaseException) -> bool:
        return bool(error.args) and error.args[0] in _NO_SUCH_TABLE

    def replaced(self) -> str:
        # who restores a server's database does it through the server, which the connections hear of
        return ""

    def let_go(self) -> None:
        pass

    def describe(self) -> Description:
        _, options = sa.create_engine(self.target.url).dialect.create_connect_args(self.target.url)
        connection = self._log_in({**options, "database": None})
        connection._read_timeout = deadlines.CONNECT
        with closing(connection), connection.cursor() as cursor:
            return self._look(cursor)

    def _look(self, cursor: Any) -> Description:
        name = self.target.url.database
        ((version, comment, now, role, account, read_only),) = _rows(
            cursor,
            "SELECT VERSION(), @@version_comment, UNIX_TIMESTAMP(SYSDATE(6)) + 0.0, CURRENT_ROLE(), CURRENT_USER(), @@global.read_only",
        )
        clock = float(now) - time.time()
        product = "MariaDB" if "mariadb" in f"{version} {comment}".lower() else "MySQL"
        found = [f"{product} {version.partition('-')[0]}", f"its clock differs by {clock:+.1f} s from this machine's"]
        charset = _rows(
            cursor, "SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name = %s", name
        )
        user, _, host = account.rpartition("@")
        rights = {
            row[0]
            for row in _rows(
                cursor,
                "SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = %s UNION "
                "SELECT privilege_type FROM information_schema.schema_privileges WHERE grantee = %s AND %s LIKE table_schema",
                *[f"'{user}'@'{host}'"] * 2,
                name,
            )
        }
        # rights that come with a role are not listed
        missing = [] if role not in (None, "NONE") else [right for right in _NEEDED if right not in rights]
        problems = []
        if missing:
            grant = f"GRANT ALL ON `{name}`.* TO '{user}'@'{host}'"
            problems.append(f"user {user!r} lacks {', '.join(missing)}; run as an administrator: {grant}")
        if read_only and not rights & _WRITES_ANYWAY:
            problems.append("the server is read-only (read_only): is it a replica, or in the middle of a fail-over?")
        if not charset:
            found.append(f"the database {name} does not exist yet" + ("" if missing else " and will be made"))
            return Description(found=found, problems=problems)
        found.append(f"character set {charset[0][0]}; our tables are utf8mb4")
        columns = _rows(
            cursor, "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s", name
        )
        return Description(found=[*found, *about_tables(self.target, columns)], problems=problems)


def _notice_silence(sock: socket.socket) -> None:
    """Lose the connection soon after its packets are lost, and not when an answer is overdue."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = {
        "TCP_KEEPIDLE": deadlines.PROBE,
        "TCP_KEEPINTVL": deadlines.PROBE,
        "TCP_KEEPCNT": deadlines.PROBES,
        "TCP_USER_TIMEOUT": 1000 * deadlines.SILENCE,
    }
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):  # they are not the same on all systems
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _settings() -> str:
    """Whatever the server's defaults are: no value is cut to fit, locks are waited for within bounds, clocks have no summer time."""
    lock, rest = deadlines.LOCK, deadlines.NEXT_STATEMENT
    return (
        "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
        f"lock_wait_timeout = {lock}, innodb_lock_wait_timeout = {lock}, "
        # who vanished in the middle of a statement or of an answer keeps his locks no longer than who vanished between two
        f"net_read_timeout = {rest}, net_write_timeout = {rest}"
    )


def _rows(cursor: Any, statement: str, *values: Any) -> list[Any]:
    cursor.execute(statement, values)
    return list(cursor.fetchall())
