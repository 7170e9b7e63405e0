"""A scheduler alone: reports on its queue, tasks off its queue. Each page has ten follow-ups, of which nine are stored already; with a warm
cache of known keys they cost no query, with ``cold`` there is no cache and each is looked up.

The other roles are played here, with all that they say on status_queue: claims, handovers, beats.
"""

import hashlib
import math
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Raw

from pyspider_lite import bootstrap, codec
from pyspider_lite.bench.roles import PROJECT, Station, put
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.database.base import TaskDB
from pyspider_lite.models.batch import NewTaskBatch, PageBatch, StatusBatch, StatusItem, TaskBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.models.worker import Beat, Claim, Handover

#: follow-ups of a page; all but one are known
_FOLLOWS = 10
#: tasks that are there at the beginning, so that there is always enough to give out
_SEED = 2_000
#: fetchers of 100 places each, processors, result workers
_WORKERS = {Role.FETCHER: 10, Role.PROCESSOR: 10, Role.RESULT_WORKER: 2}
_POOL = 100
#: seconds between two beats
_BEAT = 2.0
DATABASES: dict[str, type[MariaDb] | type[PostgreSql] | None] = {
    "sqlite": None,
    "mariadb": MariaDb,
    "postgresql": PostgreSql,
}


def measure(folder: Path, pages: int, database: str, *, cold: bool) -> dict[str, Any]:
    """``pages`` runs through one scheduler; complete if each task was given out once and is stored as a success."""
    config = {"scheduler": {"no_xmlrpc": True, "known_keys": 0 if cold else 1_000_000}}
    with Station(folder, Role.SCHEDULER, config, DATABASES[database]) as station:
        project = station.enter_project("# nothing that is run here")
        crowd = Crowd(station, [new_task(index, project.generation) for index in range(pages)])
        station.drain(QueueName.CONTROL, crowd.answer_controls)
        station.drain(QueueName.TO_FETCHER, crowd.answer)
        station.start()
        threading.Thread(target=crowd.beat, name="beats", daemon=True).start()
        new = station.queue(QueueName.NEW_TASKS)
        station.wait(lambda: crowd.ready, lambda: 0)
        begin = station.cost()
        put(new, NewTaskBatch(tasks=[Raw(codec.pack(task)) for task in crowd.seed()]))
        station.wait(lambda: crowd.done >= pages, lambda: crowd.done)
        with bootstrap.open_taskdb(station.settings) as taskdb:
            station.wait(
                lambda: taskdb.project_states()[PROJECT].success >= pages,
                lambda: taskdb.project_states()[PROJECT].success,
            )
            figures = station.figures(begin, pages)
            # it comes last, and has a row as they have
            station.wait(lambda: bool(taskdb.get(PROJECT, ["on_finished"])), lambda: 0)
            problems = _problems(taskdb, crowd.done, pages)
    return {**figures, "problems": problems}


def _problems(taskdb: TaskDB, given_out: int, pages: int) -> str:
    stored = taskdb.status_count(PROJECT)
    # the row of on_finished, which is not a page
    stored[TaskStatus.SUCCESS] -= len(taskdb.get(PROJECT, ["on_finished"]))
    if stored != {TaskStatus.SUCCESS: pages} or given_out != pages:
        return f"{pages} tasks, {given_out} given out, stored by status: {stored}"
    return ""


