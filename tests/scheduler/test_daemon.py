"""The daemon as it runs: real threads, memory queues, SQLite; who leads, and who takes over."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from played_crawl import done, links, new, raw

from pyspider_lite import codec, outages
from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb
from pyspider_lite.database.schema import LEADER
from pyspider_lite.errors import DatabaseError
from pyspider_lite.message_queue import connect
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.models.batch import NewTaskBatch, PageBatch, StatusBatch, TaskBatch
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.models.worker import Beat
from pyspider_lite.scheduler import daemon, leader
from pyspider_lite.scheduler.daemon import SchedulerDaemon
from pyspider_lite.scheduler.scheduler import Options

_spaces = itertools.count()
PAGES = 60
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


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Suite]:
    monkeypatch.setattr(leader, "TERM", 1.5)
    monkeypatch.setattr(leader, "RENEW", 0.3)
    monkeypatch.setattr(leader, "_TRY", 0.1)
    monkeypatch.setattr(daemon, "ADOPT_FOR", 0.3)
    suite = Suite(tmp_path)
    yield suite
    suite.close()
    assert suite.epochs == sorted(suite.epochs), "an earlier leader wrote after a later one"


def test_a_crawl(suite: Suite) -> None:
    suite.worker.start()
    suite.start()
    suite.project()
    wait_for(suite.finished)
    assert sorted(int(task.taskid) for task in suite.given if not task.control) == list(range(PAGES))
    state = suite.taskdb.project_states()["p"]
    assert (state.success, state.active, state.crawl) == (PAGES + 2, 0, 1)


def test_feeders_and_what_cannot_be_read(suite: Suite) -> None:
    suite.worker.start()
    suite.start()
    suite.projectdb.insert(Project(name="p", status="RUNNING", rate=1e6, burst=1e6, script="s"))
    feed = suite.queue(QueueName.NEW_TASKS, True)
    wait_for(lambda: suite.given)
    feed.put(b"pickle?", 1)
    feed.put(codec.encode(NewTaskBatch(tasks=[raw(new("a")), raw(new("b"))])), 1)
    broken = Broken(queue=QueueName.TO_FETCHER, reason="not ours", body=b"x")
    suite.queue(QueueName.STATUS).put(codec.encode(StatusBatch(items=[broken])), 1)
    wait_for(lambda: len(suite.taskdb.get("p", ["a", "b"])) == 2)
    wait_for(lambda: len(suite.taskdb.dead_letters()) == 2)
    assert {letter.queue for letter in suite.taskdb.dead_letters()} == {QueueName.NEW_TASKS, QueueName.TO_FETCHER}
    assert feed.qsize() == 0


def test_a_stand_by_takes_over_from_one_that_stops(suite: Suite) -> None:
    suite.start()
    wait_for(suite.leads)
    suite.start()
    suite.project()
    wait_for(lambda: suite.queue(QueueName.CONTROL).qsize() > 0)
    began = time.monotonic()
    first = suite.leads()
    suite.stop(0)
    wait_for(lambda: suite.leads() > first)
    assert time.monotonic() - began < 5
    suite.worker.start()
    wait_for(suite.finished)


def test_a_stand_by_takes_over_from_one_that_is_frozen(suite: Suite) -> None:
    """It believes that it leads still, and writes nothing any more."""
    suite.start()
    wait_for(suite.leads)
    suite.start()
    suite.worker.start()
    suite.project()
    wait_for(lambda: len(suite.epochs) > 2)
    first = suite.leads()
    suite.daemons[0][2].set()
    wait_for(lambda: suite.leads() > first)
    second = suite.leads()
    wait_for(suite.finished)
    suite.projectdb.update("p", script="another")
    wait_for(lambda: second in suite.epochs[-1:])
    assert suite.daemons[0][1].is_alive(), "it stands by"


def test_a_leader_row_that_is_deleted_gives_the_lead_to_one(suite: Suite) -> None:
    suite.start()
    suite.start()
    suite.worker.start()
    for _ in range(4):
        wait_for(suite.leads)
        time.sleep(0.3)
        with suite.taskdb._database.write() as conn:
            conn.execute(sa.delete(LEADER))
        with suppress(DatabaseError):  # and is made anew
            suite.leads()
    suite.project()
    wait_for(suite.finished)
    last = suite.leads()
    assert set(suite.epochs[-5:]) == {last}
    wait_for(lambda: [daemon.describe()["leading"] for daemon, _, _ in suite.daemons].count(True) == 1)


@pytest.mark.behaviour("S10")
def test_a_daemon_survives_its_own_errors(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.start()
    wait_for(suite.leads)
    (scheduler, _, _) = suite.daemons[0]

    def wrong(target: Any) -> None:
        raise ValueError("a mistake in a command")

    wait_for(lambda: scheduler.inbox)
    assert scheduler.inbox is not None
    for _ in range(10):  # pyspider ended after four in a row
        scheduler.inbox.command(wrong)
        time.sleep(0.01)
    suite.worker.start()
    suite.project()
    wait_for(suite.finished)


def test_a_broker_that_hangs_is_nobodys_death(suite: Suite) -> None:
    """No connection breaks, but nobody can be heard: the time does not count."""
    suite.hanging = threading.Event()
    suite.hanging.set()
    suite.start()
    wait_for(lambda: suite.daemons[0][0].inbox)
    inbox = suite.daemons[0][0].inbox
    assert inbox is not None

    def clock() -> float:
        answer: Future[float] = Future()
        inbox.command(lambda scheduler: answer.set_result(scheduler.leases.clock))
        return answer.result(10)

    wait_for(lambda: clock() > 0.2)
    before = clock()
    suite.hanging.clear()
    time.sleep(3.0)
    assert clock() - before < 2.2
    suite.hanging.set()
    wait_for(lambda: clock() - before > 2.2)


def test_a_database_that_is_away_takes_no_lead(suite: Suite) -> None:
    suite.worker.start()
    suite.start()
    suite.project()
    wait_for(lambda: len(suite.epochs) > 2)
    suite.away.set()
    wait_for(lambda: AWAY in outages.waiting())
    scheduler = suite.daemons[0][0]
    leadership = scheduler._leadership
    assert leadership is not None
    wait_for(lambda: leadership.overdue)  # another would lead by now, if there were one
    # what workers say now is left to whoever leads
    time.sleep(0.3)
    status = suite.queue(QueueName.STATUS)
    status.put(codec.encode(StatusBatch(items=[])), 1)
    time.sleep(0.5)
    assert status.qsize() > 0
    assert scheduler.describe() == {"leading": True}
    # and what was ready to go out waits
    outlets: list[Any] = []
    assert scheduler.inbox is not None
    scheduler.inbox.command(lambda target: outlets.append(target._dispatcher._tasks_out))
    wait_for(lambda: outlets)
    outlets[0].put("late", codec.encode(TaskBatch(batch="late", epoch=1, tasks=[])))
    time.sleep(0.5)
    assert outlets[0].publisher.pending == 1
    suite.away.clear()
    wait_for(lambda: outlets[0].publisher.pending == 0)
    wait_for(suite.finished)
    # its next renewal may come later than all that
    wait_for(suite.leads)
    wait_for(lambda: AWAY not in outages.waiting())
    assert set(suite.epochs) == {suite.leads()}


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_that_jumps_stops_nothing(suite: Suite, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Ours is not asked; the database's is, now and then."""
    monkeypatch.setattr(daemon, "_CLOCK_EVERY", 0.2)
    real, jumped = type(suite.taskdb).time, 0.0
    monkeypatch.setattr(type(suite.taskdb), "time", lambda self: real(self) + jumped)
    suite.worker.start()
    suite.start()
    suite.project()
    wait_for(lambda: len(suite.epochs) > 2)
    jumped = seconds
    wait_for(suite.finished)
    # work that comes later is seen as soon as before
    suite.answers["on_start"] = links("later")
    with suite.taskdb.begin(None) as tx:
        project = suite.projectdb.get("p")
        assert project is not None
        task = NewTask("on_start", "p", "data:,on_start", process={"callback": "on_start"})
        tx.add_controls(
            [Control(id="again", project="p", kind=ControlKind.START, generation=project.generation, task=task)]
        )
    wait_for(lambda: any(task.taskid == "later" for task in suite.given), 10)


