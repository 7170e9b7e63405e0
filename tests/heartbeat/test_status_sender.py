"""How it gets onto status_queue: when, in which order, within which bounds, through outages; and what cannot be sent."""

import itertools
import os
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from status_listener import Scheduler, incompressible, report, run, until

from pyspider_lite import codec, message_queue
from pyspider_lite.errors import MessageTooLarge
from pyspider_lite.heartbeat import sender
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.message_queue.builtin_server import QueueServer
from pyspider_lite.models.batch import StatusBatch
from pyspider_lite.models.report import Item, Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Beat


def test_the_first_word_after_a_pause_goes_at_once(scheduler: Scheduler) -> None:
    worker = Heartbeat(WorkerInfo.make("fetcher", 1), scheduler.connect, interval=60)
    worker.start()
    until(lambda: scheduler.beats())
    for n in range(3):
        time.sleep(0.02)
        worker.report(report(n))
        assert scheduler.queue.get(1, 5)
    worker.stop(5)


def test_words_that_follow_soon_gather(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_GATHER", 0.3)
    worker = Heartbeat(WorkerInfo.make("fetcher", 1), scheduler.connect, interval=60)
    worker.start()
    until(lambda: scheduler.beats())
    for n in range(3):
        worker.report(report(n))
        time.sleep(0.02)
    until(lambda: len(scheduler.said()) == 3)
    assert scheduler.batches[-1] == 3
    start = time.monotonic()
    for n in range(sender._BATCH_ITEMS):  # a full message does not wait
        worker.report(report(n))
    until(lambda: len(scheduler.said()) == 103)
    assert time.monotonic() - start < 0.29
    worker.stop(5)


def test_who_leaves_is_heard_though_the_queue_is_full(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As when all is stopped, the scheduler first. What it could not report is given out again at once."""
    server = QueueServer(str(tmp_path / "queues"))
    server.start()

    def connect(maxsize: int = 2) -> MessageQueue:
        return message_queue.connect(f"builtin://{tmp_path}/queues", "status_queue", maxsize=maxsize)

    worker = Heartbeat(WorkerInfo.make("fetcher", 1), connect, interval=0.02, last_words=lambda: connect(0))
    worker.start()
    with closing(connect()) as queue:
        until(lambda: queue.qsize() == 2)
        worker.take("q", "b", [run(1)])
        begun = time.monotonic()
        worker.stop(1)
        assert time.monotonic() - begun < 2
        bodies = [received.body for received in queue.get(9, 0)]
    last = codec.decode(bodies[-1], StatusBatch).items[-1]
    assert len(bodies) == 3 and isinstance(last, Beat) and last.leaving and last.holds == {}
    assert "stopped with 1 status items not sent" in caplog.text
    server.stop()


def test_the_last_beat_says_goodbye_after_all_else(scheduler: Scheduler) -> None:
    worker = Heartbeat(WorkerInfo.make("fetcher", 1), scheduler.connect, interval=60)
    worker.start()
    worker.take("q", "b", [run(n) for n in range(300)])
    for n in range(250):
        worker.report(report(n))
    assert worker.stop(10)
    last = scheduler.hear()[-1]
    assert isinstance(last, Beat)
    assert last.leaving
    assert last.holds == {}
    assert [beat.leaving for beat in scheduler.beats()] == [False, True]
    assert len(scheduler.said()) == 251
    assert worker.stop(1)


def test_messages_are_bounded_in_items_and_bytes(scheduler: Scheduler) -> None:
    worker = Heartbeat(WorkerInfo.make("fetcher", 1), scheduler.connect, interval=60)
    for n in range(1000):
        worker.report(report(n))
    for n in range(8):
        worker.report(report(n, items=[Item(item="", result=os.urandom(250_000).hex())]))
    worker.start()
    assert worker.stop(10)
    bodies = [received.body for received in scheduler.queue.get(1000, 0)]
    assert all(len(codec.decode(body, StatusBatch).items) <= 100 for body in bodies)
    assert max(len(body) for body in bodies) < 1_200_000
    assert len(bodies) <= 10 + 8 + 2


def test_callers_are_held_back_when_too_much_waits(monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler) -> None:
    monkeypatch.setattr(sender, "_BUFFER_ITEMS", 50)
    monkeypatch.setattr(sender, "_BUFFER_BYTES", 1_000_000)
    for fields, most in (({}, 50), ({"items": [Item(item="", result="x" * 300_000)]}, 3)):
        worker = Heartbeat(WorkerInfo.make("fetcher", 1), scheduler.connect, interval=60)
        said = itertools.count()
        thread = threading.Thread(
            target=lambda w=worker, f=fields, s=said: [w.report(report(next(s), **f)) for _ in range(60)]
        )
        thread.start()
        until(lambda w=worker, m=most: len(w._sender) == m)
        time.sleep(0.1)  # a chance to do it wrong
        assert len(worker._sender) == most
        worker.start()
        thread.join(10)
        assert not thread.is_alive()
        assert worker.stop(10)
    assert len(scheduler.said()) == 120


def test_an_outage_loses_nothing_and_keeps_the_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(tmp_path / "queues")

    def connect() -> MessageQueue:
        return message_queue.connect(f"builtin://{path}", "status_queue")

    worker = Heartbeat(WorkerInfo.make("fetcher", 1), connect, interval=0.05)
    worker.start()
    for n in range(150):
        worker.report(report(n))
    until(lambda: worker.waiting_since)
    assert not worker.frozen()  # waiting for the broker is no freeze
    server = QueueServer(path)
    server.start()
    until(lambda: worker.waiting_since is None)
    assert worker.stop(5)
    listener = connect()
    items = [item for got in listener.get(100, 1) for item in codec.decode(got.body, StatusBatch).items]
    listener.close()
    server.stop()
    assert [item.taskid for item in items if isinstance(item, Report)] == [str(n) for n in range(150)]
    assert isinstance(items[-1], Beat)
    assert caplog.text.count(f"waiting for builtin://{path} since") == 1


def test_stop_gives_up_when_the_broker_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"builtin://{tmp_path}/none"
    worker = Heartbeat(WorkerInfo.make("fetcher", 1), lambda: message_queue.connect(url, "status_queue"))
    worker.start()
    worker.report(report(1))
    start = time.monotonic()
    assert not worker.stop(0.3)
    assert time.monotonic() - start < 2
    assert "stopped with 1 status items not sent" in caplog.text


def test_beats_that_were_never_sent_are_no_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"builtin://{tmp_path}/none"
    worker = Heartbeat(WorkerInfo.make("processor", 1), lambda: message_queue.connect(url, "status_queue"))
    worker.start()
    until(lambda: worker.waiting_since)
    assert not worker.stop(0.3)
    assert "not sent" not in caplog.text


def test_a_report_that_is_too_large_becomes_a_failed_one(worker: Heartbeat, scheduler: Scheduler) -> None:
    worker.take("q", "b", [run(1), run(2)])
    huge = incompressible(codec.MAX_ENCODED + 1000)
    follows = [NewTask(taskid="f", project="p", url=huge)]
    worker.report(report(1, generation="g", follows=follows, track={"save": 1}))
    worker.report(report(2))
    until(lambda: len(scheduler.said()) == 3)
    _, failed, fine = scheduler.said()
    assert isinstance(failed, Report)
    assert (failed.key, failed.generation, failed.ok, failed.follows) == (run(1), "g", False, [])
    assert failed.track["process"]["exception"].startswith("the report is too large: a message of ")
    assert fine == report(2)


def test_another_item_that_is_too_large_is_dropped(
    worker: Heartbeat, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    worker.take("q", "b", [("p", incompressible(codec.MAX_ENCODED + 1000), 0)])
    worker.report(report(2))
    until(lambda: scheduler.said())
    assert scheduler.said() == [report(2)]
    assert "a Claim was dropped" in caplog.text


@pytest.mark.parametrize("value", [object(), "\ud800", 2**70, 1 + 2j])
def test_a_report_that_has_no_encoding_becomes_a_failed_one(
    worker: Heartbeat, scheduler: Scheduler, value: object
) -> None:
    worker.take("q", "b", [run(1)])
    worker.report(report(1, track={"save": value}))
    until(lambda: len(scheduler.said()) == 2)
    failed = scheduler.said()[1]
    assert isinstance(failed, Report)
    assert not failed.ok
    assert failed.track["process"]["exception"].startswith("the report cannot be encoded: ")
    assert worker.load == 0


def test_a_queue_that_refuses_the_size_is_no_dead_end() -> None:
    """A broker may have a lower limit than ours."""
    scheduler = Scheduler()

    class Strict:
        name = "status_queue"

        def __init__(self) -> None:
            self.real = scheduler.connect()

        def put(self, body: bytes, timeout: float) -> None:
            if len(body) > 3000:
                raise MessageTooLarge("over 3000")
            self.real.put(body, timeout)

        def close(self) -> None:
            self.real.close()

    worker = Heartbeat(WorkerInfo.make("fetcher", 1), Strict, interval=60)  # type: ignore[arg-type]
    worker.report(report(1, items=[Item(item="", result=os.urandom(4000).hex())]))
    for n in range(2, 60):
        worker.report(report(n))
    worker.start()
    assert worker.stop(5)
    assert [item.ok for item in scheduler.said() if isinstance(item, Report)] == [False] + [True] * 58


def test_whether_anybody_is_held_up_by_more(scheduler: Scheduler, worker: Heartbeat) -> None:
    until(worker.clear)
    for _ in range(10):
        scheduler.queue.put(codec.encode(StatusBatch(items=[])), 1.0)
    until(lambda: not worker.clear())
    scheduler.hear()
    until(worker.clear)