class Crowd:
    """Workers that answer everything at once. ``tasks`` are those that their pages lead to, if to any."""

    def __init__(self, station: Station, tasks: list[NewTask]) -> None:
        self._station = station
        self._status = station.queue(QueueName.STATUS)
        self._beats = station.queue(QueueName.STATUS)
        self._control_status = station.queue(QueueName.STATUS)
        self._chance = random.Random(1)
        self._tasks = tasks
        #: tasks that the scheduler was told of, from the first on
        self._known = 0
        self._batches = 0
        #: reports so far, and after how many there are no more: what is given out then stays in flight
        self.done = 0
        self.limit = math.inf
        #: time.monotonic() of the first task that was given out since `come`
        self.first: float | None = None
        #: they are not there
        self.away = False
        #: the project's script was asked for what it says of itself
        self.ready = False

    def seed(self) -> list[NewTask]:
        """The first tasks."""
        self._known = min(_SEED, len(self._tasks))
        return self._tasks[: self._known]

    def come(self, number: int) -> None:
        """Be there, until so many tasks more are answered."""
        self.limit, self.first, self.away = self.done + number, None, False

    def beat(self) -> None:
        """All workers live."""
        while True:
            beats: list[StatusItem] = [
                Beat(
                    worker=_worker(role, index),
                    role=role,
                    host="bench",
                    pid=1,
                    pool_size=_pool(role),
                    progress=self.done,
                )
                for role, number in _WORKERS.items()
                for index in range(number)
            ]
            if not self.away:
                put(self._beats, StatusBatch(items=beats))
            if self._station.stopping.wait(_BEAT):
                return

    def answer_controls(self, body: bytes) -> None:
        """What the project's script says of itself: nothing."""
        batch = codec.decode(body, PageBatch)
        tasks = [page.task for page in batch.pages]
        info: dict[str, Any] = {"crawl_config": {}, "retry_delay": {}, "cron": []}
        claim = Claim(
            worker=_worker(Role.PROCESSOR, 0),
            queue=QueueName.CONTROL,
            batch=batch.batch,
            runs=[task.key for task in tasks],
        )
        reports = [report(task, follows=[], info=info) for task in tasks]
        put(self._control_status, StatusBatch(items=[claim, *reports]))
        self.ready = True

    def answer(self, body: bytes) -> None:
        """A batch of tasks: through a fetcher, a processor and a result worker."""
        self.first = self.first or time.monotonic()
        batch = codec.decode(body, TaskBatch)
        if self.done >= self.limit:
            return
        self._batches += 1
        put(self._status, StatusBatch(items=list(self._way(batch))))
        self.done += len(batch.tasks)

    def _way(self, batch: TaskBatch) -> Iterator[StatusItem]:
        runs = [task.key for task in batch.tasks]
        names = [_worker(role, self._batches % number) for role, number in _WORKERS.items()]
        queues = (QueueName.TO_FETCHER, QueueName.TO_PROCESSOR, QueueName.RESULTS)
        ids = (batch.batch, f"{batch.batch}.p", f"{batch.batch}.r")
        for index, (name, queue) in enumerate(zip(names, queues, strict=True)):
            yield Claim(worker=name, queue=queue, batch=ids[index], runs=runs)
            if index < 2:
                yield Handover(worker=name, queue=queues[index + 1], batch=ids[index + 1], runs=runs)
        for task in batch.tasks:
            yield report(task, follows=self._follows())

    def _follows(self) -> list[NewTask]:
        follows: list[NewTask] = []
        if not self._tasks:
            return follows
        if self._known < len(self._tasks):
            follows.append(self._tasks[self._known])
            self._known += 1
        while len(follows) < _FOLLOWS:
            follows.append(self._tasks[self._chance.randrange(self._known)])
        return follows


def _worker(role: Role, index: int) -> str:
    return f"{role}-{index}"


def _pool(role: Role) -> int:
    return _POOL if role == Role.FETCHER else 1


def new_task(index: int, generation: str, project: str = PROJECT) -> NewTask:
    """The page of this number, as a callback enters it."""
    url = f"http://127.0.0.1:8000/{index}.html"
    taskid = hashlib.md5(url.encode()).hexdigest()
    return NewTask(taskid, project, url, process={"callback": "page"}, generation=generation)


def report(task: Dispatch, follows: list[NewTask], info: dict[str, Any] | None = None) -> Report:
    """As a processor makes it."""
    fetch = {"ok": True, "redirect_url": None, "time": 0.01, "error": None, "status_code": 200, "encoding": "utf-8"}
    process = {
        "ok": True,
        "time": 0.001,
        "follows": len(follows),
        "result": task.url[:100],
        "logs": "",
        "exception": None,
    }
    return Report.of(
        task,
        track={"fetch": {**fetch, "headers": {}, "content": None}, "process": process, "save": None},
        follows=follows,
        info=info,
    )