def test_workers_of_another_configuration_are_warned_of(suite: Suite, caplog: pytest.LogCaptureFixture) -> None:
    suite.start(config_hash="ours")
    wait_for(suite.leads)
    for worker, config_hash in (("a:1:x", "ours"), ("b:1:x", "theirs")):
        beat = Beat(worker=worker, role="processor", host="h", pid=1, config_hash=config_hash)
        suite.queue(QueueName.STATUS).put(codec.encode(StatusBatch(items=[beat])), 1)
    wait_for(lambda: "processor b:1:x has the databases" in caplog.text)
    assert "processor a:1:x has" not in caplog.text


def test_a_database_that_is_away_at_start_is_waited_for(suite: Suite) -> None:
    suite.away.set()
    suite.worker.start()
    suite.start()
    wait_for(lambda: AWAY in outages.waiting())
    suite.away.clear()
    suite.project()
    wait_for(suite.finished)


def test_a_stand_by_says_who_leads(suite: Suite) -> None:
    suite.start()
    wait_for(suite.leads)
    second = suite.daemons[suite.start()][0]
    wait_for(lambda: "leader" in second.describe())
    row = suite.taskdb.leader()
    assert row is not None
    assert second.describe() == {"leading": False, "leader": row.holder, "leader_rpc": ""}
    assert [reading.name for reading in second.readings()] == ["leading"]
    wait_for(lambda: suite.daemons[0][0].inbox)
    names = {reading.name: reading.values for reading in suite.daemons[0][0].readings()}
    assert names["leading"] == {"": 1.0}
    assert names["in_flight"] == {"task": 0, "control": 0}
