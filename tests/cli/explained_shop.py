"""A project in real databases that `explain` is asked about, and how its pages ended."""

import socket
import time
from hashlib import md5
from pathlib import Path
from typing import Any

from pyspider_lite.database import connect_projectdb, connect_taskdb
from pyspider_lite.database.base import NewRow
from pyspider_lite.models.project import Project
from pyspider_lite.models.task import NewTask, TaskEnd, TaskRestart, TaskStatus

URL = "http://shop.test/a"
ID = md5(URL.encode()).hexdigest()
OK = {"fetch": {"ok": True, "status_code": 200}, "process": {"ok": True, "follows": 3}}
NOT_FOUND = {
    "fetch": {"ok": False, "status_code": 404},
    "process": {"ok": False, "exception": "Traceback ...\nHTTPError: HTTP 404: Not Found\n"},
}
NOT_MODIFIED = {"fetch": {"ok": True, "status_code": 304}, "process": {"ok": True, "follows": 0}}
NOT_ASKED = (
    "Dropped submissions are known to the scheduler only, and it cannot be asked: "
    "no scheduler leads now: start one, or set scheduler-rpc.\n"
)


class Shop:
    """A project with tasks, written as the scheduler writes them."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir()
        self.taskdb = connect_taskdb(f"sqlite+taskdb:///{folder}/data/task.db")
        self.projectdb = connect_projectdb(f"sqlite+projectdb:///{folder}/data/project.db")
        self.projectdb.insert(Project(name="shop", script="", status="RUNNING", rate=2.0))
        self.taskdb.open_project("shop")
        self.now = time.time()

    def close(self) -> None:
        self.taskdb.close()
        self.projectdb.close()

    def change(self, **fields: object) -> None:
        assert self.projectdb.update("shop", **fields)

    def lead(self, rpc: str = "") -> None:
        self.taskdb.lead(f"{socket.gethostname()}:7:abc", 60.0, rpc)

    def submitted(self, url: str = URL, taskid: str = ID, due: float = 0.0, **schedule: Any) -> NewTask:
        task = NewTask(taskid, "shop", url, schedule=schedule)
        row = NewRow(task=task, due=due or self.now, priority=0, updatetime=self.now)
        with self.taskdb.begin(None) as tx:
            tx.insert("shop", [row])
        return task

    def ended(
        self,
        status: TaskStatus,
        track: dict[str, Any] | None,
        *,
        ago: float = 60.0,
        due: float | None = None,
        **schedule: Any,
    ) -> None:
        end = TaskEnd(
            taskid=ID,
            status=status,
            schedule=schedule,
            due=due,
            priority=0,
            run=1,
            updatetime=self.now - ago,
            lastcrawltime=self.now - ago if track else None,
            track=track,
        )
        with self.taskdb.begin(None) as tx:
            tx.end("shop", [end])

    def restarted(self, *, forced: bool, **schedule: Any) -> None:
        task = NewTask(ID, "shop", URL, schedule=schedule)
        row = TaskRestart(task=task, due=self.now, priority=0, run=2, updatetime=self.now, unconditional=forced)
        with self.taskdb.begin(None) as tx:
            tx.restart("shop", [row])
