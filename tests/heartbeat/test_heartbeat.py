"""What workers say: which runs they hold, who they are, that they live; a process that stood still."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from status_listener import Scheduler, report, run, until

from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.models.batch import StatusItem
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.names import RunKey
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Beat, Claim, Handover, Release


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


def test_a_process_that_stood_still_is_told_once() -> None:
    script = """
import sys
from pyspider_lite import message_queue
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
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
