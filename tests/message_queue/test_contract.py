"""What every message queue does (message_queue/base.py), on each backend."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspider_lite import codec, message_queue
from pyspider_lite.errors import MessageTooLarge, QueueFull
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.message_queue.builtin_server import QueueServer

pytestmark = pytest.mark.drivers

Open = Callable[..., MessageQueue]
_spaces = itertools.count()


@pytest.fixture(params=["memory", "builtin", "redis", "rabbitmq", "any kombu"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        yield f"memory://contract-{next(_spaces)}"
        return
    if request.param == "any kombu":
        yield "kombu+memory://"
        return
    if request.param in ("redis", "rabbitmq"):
        yield request.getfixturevalue(request.param).url
        return
    server = QueueServer(str(tmp_path / "queues"))
    server.start()
    yield f"builtin://{server.path}"
    server.stop()


@pytest.fixture
def open_queue(url: str) -> Iterator[Open]:
    """Opens queues that are closed at the end of the test; on a broker, each test has queues of its own."""
    opened: list[MessageQueue] = []
    prefix = f"contract-{next(_spaces)}."

    def open_(name: str = "scheduler2fetcher", **options: object) -> MessageQueue:
        opened.append(message_queue.connect(url, name, prefix=prefix, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_
    for queue in opened:
        queue.close()


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


def bodies(queue: MessageQueue, limit: int = 100, timeout: float = 0.0) -> list[bytes]:
    return [received.body for received in queue.get(limit, timeout)]


def test_messages_come_in_order_and_once(open_queue: Open) -> None:
    sender, receiver = open_queue(), open_queue()
    sent = [b"%d" % n for n in range(50)]
    for body in sent:
        sender.put(body, 1)
    assert receiver.qsize() == 50
    assert bodies(receiver, 20) + bodies(receiver, 20) + bodies(receiver, 20) == sent
    assert bodies(receiver) == [] == bodies(sender)


def test_queues_of_other_names_are_apart(open_queue: Open) -> None:
    open_queue("one").put(b"1", 1)
    assert open_queue("two").qsize() == 0
    assert bodies(open_queue("one")) == [b"1"]


def test_limit_is_kept(open_queue: Open) -> None:
    queue = open_queue()
    for n in range(5):
        queue.put(b"%d" % n, 1)
    assert len(queue.get(3, 0)) == 3
    assert queue.qsize() == 2


@pytest.mark.parametrize("body", [b"", b"\x00\xff", bytes(range(256)) * 40_000, b"x" * codec.MAX_ENCODED])
def test_any_bytes_pass(open_queue: Open, body: bytes) -> None:
    open_queue().put(body, 5)
    assert bodies(open_queue(), 1, 5) == [body]


def test_a_body_over_the_limit_is_refused(open_queue: Open) -> None:
    queue = open_queue()
    with pytest.raises(MessageTooLarge, match="12582913"):
        queue.put(b"x" * (codec.MAX_ENCODED + 1), 1)
    queue.put(b"small", 1)
    assert bodies(queue) == [b"small"]


def test_many_large_messages_in_one_get(open_queue: Open) -> None:
    queue, large = open_queue(), [bytes([n]) * 5_000_000 for n in range(6)]
    for body in large:
        queue.put(body, 5)
    got: list[bytes] = []
    while len(got) < len(large):
        part = bodies(queue, 100, 5)
        assert part
        got += part
    assert got == large


def test_get_waits_for_its_timeout(open_queue: Open) -> None:
    start = time.monotonic()
    assert open_queue().get(1, 0.3) == []
    assert 0.29 <= time.monotonic() - start < 3


def test_get_returns_as_soon_as_a_message_comes(open_queue: Open) -> None:
    receiver, sender, got = open_queue(), open_queue(), []
    thread = threading.Thread(target=lambda: got.extend(bodies(receiver, 10, 30)))
    thread.start()
    sender.put(b"now", 1)
    thread.join(10)
    assert got == [b"now"]


@pytest.mark.behaviour("X-Q2", "X-Q1", "Q7")
def test_a_full_queue_refuses_after_the_timeout(open_queue: Open) -> None:
    queue = open_queue(maxsize=2)
    queue.put(b"1", 1)
    queue.put(b"2", 1)
    start = time.monotonic()
    with pytest.raises(QueueFull, match=r"scheduler2fetcher: no room within 0\.3 s"):
        queue.put(b"3", 0.3)
    assert 0.29 <= time.monotonic() - start < 3
    assert bodies(queue) == [b"1", b"2"]


def test_put_goes_on_as_soon_as_there_is_room(open_queue: Open) -> None:
    queue, sender = open_queue(), open_queue(maxsize=1)
    queue.put(b"1", 1)
    thread = threading.Thread(target=sender.put, args=(b"2", 30))
    thread.start()
    assert bodies(queue, 1, 5) == [b"1"]
    thread.join(10)
    assert not thread.is_alive()
    assert bodies(queue, 1, 5) == [b"2"]


@pytest.mark.behaviour("Q7")
def test_maxsize_0_counts_no_messages(open_queue: Open) -> None:
    queue = open_queue(maxsize=0)
    for _ in range(300):
        queue.put(b"", 0)
    assert queue.qsize() == 300


def test_purge_empties_and_makes_room(open_queue: Open) -> None:
    queue = open_queue(maxsize=3)
    for _ in range(3):
        queue.put(b"x", 1)
    assert queue.purge() == 3
    assert queue.purge() == 0
    assert queue.qsize() == 0
    queue.put(b"y", 0)
    assert bodies(queue) == [b"y"]


def test_ack_means_nothing_where_taking_is_acknowledging(open_queue: Open) -> None:
    queue = open_queue()
    queue.put(b"x", 1)
    received = queue.get(1, 1)
    assert received[0].tag is None
    queue.ack(received)
    queue.close()
    assert open_queue().qsize() == 0


def test_unacknowledged_messages_come_back_in_order(open_queue: Open, url: str) -> None:
    sender, first, second = open_queue(), open_queue(late_ack=True), open_queue(late_ack=True)
    for n in range(6):
        sender.put(b"%d" % n, 1)
    mine = first.get(2, 1) + first.get(2, 1)
    second.get(1, 1)
    assert sender.qsize() == 1
    first.ack([mine[1]])
    first.close()
    second.close()
    until(lambda: sender.qsize() == 5)
    got = bodies(open_queue(), 10, 5)
    assert sorted(got) == [b"0", b"2", b"3", b"4", b"5"]
    if "redis" in url:  # what one had is in its order, and before what nobody had
        assert [body for body in got if body != b"4"] == [b"0", b"2", b"3", b"5"]
    elif "kombu" not in url:
        assert got == sorted(got)


def test_acknowledged_messages_are_gone(open_queue: Open) -> None:
    queue = open_queue(late_ack=True)
    queue.put(b"x", 1)
    received = queue.get(1, 1)
    queue.ack(received)
    queue.ack(received)
    queue.close()
    assert open_queue().get(1, 0.2) == []


def test_an_ack_after_close_touches_nobody_elses_message(open_queue: Open) -> None:
    queue = open_queue(late_ack=True)
    queue.put(b"x", 1)
    old = queue.get(1, 1)
    queue.close()
    assert bodies(queue, 1, 5) == [b"x"]  # taken again by the same object, over a new connection
    queue.ack(old)
    queue.close()
    assert bodies(open_queue(), 1, 5) == [b"x"]


def test_close_twice_is_harmless(open_queue: Open) -> None:
    queue = open_queue()
    queue.qsize()
    queue.close()
    queue.close()


def test_many_producers_and_consumers_each_message_once(open_queue: Open) -> None:
    producers, consumers, each = 4, 4, 300
    got: list[list[bytes]] = [[] for _ in range(consumers)]

    def produce(queue: MessageQueue, number: int) -> None:
        for n in range(each):
            queue.put(b"%d:%04d" % (number, n), 30)

    def consume(queue: MessageQueue, mine: list[bytes]) -> None:
        while received := bodies(queue, 7, 2):
            mine += received

    threads = [threading.Thread(target=produce, args=(open_queue(maxsize=10), n)) for n in range(producers)]
    threads += [threading.Thread(target=consume, args=(open_queue(), mine)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    everything = [body for mine in got for body in mine]
    assert len(everything) == producers * each
    assert len(set(everything)) == producers * each
    for mine in got:  # what one producer sent came in its order
        for number in range(producers):
            own = [body for body in mine if body.startswith(b"%d:" % number)]
            assert own == sorted(own)


@pytest.mark.behaviour("X-Q2")
def test_who_does_not_wait_is_refused_at_once(open_queue: Open) -> None:
    queue = open_queue(maxsize=1)
    queue.put(b"1", 0)
    start = time.monotonic()
    with pytest.raises(QueueFull):
        queue.put(b"2", 0)
    assert time.monotonic() - start < 1
    assert bodies(queue) == [b"1"]


def test_a_get_that_is_woken_returns_soon_and_loses_nothing(open_queue: Open) -> None:
    queue, sender = open_queue(), open_queue()
    queue.get(1, 0)
    for number in range(30):
        got: list[bytes] = []
        thread = threading.Thread(target=lambda into=got: into.extend(bodies(queue, 1, max(0.1, queue.patience))))
        began = time.monotonic()
        thread.start()
        body = b"%d" % number
        if number % 3:
            sender.put(body, 1)
        queue.wake()
        while thread.is_alive():  # it may have been early
            thread.join(0.1)
            queue.wake()
        assert time.monotonic() - began < 2.5
        assert got + bodies(queue) == ([body] if number % 3 else [])
