"""The backends that every conformance test of this folder runs on. A new server is one more parameter."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb
from pyspider_lite.database.base import ProjectDB, ResultDB, TaskDB

#: kind of database -> URL
Urls = Callable[[str], str]


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "sqlalchemy-sqlite-file"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    forms = {
        "sqlite-file": f"sqlite+{{0}}:///{tmp_path}/{{0}}.db",
        "sqlite-memory": "sqlite+{0}://",
        "sqlalchemy-sqlite-file": f"sqlalchemy+sqlite+{{0}}:///{tmp_path}/{{0}}.db",
    }
    return forms[request.param].format


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
