"""The daemon as it runs: real threads, memory queues, SQLite; who leads, and who takes over."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from daemon_suite import AWAY, PAGES, Suite, wait_for
from played_crawl import links, new, raw

from pyspider_lite import codec, outages
from pyspider_lite.database.schema import LEADER
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.batch import NewTaskBatch, StatusBatch, TaskBatch
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.project import Project
from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.models.worker import Beat
from pyspider_lite.scheduler import daemon, database_clock, leader


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


def test_a_copy_of_the_taskdb_that_is_put_back_while_it_leads_is_read_anew(suite: Suite) -> None:
    """Its leader row has the same epoch; what the leader knew of its tasks is wrong."""
    suite.start()
    suite.worker.start()
    wait_for(suite.leads)
    suite.project()
    wait_for(lambda: suite.taskdb.status_count("p").get(TaskStatus.SUCCESS, 0) > PAGES / 3)
    everything = sa.MetaData()
    with suite.taskdb._database.read() as conn:
        everything.reflect(conn)
        copy = {table: [row._asdict() for row in conn.execute(sa.select(table))] for table in everything.sorted_tables}
    copied = suite.taskdb.leader()
    assert copied is not None
    wait_for(suite.finished)
    wait_for(lambda: suite.taskdb.leader() != copied)
    given = len(suite.given)
    with suite.taskdb._database.write() as conn:
        for table, rows in copy.items():
            conn.execute(sa.delete(table))
            if rows:
                conn.execute(sa.insert(table), rows)
    assert not suite.finished()
    wait_for(suite.finished)
    assert suite.leads() > copied.epoch and len(suite.given) > given


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
    monkeypatch.setattr(database_clock, "_EVERY", 0.2)
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
