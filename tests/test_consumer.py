"""The threads between a role and its queues, on real queues that go away and come back."""

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis as redis_client

from pyspider_lite import codec, message_queue
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.consumer import Backoff, Consumer, Publisher
from pyspider_lite.errors import MessageTooLarge
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.message_queue.builtin_server import QueueServer
from pyspider_lite.models.batch import NewTaskBatch, TaskBatch

Connect = Callable[..., MessageQueue]
_spaces = itertools.count()


@pytest.fixture
def connect() -> Connect:
    space = f"memory://consumer-{next(_spaces)}"
    return lambda **options: message_queue.connect(space, "scheduler2fetcher", **options)


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


def batch(number: int) -> bytes:
    return codec.encode(TaskBatch(batch=str(number), epoch=1, tasks=[]))


def never_broken(queue: str, reason: str, body: bytes) -> None:
    raise AssertionError(reason)


def test_backoff_doubles_to_its_cap_and_starts_anew() -> None:
    backoff = Backoff(0.1, 1.0)
    waits = [backoff.next() for _ in range(6)]
    for wait, step in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
        assert step / 2 <= wait <= step
    backoff.reset()
    assert backoff.next() <= 0.1


def test_messages_are_delivered_in_order(connect: Connect) -> None:
    got: list[str] = []
    consumer = Consumer(connect, TaskBatch, lambda message: got.append(message.batch), broken=never_broken)
    consumer.start()
    queue = connect()
    for number in range(20):
        queue.put(batch(number), 1)
    until(lambda: len(got) == 20)
    assert got == [str(number) for number in range(20)]
    assert consumer.waiting_since is None
    assert consumer.stop(5)
    queue.put(batch(99), 1)
    assert queue.qsize() == 1


def test_broken_messages_are_kept_aside_and_the_consumer_lives_on(connect: Connect) -> None:
    got: list[str] = []
    broken: list[tuple[str, str, bytes]] = []
    consumer = Consumer(
        connect, TaskBatch, lambda message: got.append(message.batch), broken=lambda *all_: broken.append(all_)
    )
    queue = connect()
    queue.put(b"garbage", 1)
    queue.put(codec.encode(NewTaskBatch(tasks=[])), 1)
    queue.put(batch(1), 1)
    consumer.start()
    until(lambda: got)
    assert consumer.stop(5)
    assert [(name, body[:7]) for name, _, body in broken] == [
        ("scheduler2fetcher", b"garbage"),
        ("scheduler2fetcher", codec.encode(NewTaskBatch(tasks=[]))[:7]),
    ]
    assert broken[0][1] == "not a message of pyspider_lite"


def test_an_error_in_the_role_keeps_the_message_aside(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    got: list[str] = []
    broken: list[str] = []

    def deliver(message: TaskBatch) -> None:
        if message.batch == "0":
            raise ZeroDivisionError("a bug")
        got.append(message.batch)

    def keep(queue: str, reason: str, body: bytes) -> None:
        broken.append(reason)
        raise RuntimeError("another bug")

    queue = connect()
    consumer = Consumer(connect, TaskBatch, deliver, broken=keep)
    queue.put(batch(0), 1)
    queue.put(batch(1), 1)
    consumer.start()
    until(lambda: got)
    assert consumer.stop(5)
    assert broken == ["could not be delivered: ZeroDivisionError: a bug"]
    assert "another bug" in caplog.text


def test_nothing_is_taken_while_there_is_no_room(connect: Connect) -> None:
    room, asked, got = threading.Event(), threading.Event(), []

    def has_room(seconds: float) -> bool:
        asked.set()
        return room.wait(min(seconds, 0.05))

    queue = connect()
    queue.put(batch(1), 1)
    consumer = Consumer(connect, TaskBatch, got.append, broken=never_broken, room=has_room)
    consumer.start()
    assert asked.wait(5)
    time.sleep(0.15)  # a chance to do it wrong
    assert queue.qsize() == 1
    room.set()
    until(lambda: got)
    assert consumer.stop(5)


def test_the_broker_goes_away_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = str(tmp_path / "queues")

    def connect() -> MessageQueue:
        return message_queue.connect(f"builtin://{path}", "scheduler2fetcher")

    got: list[str] = []
    consumer = Consumer(
        connect, TaskBatch, lambda message: got.append(message.batch), broken=never_broken, name="scheduler2fetcher"
    )
    publisher = Publisher(connect, name="to scheduler2fetcher")
    consumer.start()  # boot order does not matter
    publisher.start()
    assert publisher.put(batch(0))
    until(lambda: consumer.waiting_since and publisher.waiting_since)
    for life in range(2):
        server = QueueServer(path)
        server.start()
        until(lambda life=life: str(life) in got)
        until(lambda: consumer.waiting_since is None and publisher.waiting_since is None)
        seen = consumer.last_seen
        until(lambda seen=seen: consumer.last_seen > seen)  # an empty queue is confirmed, too
        server.stop()
        assert publisher.put(batch(life + 1))
        until(lambda: consumer.waiting_since and publisher.waiting_since)
    assert consumer.stop(5)
    assert not publisher.stop(0.2)
    assert got == ["0", "1"]
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("outages")]
    # one line for both connections; outages in quick succession are not said again (test_outages)
    assert [line.split(" since ")[0].split(" after ")[0] for line in lines] == [
        f"waiting for builtin://{path}",
        f"builtin://{path} is back",
    ]
    assert "cannot be reached" in lines[0]
    assert not any(record.exc_info for record in caplog.records)


