"""What workers say on status_queue: order, beats, bounds, outages, a process that stood still."""

import base64
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspider_lite import codec, heartbeat, message_queue
from pyspider_lite.errors import MessageTooLarge
from pyspider_lite.heartbeat import Heartbeat, WorkerInfo
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.message_queue.builtin_server import QueueServer
from pyspider_lite.models.batch import StatusBatch, StatusItem
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.names import RunKey
from pyspider_lite.models.report import Item, Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Beat, Claim, Handover, Release

_spaces = itertools.count()


class Scheduler:
    """The other end of status_queue."""

    def __init__(self, maxsize: int = 100) -> None:
        self.url = f"memory://heartbeat-{next(_spaces)}"
        self.maxsize = maxsize
        self.queue = self.connect()
        self.items: list[StatusItem] = []
        self.batches: list[int] = []

    def connect(self) -> MessageQueue:
        return message_queue.connect(self.url, "status_queue", maxsize=self.maxsize)

    def hear(self) -> list[StatusItem]:
        for received in self.queue.get(10_000, 0):
            items = codec.decode(received.body, StatusBatch).items
            self.items += items
            self.batches.append(len(items))
        return self.items

    def said(self) -> list[StatusItem]:
        """All but the beats."""
        return [item for item in self.hear() if not isinstance(item, Beat)]

    def beats(self) -> list[Beat]:
        return [item for item in self.hear() if isinstance(item, Beat)]


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
def worker(scheduler: Scheduler) -> Iterator[Heartbeat]:
    worker = Heartbeat(WorkerInfo.make("fetcher", 10, "hash", "http://127.0.0.1:1"), scheduler.connect, interval=0.05)
    worker.start()
    yield worker
    worker.stop(5)


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


def incompressible(size: int) -> str:
    """Text that no compressor makes smaller than ``size`` bytes."""
    return base64.b64encode(os.urandom(size)).decode()


def run(number: int) -> RunKey:
    return ("p", str(number), 0)


def report(number: int, **fields: object) -> Report:
    return Report(project="p", taskid=str(number), url="http://x/", run=0, **fields)  # type: ignore[arg-type]


def test_who_it_is() -> None:
    one, two = WorkerInfo.make("fetcher", 10), WorkerInfo.make("fetcher", 10)
    assert one.worker != two.worker
    assert one.worker.startswith(f"{one.host}:{os.getpid()}:")
    beats = Heartbeat(one, Scheduler().connect)
    ids = {beats.new_batch_id() for _ in range(100)} | {Heartbeat(two, Scheduler().connect).new_batch_id()}
    assert len(ids) == 101


def test_who_takes_again_what_it_gave_back_holds_it(worker: Heartbeat, scheduler: Scheduler) -> None:
    """It can be off the queue again before the one who put it there comes to say so."""
    worker.take("fetcher2processor", "b1", [run(1), run(2)])
    worker.take("fetcher2processor", "b2", [run(1)])
    worker.hand_over("fetcher2processor", "b2", [run(1)])
    assert worker.holds(run(1)) and worker.load == 2
    seen = len(scheduler.beats())
    until(lambda: len(scheduler.beats()) > seen + 1)
    assert scheduler.beats()[-1].holds == {"b1": [run(2)], "b2": [run(1)]}


def test_everything_arrives_in_order_and_says_who(worker: Heartbeat, scheduler: Scheduler) -> None:
    worker.take("scheduler2fetcher", "b1", [run(1), run(2), run(3), run(4)])
    worker.hand_over("fetcher2processor", "b2", [run(1), run(2)])
    worker.release([run(3)])
    worker.report(report(4))
    worker.broken("scheduler2fetcher", "why", b"x" * 100_000)
    until(lambda: len(scheduler.said()) == 5)
    name = worker.info.worker
    claim, handover, release, done, broken = scheduler.said()
    assert claim == Claim(worker=name, queue="scheduler2fetcher", batch="b1", runs=[run(n) for n in (1, 2, 3, 4)])
    assert handover == Handover(worker=name, queue="fetcher2processor", batch="b2", runs=[run(1), run(2)])
    assert release == Release(worker=name, runs=[run(3)])
    assert done == report(4)
    assert isinstance(broken, Broken)
    assert (broken.queue, broken.reason, broken.worker, len(broken.body)) == ("scheduler2fetcher", "why", name, 65536)
    assert abs(broken.time - time.time()) < 60
    assert worker.load == 0


def test_what_comes_back_to_the_same_worker_before_it_said_so_stays_in_its_hands(worker: Heartbeat) -> None:
    worker.take("q", "b1", [run(1), run(2)])
    worker.take("q", "b2", [run(1)])
    worker.hand_over("q", "b2", [run(1), run(2)])
    assert worker.holds(run(1)) and not worker.holds(run(2))


