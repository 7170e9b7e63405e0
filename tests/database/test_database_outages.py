"""Servers that go away, come back, freeze, cut connections or refuse: one sentence each, and the same object works again."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import psycopg
import pymysql
import pytest

from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.server import PASSWORD, USER
from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb, deadlines
from pyspider_lite.database.base import NewRow, ResultDB, TaskDB
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.control import Control
from pyspider_lite.models.project import ProjectState
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import NewTask, TaskEnd, TaskStatus
from pyspider_lite.scheduler import leader

P = "shop"


@pytest.fixture(scope="module", params=[MariaDb, PostgreSql], ids=["mariadb", "postgresql"])
def server(request: pytest.FixtureRequest) -> Iterator[MariaDb | PostgreSql]:
    with request.param() as started:
        yield started


@pytest.fixture(autouse=True)
def runs_again(server: MariaDb | PostgreSql) -> Iterator[None]:
    """A test that fails does not take the next ones with it."""
    yield
    if server.process is None:
        server.start()


@pytest.fixture
def taskdb(server: MariaDb | PostgreSql) -> Iterator[TaskDB]:
    database = connect_taskdb(server.url("taskdb"))
    database.drop_project(P)
    database.open_project(P)
    yield database
    database.close()


@pytest.fixture
def resultdb(server: MariaDb | PostgreSql) -> Iterator[ResultDB]:
    database = connect_resultdb(server.url("resultdb"))
    database.drop(P, "")
    yield database
    database.close()


def insert(taskdb: TaskDB, *taskids: str) -> None:
    rows = [NewRow(task=NewTask(taskid=i, project=P, url="u"), due=1.0, priority=0, updatetime=1.0) for i in taskids]
    with taskdb.begin(None) as tx:
        tx.insert(P, rows)


def refusal(call: Callable[[], object], within: float = 20.0) -> str:
    """What is said when ``call`` fails, after making sure that it is one short sentence, soon, without the password."""
    began = time.monotonic()
    with pytest.raises(DatabaseError) as raised:
        call()
    assert time.monotonic() - began < within
    text = str(raised.value)
    assert "\n" not in text
    assert PASSWORD not in text
    assert len(text) < 600
    return text


# --- away and back ----------------------------------------------------------------------------------------------------


def test_idle_connections_that_are_cut_cost_no_error(
    server: MariaDb | PostgreSql, taskdb: TaskDB, resultdb: ResultDB
) -> None:
    for number in range(3):
        server.cut()
        insert(taskdb, f"a{number}")
        server.cut()
        assert taskdb.status_count(P) == {1: number + 1}
        server.cut()
        resultdb.store([TaskResult(project=P, taskid=f"t{number}", url="u", run=0, items=[Item("", "1")])])
        server.cut()
        assert resultdb.count(P) == number + 1


def test_a_restart_between_two_uses_costs_no_error(server: MariaDb | PostgreSql, taskdb: TaskDB) -> None:
    insert(taskdb, "a")
    server.stop()
    server.start()
    insert(taskdb, "b")
    assert taskdb.status_count(P) == {1: 2}


def test_a_server_that_is_away_and_comes_back(server: MariaDb | PostgreSql, taskdb: TaskDB, resultdb: ResultDB) -> None:
    insert(taskdb, "a")
    never_connected = connect_projectdb(server.url("projectdb"))
    row = TaskResult(project=P, taskid="t", url="u", run=0, items=[Item("", "1")])
    server.stop()
    for call in (
        lambda: insert(taskdb, "b"),
        lambda: taskdb.select(P),
        taskdb.time,
        lambda: taskdb.lead("h", 1.0, ""),
        lambda: resultdb.store([row]),
        never_connected.heads,
    ):
        for _ in range(2):
            assert "the server cannot be reached; check host, port, firewall" in refusal(call)
    server.start()
    insert(taskdb, "b")
    resultdb.store([row])
    assert (taskdb.status_count(P), resultdb.count(P), never_connected.heads()) == ({1: 2}, 1, [])
    never_connected.close()


def test_tries_in_vain_read_no_certificates(server: MariaDb | PostgreSql, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL would for each: that took a quarter of a MB a try, for as long as the server was away."""
    made: list[object] = []
    create = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda *a, **k: made.append(k) or create(*a, **k))
    database = connect_resultdb(server.url("resultdb"))
    server.stop()
    for _ in range(5):
        refusal(database.projects)
    database.close()
    assert len(made) <= 1
    server.start()


