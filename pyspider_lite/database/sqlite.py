"""SQLite: one file, or memory: how it is opened, how it shows that another was put in its place, the words for what goes wrong with it."""

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from pyspider_lite.database import deadlines
from pyspider_lite.database.server import Description, about_tables
from pyspider_lite.database.url import Target
from pyspider_lite.errors import ConfigError, DatabaseError

logger = logging.getLogger(__name__)

#: execution option of a connection whose transactions write
WRITE = "pyspider_lite_write"

_REASONS = {
    "SQLITE_BUSY": f"another process holds its lock for more than {deadlines.SQLITE_LOCK} s",
    "SQLITE_CANTOPEN": "the file cannot be opened; check that its folder exists and may be written",
    "SQLITE_CORRUPT": "the file is damaged, most often by the -wal of another file that was here before: stop all, move the file, its -wal and "
    "its -shm away, put a copy there and start again, as docs/reliability.md says",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR": "the disk cannot be read or written",
    "SQLITE_NOTADB": "the file is not an SQLite database",
    "SQLITE_READONLY": "the file or its disk is read-only",
}


class SqliteFile:
    """See `Server`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        #: device and inode of the file, its log and its shared memory when they were opened
        self._opened: dict[str, tuple[int, int] | None] = {}

    def make_engine(self, *, durable: bool) -> sa.Engine:
        options: dict[str, Any] = {"poolclass": StaticPool} if not self.target.path else {"pool_size": 1}
        if self.target.path:
            _make_folder(self.target)
        engine = sa.create_engine(
            self.target.url,
            connect_args={"timeout": deadlines.SQLITE_LOCK, "check_same_thread": False},
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
            if self.target.path:
                # the first read makes the log
                connection.execute("SELECT 1 FROM sqlite_master").fetchall()
                real = self._real()
                self._opened = {suffix: _identity(real + suffix) for suffix in ("", "-wal", "-shm")}

        @sa.event.listens_for(engine, "begin")
        def begin(conn: sa.Connection) -> None:
            # a transaction that reads first and writes later would fail at once if another one wrote in between
            conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get(WRITE) else "BEGIN")

        return engine

    def reason(self, error: BaseException) -> str | None:
        name = getattr(error, "sqlite_errorname", None) or ""
        return next((reason for prefix, reason in _REASONS.items() if name.startswith(prefix)), None)

    def is_unfit(self, error: BaseException, row: dict[str, Any]) -> str | None:
        # sqlite3 has other classes for a value that it cannot take
        name = getattr(error, "sqlite_errorname", None)
        unfit = name == "SQLITE_TOOBIG" or (isinstance(error, sqlite3.Error) and "binding parameter" in str(error))
        return str(error) if unfit else None

    def lost_table(self, error: BaseException) -> bool:
        return "no such table" in str(error)

    def replaced(self) -> str:
        before = self._opened.get("")
        if before is None:
            return ""
        now = _identity(self.target.path)
        return "" if now == before else "the file was removed" if now is None else "another file was put in its place"

    def let_go(self) -> None:
        # SQLite would take the log that is left beside a file for that file's
        real = self._real()
        try:
            with _locked(real + "-wal"):
                for suffix in ("-wal", "-shm"):
                    left, identity = real + suffix, self._opened[suffix]
                    if identity is not None and _identity(left) == identity:
                        os.replace(left, f"{left}.replaced")
                        logger.warning("%s is of the file that was there before: kept as %s.replaced", left, left)
        except OSError as error:
            text = f"{error.filename} is of the file that was there before, and cannot be moved away: {error.strerror}"
            raise DatabaseError(f"{self.target.shown}: {text}", self.target.shown) from None
        self._opened = {}

    def _real(self) -> str:
        """Where SQLite has the log: beside the file that links lead to."""
        return os.path.realpath(self.target.path)

    def describe(self) -> Description:
        version = f"SQLite {sqlite3.sqlite_version}"
        path = self.target.path
        if not path:
            return Description(found=[version, "in memory, for this process only"])
        if not os.path.exists(path):
            return self._missing(version, Path(path).parent)
        uri = Path(path).absolute().as_uri() + "?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=deadlines.CONNECT)) as connection:
            columns = connection.execute(
                "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table'"
            )
            found = [version, f"{os.path.getsize(path):,} bytes", *about_tables(self.target, columns)]
        problems = [] if os.access(path, os.W_OK) else [_REASONS["SQLITE_READONLY"]]
        return Description(found=found, problems=problems)

    def _missing(self, version: str, folder: Path) -> Description:
        nearest = folder if folder.exists() else folder.parent
        problems = []
        if not nearest.exists():
            problems.append(f"the folder {nearest} does not exist; create it first")
        elif not os.access(nearest, os.W_OK):
            problems.append(f"the folder {nearest} may not be written")
        return Description(found=[version, "the file does not exist yet"], problems=problems)


def _identity(path: str) -> tuple[int, int] | None:
    """Which file it is; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """One process at a time, as long as the file is there: another must not move away what we have just made."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging. While another process does the same, SQLite refuses at once instead of waiting."""
    deadline = time.monotonic() + deadlines.SQLITE_LOCK
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
        raise DatabaseError(
            f"{target.shown}: cannot create the folder {folder}: {error.strerror}", target.shown
        ) from None
