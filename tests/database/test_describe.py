"""What `check-config` says of a database, and that looking changes nothing."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.server import PASSWORD, USER
from pyspider_lite.database import connect_projectdb, connect_taskdb, deadlines, describe
from pyspider_lite.errors import ConfigError, DatabaseError
from pyspider_lite.models.project import Project

DATA = Path(__file__).parent / "data"


def test_a_file_of_pyspiders(tmp_path: Path) -> None:
    path = tmp_path / "task.db"
    shutil.copy(DATA / "task.db", path)
    before = path.read_bytes()
    found = describe(f"sqlite+taskdb:///{path}", "taskdb")
    assert found.problems == []
    assert found.found[0].startswith("SQLite 3.")
    assert found.found[-1] == "tables of 2 projects, 2 of them made by pyspider, to be completed at its first use"
    assert (path.read_bytes(), sorted(tmp_path.iterdir())) == (before, [path])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    found = describe(f"sqlite+taskdb:///{tmp_path}/data/task.db", "taskdb")
    assert (found.found[1], found.problems) == ("the file does not exist yet", [])
    found = describe(f"sqlite+taskdb:///{tmp_path}/no/folder/task.db", "taskdb")
    assert found.problems == [f"the folder {tmp_path}/no does not exist; create it first"]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.db").write_text("this is no database" * 100)
    with pytest.raises(DatabaseError, match="the file is not an SQLite database"):
        describe(f"sqlite+taskdb:///{tmp_path}/text.db", "taskdb")
    assert describe("sqlite+taskdb://", "taskdb").found[1] == "in memory, for this process only"


def test_script_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("pass")
    assert describe(f"local+projectdb://{tmp_path}/*.py", "projectdb").found == ["1 scripts in files"]
    assert describe(f"local+projectdb://{tmp_path}/*.txt", "projectdb").problems == ["no script file is there"]
    with pytest.raises(ConfigError, match="names a taskdb"):
        describe("sqlite+taskdb://", "projectdb")


@pytest.mark.parametrize(("product", "charset"), [("mariadb", "utf8mb4"), ("postgresql", "UTF8")])
def test_a_server(product: str, charset: str, request: pytest.FixtureRequest) -> None:
    urls: Callable[[str], str] = request.getfixturevalue(f"{product}_urls")
    if product == "mariadb":
        first = describe(urls("taskdb"), "taskdb")
        assert first.problems == []
        assert "does not exist yet and will be made" in first.found[-1]
        assert "does not exist yet" in describe(urls("taskdb"), "taskdb").found[-1], "it was made by looking"
    else:
        assert describe(urls("taskdb"), "taskdb").found[-1] == "tables of 0 projects"
    taskdb, projectdb = connect_taskdb(urls("taskdb")), connect_projectdb(urls("projectdb"))
    taskdb.open_project("shop")
    found = describe(urls("taskdb"), "taskdb")
    assert found.problems == []
    assert found.found[0].lower().startswith(product)
    assert any(charset in line for line in found.found)
    assert any(line.startswith("its clock differs by") and "0." in line for line in found.found)
    assert found.found[-1] == "tables of 1 projects"
    projectdb.insert(Project(name="shop"))
    assert describe(urls("projectdb"), "projectdb").found[-1] == "the table of projects"
    for database in (taskdb, projectdb):
        database.close()


def test_missing_rights_on_mariadb(mariadb: MariaDb) -> None:
    mariadb.execute(
        f"create or replace user reader identified by '{PASSWORD}'",
        "create or replace database readable",
        "grant select, insert on readable.* to reader",
    )
    url = mariadb.url("taskdb", "readable").replace(f"{USER}:", "reader:")
    (problem,) = describe(url, "taskdb").problems
    assert problem == (
        "user 'reader' lacks UPDATE, DELETE, CREATE, ALTER, INDEX, DROP; "
        "run as an administrator: GRANT ALL ON `readable`.* TO 'reader'@'%'"
    )
    mariadb.execute("grant all on readable.* to reader")
    assert describe(url, "taskdb").problems == []
    mariadb.execute("set global read_only = 1")
    try:
        (problem,) = describe(url, "taskdb").problems
    finally:
        mariadb.execute("set global read_only = 0")
    assert problem.startswith("the server is read-only")
    (problem,) = describe(url.replace("readable", "elsewhere"), "taskdb").problems
    assert "lacks SELECT" in problem
    mariadb.execute("drop user reader", "drop database readable")


def test_missing_rights_on_postgresql(postgresql: PostgreSql) -> None:
    postgresql.execute(f"create role reader login password '{PASSWORD}'", "create database readable")
    url = postgresql.url("taskdb", "readable").replace(f"{USER}:", "reader:")
    (problem,) = describe(url, "taskdb").problems
    assert problem.startswith("user 'reader' may not make tables in schema public; run as an administrator: ALTER")
    postgresql.execute("alter database readable owner to reader")
    assert describe(url, "taskdb").problems == []
    postgresql.execute("alter role reader set default_transaction_read_only = on")
    (problem,) = describe(url, "taskdb").problems
    assert problem.startswith("the server is read-only")
    postgresql.execute("alter role reader reset default_transaction_read_only")
    (problem,) = describe(url + "?options=-csearch_path%3Dnowhere", "taskdb").problems
    assert "no schema of the search path exists" in problem
    with pytest.raises(DatabaseError, match='run as an administrator: CREATE DATABASE "elsewhere" OWNER "reader"'):
        describe(url.replace("readable", "elsewhere"), "taskdb")
    postgresql.execute("drop database readable", "drop role reader")


@pytest.mark.parametrize("product", ["mariadb", "postgresql"])
def test_a_refusal_and_silence(product: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    server: MariaDb | PostgreSql = request.getfixturevalue(product)
    url = server.url("taskdb")
    with pytest.raises(DatabaseError, match="refuses user 'pyspider' or the password") as raised:
        describe(url.replace(PASSWORD, "secret"), "taskdb")
    assert "secret" not in str(raised.value)
    with pytest.raises(DatabaseError, match="the server cannot be reached"):
        describe(url.replace(str(server.port), "1"), "taskdb")
    monkeypatch.setattr(deadlines, "CONNECT", 2)
    server.freeze()
    try:
        began = time.monotonic()
        with pytest.raises(DatabaseError):
            describe(url, "taskdb")
        assert time.monotonic() - began < 15
    finally:
        server.thaw()
