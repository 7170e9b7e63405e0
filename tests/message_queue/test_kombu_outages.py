"""Brokers that freeze, stop, come back, cut connections and lose everything: each call ends in time, and the queue works again."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import kombu
import pytest

from pyspider_lite import message_queue
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.errors import QueueError, QueueFull
from pyspider_lite.message_queue import redis_queue
from pyspider_lite.message_queue.base import MessageQueue

#: seconds that a call may take beyond its timeout
GRACE = 6.0

Open = Callable[..., MessageQueue]
Broker = Redis | RabbitMq


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def open_queue(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Open]:
    with ExitStack() as stack:

        def open_(name: str = "scheduler2fetcher", **options: object) -> MessageQueue:
            queue = message_queue.connect(broker.url, name, prefix=f"{request.node.name}.", **options)  # type: ignore[arg-type]
            return stack.enter_context(closing(queue))

        yield open_


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def fails(call: Callable[[], object], timeout: float) -> str:
    """The QueueError's text; it came within ``timeout`` seconds and the grace."""
    start = time.monotonic()
    with pytest.raises(QueueError) as caught:
        call()
    assert time.monotonic() - start < timeout + GRACE
    return str(caught.value)


def works(call: Callable[[], object]) -> None:
    """Soon it does, as often as one tries."""

    def succeeds() -> bool:
        try:
            call()
        except QueueError:
            return False
        return True

    until(succeeds)


def passes(sender: MessageQueue, receiver: MessageQueue, body: bytes) -> None:
    """A message goes through, over what may be there from before."""
    works(lambda: sender.put(body, 1))

    def arrived() -> bool:
        try:
            return body in [received.body for received in receiver.get(1, 0.2)]
        except QueueError:
            return False

    until(arrived)


def test_a_frozen_broker(broker: Broker, open_queue: Open) -> None:
    sender, receiver, idle, fresh, late = (open_queue(late_ack=late) for late in (False, False, False, False, True))
    passes(sender, receiver, b"before")
    idle.qsize()
    late.get(1, 0)
    broker.freeze()
    try:
        with ThreadPoolExecutor(5) as pool:
            texts = [
                pool.submit(fails, lambda: sender.put(b"x", 0.5), 0.5),
                pool.submit(fails, lambda: receiver.get(1, 0.5), 0.5),
                pool.submit(fails, idle.qsize, 0),
                pool.submit(fails, lambda: fresh.put(b"x", 0.5), 0.5),
                pool.submit(fails, lambda: late.get(1, 0), 0.5),
            ]
            for text in texts:
                assert "does not answer" in text.result()
        start = time.monotonic()
        with closing(open_queue()) as another:
            another.close()
        idle.close()
        assert time.monotonic() - start < 3
    finally:
        broker.thaw()
    passes(sender, receiver, b"after")
    passes(fresh, idle, b"again")


def test_closing_when_the_broker_is_frozen_does_not_wait_long(broker: Broker, open_queue: Open) -> None:
    queue = open_queue(late_ack=True)
    queue.put(b"x", 1)
    queue.get(1, 1)
    broker.freeze()
    try:
        start = time.monotonic()
        queue.close()
        assert time.monotonic() - start < GRACE
    finally:
        broker.thaw()


def descriptors() -> int:
    gc.collect()  # of other tests
    return len(os.listdir("/proc/self/fd"))


def test_a_broker_that_stops_and_comes_back(broker: Broker, open_queue: Open) -> None:
    sender, receiver, feeder = open_queue(), open_queue(), open_queue("newtask_queue")
    passes(sender, receiver, b"before")
    feeder.put(b"to be kept", 1)
    caught: list[str] = []
    waiting = threading.Thread(target=lambda: caught.append(fails(lambda: open_queue("other").get(1, 60), 60)))
    waiting.start()
    broker.stop()
    try:
        waiting.join(GRACE)
        assert len(caught) == 1
        threads, before = threading.active_count(), 0
        for number in range(20):
            assert "pyspider-pass" not in fails(lambda: sender.put(b"x", 0.1), 0.1)
            fails(lambda: receiver.get(1, 0.1), 0.1)
            if number == 5:
                before = descriptors()
        assert descriptors() <= before
        assert threading.active_count() <= threads
    finally:
        broker.start()
    passes(sender, receiver, b"after")
    assert [received.body for received in open_queue("newtask_queue").get(1, 5)] == [b"to be kept"]


