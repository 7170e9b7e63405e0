"""Database URLs: pyspider's forms are read, everything else is refused in one sentence without a password."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb, share_tables
from pyspider_lite.database.script_files import ScriptFiles
from pyspider_lite.database.url import ENGINES, parse
from pyspider_lite.errors import ConfigError


@pytest.fixture(autouse=True)
def every_driver_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.behaviour("D1", "D3", "D4", "D6")
@pytest.mark.parametrize(
    ("url", "seen", "prefix"),
    [
        ("sqlite+taskdb:///rel/task.db", "sqlite:///rel/task.db", "taskdb_"),
        ("sqlite+taskdb:////abs/task.db", "sqlite:////abs/task.db", "taskdb_"),
        ("sqlite+taskdb://", "sqlite://", "taskdb_"),
        ("sqlalchemy+sqlite+taskdb:////abs/t.db", "sqlite:////abs/t.db", ""),
        ("sqlalchemy+sqlite+taskdb://", "sqlite://", ""),
        ("mysql+taskdb://", "mysql+pymysql://root@localhost:3306/taskdb", ""),
        ("mysql+taskdb://u:p@h:3307/db", "mysql+pymysql://u:p@h:3307/db", ""),
        ("mysql+taskdb://u:p%40@x@h/db", "mysql+pymysql://u:p%2540%40x@h:3306/db", ""),
        ("sqlalchemy+mysql+mysqlconnector+taskdb://u:p%40@h:3307/db", "mysql+pymysql://u:p%40@h:3307/db", ""),
        ("sqlalchemy+mariadb+taskdb://u@h/db", "mysql+pymysql://u@h/db", ""),
        ("sqlalchemy+postgresql+taskdb://u:p@h:5432/db", "postgresql+psycopg://u:p@h:5432/db", ""),
        ("sqlalchemy+postgresql+psycopg2+taskdb://u:p@h/db", "postgresql+psycopg://u:p@h/db", ""),
        ("postgresql+taskdb://u:p%40@h/db", "postgresql+psycopg://u:p%40@h/db", ""),
        ("sqlalchemy+mysql+mysqldb+taskdb://u:p@h/db", "mysql+pymysql://u:p@h/db", ""),
        ("sqlalchemy+postgres+taskdb://h/db", "postgresql+psycopg://h/db", ""),
    ],
)
def test_forms_that_are_read(url: str, seen: str, prefix: str) -> None:
    target = parse(url, "taskdb")
    assert target.url.render_as_string(hide_password=False) == seen
    assert target.prefix == prefix
    assert parse(url, "taskdb", prefixed=True).prefix == "taskdb_"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "not a database URL"),
        ("task.db", "not a database URL; use sqlite+taskdb://"),
        ("taskdb://x", "not a database URL"),
        ("sqlite:///task.db", "not a database URL"),
        ("sqlite+resultdb:///x.db", "names a resultdb, but a taskdb is wanted"),
        ("sqlite+taskbd:///x.db", "did you mean taskdb?"),
        ("sqllite+taskdb:///x.db", "unknown database 'sqllite' (did you mean sqlite?)"),
        ("sqlalchemy+taskdb:///x.db", "unknown database ''"),
        ("sqlalchemy+postgressql+taskdb://h/d", "did you mean postgresql?"),
        ("mysql+pymysqll+taskdb://h/d", "did you mean pymysql?"),
        ("sqlite+taskdb://data/task.db", "three slashes"),
        ("mysql+taskdb://u:secret@h:abc/db", "the port must be a number"),
        ("sqlalchemy+mysql+taskdb://u:secret@h:abc/db", "not a URL that SQLAlchemy can read"),
        ("sqlalchemy+postgresql+taskdb://u:secret@h", "name of the database is missing"),
        ("mongodb+taskdb://u:secret@h/db", "mongodb is no longer supported"),
        ("redis+taskdb://h:6379/0", "redis is no longer supported"),
        ("couchdb+taskdb://h", "couchdb is no longer supported"),
        ("es+taskdb://h", "es is no longer supported"),
        ("elasticsearch+taskdb://h", "elasticsearch is no longer supported"),
    ],
)
def test_what_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        connect_taskdb(url)
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_driver_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs pymysql; install it with: pip install pymysql"):
        connect_taskdb("mysql+taskdb://u:secret@h/db")
    with pytest.raises(ConfigError, match=r"needs psycopg; install it with: pip install 'pyspider_lite\[postgresql\]'"):
        connect_taskdb("sqlalchemy+postgresql+taskdb://u:secret@h/db")


def test_the_registry_is_in_order() -> None:
    assert list(ENGINES) == sorted(ENGINES)


@pytest.mark.parametrize("connect", [connect_taskdb, connect_projectdb, connect_resultdb])
def test_each_kind_takes_its_own_urls_only(connect: Callable[[str], Any]) -> None:
    kind = connect.__name__.removeprefix("connect_")
    database = connect(f"sqlite+{kind}://")
    database.close()
    for other in {"taskdb", "projectdb", "resultdb"} - {kind}:
        with pytest.raises(ConfigError, match=f"names a {other}, but a {kind}"):
            connect(f"sqlite+{other}://")


@pytest.mark.parametrize(
    ("tasks", "results", "shared"),
    [
        ("mysql+taskdb://h/db", "sqlalchemy+mysql+resultdb://u:p@h:3306/db", True),
        ("mysql+taskdb://h/taskdb", "mysql+resultdb://h/resultdb", False),
        ("sqlalchemy+sqlite+taskdb:///a.db", "sqlite+resultdb:///a.db", True),
        ("sqlite+taskdb:///a.db", "sqlite+resultdb:///b.db", False),
        ("sqlite+taskdb://", "sqlite+resultdb://", False),
        ("sqlite+taskdb:///a", "mysql+resultdb://h/a", False),
    ],
)
def test_which_share_one_database(tasks: str, results: str, shared: bool) -> None:
    assert share_tables(tasks, results) is shared


@pytest.mark.behaviour("D10")
def test_local_script_files(tmp_path: Any) -> None:
    (tmp_path / "a.py").write_text("pass")
    database = connect_projectdb(f"local+projectdb://{tmp_path}/a.py,{tmp_path}/x*.py")
    assert isinstance(database, ScriptFiles)
    assert [(head.name, head.rate, head.burst) for head in database.heads()] == [("a", 1.0, 3.0)]
    with pytest.raises(ConfigError, match="names no script files"):
        connect_projectdb("local+projectdb://")
