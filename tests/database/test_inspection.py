"""What `doctor` sees of a database, on every product: counts beside rows, rows that nobody will run, and that looking changes nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from pyspider_lite.database import connect_resultdb, connect_taskdb, parse
from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.database.inspection import Inspection
from pyspider_lite.database.schema import CONTROL, task_table
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.letter import DeadLetter
from pyspider_lite.models.project import ProjectState
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import NewTask, TaskEnd, TaskStatus

P = "shop"


def new(taskid: str, due: float = 1.0, priority: int = 0, **schedule: Any) -> NewRow:
    task = NewTask(taskid=taskid, project=P, url=f"http://x/{taskid}", schedule=schedule)
    return NewRow(task=task, due=due, priority=priority, updatetime=5.0)


def done(taskid: str) -> TaskEnd:
    return TaskEnd(
        taskid=taskid,
        status=TaskStatus.SUCCESS,
        schedule={},
        due=None,
        priority=0,
        run=1,
        updatetime=1.0,
        lastcrawltime=1.0,
        track={},
    )


@pytest.fixture
def filled(shared_urls: Callable[[str], str]) -> Iterator[Any]:
    """A taskdb with eight ACTIVE tasks, two that are done, and counts that fit."""
    taskdb: Any = connect_taskdb(shared_urls("taskdb"))
    taskdb.open_project(P)
    with taskdb.begin(None) as tx:
        tx.insert(P, [new(f"t{number}", due=number, priority=number % 3) for number in range(9)])
        tx.insert(P, [new("again", due=99.0, auto_recrawl=True, age=60)])
        tx.end(P, [done("t0"), done("t1")])
        tx.put_project_states([ProjectState(project=P, generation="g", active=8, success=2, periodic=1)])
    yield taskdb
    taskdb.close()


@pytest.fixture
def seen(filled: TaskDB, shared_urls: Callable[[str], str]) -> Iterator[Inspection]:
    inspection = Inspection(parse(shared_urls("taskdb"), "taskdb"))
    yield inspection
    inspection.close()


def change(taskdb: Any, taskid: str, **columns: Any) -> None:
    """By hand, past everything of ours."""
    table = task_table(taskdb._tables.name(P), taskdb._dialect)
    with taskdb._database.write() as conn:
        conn.execute(sa.update(table).where(table.c.taskid == taskid).values(columns))


def test_counts_beside_rows(filled: TaskDB, seen: Inspection) -> None:
    compared = seen.compare(P, 100)
    assert compared.kept == compared.found == {"active": 8, "success": 2, "failed": 0, "bad": 0}
    assert compared.strange == 0
    change(filled, "t2", status=int(TaskStatus.FAILED))
    change(filled, "t3", status=9)
    change(filled, "t4", status=None)
    compared = seen.compare(P, 100)
    assert compared.found == {"active": 5, "success": 2, "failed": 1, "bad": 0}
    assert compared.strange == 2
    assert sorted(seen.strange(P, 10)) == ["t3", "t4"]
    # no more is counted than was asked for
    assert seen.compare(P, 3).found["active"] == 4
    assert seen.rows(P, 100) == 10
    assert seen.rows(P, 4) == 4


def test_no_counts_are_kept(filled: TaskDB, seen: Inspection) -> None:
    with filled.begin(None) as tx:
        tx.put_project_states([ProjectState(project="other")])
    filled.open_project("new")
    assert seen.compare("new", 10).kept is None
    assert seen.recrawled("new", 10) is None
    assert set(seen.states()) == {P, "other"}


def test_tasks_that_are_crawled_again(filled: TaskDB, seen: Inspection) -> None:
    assert seen.recrawled(P, 10) == (1, [{"auto_recrawl": True, "age": 60}])
    change(filled, "again", status=int(TaskStatus.BAD))
    assert seen.recrawled(P, 10) == (1, [])


def test_due_tasks_and_those_that_never_are(filled: TaskDB, seen: Inspection) -> None:
    assert seen.without_due(P) == []
    assert seen.due(P, 6.0, 10) == [("t2", 2.0), ("t5", 5.0), ("t4", 4.0), ("t3", 3.0), ("t6", 6.0)]
    assert seen.due(P, 6.0, 3) == [("t2", 2.0), ("t5", 5.0), ("t4", 4.0)]
    change(filled, "t5", due=None)
    change(filled, "t1", due=None)  # it is done: it needs none
    assert seen.without_due(P) == ["t5"]
    # that it was seen has not changed it
    assert seen.without_due(P) == ["t5"]


def test_rows_that_cannot_be_read(filled: TaskDB, seen: Inspection) -> None:
    assert seen.broken(P, 100) == []
    change(filled, "t3", schedule='{"age": ', pending='{"taskid": 3}')
    change(filled, "t8", process="NaN and more")
    change(filled, "t7", fetch='{"x": NaN}', schedule=None)  # as pyspider writes
    assert sorted(seen.broken(P, 100)) == [("t3", "pending"), ("t3", "schedule"), ("t8", "process")]
    assert sorted(seen.broken(P, 3)) == [("t3", "pending"), ("t3", "schedule"), ("t8", "process")]
    assert seen.broken(P, 1) == []


def test_control_work_and_dead_letters(filled: Any, seen: Inspection) -> None:
    rows = [
        Control(id=name, project=P, kind=ControlKind.INFO, generation="g", task=new(name).task, created=7.0)
        for name in ("long-" + "x" * 80, "b")
    ]
    letters = [DeadLetter(kind="message", reason="r", payload=b"\0", time=1.0)] * 3
    with filled.begin(None) as tx:
        tx.add_controls(rows)
        tx.add_dead_letters(letters)
    assert [(row.id, row.readable, row.created) for row in seen.controls(10)] == [
        (rows[0].id, True, 7.0),
        ("b", True, 7.0),
    ]
    with filled._database.write() as conn:
        conn.execute(sa.update(CONTROL).where(CONTROL.c.id == "b").values(task="[1"))
    (_, last) = seen.controls(10)
    assert (last.id, last.project, last.kind, last.readable, last.raw) == ("b", P, "info", False, "[1")
    assert len(seen.controls(1)) == 1
    assert (seen.held_controls(10), seen.held_controls(1)) == ({P: 2}, {P: 1})
    kinds = (ControlKind.MESSAGE, ControlKind.MESSAGE, ControlKind.START, ControlKind.DELETE)
    others = [
        Control(id=f"o{number}", project="other", kind=kind, generation="g", task=new("o").task, created=8.0)
        for number, kind in enumerate(kinds)
    ]
    with filled.begin(None) as tx:
        tx.delete_controls([row.id for row in rows])
        tx.add_controls(others)
    assert [row.id for row in seen.controls(2)] == ["o0", "o1", "o2", "o3"], "what is no message is not hidden by them"
    assert [row.id for row in seen.controls(1)] == ["o0", "o2"]
    assert seen.held_controls(10) == {"other": 3}
    assert seen.dead_letters(10) == 3
    assert seen.dead_letters(2) == 2


def test_tables_of_others_are_none_of_ours(filled: Any, seen: Inspection, shared_urls: Callable[[str], str]) -> None:
    with filled._database.write() as conn:
        conn.exec_driver_sql("CREATE TABLE customers (id INTEGER PRIMARY KEY, url VARCHAR(10))")
    assert {name for name in seen.projects() if seen.is_ours(name)} == {P}
    results = connect_resultdb(shared_urls("resultdb"))
    results.store([TaskResult(project=P, taskid="a", url="u", run=0, items=[Item("", "1"), Item("2", "2")])])
    beside = Inspection(parse(shared_urls("resultdb"), "resultdb"))
    assert beside.projects() == {P}
    assert beside.is_ours(P)
    assert beside.rows(P, 10) == 2
    beside.close()
    results.close()


def test_scripts_that_could_not_be_asked(filled: Any, seen: Inspection) -> None:
    failed = '{"of":"info:q","failed":"ImportError: x"}'
    with filled.begin(None) as tx:
        tx.put_project_states([ProjectState(project="q", info=failed), ProjectState(project="r", info='{"answer":{}}')])
    assert seen.failed_answers() == {"q": failed}
