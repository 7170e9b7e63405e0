"""What is particular to MariaDB and PostgreSQL: settings we do not rely on, types of new tables, values they refuse, locks."""

import threading
from collections.abc import Callable, Iterator

import pytest

from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb, deadlines
from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.errors import DatabaseError, DataError
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import NewTask

P = "shop"

Urls = Callable[[str], str]


def new(taskid: str, url: str = "u") -> NewRow:
    return NewRow(task=NewTask(taskid=taskid, project=P, url=url), due=1.0, priority=0, updatetime=1.0)


@pytest.fixture(params=["mariadb", "postgresql"])
def server_urls(request: pytest.FixtureRequest) -> Urls:
    urls: Urls = request.getfixturevalue(f"{request.param}_urls")
    return urls


@pytest.fixture
def taskdb(server_urls: Urls) -> Iterator[TaskDB]:
    database = connect_taskdb(server_urls("taskdb"))
    database.open_project(P)
    yield database
    database.close()


@pytest.mark.behaviour("D34", "X-D6")
def test_types_of_new_tables_on_mariadb(mariadb: MariaDb, mariadb_urls: Urls) -> None:
    taskdb, resultdb, projectdb = (
        connect_taskdb(mariadb_urls("taskdb")),
        connect_resultdb(mariadb_urls("resultdb")),
        connect_projectdb(mariadb_urls("projectdb")),
    )
    taskdb.open_project(P)
    resultdb.store([TaskResult(project=P, taskid="t", url="u", run=0, items=[Item("", "1")])])
    projectdb.insert(Project(name=P))
    for database in (taskdb, resultdb, projectdb):
        database.close()
    for kind in ("taskdb", "resultdb", "projectdb"):
        schema = mariadb_urls(kind).rpartition("/")[2]
        collations = mariadb.execute(
            "select table_name, column_name, collation_name from information_schema.columns "
            f"where table_schema = '{schema}' and collation_name is not null"
        )
        assert collations
        for table, column, collation in collations:
            ascii_key = column in ("taskid", "item", "id") and table != "lite-dead-letter"
            assert collation == ("ascii_bin" if ascii_key else "utf8mb4_bin"), (table, column)
        ((charset,),) = mariadb.execute(
            f"select default_collation_name from information_schema.schemata where schema_name = '{schema}'"
        )
        assert charset == "utf8mb4_bin"


def test_settings_of_mariadb_that_are_not_relied_on(mariadb: MariaDb, mariadb_urls: Urls) -> None:
    ((mode, wait),) = mariadb.execute("select @@global.sql_mode, @@global.wait_timeout")
    mariadb.execute(
        "set global sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
        "set global time_zone = '+05:00'",
        "set global wait_timeout = 1",
    )
    try:
        taskdb = connect_taskdb(mariadb_urls("taskdb"))
        taskdb.open_project(P)
        odd = "http://x/'\\\"%s%%\\n😀"
        with taskdb.begin(None) as tx:
            tx.insert(P, [new("a", odd)])
        # the clock is Unix time wherever the server believes to be
        ((clock,),) = mariadb.execute("select unix_timestamp()")
        assert abs(taskdb.time() - clock) < 5
        end = threading.Event()
        connections = f"select count(*) from information_schema.processlist where db = '{mariadb_urls('taskdb').rpartition('/')[2]}'"
        for _ in range(100):
            if mariadb.execute(connections) == [(0,)]:
                break
            end.wait(0.1)
        # the idle connection was ended by the server: nobody notices
        assert [task.url for task in taskdb.select(P)] == [odd]
        taskdb.close()
    finally:
        mariadb.execute(
            f"set global sql_mode = '{mode}'", "set global time_zone = 'SYSTEM'", f"set global wait_timeout = {wait}"
        )


def test_a_row_larger_than_mariadb_takes(mariadb: MariaDb, mariadb_urls: Urls) -> None:
    ((largest,),) = mariadb.execute("select @@global.max_allowed_packet")
    mariadb.execute("set global max_allowed_packet = 2097152")
    try:
        database = connect_resultdb(mariadb_urls("resultdb"))
        small, large = (
            TaskResult(project=P, taskid=str(size), url="u", run=0, items=[Item("", f'"{"x" * size}"')])
            for size in (1_500_000, 3_000_000)
        )
        for _ in range(2):
            with pytest.raises(
                DataError, match=r"a row of 3,000,... bytes, and the server's max_allowed_packet is 2,097,152"
            ):
                database.store([small, large])
        assert database.count(P) == 0
        database.store([small])
        assert database.count(P) == 1
        database.close()
    finally:
        mariadb.execute(f"set global max_allowed_packet = {largest}")