def test_a_server_that_dies_within_a_transaction(server: MariaDb | PostgreSql, taskdb: TaskDB) -> None:
    insert(taskdb, "kept")

    def dies() -> None:
        with taskdb.begin(None) as tx:
            tx.insert(P, [NewRow(task=NewTask(taskid="lost", project=P, url="u"), due=1, priority=0, updatetime=1)])
            server.kill()
            tx.states(P, ["kept"])

    refusal(dies)
    server.start()
    assert [task.taskid for task in taskdb.select(P)] == ["kept"]
    insert(taskdb, "lost")
    assert taskdb.status_count(P) == {1: 2}


def test_a_cut_within_a_transaction_costs_that_one_only(server: MariaDb | PostgreSql, taskdb: TaskDB) -> None:
    def is_cut() -> None:
        with taskdb.begin(None) as tx:
            server.cut()
            tx.states(P, ["a"])

    refusal(is_cut)
    insert(taskdb, "a")


def test_a_frozen_server_is_waited_for_within_bounds(
    server: MariaDb | PostgreSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "ANSWER", 2)
    monkeypatch.setattr(deadlines, "CONNECT", 2)
    taskdb, fresh = (connect_taskdb(server.url("taskdb")) for _ in range(2))
    taskdb.open_project(P)

    def freezes() -> None:
        with taskdb.begin(None) as tx:
            server.freeze()
            tx.states(P, ["a"])

    try:
        refusal(freezes, within=15.0)
        refusal(taskdb.time, within=15.0)
        refusal(fresh.time, within=15.0)
    finally:
        server.thaw()
    insert(taskdb, "after")
    assert [task.taskid for task in fresh.get(P, ["after"])] == ["after"]
    taskdb.close()
    fresh.close()


def test_a_commit_whose_answer_was_lost_is_repeated_without_harm(
    server: MariaDb | PostgreSql, taskdb: TaskDB, resultdb: ResultDB
) -> None:
    insert(taskdb, "page")
    ended = TaskEnd(
        taskid="page", status=TaskStatus.SUCCESS, schedule={}, due=None, priority=0, run=1,
        updatetime=2.0, lastcrawltime=2.0, track={"save": 1},
    )  # fmt: skip
    follow = NewRow(task=NewTask(taskid="follow", project=P, url="u"), due=3.0, priority=0, updatetime=2.0)
    control = Control(id="c", project=P, kind="message", task=NewTask(taskid="c", project=P, url="u"))
    result = TaskResult(project=P, taskid="page", url="u", run=1, items=[Item("", "1")], replace=True, complete=True)
    seen = []
    for _ in range(3):
        with taskdb.begin(None) as tx:
            tx.insert(P, [follow])
            tx.end(P, [ended])
            tx.add_controls([control])
            tx.put_project_states([ProjectState(project=P, active=1, success=1)])
        resultdb.store([result])
        server.cut()
        rows = [(row.taskid, row.result, row.run) for row in resultdb.select(P)]
        seen.append((taskdb.select(P), taskdb.controls(0, 9), taskdb.project_states(), rows))
    assert seen[0] == seen[1] == seen[2]


def test_tables_that_were_wiped_are_made_again(server: MariaDb | PostgreSql, taskdb: TaskDB) -> None:
    insert(taskdb, "a")
    if isinstance(server, MariaDb):
        server.execute("drop database taskdb", "create database taskdb")
    else:
        server.execute("drop schema public cascade", "create schema public", database="taskdb")
    with pytest.raises(DatabaseError):
        insert(taskdb, "b")
    taskdb.open_project(P)
    insert(taskdb, "c")
    assert [task.taskid for task in taskdb.select(P)] == ["c"]


# --- a frozen client --------------------------------------------------------------------------------------------------