def test_connections_that_are_cut(broker: Broker, open_queue: Open) -> None:
    sender, receiver, late = open_queue(), open_queue(), open_queue(late_ack=True)
    sender.put(b"1", 1)
    assert [received.body for received in late.get(1, 5)] == [b"1"]
    waiting = threading.Thread(target=lambda: fails(lambda: open_queue("other").get(1, 60), 60))
    waiting.start()
    until(lambda: broker.cut() or not waiting.is_alive())
    late.close()  # on Redis it may not even have noticed: what it has is its own until it closes, or dies

    def again() -> bool:
        try:
            return [received.body for received in late.get(1, 0.2)] == [b"1"]
        except QueueError:
            return False

    until(again)  # what was not acknowledged
    passes(sender, receiver, b"after")


def test_flushall_while_somebody_waits(redis: Redis) -> None:
    with ExitStack() as stack:
        sender, receiver = (
            stack.enter_context(closing(message_queue.connect(redis.url, "q", prefix="flush."))) for _ in range(2)
        )
        late = stack.enter_context(closing(message_queue.connect(redis.url, "q", prefix="flush.", late_ack=True)))
        sender.put(b"lost", 1)
        late.get(1, 1)
        got: list[bytes] = []
        waiting = threading.Thread(target=lambda: got.extend(one.body for one in receiver.get(1, 20)))
        waiting.start()
        with redis.client() as client:
            until(lambda: client.info("clients")["blocked_clients"] == 1)
            client.flushall()
        sender.put(b"next", 1)
        waiting.join(10)
        assert got == [b"next"]
        sender.put(b"more", 1)
        received = late.get(1, 1)
        late.ack(received)
        assert [one.body for one in received] == [b"more"]


def test_a_queue_that_is_deleted_while_somebody_waits(rabbitmq: RabbitMq) -> None:
    with ExitStack() as stack:
        sender, receiver = (
            stack.enter_context(closing(message_queue.connect(rabbitmq.url, "q", prefix="deleted."))) for _ in range(2)
        )
        admin = stack.enter_context(kombu.Connection(rabbitmq.url))
        sender.put(b"x", 1)
        assert len(receiver.get(1, 1)) == 1
        waiting = threading.Thread(target=lambda: fails(lambda: receiver.get(1, 60), 60))
        waiting.start()
        until(lambda: admin.default_channel.queue_declare("deleted.q", passive=True).consumer_count == 1)
        admin.default_channel.queue_delete("deleted.q")
        waiting.join(GRACE)
        assert not waiting.is_alive()
        admin.default_channel.queue_delete("deleted.q")
        fails(lambda: sender.put(b"into the void", 1), 1)
        passes(sender, receiver, b"after")


def test_a_broker_that_has_no_room(rabbitmq: RabbitMq) -> None:
    with closing(message_queue.connect(rabbitmq.url, "q", prefix="alarm.")) as queue:
        queue.put(b"1", 1)
        rabbitmq.control("set_disk_free_limit", "1000000GB")
        try:
            assert "takes no messages now" in fails(lambda: queue.put(b"2", 1), 1)
        finally:
            rabbitmq.control("set_disk_free_limit", "10MB")
        works(lambda: queue.put(b"3", 1))
        assert [received.body for received in queue.get(9, 5)][-1] == b"3"


def test_redis_that_has_no_memory(redis: Redis) -> None:
    with closing(message_queue.connect(redis.url, "q", prefix="memory.")) as queue, redis.client() as client:
        queue.put(b"1", 1)
        client.config_set("maxmemory", 1)
        try:
            assert "redis is full" in fails(lambda: queue.put(b"2", 1), 1)
            assert [received.body for received in queue.get(1, 1)] == [b"1"]
        finally:
            client.config_set("maxmemory", 0)
        works(lambda: queue.put(b"3", 1))


def taker(url: str, code: str, *, late_ack: bool, prefix: str) -> "subprocess.Popen[str]":
    """Another process with the queue open; it has said "ready" when this returns."""
    script = (
        "from pyspider_lite import message_queue\nfrom pyspider_lite.message_queue import redis_queue\nimport time\n"
        "redis_queue.TERM, redis_queue._RENEWAL = 2.0, 0.5\n"
        f"q = message_queue.connect({url!r}, 'q', late_ack={late_ack}, prefix={prefix!r})\n"
        "say = lambda: print('ready', flush=True)\n" + code
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert process.stdout is not None
    process.stdout.close()


def test_what_a_killed_taker_did_not_acknowledge_comes_back(
    broker: Broker, open_queue: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_queue, "_RENEWAL", 0.2)
    prefix = f"killed-{broker.name}."
    with (
        closing(message_queue.connect(broker.url, "q", prefix=prefix)) as sender,
        closing(message_queue.connect(broker.url, "q", prefix=prefix, late_ack=True)) as heir,
    ):
        for n in range(5):
            sender.put(b"%d" % n, 1)
        code = "got = q.get(3, 5); q.ack(got[1:2]); assert q.qsize() == 2; say(); time.sleep(60)"
        process = taker(broker.url, code, late_ack=True, prefix=prefix)
        first = heir.get(1, 1)
        assert [received.body for received in first] == [b"3"]
        kill(process)
        got: list[bytes] = []
        until(lambda: got.extend(one.body for one in heir.get(10, 0.2)) or len(got) == 3)
        assert sorted(got) == [b"0", b"2", b"4"]


def test_a_taker_that_lives_keeps_what_it_has(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_queue, "TERM", 1.0)
    monkeypatch.setattr(redis_queue, "_RENEWAL", 0.2)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(closing(message_queue.connect(redis.url, "q", prefix="alive.", late_ack=True)))
            for _ in range(2)
        )
        first.put(b"x", 1)
        mine = first.get(1, 1)
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            assert first.get(1, 0.1) == [] == second.get(1, 0.1)
        first.ack(mine)
        first.close()
        second.close()
        with redis.client() as client:
            assert list(client.scan_iter("alive.*")) == []


