"""The parts of pyspider's own benchmark: the taskdb alone (`bench --taskdb-bench`) and a queue alone (`--message-queue-bench`), in batches as
the daemons use them."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from pyspider_lite import assembly, bootstrap, codec, configuration, message_queue, settings
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.message_queue.builtin_server import QueueServer
from pyspider_lite.models.batch import TaskBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.task import NewTask, Task, TaskEnd, TaskStatus

T = TypeVar("T")

#: rows of a transaction, tasks of a message
_ROWS, _TASKS = 500, 100
#: messages that are taken at once at most, and seconds that one is waited for
_MESSAGES, _PATIENCE = 10, 10.0
_PROJECT = "bench"


def subjects(folder: Path, total: int, *, taskdb: bool, queue: bool) -> list[Subject]:
    """Those that are asked for, with ``total`` tasks each."""
    found = []
    if taskdb:
        found.append(Subject("taskdb", lambda number: _measure_taskdb(folder / f"taskdb-{number}", total)))
    if queue:
        found.append(Subject("message queue", lambda number: _measure_queue(folder / f"queue-{number}", total)))
    return found


def _measure_taskdb(folder: Path, total: int) -> Figures:
    """Rows a second: stored, ended, read whole."""
    options = configuration.load(None, {"data_path": str(folder)}, {}).settings
    bootstrap.make_data_path(options)
    tasks = [_task(index) for index in range(total)]
    with closing(assembly.connect_taskdb(options)) as taskdb:
        taskdb.open_project(_PROJECT)
        epoch = taskdb.lead("bench", 3600.0, "")
        insert = _per_second(total, lambda: _write(taskdb, epoch, "insert", [_new(task) for task in tasks]))
        end = _per_second(total, lambda: _write(taskdb, epoch, "end", [_end(task) for task in tasks]))
        read: list[Task] = []

        def get() -> None:
            for part in _cut(tasks, _ROWS):
                read.extend(taskdb.get(_PROJECT, [task.taskid for task in part]))

        got = _per_second(total, get)
        counts = taskdb.status_count(_PROJECT)
    wrong = counts != {TaskStatus.SUCCESS: total} or len(read) != total
    return {
        "insert_per_s": insert,
        "end_per_s": end,
        "get_per_s": got,
        "problems": f"{len(read)} read, stored by status: {counts}" if wrong else "",
    }


def _measure_queue(folder: Path, total: int) -> Figures:
    """Tasks a second through a built-in queue, served by a thread of this process: put, then taken."""
    folder.mkdir(parents=True)
    tasks = [Dispatch(taskid=task.taskid, project=_PROJECT, url=task.url) for task in map(_task, range(total))]
    server = QueueServer(settings.queue_socket(str(folder)))
    server.start()
    try:
        with closing(message_queue.connect(f"builtin://{server.path}", QueueName.TO_FETCHER, maxsize=0)) as queue:
            batches = [TaskBatch(batch=str(at), epoch=1, tasks=part) for at, part in enumerate(_cut(tasks, _TASKS))]
            taken: list[Dispatch] = []

            def put() -> None:
                for batch in batches:
                    queue.put(codec.encode(batch), _PATIENCE)

            def get() -> None:
                while len(taken) < total and (messages := queue.get(_MESSAGES, _PATIENCE)):
                    for message in messages:
                        taken.extend(codec.decode(message.body, TaskBatch).tasks)

            figures = {"put_per_s": _per_second(total, put), "get_per_s": _per_second(total, get)}
    finally:
        server.stop()
    return {**figures, "problems": "" if taken == tasks else "other tasks came out"}


def _per_second(total: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return round(total / (time.perf_counter() - began))


def _write(taskdb: TaskDB, epoch: int | None, method: str, rows: Sequence[Any]) -> None:
    for part in _cut(rows, _ROWS):
        with taskdb.begin(epoch) as transaction:
            getattr(transaction, method)(_PROJECT, part)


def _cut(rows: Sequence[T], size: int) -> Iterator[list[T]]:
    for part in range(math.ceil(len(rows) / size)):
        yield list(rows[part * size : (part + 1) * size])


def _task(index: int) -> NewTask:
    url = f"http://127.0.0.1:8000/{index}.html"
    return NewTask(hashlib.md5(url.encode()).hexdigest(), _PROJECT, url, process={"callback": "page"})


def _new(task: NewTask) -> NewRow:
    return NewRow(task=task, due=0.0, priority=0, updatetime=1.0)


def _end(task: NewTask) -> TaskEnd:
    fetch = {"ok": True, "redirect_url": None, "time": 0.01, "error": None, "status_code": 200, "encoding": "utf-8"}
    process = {"ok": True, "time": 0.001, "follows": 10, "result": None, "logs": "", "exception": None}
    return TaskEnd(
        taskid=task.taskid,
        status=TaskStatus.SUCCESS,
        schedule={},
        due=None,
        priority=0,
        run=1,
        updatetime=2.0,
        lastcrawltime=2.0,
        track={"fetch": fetch, "process": process},
    )