def test_nul_characters_on_postgresql(postgresql_urls: Urls) -> None:
    """MariaDB and SQLite store them; here they are a DataError, so that the one row fails with its reason."""
    taskdb, resultdb = connect_taskdb(postgresql_urls("taskdb")), connect_resultdb(postgresql_urls("resultdb"))
    taskdb.open_project(P)
    for row, column in ((new("a", "http://x/\0"), "url"), (new("a\0"), "full_taskid")):
        with (
            pytest.raises(DataError, match=f"no NUL characters in texts, and {column} has one"),
            taskdb.begin(None) as tx,
        ):
            tx.insert(P, [new("b"), row])
    assert taskdb.select(P) == []
    # in JSON they are escaped
    resultdb.store([TaskResult(project=P, taskid="t", url="u", run=0, items=[Item("", '"\\u0000"')])])
    assert next(resultdb.select(P)).result == '"\\u0000"'
    taskdb.close()
    resultdb.close()


def test_names_in_upper_case_and_reserved_words(taskdb: TaskDB) -> None:
    names = {"Shop", "SHOP", "select", "Order", "x" * 63}
    for name in names:
        taskdb.open_project(name)
        with taskdb.begin(None) as tx:
            tx.insert(name, [NewRow(task=NewTask(taskid=name, project=name, url="u"), due=1, priority=0, updatetime=1)])
    assert taskdb.projects() == names | {P}
    for name in names:
        assert [task.taskid for task in taskdb.select(name)] == [name]
        assert [key.taskid for key in taskdb.refill(name, 9.0, 9).keys] == [name]


def test_a_large_batch(taskdb: TaskDB) -> None:
    rows = [new(f"{number:032x}", "http://x/" + "y" * 2000) for number in range(5000)]
    with taskdb.begin(None) as tx:
        tx.insert(P, rows)
        assert len(tx.states(P, [row.task.taskid for row in rows])) == 5000
    assert taskdb.status_count(P) == {1: 5000}


def test_a_lock_is_waited_for_within_bounds(taskdb: TaskDB, server_urls: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "LOCK", 1)
    waiting = connect_taskdb(server_urls("taskdb"))
    waiting.open_project(P)
    with taskdb.begin(None):
        with pytest.raises(DatabaseError, match="another transaction held a lock for too long"):
            waiting.lead("h", 1.0, "")
        # nor for a table that is in use
        taskdb.select(P)
        with pytest.raises(DatabaseError, match="another transaction held a lock for too long"):
            waiting.drop_project(P)
    assert waiting.lead("h", 1.0, "") is not None
    waiting.drop_project(P)
    assert waiting.projects() == set()
    waiting.close()


def test_no_plan_is_kept_on_postgresql(postgresql_urls: Urls) -> None:
    """A plan made while a table was small reads all of it when it has grown."""
    database = connect_taskdb(postgresql_urls("taskdb"))
    database.open_project(P)
    with database.begin(None) as tx:
        for number in range(20):
            tx.insert(P, [new(f"{number}")])
            tx.states(P, ["a", "b"])
        with database._database.read() as conn:  # type: ignore[attr-defined]
            assert conn.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar() == 0
    database.close()


def test_a_user_of_postgresql_may_name_a_schema(postgresql: PostgreSql) -> None:
    postgresql.execute("create schema crawl", database="taskdb")
    database = connect_taskdb(postgresql.url("taskdb") + "?options=-csearch_path%3Dcrawl")
    database.open_project(P)
    assert database.projects() == {P}
    database.close()
    rows = postgresql.execute(
        "select schemaname from pg_tables where tablename = 'shop' and schemaname = 'crawl'", database="taskdb"
    )
    assert rows == [("crawl",)]
    postgresql.execute("set client_min_messages = warning", "drop schema crawl cascade", database="taskdb")


@pytest.mark.behaviour("D34", "X-D6")
def test_columns_of_new_tables_on_mariadb_hold_megabytes(mariadb: MariaDb, mariadb_urls: Urls) -> None:
    database = connect_taskdb(mariadb_urls("taskdb"))
    database.open_project(P)
    text = "😀" * 300_000
    task = NewTask("t", P, "http://x/" + text, fetch={"data": text}, process={"p": text})
    with database.begin(None) as tx:
        tx.insert(P, [NewRow(task=task, due=0.0, priority=0, updatetime=1.0)])
    (found,) = database.get(P, ["t"])
    assert (found.url, found.fetch, found.process) == (task.url, task.fetch, task.process)
    database.close()