def waits(broker: Broker, key: str) -> bool:
    """Whether somebody waits for a message of that queue now."""
    if isinstance(broker, Redis):
        with broker.client() as client:
            return any(one["cmd"] == "brpop" and "b" in one["flags"] for one in client.client_list())
    with kombu.Connection(broker.url) as connection:
        return bool(connection.default_channel.queue_declare(key, passive=True).consumer_count)


def test_a_taker_killed_while_it_waits_takes_nothing(broker: Broker) -> None:
    prefix = f"waiting-{broker.name}."
    with closing(message_queue.connect(broker.url, "q", prefix=prefix)) as queue:
        process = taker(broker.url, "q.qsize(); say(); q.get(1, 60)", late_ack=False, prefix=prefix)
        until(lambda: waits(broker, f"{prefix}q"))
        process.send_signal(signal.SIGSTOP)
        kill(process)
        queue.put(b"x", 1)
        assert [received.body for received in queue.get(1, 5)] == [b"x"]


def test_a_refused_password_is_said_and_not_shown(broker: Broker) -> None:
    host = f"127.0.0.1:{broker.port}"
    url = f"redis://nobody:s3cret@{host}/0" if broker.name == "redis" else f"amqp://nobody:s3cret@{host}//"
    with closing(message_queue.connect(url, "q")) as queue:
        text = fails(lambda: queue.put(b"x", 1), 1)
        assert "refuses the user or the password" in text
        assert "%40" in text
        assert "s3cret" not in text


def test_rights_on_queues_are_not_the_password(rabbitmq: RabbitMq) -> None:
    rabbitmq.control("add_user", "guarded", "s3cret")
    rabbitmq.control("set_permissions", "guarded", "^mine", "^mine", "^mine")
    with closing(
        message_queue.connect(f"amqp://guarded:s3cret@127.0.0.1:{rabbitmq.port}//", "q", prefix="p.")
    ) as queue:
        text = fails(lambda: queue.put(b"x", 1), 1)
    assert "has no right" in text
    assert "'p.q'" in text
    assert "password" not in text


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1/0", "amqp://127.0.0.1:1//", "sentinel://127.0.0.1:1?master_name=m"]
)
def test_nobody_listens(url: str) -> None:
    with closing(message_queue.connect(url, "q")) as queue:
        assert "127.0.0.1:1" in fails(lambda: queue.get(1, 1), 1)


def test_a_virtual_host_that_is_not_there(rabbitmq: RabbitMq) -> None:
    with closing(message_queue.connect(rabbitmq.url[:-2] + "/nowhere", "q")) as queue:
        assert "nowhere" in fails(lambda: queue.get(1, 1), 1)


def test_the_second_server_of_a_list_is_used(rabbitmq: RabbitMq) -> None:
    with closing(message_queue.connect(f"amqp://127.0.0.1:1//;{rabbitmq.url}", "q", prefix="list.")) as queue:
        queue.put(b"x", 1)
        assert len(queue.get(1, 1)) == 1


def test_a_policy_that_bounds_a_queue(rabbitmq: RabbitMq) -> None:
    rabbitmq.control("set_policy", "bound", "^policy", '{"max-length": 2, "overflow": "reject-publish"}')
    with closing(message_queue.connect(rabbitmq.url, "q", prefix="policy.")) as queue:
        queue.put(b"1", 1)
        queue.put(b"2", 1)
        with pytest.raises(QueueFull):
            for _ in range(3):  # what is on its way does not count yet
                queue.put(b"3", 1)
        assert len(queue.get(9, 1)) >= 2
        queue.put(b"4", 1)