def test_acks_are_done_by_the_consumers_thread_soon(connect: Connect) -> None:
    got: list[tuple[TaskBatch, Callable[[], None]]] = []
    consumer = Consumer(
        lambda: connect(late_ack=True),
        TaskBatch,
        lambda message, ack: got.append((message, ack)),
        broken=never_broken,
        ack=True,
    )
    queue = connect()
    for number in range(4):
        queue.put(batch(number), 1)
    consumer.start()
    until(lambda: len(got) == 4)
    got[1][1]()
    got[1][1]()  # twice is once
    until(lambda: not consumer._acked and len(consumer._owed) == 3)
    got[3][1]()
    assert consumer.stop(5)  # what was acknowledged before is done before it ends
    left = [codec.decode(received.body, TaskBatch).batch for received in queue.get(10, 0)]
    assert left == ["0", "2"]
    got[0][1]()  # too late: harmless


def test_who_is_woken_takes_nothing_for_which_there_is_no_room_any_more(redis: Redis) -> None:
    """Redis holds a consumer for seconds in one command."""
    room = threading.Event()
    room.set()
    got: list[str] = []

    def connect() -> MessageQueue:
        return message_queue.connect(redis.url, "q", prefix="woken.")

    def has_room(seconds: float) -> bool:
        return room.wait(seconds)

    def waits() -> bool:
        with redis.client() as client:
            return any(one["cmd"] == "brpop" and "b" in one["flags"] for one in client.client_list())

    consumer = Consumer(
        connect, TaskBatch, lambda message: got.append(message.batch), broken=never_broken, room=has_room
    )
    consumer.start()
    with contextlib.closing(connect()) as queue:
        until(waits)
        room.clear()
        consumer.wake()
        until(lambda: not waits(), 1.0)
        queue.put(codec.encode(TaskBatch(batch="b", epoch=1, tasks=[])), 1)
        consumer.join(0.5)
        assert (got, queue.qsize()) == ([], 1)
        room.set()
        until(lambda: got == ["b"])
    assert consumer.stop(2)


def test_a_broken_message_is_acknowledged(connect: Connect) -> None:
    broken: list[bytes] = []
    consumer = Consumer(
        lambda: connect(late_ack=True),
        TaskBatch,
        lambda message, ack: None,
        broken=lambda queue, reason, body: broken.append(body),
        ack=True,
    )
    queue = connect()
    queue.put(b"garbage", 1)
    consumer.start()
    until(lambda: broken)
    assert consumer.stop(5)
    assert queue.qsize() == 0


def test_unacknowledged_messages_come_again_after_an_outage(tmp_path: Path) -> None:
    server = QueueServer(str(tmp_path / "queues"))
    server.start()
    got: list[tuple[str, Callable[[], None]]] = []

    def connect() -> MessageQueue:
        return message_queue.connect(f"builtin://{server.path}", "newtask_queue", late_ack=True)

    consumer = Consumer(
        connect, TaskBatch, lambda message, ack: got.append((message.batch, ack)), broken=never_broken, ack=True
    )
    consumer.start()
    feeder = connect()
    feeder.put(batch(1), 1)
    until(lambda: got)
    for peer in list(server._peers):  # the connections break, the queues stay
        peer.connection.shutdown(2)
    until(lambda: len(got) == 2)
    got[0][1]()  # of the broken connection: means nothing any more
    until(lambda: len(consumer._owed) == 1)
    assert consumer.stop(5)
    feeder.close()
    again = connect()
    assert [codec.decode(received.body, TaskBatch).batch for received in again.get(5, 5)] == ["1"]
    again.close()
    server.stop()


