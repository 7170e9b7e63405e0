"""The backends that every conformance test of this folder runs on. A new server is one more parameter. `stored_tasks` can be imported."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb
from pyspider_lite.database.base import ProjectDB, ResultDB, TaskDB

sys.path.insert(0, str(Path(__file__).parent))

#: kind of database -> URL
Urls = Callable[[str], str]

_numbers = itertools.count()


@pytest.fixture
def mariadb_urls(mariadb: MariaDb) -> Iterator[Urls]:
    """URLs of databases of a test's own, made by the first connection and dropped at the end."""
    number, asked = next(_numbers), set[str]()

    def url(kind: str) -> str:
        asked.add(kind)
        return mariadb.url(kind, f"{kind}_{number}")

    yield url
    mariadb.execute(*(f"drop database if exists {kind}_{number}" for kind in asked))


@pytest.fixture
def postgresql_urls(postgresql: PostgreSql) -> Iterator[Urls]:
    """URLs of schemas of a test's own: a database takes 0.3 s to make."""
    schema, made = f"Test {next(_numbers)}", set[str]()

    def url(kind: str) -> str:
        if kind not in made:
            made.add(kind)
            postgresql.execute(f'create schema "{schema}"', database=kind)
        path = quote(f'"{schema}"'.replace(" ", "\\ "))
        return postgresql.url(kind) + f"?options=-csearch_path%3D{path}"

    yield url
    for kind in made:
        postgresql.execute("set client_min_messages = warning", f'drop schema "{schema}" cascade', database=kind)


def sqlite_urls(form: str, folder: Path) -> Urls:
    forms = {
        "sqlite-file": f"sqlite+{{0}}:///{folder}/{{0}}.db",
        "sqlite-memory": "sqlite+{0}://",
        "sqlalchemy-sqlite-file": f"sqlalchemy+sqlite+{{0}}:///{folder}/{{0}}.db",
    }
    return forms[form].format


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "sqlalchemy-sqlite-file", "mariadb", "postgresql"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    if request.param in ("mariadb", "postgresql"):
        server_urls: Urls = request.getfixturevalue(f"{request.param}_urls")
        return server_urls
    return sqlite_urls(request.param, tmp_path)


@pytest.fixture(params=["sqlite-file", "mariadb", "postgresql"])
def shared_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    """Of databases that several processes share, one of each product."""
    if request.param == "sqlite-file":
        return sqlite_urls(request.param, tmp_path)
    server_urls: Urls = request.getfixturevalue(f"{request.param}_urls")
    return server_urls


@pytest.fixture
def taskdb(urls: Urls) -> Iterator[TaskDB]:
    database = connect_taskdb(urls("taskdb"))
    yield database
    database.close()


@pytest.fixture
def projectdb(urls: Urls) -> Iterator[ProjectDB]:
    database = connect_projectdb(urls("projectdb"))
    yield database
    database.close()


@pytest.fixture
def resultdb(urls: Urls) -> Iterator[ResultDB]:
    database = connect_resultdb(urls("resultdb"))
    yield database
    database.close()
