"""What the scheduler's inbox takes before its loop has looked: so many messages, and about so many tasks."""

import threading
import time
from types import SimpleNamespace

import pytest
from msgspec import Raw

from pyspider_lite import codec, message_queue
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.models.batch import NewTaskBatch, StatusBatch
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Release
from pyspider_lite.scheduler import inbox as inbox_module
from pyspider_lite.scheduler import queues
from pyspider_lite.scheduler.inbox import CAPACITY, MAX_TASKS, Inbox


def part(follows: int, parts: int = 0) -> StatusBatch:
    """A message with a part of a large report, or with all of one."""
    task = NewTask(taskid="t", project="p", url="data:,")
    return StatusBatch(
        items=[Report(project="p", taskid="on_start", url="data:,", run=0, follows=[task] * follows, parts=parts)]
    )


def test_so_many_messages() -> None:
    inbox = Inbox()
    for _ in range(CAPACITY):
        assert inbox.room(0)
        inbox.status(StatusBatch(items=[]))
    assert not inbox.room(0)
    assert len(inbox.collect(0).status) == CAPACITY
    assert inbox.room(0)


def test_large_reports_fill_it_sooner() -> None:
    """All that a step has heard is committed before it gives anything out."""
    inbox = Inbox()
    taken = 0
    while inbox.room(0):
        inbox.status(part(1000, parts=1))
        taken += 1
    assert taken == MAX_TASKS / 1000
    assert inbox.collect(0).status and inbox.room(0)


def test_a_part_of_a_report_fills_it() -> None:
    """It is one of very many, which would hold the crawl up if each step took what it can."""
    inbox = Inbox()
    inbox.status(part(500))
    assert not inbox.room(0)
    assert inbox.collect(0).status and inbox.room(0)


def test_so_do_submissions() -> None:
    inbox = Inbox()
    inbox.new_tasks(NewTaskBatch(tasks=[Raw(codec.pack({}))] * MAX_TASKS), lambda: None)
    assert not inbox.room(0)


def test_it_gathers_until_the_loop_has_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """... as the next token of a project's rate, or until somebody wants its attention."""
    monkeypatch.setattr(inbox_module, "GATHER", 60.0)
    inbox = Inbox()
    assert not inbox.collect(0).status
    inbox.status(StatusBatch(items=[]))
    assert len(inbox.collect(0.01).status) == 1
    inbox.status(StatusBatch(items=[]))
    inbox.wake()
    assert len(inbox.collect(60).status) == 1
    for _ in range(CAPACITY):
        inbox.status(StatusBatch(items=[]))
    assert len(inbox.collect(60).status) == CAPACITY


def test_the_beat_of_an_idle_worker_is_no_reason_to_wake_up() -> None:
    """It is heard with whatever comes next; one that says more, or a full inbox, is."""
    worker = WorkerInfo.make("fetcher", 10)
    idle = StatusBatch(items=[worker.beat()])
    for news in (
        [worker.beat(leaving=True)],
        [worker.beat(state="paused")],
        [worker.beat(holds={"b": [("p", "t", 0)]})],
        [worker.beat(), Release(worker=worker.worker, runs=[("p", "t", 0)])],
    ):
        inbox = Inbox()
        inbox.status(idle)
        inbox.collect(60)
        inbox.status(idle)
        began = time.monotonic()
        assert len(inbox.collect(0.1).status) == 1
        assert time.monotonic() - began >= 0.1
        inbox.status(idle)
        inbox.status(StatusBatch(items=news))
        assert len(inbox.collect(60).status) == 2
    for _ in range(CAPACITY):
        inbox.status(idle)
    assert len(inbox.collect(60).status) == CAPACITY


def test_a_worker_that_comes_or_is_at_work_again_is() -> None:
    worker = WorkerInfo.make("fetcher", 10)
    inbox = Inbox()
    for beat in (worker.beat(), worker.beat(state="paused"), worker.beat(), worker.beat(leaving=True), worker.beat()):
        inbox.status(StatusBatch(items=[beat]))
        assert len(inbox.collect(60, news=True).status) == 1


def test_what_idle_workers_say_is_left_in_the_inbox_until_there_is_news() -> None:
    worker = WorkerInfo.make("fetcher", 10)
    inbox = Inbox()
    for _ in range(3):
        inbox.status(StatusBatch(items=[worker.beat()]))
        inbox.collect(0, news=True)
    assert inbox.collect(0, news=True).nothing
    inbox.command(lambda scheduler: None)
    assert len(inbox.collect(0, news=True).status) == 2
    # ... or it would fill up
    for _ in range(CAPACITY // 2):
        assert inbox.collect(0, news=True).nothing
        inbox.status(StatusBatch(items=[worker.beat()]))
    assert len(inbox.collect(60, news=True).status) == CAPACITY // 2
    inbox.status(StatusBatch(items=[worker.beat()]))
    assert len(inbox.collect(0).status) == 1


def test_who_hears_idle_workers_rests_until_something_is_given_out() -> None:
    inbox = Inbox()
    assert not inbox.rest(lambda: False, 60)
    assert inbox.rest(lambda: True, 0)

    def idle() -> bool:
        inbox.sent("b")  # between this question and the rest
        return True

    assert inbox.rest(idle, 60)


def test_beats_of_idle_workers_are_taken_together() -> None:
    """... however many there are, and one message at a time as soon as something is in flight."""
    beat = codec.encode(StatusBatch(items=[WorkerInfo.make("fetcher", 10).beat()]))
    space = f"memory://{__name__}"
    queue = message_queue.connect(space, "status_queue")
    inbox, heard, busy = Inbox(), [0], threading.Event()
    status, _ = queues.consumers(
        lambda name, late_ack: message_queue.connect(space, name, late_ack=late_ack),
        inbox,
        SimpleNamespace(overdue=False),  # type: ignore[arg-type]
        full=lambda: False,
        idle=lambda: not busy.is_set(),
        overhear=lambda batch: heard.append(heard[-1] + 1),
    )
    for _ in range(100):
        queue.put(beat, 0)
    status.start()
    try:
        for count in (100, 101):
            until = time.monotonic() + 10
            while heard[-1] < count:
                assert time.monotonic() < until
                inbox.collect(0.01)
            busy.set()
            queue.put(beat, 0)
    finally:
        assert status.stop(2.0)
