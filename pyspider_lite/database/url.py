"""Database URLs in pyspider's spelling (behaviour D1 to D10), and what we make of them. Nothing is opened here."""

import difflib
import importlib.util
from typing import NamedTuple

import sqlalchemy as sa
from msgspec import Struct

from pyspider_lite.errors import ConfigError
from pyspider_lite.log import mask_url

KINDS = ("taskdb", "projectdb", "resultdb")


class Engine(NamedTuple):
    """A database server that SQLAlchemy speaks to."""

    #: SQLAlchemy's dialect + driver
    dialect: str
    #: the module that must be importable, and the package that brings it
    module: str
    install: str


#: scheme -> how it is spoken to; sorted
ENGINES: dict[str, Engine] = {
    "mariadb": Engine("mysql+pymysql", "pymysql", "pymysql"),
    "mysql": Engine("mysql+pymysql", "pymysql", "pymysql"),
    "postgresql": Engine("postgresql+psycopg", "psycopg", "'pyspider_lite[postgresql]'"),
    "sqlite": Engine("sqlite", "sqlite3", "a Python with sqlite3"),
}
#: schemes of pyspider that have no successor here (behaviour D5, D7 to D9)
REFUSED = frozenset({"couchdb", "elasticsearch", "es", "mongodb", "redis"})
#: drivers that config files name, all replaced by the one of `ENGINES`
_OTHER_DRIVERS = frozenset(
    {"mysqlconnector", "mysqldb", "psycopg", "psycopg2", "pymysql", "pysqlite", "asyncpg", "pg8000", ""}
)
_USES = "use sqlite+{0}://, mysql+{0}:// or sqlalchemy+DIALECT+{0}://"


class Target(Struct, frozen=True, kw_only=True):
    """A database that a URL names."""

    kind: str
    url: sa.URL
    #: what is put before a project's name to make its table's name
    prefix: str
    #: the URL as it may be shown
    shown: str

    @property
    def path(self) -> str:
        """The file of an SQLite database, "" if it is in memory or on a server."""
        return (self.url.database or "") if self.url.drivername == "sqlite" else ""


def parse(url: str, kind: str, *, prefixed: bool = False) -> Target:
    """The database that ``url`` names, which must be of ``kind``; raises ConfigError in one sentence.

    ``prefixed`` gives tables the prefix ``taskdb_`` or ``resultdb_`` also where pyspider had none, because another URL
    names the same database.
    """
    scheme, separator, rest = url.partition("://")
    engine, _, driver_and_kind = scheme.partition("+")
    if not separator or not driver_and_kind or ":" in scheme or "@" in scheme:
        raise ConfigError(f"{mask_url(url, alone=True)}: not a database URL; {_USES.format(kind)}")
    found = scheme.rpartition("+")[2]
    if found != kind:
        raise ConfigError(
            f"{mask_url(url, alone=True)}: names a {found}, but a {kind} is wanted here{_similar(found, KINDS)}"
        )
    if engine in REFUSED:
        raise ConfigError(
            f"{mask_url(url, alone=True)}: {engine} is no longer supported as a database; {_USES.format(kind)}"
        )
    through_sqlalchemy = engine == "sqlalchemy"
    parts = scheme.split("+")[1:-1] if through_sqlalchemy else scheme.split("+")[:-1]
    dialect, driver = parts[0] if parts else "", "+".join(parts[1:])
    if dialect == "postgres":
        dialect = "postgresql"
    if dialect not in ENGINES or driver not in _OTHER_DRIVERS:
        wrong, known = (driver, sorted(_OTHER_DRIVERS)) if dialect in ENGINES else (dialect, [*ENGINES, "sqlalchemy"])
        raise ConfigError(
            f"{mask_url(url, alone=True)}: unknown database {wrong!r}{_similar(wrong, known)}; {_USES.format(kind)}"
        )
    _require(ENGINES[dialect], mask_url(url, alone=True))
    if dialect == "sqlite":
        made = sa.URL.create("sqlite", database=_sqlite_path(rest, url))
    elif through_sqlalchemy or dialect == "postgresql":
        made = _sqlalchemy_url(ENGINES[dialect].dialect, rest, url)
    else:
        made = _mysql_url(rest, kind, url)
    bare = through_sqlalchemy or dialect != "sqlite"
    return Target(
        kind=kind, url=made, prefix="" if bare and not prefixed else f"{kind}_", shown=mask_url(url, alone=True)
    )


def same_database(one: Target, other: Target) -> bool:
    """Whether two URLs name one database, so that tables must carry prefixes (design, section 9)."""
    a, b = one.url, other.url
    if a.drivername == "sqlite":
        return b.drivername == "sqlite" and bool(one.path) and one.path == other.path
    return (a.drivername, a.host, a.port, a.database) == (b.drivername, b.host, b.port, b.database)


def _similar(word: str, known: list[str] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _require(engine: Engine, shown: str) -> None:
    if importlib.util.find_spec(engine.module) is None:
        raise ConfigError(f"{shown}: needs {engine.module}; install it with: pip install {engine.install}")


def _sqlite_path(rest: str, url: str) -> str | None:
    """D3: ``/rel``, ``//abs`` or nothing (memory)."""
    if not rest or rest in ("/", "/:memory:"):
        return None
    if not rest.startswith("/"):
        raise ConfigError(
            f"{mask_url(url, alone=True)}: three slashes begin a path in the working folder, four an absolute one"
        )
    return rest[1:]


def _mysql_url(rest: str, kind: str, url: str) -> sa.URL:
    """D4: everything may be left out; the password is taken literally."""
    login, _, place = rest.rpartition("@")
    user, _, password = login.partition(":")
    if "@" in user and not password:  # the server would name it in its refusal
        raise ConfigError(f"{mask_url(url, alone=True)}: the user's name ends at a colon, USER:PASSWORD@HOST")
    address, _, database = place.partition("/")
    host, _, port = address.partition(":")
    if port and not (port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ConfigError(f"{mask_url(url, alone=True)}: the port must be a number from 1 to 65535")
    return sa.URL.create(
        ENGINES["mysql"].dialect,
        username=user or "root",
        password=password or None,
        host=host or "localhost",
        port=int(port or 3306),
        database=database or kind,
    )


def _sqlalchemy_url(dialect: str, rest: str, url: str) -> sa.URL:
    """D6: what SQLAlchemy makes of it; special characters in user and password are %-encoded."""
    try:
        made = sa.make_url(f"{dialect}://{rest}")
    except (sa.exc.ArgumentError, ValueError):
        # SQLAlchemy's own message shows the password
        raise ConfigError(
            f"{mask_url(url, alone=True)}: not a URL that SQLAlchemy can read; %-encode special characters"
        ) from None
    if "@" in (made.host or ""):
        # to look for it would show half of the password
        raise ConfigError(f"{mask_url(url, alone=True)}: its host cannot be read; %-encode special characters")
    if not made.database:
        raise ConfigError(f"{mask_url(url, alone=True)}: the name of the database is missing at its end")
    return made
