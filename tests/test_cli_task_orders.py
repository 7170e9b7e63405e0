"""Bulk orders of the command `task`: pages, what they skip, and a scheduler that is away meanwhile. (With daemons: e2e/test_task_orders.)"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault

import pytest

from pyspider_lite import bounded_server
from pyspider_lite.cli import task_choice, task_orders
from pyspider_lite.database import connect_projectdb, connect_taskdb
from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.models.project import Project
from pyspider_lite.models.task import NewTask, TaskEnd, TaskStatus
from pyspider_lite.rpc import RpcServer

FAILED = 250


@pytest.fixture
def taskdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskDB]:
    """With FAILED failed tasks, in pages of 100."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bounded_server, "LOOK_EACH", 0.02)
    monkeypatch.setattr(task_choice, "PAGE", 100)
    for name in ("TASKDB", "RPC_SECRET"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "data").mkdir()
    with closing(connect_taskdb(f"sqlite+taskdb:///{tmp_path}/data/task.db")) as taskdb:
        taskdb.open_project("p")
        put(taskdb, *(f"t{number}" for number in range(FAILED)))
        yield taskdb


def put(taskdb: TaskDB, *taskids: str, status: int = TaskStatus.FAILED, at: float = 2.0, **schedule: Any) -> None:
    """Tasks that ran once, the last time at ``at``."""
    track = {
        "fetch": {"ok": False, "status_code": 404},
        "process": {"ok": False, "exception": "404", "error": "HTTPError"},
    }
    rows = [
        NewRow(task=NewTask(taskid, "p", f"http://a/{taskid}"), due=1.0, priority=0, updatetime=1.0)
        for taskid in taskids
    ]
    ends = [
        TaskEnd(
            taskid=taskid,
            status=status,
            schedule=schedule,
            due=at + 3600 if status == TaskStatus.ACTIVE else None,
            priority=0,
            run=4,
            updatetime=at,
            lastcrawltime=at,
            track=track,
        )
        for taskid in taskids
    ]
    with taskdb.begin(None) as tx:
        tx.insert("p", rows)
        tx.end("p", ends)


class Leader:
    """The XML-RPC of a scheduler that does what the test wants."""

    def __init__(self, taskdb: TaskDB) -> None:
        self.orders: list[tuple[str, dict[str, int], int]] = []
        #: what is raised in place of the next answers
        self.troubles: list[str] = []
        #: what becomes of the first tasks of an order; the others are done
        self.others: dict[str, int] = {}
        self.port = RpcServer("127.0.0.1", 0, secret="")
        self.port.serve({"order_tasks": self.order_tasks})
        taskdb.lead(f"{socket.gethostname()}:7:abc", 60.0, self.port.url)

    def order_tasks(self, project: str, action: str, tasks: str, priority: int) -> dict[str, int]:
        assert project == "p"
        if len(self.orders) >= 1 and self.troubles:
            raise Fault(1, self.troubles.pop(0))
        self.orders.append((action, json.loads(tasks), priority))
        return {**self.others, "done": len(json.loads(tasks)) - sum(self.others.values())}


@pytest.fixture
def leader(taskdb: TaskDB) -> Iterator[Leader]:
    leader = Leader(taskdb)
    yield leader
    leader.port.stop()


def test_orders_name_each_task_once_with_its_run(taskdb: TaskDB, leader: Leader, command: Callable[..., Any]) -> None:
    put(taskdb, "fine", status=TaskStatus.SUCCESS)
    outcome = command("task", "retry", "p", "--failed")
    assert (outcome.code, outcome.out) == (0, f"{FAILED} run again\n")
    assert [len(tasks) for _, tasks, _ in leader.orders] == [100, 100, 50]
    assert {taskid: run for _, tasks, _ in leader.orders for taskid, run in tasks.items()} == {
        f"t{number}": 4 for number in range(FAILED)
    }


def test_it_is_said_that_a_stopped_project_runs_nothing(
    taskdb: TaskDB, leader: Leader, command: Callable[..., Any]
) -> None:
    with closing(connect_projectdb("sqlite+projectdb:///data/project.db")) as projectdb:
        projectdb.insert(Project(name="p", status="STOP"))
        outcome = command("task", "retry", "p", "t1")
        assert (outcome.out, outcome.code) == ("1 run again\n", 0)
        assert outcome.err == "p is STOP, so nothing of it runs: `project set p --status RUNNING`\n"
        projectdb.update("p", status="DEBUG")
        assert command("task", "retry", "p", "t1").err == ""


def test_what_changed_since_the_command_began_is_left_alone(
    taskdb: TaskDB, leader: Leader, command: Callable[..., Any]
) -> None:
    """What it had run again may be met a second time in another state."""
    put(taskdb, "just now", status=TaskStatus.SUCCESS, at=time.time() + 60)
    put(taskdb, "before", status=TaskStatus.SUCCESS)
    assert command("task", "retry", "p", "--all").out == f"{FAILED + 1} run again\n"
    assert command("task", "retry", "p", "just now").out == "1 run again\n"


def test_a_task_that_waits_for_its_time_is_not_counted_as_run_again(
    taskdb: TaskDB, leader: Leader, command: Callable[..., Any]
) -> None:
    put(taskdb, "now", "later", "waits", status=TaskStatus.BAD)
    leader.others = {"at its exetime": 1, "waits already": 1}
    said = command("task", "retry", "p", "--cancelled").out
    assert said == "1 run again, 1 waiting again for the exetime of their submission, 1 left alone: waits already\n"


def test_cancel_and_set_are_for_what_waits(taskdb: TaskDB, leader: Leader, command: Callable[..., Any]) -> None:
    put(taskdb, "waits", status=TaskStatus.ACTIVE, at=time.time() + 60, retried=1)
    assert command("task", "cancel", "p", "--error", "404").out == "1 cancelled\n"
    assert command("task", "set", "p", "--all", "--priority", "-3").out == "1 given this priority\n"
    assert leader.orders == [("cancel", {"waits": 4}, 0), ("priority", {"waits": 4}, -3)]


def test_a_scheduler_that_is_away_for_a_while_is_waited_for(leader: Leader, command: Callable[..., Any]) -> None:
    leader.troubles = ["this scheduler does not lead now", "the scheduler did not answer within 5 s"]
    assert command("task", "retry", "p", "--failed").out == f"{FAILED} run again\n"
    assert [len(tasks) for _, tasks, _ in leader.orders] == [100, 100, 50]


def test_a_scheduler_that_stays_away_ends_it_and_says_how_far_it_came(
    leader: Leader, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_orders, "PATIENCE", 0.5)
    leader.troubles = ["it is over"] * 10
    outcome = command("task", "retry", "p", "--failed")
    assert (outcome.code, outcome.out) == (3, "")
    assert "100 run again; then: " in outcome.err
    assert "it is over. Run it again for the rest" in outcome.err
