"""Scheduler daemons in threads on memory queues and SQLite, with one worker that does the work of all others; databases and queues can hang."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from played_crawl import done, links

from pyspider_lite import codec
from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb
from pyspider_lite.errors import DatabaseError
from pyspider_lite.message_queue import connect
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.models.batch import PageBatch, StatusBatch, TaskBatch
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.scheduler.daemon import SchedulerDaemon
from pyspider_lite.scheduler.scheduler import Options

_spaces = itertools.count()
#: of the project that `Suite.project` makes
PAGES = 60
#: what `Watched` says is away
AWAY = "mysql+taskdb://u:***@h/taskdb"


class Watched:
    """A taskdb that notes the epoch of each transaction while it holds the write lock; renewing can be frozen, and all be away."""

    def __init__(self, taskdb: Any, epochs: list[int], frozen: threading.Event, away: threading.Event) -> None:
        self._taskdb, self._epochs, self._frozen, self.away = taskdb, epochs, frozen, away

    def copy(self) -> "Watched":
        return Watched(self._taskdb.copy(), self._epochs, self._frozen, self.away)

    @contextmanager
    def begin(self, epoch: int | None) -> Iterator[Any]:
        self._look()
        with self._taskdb.begin(epoch) as tx:
            yield tx
            if epoch is not None:
                self._epochs.append(epoch)

    def renew(self, epoch: int, term: float) -> bool:
        if self._frozen.is_set():
            time.sleep(0.05)
            return True  # it believes that all is well
        self._look()
        renewed: bool = self._taskdb.renew(epoch, term)
        return renewed

    def __getattr__(self, name: str) -> Any:
        if name != "close":
            self._look()
        return getattr(self._taskdb, name)

    def _look(self) -> None:
        if self.away.is_set():
            raise DatabaseError("gone fishing", AWAY)


class Hanging:
    """A queue on a server that is frozen now and then."""

    def __init__(self, queue: MessageQueue, runs: threading.Event) -> None:
        self._queue, self._runs = queue, runs

    def get(self, limit: int, timeout: float) -> Any:
        self._runs.wait(20)
        return self._queue.get(limit, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class Suite:
    """Schedulers in threads, and one worker that does the work of all others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.space = f"daemon{next(_spaces)}"
        self.taskdb = connect_taskdb(f"sqlite+taskdb:///{folder}/task.db")
        self.projectdb = connect_projectdb(f"sqlite+projectdb:///{folder}/project.db")
        self.epochs: list[int] = []
        self.away = threading.Event()
        self.databases: list[Any] = []
        self.daemons: list[tuple[SchedulerDaemon, threading.Thread, threading.Event]] = []
        self.queues: dict[str, MessageQueue] = {}
        self.given: list[Dispatch] = []
        #: while it is cleared, status_queue neither answers nor fails
        self.hanging: threading.Event | None = None
        self.stopping = threading.Event()
        self.worker = threading.Thread(target=self.work, daemon=True)
        self.answers: dict[str, Callable[[Dispatch], Report]] = {}

    def queue(self, name: QueueName, late_ack: bool = False) -> MessageQueue:
        if name == QueueName.STATUS and self.hanging is not None:
            return Hanging(connect(f"memory://{self.space}", name), self.hanging)
        return connect(f"memory://{self.space}", name, late_ack=late_ack)

    def start(self, **options: Any) -> int:
        """Another scheduler; its number."""
        frozen = threading.Event()
        taskdb, projectdb = self.taskdb.copy(), self.projectdb.copy()
        resultdb = connect_resultdb(f"sqlite+resultdb:///{self.folder}/result.db")
        self.databases += [taskdb, projectdb, resultdb]
        scheduler = SchedulerDaemon(
            taskdb=Watched(taskdb, self.epochs, frozen, self.away),
            projectdb=projectdb,
            resultdb=resultdb,
            connect=self.queue,
            options=Options(**options),
        )
        thread = threading.Thread(target=scheduler.run, daemon=True)
        thread.start()
        self.daemons.append((scheduler, thread, frozen))
        return len(self.daemons) - 1

    def stop(self, number: int) -> None:
        scheduler, thread, _ = self.daemons[number]
        scheduler.stop()
        thread.join(20)
        assert not thread.is_alive()

    def close(self) -> None:
        self.stopping.set()
        if self.worker.is_alive():
            self.worker.join(10)
        for number in range(len(self.daemons)):
            self.stop(number)
        for database in (*self.databases, self.taskdb, self.projectdb):
            database.close()

    def work(self) -> None:
        tasks, pages = self.queue(QueueName.TO_FETCHER), self.queue(QueueName.CONTROL)
        status = self.queue(QueueName.STATUS)
        while not self.stopping.is_set():
            given = [task for got in tasks.get(10, 0.02) for task in codec.decode(got.body, TaskBatch).tasks]
            given += [page.task for got in pages.get(10, 0) for page in codec.decode(got.body, PageBatch).pages]
            self.given += given
            if given:
                status.put(codec.encode(StatusBatch(items=[self.answer(task) for task in given])), 5)

    def answer(self, task: Dispatch) -> Report:
        callback = task.process.get("callback", "")
        if callback == "_on_get_info":
            return done(task, info={})
        time.sleep(0.01)
        return self.answers.get(callback, done)(task)

    def project(self) -> None:
        """A project of PAGES pages that has been started."""
        self.projectdb.insert(Project(name="p", status="RUNNING", rate=1e6, burst=1e6, script="s"))
        project = self.projectdb.get("p")
        assert project is not None
        self.answers["on_start"] = links(*[str(number) for number in range(PAGES)])
        task = NewTask("on_start", "p", "data:,on_start", process={"callback": "on_start"})
        start = Control(id="start", project="p", kind=ControlKind.START, generation=project.generation, task=task)
        with self.taskdb.begin(None) as tx:
            tx.add_controls([start])

    def finished(self) -> bool:
        # with on_start and on_finished
        return self.taskdb.status_count("p") == {TaskStatus.SUCCESS: PAGES + 2}

    def leads(self) -> int:
        """The epoch that leads."""
        row = self.taskdb.leader()
        return row.epoch if row and row.until > self.taskdb.time() else 0


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