def test_at_most_some_messages_are_unacknowledged(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspider_lite.consumer._MAX_OWED", 3)
    got: list[Callable[[], None]] = []
    consumer = Consumer(
        lambda: connect(late_ack=True),
        TaskBatch,
        lambda message, ack: got.append(ack),
        broken=never_broken,
        ack=True,
    )
    queue = connect()
    for number in range(8):
        queue.put(batch(number), 1)
    consumer.start()
    until(lambda: len(got) == 3)
    time.sleep(0.1)  # a chance to do it wrong
    assert len(got) == 3
    got[0]()
    until(lambda: len(got) == 4)
    assert consumer.stop(5)
    assert queue.qsize() == 7


def test_publisher_puts_in_order_and_says_so(connect: Connect) -> None:
    sent: list[int] = []
    publisher = Publisher(connect, capacity=2)
    publisher.start()
    for number in range(10):
        assert publisher.put(batch(number), lambda number=number: sent.append(number))  # type: ignore[misc]
    assert publisher.stop(5)
    assert sent == list(range(10))
    assert [codec.decode(received.body, TaskBatch).batch for received in connect().get(99, 0)] == list("0123456789")
    assert not publisher.put(batch(11))


def test_publisher_holds_its_callers_back(connect: Connect) -> None:
    publisher = Publisher(lambda: connect(maxsize=1), capacity=2)
    publisher.start()
    for number in range(4):  # one on the queue, one in hand, two waiting
        assert publisher.put(batch(number), timeout=5)
    start = time.monotonic()
    assert not publisher.put(batch(4), timeout=0.2)
    assert time.monotonic() - start >= 0.19
    assert publisher.pending == 3
    assert len(connect().get(1, 1)) == 1
    assert publisher.put(batch(4), timeout=5)
    assert not publisher.stop(0.1)
    assert publisher.pending == 3


def test_a_full_queue_is_said_once(
    connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspider_lite.message_queue.connection.PATIENCE", 0.02)
    monkeypatch.setattr("pyspider_lite.message_queue.connection._FULL_IS_NEWS", 0.1)
    publisher = Publisher(lambda: connect(maxsize=1), name="to scheduler2fetcher")
    publisher.start()
    publisher.put(batch(0))
    publisher.put(batch(1))
    until(lambda: "the queue is full" in caplog.text)
    time.sleep(0.3)
    assert caplog.text.count("to scheduler2fetcher: the queue is full") == 1
    connect().get(1, 1)
    assert publisher.stop(5)


def test_what_is_too_large_is_dropped_with_a_word(connect: Connect) -> None:
    failed: list[Exception] = []
    sent: list[int] = []
    publisher = Publisher(connect)
    publisher.start()
    publisher.put(b"x" * (codec.MAX_ENCODED + 1), lambda: sent.append(0), failed=failed.append)
    publisher.put(batch(1), lambda: sent.append(1))
    assert publisher.stop(5)
    assert sent == [1]
    assert isinstance(failed[0], MessageTooLarge)


def test_an_error_in_a_callback_does_not_end_the_publisher(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(connect)
    publisher.start()
    publisher.put(batch(0), lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    publisher.put(batch(1))
    assert publisher.stop(5)
    assert connect().qsize() == 2
    assert "ZeroDivisionError" in caplog.text


def test_what_was_never_started_can_be_stopped(connect: Connect) -> None:
    assert Publisher(connect).stop(1)
    assert Consumer(connect, TaskBatch, print, broken=never_broken).stop(1)


def test_an_idle_consumer_costs_redis_next_to_nothing_and_stops_at_once(redis) -> None:
    connect = lambda: message_queue.connect(redis.url, "scheduler2fetcher", prefix=f"idle-{next(_spaces)}.")  # noqa: E731
    consumer = Consumer(connect, TaskBatch, lambda message: None, broken=never_broken)
    consumer.start()
    seen = consumer.last_seen
    until(lambda: consumer.last_seen > seen)
    with contextlib.closing(redis_client.Redis.from_url(redis.url)) as client:
        before = client.info()["total_commands_processed"]
        seen = consumer.last_seen
        until(lambda: consumer.last_seen > seen)
        # this question and the next are among them
        assert client.info()["total_commands_processed"] - before <= 4
    began = time.monotonic()
    assert consumer.stop(2.0)
    assert time.monotonic() - began < 1.0