def test_beats_say_what_is_held(worker: Heartbeat, scheduler: Scheduler) -> None:
    worker.take("q", "b1", [run(1), run(2)])
    worker.take("q", "b2", [run(3), run(4), run(5)])
    worker.running(run(1))
    worker.report(report(2))
    worker.report(report(3, part=0, parts=0))  # not the last part: still ours
    worker.forget([run(4), run(99)])
    worker.set_pool_size(20)
    assert worker.holds(run(3))
    assert not worker.holds(run(2))
    count = len(scheduler.beats())
    until(lambda: len(scheduler.beats()) > count + 1)
    beat = scheduler.beats()[-1]
    assert beat.holds == {"b1": [run(1)], "b2": [run(3), run(5)]}
    assert (beat.load, beat.progress, beat.running, beat.pool_size) == (3, 1, run(1), 20)
    assert (beat.role, beat.config_hash, beat.rpc, beat.pid) == ("fetcher", "hash", "http://127.0.0.1:1", os.getpid())
    assert not beat.leaving
    worker.report(report(3, part=1, parts=2))
    assert not worker.holds(run(3))


def test_a_run_taken_again_is_held_once_in_its_newest_batch(worker: Heartbeat, scheduler: Scheduler) -> None:
    worker.take("q", "b1", [run(1), run(2)])
    worker.take("q", "b2", [run(1)])
    until(lambda: scheduler.beats()[-1:] and scheduler.beats()[-1].holds == {"b1": [run(2)], "b2": [run(1)]})
    worker.release([run(1), run(2)])
    until(lambda: scheduler.beats()[-1].holds == {})
    worker.release([])
    assert len(scheduler.said()) == 3


def test_beats_come_each_interval(worker: Heartbeat, scheduler: Scheduler) -> None:
    start = time.monotonic()
    until(lambda: len(scheduler.beats()) >= 5)
    assert time.monotonic() - start >= 0.15


def replay(items: list[StatusItem]) -> Iterator[tuple[set[RunKey], Beat]]:
    """What a listener believes is held, beside each beat."""
    held: set[RunKey] = set()
    for item in items:
        match item:
            case Claim():
                held |= set(item.runs)
            case Handover() | Release():
                held -= set(item.runs)
            case Report():
                held.discard(item.key)
            case Beat(leaving=False):
                yield set(held), item


def test_a_beat_lists_exactly_what_is_held_after_all_that_was_said_before() -> None:
    scheduler = Scheduler(maxsize=0)
    worker = Heartbeat(WorkerInfo.make("processor", 1), scheduler.connect, interval=0.004)
    worker.start()

    enough = threading.Event()
    counts = [0] * 4

    def work(thread: int) -> None:
        while not enough.is_set() and counts[thread] < 20_000:
            n = counts[thread] = counts[thread] + 1
            first, second = ("p", f"{thread}:{n}", 0), ("p", f"{thread}:{n}b", 0)
            worker.take("q", worker.new_batch_id(), [first, second])
            worker.report(Report(project="p", taskid=f"{thread}:{n}", url="u", run=0))
            if n % 2:
                worker.hand_over("r", worker.new_batch_id(), [second])
            else:
                worker.release([second])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(scheduler.beats()) >= 20, 30)
    enough.set()
    for thread in threads:
        thread.join(10)
    assert worker.stop(20)
    compared = list(replay(scheduler.hear()))
    assert len(compared) >= 20
    assert any(held for held, _ in compared)
    for held, beat in compared:
        assert {held_run for runs in beat.holds.values() for held_run in runs} == held
    assert len(scheduler.said()) == sum(counts) * 3
    assert max(scheduler.batches) <= 101


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
    monkeypatch.setattr(heartbeat, "_GATHER", 0.3)
    worker = Heartbeat(WorkerInfo.make("fetcher", 1), scheduler.connect, interval=60)
    worker.start()
    until(lambda: scheduler.beats())
    for n in range(3):
        worker.report(report(n))
        time.sleep(0.02)
    until(lambda: len(scheduler.said()) == 3)
    assert scheduler.batches[-1] == 3
    start = time.monotonic()
    for n in range(heartbeat._BATCH_ITEMS):  # a full message does not wait
        worker.report(report(n))
    until(lambda: len(scheduler.said()) == 103)
    assert time.monotonic() - start < 0.29
    worker.stop(5)


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
    monkeypatch.setattr(heartbeat, "_BUFFER_ITEMS", 50)
    monkeypatch.setattr(heartbeat, "_BUFFER_BYTES", 1_000_000)
    for fields, most in (({}, 50), ({"items": [Item(item="", result="x" * 300_000)]}, 3)):
        worker = Heartbeat(WorkerInfo.make("fetcher", 1), scheduler.connect, interval=60)
        said = itertools.count()
        thread = threading.Thread(
            target=lambda w=worker, f=fields, s=said: [w.report(report(next(s), **f)) for _ in range(60)]
        )
        thread.start()
        until(lambda w=worker, m=most: len(w._items) == m)
        time.sleep(0.1)  # a chance to do it wrong
        assert len(worker._items) == most
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


def test_a_process_that_stood_still_is_told_once() -> None:
    script = """
import sys
from pyspider_lite import message_queue
from pyspider_lite.heartbeat import Heartbeat, WorkerInfo
worker = Heartbeat(WorkerInfo.make("fetcher", 1), lambda: message_queue.connect("memory://x", "s", maxsize=0), 0.2)
worker.start()
assert not worker.frozen()
print("ready", flush=True)
sys.stdin.readline()
print(worker.frozen(), worker.frozen(), flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)  # this is the freeze
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate("\n", timeout=10)
    assert out == "True False\n"


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
