"""Databases made by pyspider open as they are (behaviour D25 to D42). The files in data/ were written by it."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from stored_tasks import end

from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb
from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import NewTask, TaskStatus

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "expected.json").read_text("utf-8"))
PROJECTS = ("shop", "news_cn")

pytestmark = pytest.mark.parametrize("form", ["sqlite", "sqlalchemy+sqlite"])


@pytest.fixture
def expected(form: str) -> dict[str, Any]:
    found: dict[str, Any] = EXPECTED["db" if form == "sqlite" else "sa_db"]
    return found


@pytest.fixture
def url(form: str, tmp_path: Path) -> Callable[[str], str]:
    def copied(kind: str) -> str:
        name = f"{'' if form == 'sqlite' else 'sa_'}{kind.removesuffix('db')}.db"
        if not (tmp_path / name).exists():
            shutil.copy(DATA / name, tmp_path / name)
        return f"{form}+{kind}:///{tmp_path}/{name}"

    return copied


@pytest.fixture
def taskdb(url: Callable[[str], str]) -> Iterator[TaskDB]:
    database = connect_taskdb(url("taskdb"))
    yield database
    database.close()


@pytest.mark.behaviour("D25", "D40")
def test_projects(url: Callable[[str], str], expected: dict[str, Any]) -> None:
    database = connect_projectdb(url("projectdb"))
    heads = {head.name: head for head in database.heads()}
    for row in expected["projects"]:
        head = heads.pop(row["name"])
        assert {key: getattr(head, key) for key in row} == row
        assert head.generation == ""
    assert heads == {}
    project = database.get("news_cn")
    assert project is not None
    assert "class Handler(BaseHandler)" in project.script
    assert database.update("shop", status="STOP", rate=float("inf"))
    database.close()


@pytest.mark.behaviour("D26")
def test_tasks(taskdb: TaskDB, expected: dict[str, Any]) -> None:
    assert taskdb.projects() == set(PROJECTS)
    for project in PROJECTS:
        counted = {int(status): count for status, count in expected["status_count"][project].items()}
        assert taskdb.status_count(project) == counted
        rows = expected["tasks"][project]
        tasks = {task.taskid: task for task in taskdb.get(project, [row["taskid"] for row in rows])}
        assert len(tasks) == len(rows)
        for row in rows:
            assert {key: getattr(tasks[row["taskid"]], key) for key in row} == row
            assert tasks[row["taskid"]].run == 0
        assert [task.seq for task in taskdb.select(project, limit=1000)] == list(range(len(rows), 0, -1))


def test_waiting_tasks_get_their_due_time_and_priority(taskdb: TaskDB, expected: dict[str, Any]) -> None:
    active = [row for row in expected["tasks"]["shop"] if row["status"] == TaskStatus.ACTIVE]
    answer = taskdb.refill("shop", 4_000_000_000.0, 10)
    wanted = [
        (-row["schedule"].get("priority", 0), row["schedule"]["exetime"], row["taskid"])
        for row in active
        if row["schedule"]["exetime"] < 4_000_000_000
    ]
    assert [(-key.priority, key.due, key.taskid) for key in answer.keys] == sorted(wanted)
    assert len(wanted) == 2
    assert answer.next_due == 4102444800


def test_work_goes_on_in_an_old_table(taskdb: TaskDB, expected: dict[str, Any]) -> None:
    taskdb.open_project("shop")
    old = expected["tasks"]["shop"][0]["taskid"]
    with taskdb.begin(None) as tx:
        for taskid in (old, "new", "x" * 70):
            task = NewTask(taskid=taskid, project="shop", url="u")
            tx.insert("shop", [NewRow(task=task, due=1.0, priority=0, updatetime=1.0)])
        assert tx.states("shop", [old])[old].run == 0
        tx.end("shop", [end(old, TaskStatus.FAILED, schedule={}, priority=0, track=None)])
    assert [task.taskid for task in taskdb.select("shop", limit=2)] == ["x" * 70, "new"]
    (task,) = taskdb.get("shop", [old])
    assert (task.status, task.run) == (TaskStatus.FAILED, 1)
    assert task.track["fetch"]
    assert [key.taskid for key in taskdb.refill("shop", 1.0, 9).keys] == ["new", "x" * 70]


def test_rows_that_the_predecessor_adds_later_are_filled(
    taskdb: TaskDB, url: Callable[[str], str], form: str, tmp_path: Path
) -> None:
    taskdb.open_project("shop")
    path = url("taskdb").partition(":///")[2]
    table = "taskdb_shop" if form == "sqlite" else "shop"
    row = ("back", "shop", "u", 1, '{"exetime": 7, "priority": "4"}', "", None, "{", None, 1.0)
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            f"INSERT INTO {table} (taskid, project, url, status, schedule, fetch, process, track, lastcrawltime, updatetime)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
    again = connect_taskdb(url("taskdb"))
    again.open_project("shop")
    assert [(key.taskid, key.priority) for key in again.refill("shop", 7.0, 1).keys] == [("back", 4)]
    (task,) = again.get("shop", ["back"])
    # what cannot be read is empty: one broken row must not take the others with it
    assert (task.fetch, task.process, task.track) == ({}, {}, {})
    again.close()


def test_odd_ids_are_found(taskdb: TaskDB, url: Callable[[str], str], form: str) -> None:
    path = url("taskdb").partition(":///")[2]
    table = "taskdb_shop" if form == "sqlite" else "shop"
    ids = ["编号", "y" * 99, 12345]
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.executemany(
            f"INSERT INTO {table} (taskid, project, url, status) VALUES (?, 'shop', 'u', 2)", [(i,) for i in ids]
        )
    taskdb.open_project("shop")
    assert {task.taskid for task in taskdb.get("shop", map(str, ids))} == {str(i) for i in ids}


@pytest.mark.behaviour("D27")
def test_results(url: Callable[[str], str], expected: dict[str, Any], form: str) -> None:
    database = connect_resultdb(url("resultdb"))
    assert database.projects() == set(PROJECTS)
    for project in PROJECTS:
        rows = [(row.taskid, row.url, json.loads(row.result)) for row in database.select(project)]
        assert rows == [(row["taskid"], row["url"], row["result"]) for row in expected["results"][project]]
        assert database.count(project) == len(rows)
    taskid = expected["results"]["shop"][0]["taskid"]
    items = [Item("a", "1"), Item("b", "2")]
    database.store([TaskResult(project="shop", taskid=taskid, url="u", run=1, items=items, replace=True)])
    assert [(row.item, row.run, row.result) for row in database.get("shop", taskid)] == [("a", 1, "1"), ("b", 1, "2")]
    assert database.count("shop") == len(expected["results"]["shop"]) + 1
    database.close()


def test_a_due_index_is_made_once(taskdb: TaskDB, url: Callable[[str], str], form: str) -> None:
    for _ in range(2):
        copy = connect_taskdb(url("taskdb"))
        copy.open_project("shop")
        copy.close()
    with closing(sqlite3.connect(url("taskdb").partition(":///")[2])) as conn:
        names = [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE name LIKE 'lite-due-%'")]
    assert names == ["lite-due-taskdb_shop" if form == "sqlite" else "lite-due-shop"]