def test_a_leader_frozen_within_a_transaction_loses_lead_and_lock(
    server: MariaDb | PostgreSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deadlines.NEXT_STATEMENT < leader.TERM, "so nobody waits longer than for one that was killed"
    monkeypatch.setattr(deadlines, "NEXT_STATEMENT", 1)
    frozen, stand_by = connect_taskdb(server.url("taskdb")), connect_taskdb(server.url("taskdb"))
    frozen.open_project(P)
    epoch = frozen.lead("frozen", 0.5, "")
    assert epoch is not None
    taken: list[int | None] = []

    def freezes() -> None:
        with frozen.begin(epoch) as tx:
            tx.insert(P, [NewRow(task=NewTask(taskid="old", project=P, url="u"), due=1, priority=0, updatetime=1)])
            # it holds the leader row, and does not go on: once its term is over the stand-by waits for the row, and gets it
            while not taken or taken[-1] is None:
                time.sleep(0.1)
                taken[:] = [stand_by.lead("stand-by", 100.0, "")]

    refusal(freezes, within=20.0)
    assert taken[-1] is not None and taken[-1] > epoch
    with pytest.raises(DatabaseError, match="stand-by leads"), frozen.begin(epoch):
        pass
    assert not frozen.renew(epoch, 9.0)
    assert frozen.get(P, ["old"]) == []
    stand_by.resign(taken[-1])
    frozen.close()
    stand_by.close()


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_wrong_password(server: MariaDb | PostgreSql) -> None:
    database = connect_taskdb(server.url("taskdb").replace(PASSWORD, "p%40ss"))
    text = refusal(database.projects)
    assert f"the server refuses user '{USER}' or the password" in text
    assert ("taken as it stands, so % and" if isinstance(server, MariaDb) else "must be %-encoded: @ is %40") in text
    assert "p%40ss" not in text
    assert "p@ss" not in text
    database.close()


def test_a_user_without_rights_is_told_what_to_grant(server: MariaDb | PostgreSql) -> None:
    if isinstance(server, MariaDb):
        server.execute(
            f"create or replace user weak identified by '{PASSWORD}'",
            "create database if not exists closed",
            "grant select on closed.* to weak",
        )
        said = ["GRANT ALL ON `{}`.* TO 'weak'@'%'", "CREATE DATABASE IF NOT EXISTS `{}`"]
    else:
        server.execute("create database closed")
        server.execute(f"create role weak login password '{PASSWORD}'")
        said = ['ALTER DATABASE "{}" OWNER TO "weak"', 'CREATE DATABASE "{}" OWNER "weak"']
    for name, sentence in zip(("closed", "absent"), said, strict=True):
        url = server.url("taskdb", name).replace(f"{USER}:", "weak:")
        database = connect_taskdb(url)
        assert sentence.format(name) in refusal(database.projects)
        assert sentence.format(name) in refusal(database.projects), "the second time as well"
        # mended, it works at once
        if isinstance(server, MariaDb):
            server.execute(f"create database if not exists {name}", f"grant all on {name}.* to weak@'%'")
        elif name == "absent":
            server.execute(f"create database {name} owner weak")
        else:
            server.execute(f"alter database {name} owner to weak")
        assert database.projects() == set()
        database.close()


def test_a_server_without_connections_left(server: MariaDb | PostgreSql) -> None:
    kind = "resultdb"
    database = connect_resultdb(server.url(kind).replace(f"{USER}:", "few:"))
    with ExitStack() as held:
        if isinstance(server, MariaDb):
            server.execute(
                f"create user few identified by '{PASSWORD}' with max_user_connections 1", "grant all on *.* to few"
            )
        else:
            server.execute(
                f"create role few login password '{PASSWORD}' connection limit 1",
                f"alter database {kind} owner to few",
            )
        hold(held, server, kind)
        assert "or run fewer workers" in refusal(database.projects)
    if isinstance(server, MariaDb):
        with ExitStack() as held:
            held.callback(server.execute, "set global max_connections = 151")
            server.execute("set global max_connections = 10")
            with suppress(pymysql.err.OperationalError):
                for _ in range(20):
                    account = {"user": USER, "password": PASSWORD}
                    held.enter_context(pymysql.connect(host=server.host, port=server.port, **account))
            assert "the server has no connection left; raise its max_connections" in refusal(database.projects)
    wait_until_works(database.projects)
    database.close()


def hold(held: ExitStack, server: MariaDb | PostgreSql, kind: str) -> None:
    """Use up the only connection of user ``few``."""
    if isinstance(server, MariaDb):
        held.enter_context(pymysql.connect(host=server.host, port=server.port, user="few", password=PASSWORD))
    else:
        held.enter_context(
            psycopg.connect(host=server.host, port=server.port, user="few", password=PASSWORD, dbname=kind)
        )


def wait_until_works(call: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            call()
            return
        except DatabaseError:
            # the server notices closed connections a moment later
            if time.monotonic() > end:
                raise
            threading.Event().wait(0.05)
