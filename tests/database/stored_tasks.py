"""What the tests of taskdbs store."""

from typing import Any

from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.models.task import NewTask, Task, TaskEnd, TaskStatus

P = "shop"


def submission(taskid: str, **fields: Any) -> NewTask:
    return NewTask(taskid=taskid, project=P, url=f"http://x/{taskid}", **fields)


def new(taskid: str, due: float = 1.0, priority: int = 0, **fields: Any) -> NewRow:
    return NewRow(task=submission(taskid, **fields), due=due, priority=priority, updatetime=5.0)


def end(taskid: str, status: TaskStatus = TaskStatus.SUCCESS, **fields: Any) -> TaskEnd:
    given: dict[str, Any] = {
        "schedule": {"retried": 1},
        "due": None,
        "priority": 3,
        "run": 1,
        "updatetime": 9.5,
        "lastcrawltime": 9.0,
        "track": {"save": "x"},
    }
    return TaskEnd(taskid=taskid, status=status, **{**given, **fields})


def insert(taskdb: TaskDB, *rows: NewRow) -> None:
    taskdb.open_project(P)
    with taskdb.begin(None) as tx:
        tx.insert(P, rows)


def one(taskdb: TaskDB, taskid: str) -> Task:
    (found,) = taskdb.get(P, [taskid])
    return found
