"""Databases that pyspider made on MariaDB open as they are (behaviour D30 to D41). The dumps in data/ were written by it."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stored_tasks import end

from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.server import PASSWORD, USER
from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb
from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import NewTask, TaskStatus

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "expected.json").read_text("utf-8"))["db"]
PROJECTS = ("shop", "news_cn")
KINDS = ("taskdb", "projectdb", "resultdb")

# each is opened by the form of URL that did not make it (behaviour D41): they differ in nothing but how the URL is read
pytestmark = pytest.mark.parametrize(
    ("dump", "form"), [("mysql", "sqlalchemy+mysql+mysqlconnector"), ("sa_mysql", "mysql")], ids=["mysql", "sa_mysql"]
)


@pytest.fixture
def url(dump: str, form: str, mariadb: MariaDb) -> Iterator[Callable[[str], str]]:
    prefix = "sa_" if dump == "sa_mysql" else ""
    with open(DATA / f"{dump}.sql", "rb") as file:
        command = ["mariadb", "--no-defaults", "-u", "root", f"--socket={mariadb.folder}/socket"]
        subprocess.run(command, stdin=file, check=True, timeout=60)
    yield lambda kind: f"{form}+{kind}://{USER}:{PASSWORD}@{mariadb.host}:{mariadb.port}/{prefix}{kind}"
    mariadb.execute(*(f"drop database {prefix}{kind}" for kind in KINDS))


@pytest.fixture
def raw(dump: str, mariadb: MariaDb, url: object) -> Callable[[str, str, str], list[Any]]:
    """Rows as pyspider wrote them: kind of database, table, columns."""
    prefix = "sa_" if dump == "sa_mysql" else ""
    return lambda kind, table, columns: mariadb.execute(f"select {columns} from {prefix}{kind}.{table}")


@pytest.fixture
def taskdb(url: Callable[[str], str]) -> Iterator[TaskDB]:
    database = connect_taskdb(url("taskdb"))
    yield database
    database.close()


@pytest.mark.behaviour("D30")
def test_projects(url: Callable[[str], str], raw: Callable[[str, str, str], list[Any]]) -> None:
    rows = {row[0]: row for row in raw("projectdb", "projectdb", "name, `group`, status, script, comments, updatetime")}
    database = connect_projectdb(url("projectdb"))
    assert {head.name for head in database.heads()} == set(PROJECTS)
    for name in PROJECTS:
        found = database.get(name)
        assert found is not None
        seen = (found.name, found.group, found.status, found.script, found.comments, found.updatetime)
        assert seen == rows[name]
        assert (found.rate, found.burst) == next(
            (row["rate"], row["burst"]) for row in EXPECTED["projects"] if row["name"] == name
        )
    assert database.update("shop", status="STOP", script="# 😀\n" * 30_000, rate=float("inf"))
    database.insert(Project(name="new", script="# 标题 😀", comments="c" * 2000))
    assert [head.name for head in database.heads()] == ["new", *sorted(PROJECTS)]
    assert database.get("shop").script == "# 😀\n" * 30_000  # type: ignore[union-attr]
    database.close()


@pytest.mark.behaviour("D31", "D33", "D41")
def test_tasks(taskdb: TaskDB, raw: Callable[[str, str, str], list[Any]]) -> None:
    assert taskdb.projects() == set(PROJECTS)
    columns = "taskid, project, url, status, schedule, `fetch`, process, track, lastcrawltime, updatetime"
    for project in PROJECTS:
        rows = raw("taskdb", project, columns)
        tasks = {task.taskid: task for task in taskdb.get(project, [row[0] for row in rows])}
        assert len(tasks) == len(rows) == len(EXPECTED["tasks"][project])
        for row in rows:
            task = tasks[row[0]]
            assert (task.project, task.url, task.status) == row[1:4]
            stored = [json.loads(text or "{}") for text in row[4:8]]
            assert [task.schedule, task.fetch, task.process, task.track] == stored
            assert (task.lastcrawltime, task.updatetime, task.run) == (*row[8:], 0)
        urls = {(row["taskid"], row["url"], row["status"]) for row in EXPECTED["tasks"][project]}
        assert {(task.taskid, task.url, task.status) for task in tasks.values()} == urls
        counted = {int(status): count for status, count in EXPECTED["status_count"][project].items()}
        assert taskdb.status_count(project) == counted


def test_waiting_tasks_are_given_out(taskdb: TaskDB) -> None:
    answer = taskdb.refill("shop", 4_000_000_000.0, 10)
    assert len(answer.keys) == 2
    assert answer.next_due == 4102444800


def test_columns_are_added_and_the_old_ones_stay(
    taskdb: TaskDB, url: Callable[[str], str], mariadb: MariaDb, dump: str
) -> None:
    schema = "sa_taskdb" if dump == "sa_mysql" else "taskdb"
    query = f"select column_name, column_default from information_schema.columns where table_schema = '{schema}' and table_name = 'shop'"
    before = [row[0] for row in mariadb.execute(query)]
    taskdb.open_project("shop")
    after = [row[0] for row in mariadb.execute(query)]
    assert after[: len(before)] == before
    assert after[len(before) :] == ["seq", "full_taskid", "due", "priority", "pending", "unconditional", "run"]
    indexes = {row[2] for row in mariadb.execute(f"show index from {schema}.shop")}
    assert indexes >= {"PRIMARY", "lite-due-shop", "lite-state-shop"}
    # the predecessor can still write into it, and its row is found
    mariadb.execute(
        f"insert into {schema}.shop (taskid, project, url, status, schedule, updatetime) "
        "values ('back', 'shop', 'u', 1, '{\"exetime\": 7, \"priority\": 4}', 1.0)"
    )
    fresh = connect_taskdb(url("taskdb"))
    fresh.open_project("shop")
    assert [(key.taskid, key.priority, key.due) for key in fresh.refill("shop", 7.0, 1).keys] == [("back", 4, 7.0)]
    fresh.close()


def test_work_goes_on_in_an_old_table(taskdb: TaskDB) -> None:
    taskdb.open_project("shop")
    old = EXPECTED["tasks"]["shop"][0]["taskid"]
    long, url, save = "x" * 70, "http://x/😀" + "y" * 3000, {"标": "😀" * 50_000}
    with taskdb.begin(None) as tx:
        for taskid in (old, "new", long):
            task = NewTask(taskid=taskid, project="shop", url=url, fetch={"save": save})
            tx.insert("shop", [NewRow(task=task, due=1.0, priority=0, updatetime=1.0)])
        assert tx.states("shop", [old])[old].run == 0
        tx.end("shop", [end(old, TaskStatus.FAILED, schedule={}, priority=0, track=None)])
    assert [task.taskid for task in taskdb.select("shop", limit=2)] == [long, "new"]
    (task,) = taskdb.get("shop", [long])
    assert (task.url, task.fetch) == (url, {"save": save})
    (task,) = taskdb.get("shop", [old])
    assert (task.status, task.run) == (TaskStatus.FAILED, 1)
    assert task.track["fetch"]
    assert [key.taskid for key in taskdb.refill("shop", 1.0, 9).keys] == ["new", long]


@pytest.mark.behaviour("D32")
def test_results(url: Callable[[str], str], raw: Callable[[str, str, str], list[Any]]) -> None:
    database = connect_resultdb(url("resultdb"))
    assert database.projects() == set(PROJECTS)
    for project in PROJECTS:
        stored = {
            row[0]: (row[1], json.loads(row[2]), row[3])
            for row in raw("resultdb", project, "taskid, url, result, updatetime")
        }
        rows = list(database.select(project))
        assert {row.taskid: (row.url, json.loads(row.result), row.updatetime) for row in rows} == stored
        assert len(rows) == database.count(project) == len(EXPECTED["results"][project])
        # newest first
        assert [row.updatetime for row in rows] == sorted((row.updatetime for row in rows), reverse=True)
    taskid = EXPECTED["results"]["shop"][0]["taskid"]
    items = [Item("a", '"😀"'), Item("b", "2")]
    database.store([TaskResult(project="shop", taskid=taskid, url="u", run=1, items=items, replace=True)])
    assert [(row.item, row.run, row.result) for row in database.get("shop", taskid)] == [
        ("a", 1, '"😀"'),
        ("b", 1, "2"),
    ]
    assert database.count("shop") == len(EXPECTED["results"]["shop"]) + 1
    database.close()
