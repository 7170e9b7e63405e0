"""What lies on a broker: entries of strangers, the original's queues, how many commands it takes, what is left over."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import amqp
import kombu
import msgspec
import pytest
import redis as redis_client

from pyspider_lite import codec, message_queue
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.servers.server import PASSWORD, USER
from pyspider_lite.errors import BrokenMessage, MessageTooLarge, QueueError
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.message_queue.description import describe
from pyspider_lite.message_queue.kombu_queue import KombuQueue
from pyspider_lite.message_queue.redis_queue import unwrap
from pyspider_lite.models.batch import NewTaskBatch
from pyspider_lite.models.task import NewTask

Open = Callable[..., MessageQueue]
Broker = Redis | RabbitMq

OURS = codec.encode(NewTaskBatch(tasks=[]))


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}."


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def opened(stack: ExitStack, url: str, prefix: str, name: str = "q", **options: object) -> MessageQueue:
    return stack.enter_context(closing(message_queue.connect(url, name, prefix=prefix, **options)))  # type: ignore[arg-type]


def until(condition: Callable[[], object], seconds: float = 20.0, pause: float = 0.02) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(pause)


def plain_amqp(stack: ExitStack, server: RabbitMq) -> amqp.Channel:
    connection = amqp.Connection(f"{server.host}:{server.port}", USER, PASSWORD)
    stack.enter_context(connection)
    return connection.channel()


GARBAGE = [
    b"",
    b"garbage",
    b"{",
    b"{}",
    b'{"body": 5, "properties": {}}',
    b'{"body": "%%%", "properties": {"body_encoding": "base64"}}',
    b'{"body": "x", "properties": []}',
    b"[" * 100_000,
    b'{"body":' + b"[" * 100_000,
    b"\x80\x04\x95",
    b"\x00\xff" * 1000,
    msgspec.msgpack.encode({"taskid": "x", "project": "p"}),
]


@pytest.mark.parametrize("late_ack", [False, True])
def test_entries_of_strangers_on_redis_come_out_as_they_are(
    redis: Redis, stack: ExitStack, prefix: str, late_ack: bool
) -> None:
    queue = opened(stack, redis.url, prefix, late_ack=late_ack)
    with redis.client() as client:
        for entry in GARBAGE:
            client.lpush(f"{prefix}q", entry)
        queue.put(OURS, 1)
        client.rpush(f"{prefix}q", b"by redis-cli rpush: at the head")
    got = [queue.get(1, 1)[0] for _ in range(len(GARBAGE) + 2)]
    assert [one.body for one in got] == [b"by redis-cli rpush: at the head", *GARBAGE, OURS]
    for one in got[:-1]:
        with pytest.raises(BrokenMessage):
            codec.decode(one.body, NewTaskBatch)
    queue.ack(got)
    queue.close()
    with redis.client() as client:
        assert not list(client.scan_iter(f"{prefix.replace('[', '?')}*"))


@pytest.mark.parametrize("late_ack", [False, True])
def test_messages_of_strangers_on_rabbitmq_come_out_as_they_are(
    rabbitmq: RabbitMq, stack: ExitStack, prefix: str, late_ack: bool
) -> None:
    queue = opened(stack, rabbitmq.url, prefix, late_ack=late_ack)
    queue.qsize()
    channel = plain_amqp(stack, rabbitmq)
    strange = [
        amqp.Message(b"", content_type="application/json"),
        amqp.Message(b'{"url": "http://x/"}', content_type="application/json", content_encoding="utf-8"),
        amqp.Message(b"\x80\x04\x95", content_type="application/x-python-serialize", content_encoding="binary"),
        amqp.Message(b"\xff\xfe", content_type="text/plain", content_encoding="no-such-encoding"),
        amqp.Message(b"no type", application_headers={"compression": "application/x-gzip", "n": {"deep": [1, None]}}),
        amqp.Message(b"odd", content_type="x" * 200, expiration="60000", priority=9, type="?", message_id="\x00"),
    ]
    for message in strange:
        channel.basic_publish(message, exchange="", routing_key=f"{prefix}q")
    queue.put(OURS, 1)
    got = [queue.get(1, 1)[0] for _ in range(len(strange) + 1)]
    assert [one.body for one in got] == [*(message.body for message in strange), OURS]
    queue.ack(got)
    queue.close()
    assert queue.qsize() == 0


def test_a_message_whose_properties_cannot_be_read_does_not_block_the_queue(
    rabbitmq: RabbitMq, stack: ExitStack, prefix: str
) -> None:
    queue = opened(stack, rabbitmq.url, prefix)
    queue.qsize()
    channel = plain_amqp(stack, rabbitmq)
    message = amqp.Message(b"broken", correlation_id="#" * 8)
    packed = message._serialize_properties().replace(b"########", b"\xff" * 8)
    message._serialize_properties = lambda: packed
    channel.basic_publish(message, exchange="", routing_key=f"{prefix}q")
    queue.put(OURS, 1)
    assert [one.body for one in queue.get(2, 1)] == [b"broken", OURS]


def test_a_plain_kombu_producer_is_understood(broker: Broker, stack: ExitStack, prefix: str) -> None:
    queue = opened(stack, broker.url, prefix)
    queue.qsize()
    connection = stack.enter_context(kombu.Connection(broker.url))
    producer = kombu.Producer(connection)
    producer.publish(OURS, routing_key=f"{prefix}q", content_type="application/octet-stream", content_encoding="binary")
    producer.publish({"url": "http://x/"}, routing_key=f"{prefix}q")
    first, second = queue.get(1, 1)[0].body, queue.get(1, 1)[0].body
    assert first == OURS
    assert json.loads(second) == {"url": "http://x/"}


def test_unwrap_leaves_our_bytes_alone() -> None:
    for body in (OURS, codec.encode(NewTaskBatch(tasks=[NewTask(project="p", taskid="{", url="x")] * 1000)), b"", b"{"):
        assert unwrap(body) == body


@pytest.mark.behaviour("Q4", "Q5")
def test_queues_of_the_original_are_left_alone(broker: Broker, stack: ExitStack, prefix: str) -> None:
    names = ["newtask_queue", "status_queue", "scheduler2fetcher", "fetcher2processor", "processor2result"]
    old = msgspec.msgpack.encode({"taskid": "x"})
    channel = stack.enter_context(kombu.Connection(broker.url)).channel()
    for name in names:
        channel.queue_declare(queue=name, durable=True, auto_delete=False)
        message = channel.prepare_message(old, content_type="application/x-msgpack", content_encoding="binary")
        channel.basic_publish(message, exchange="", routing_key=name)
    for name in names:
        ours = opened(stack, broker.url, prefix, name)
        assert ours.qsize() == 0
        assert ours.purge() == 0
        assert ours.get(1, 0) == []
        ours.put(b"new", 1)
        assert [one.body for one in ours.get(5, 0)] == [b"new"]
    lines = describe(broker.url, prefix)
    assert lines[2].startswith("queues of pyspider itself, which are left alone: fetcher2processor 1, newtask_queue 1")
    for name in names:
        assert channel.basic_get(name, no_ack=True).body == old
        if broker.name == "rabbitmq":
            channel.queue_delete(name)


def test_a_description(broker: Broker, stack: ExitStack, prefix: str) -> None:
    first = describe(broker.url, prefix)
    assert len(first) == 2
    assert "pyspider-pass" not in first[0]
    assert first[0].partition(": ")[2].startswith("Redis " if broker.name == "redis" else "RabbitMQ ")
    assert first[1].endswith(": none")  # and looking has made none
    assert describe(broker.url, prefix) == first
    opened(stack, broker.url, prefix, "newtask_queue").put(b"x", 1)
    assert describe(broker.url, prefix)[1].endswith(f": {prefix}newtask_queue 1")
    with pytest.raises(QueueError, match=r"127\.0\.0\.1:1"):
        describe(f"{'redis' if broker.name == 'redis' else 'amqp'}://127.0.0.1:1")


def test_one_command_a_message_on_redis(redis: Redis, stack: ExitStack, prefix: str) -> None:
    queue = opened(stack, redis.url, prefix)
    queue.put(b"x", 1)
    queue.get(1, 1)
    monitor = stack.enter_context(redis.client())

    def commands(call: Callable[[], object]) -> int:
        before = monitor.info("stats")["total_commands_processed"]
        call()
        return int(monitor.info("stats")["total_commands_processed"] - before - 1)

    assert commands(lambda: queue.put(b"x", 1)) == 1
    assert commands(lambda: queue.get(1, 1)) == 1
    assert commands(lambda: queue.get(1, 1)) == 1  # waits in the server
    assert commands(lambda: queue.get(10, 0)) == 1
    with redis.client() as client:
        mine = [one for one in client.client_list() if one["id"] != str(client.client_id())]
        assert len([one for one in mine if one["db"] == "0" and one["cmd"] in ("rpop", "brpop", "lpush")]) == 1


def test_on_rabbitmq_nothing_is_held_beyond_what_was_given_out(
    rabbitmq: RabbitMq, stack: ExitStack, prefix: str
) -> None:
    sender, busy, other = (opened(stack, rabbitmq.url, prefix) for _ in range(3))
    assert busy.get(1, 0.1) == []  # it has waited
    for n in range(4):
        sender.put(b"%d" % n, 1)
    assert [one.body for one in busy.get(2, 1)] == [b"0", b"1"]
    assert sender.qsize() == 2
    assert [one.body for one in other.get(9, 1)] == [b"2", b"3"]


def test_only_what_feeders_send_is_persistent(rabbitmq: RabbitMq, stack: ExitStack, prefix: str) -> None:
    channel = plain_amqp(stack, rabbitmq)
    for name, mode in (("newtask_queue", 2), ("status_queue", 1)):
        opened(stack, rabbitmq.url, prefix, name).put(b"x", 1)
        assert channel.basic_get(f"{prefix}{name}", no_ack=True).properties["delivery_mode"] == mode


def test_unused_queues_vanish(broker: Broker, stack: ExitStack, prefix: str) -> None:
    queue = opened(stack, broker.url, prefix, "orders.x", expires=1.0)
    queue.put(b"x", 1)
    assert describe_depths(broker, f"{prefix}orders.x") == {f"{prefix}orders.x": 1}
    queue.close()
    until(lambda: describe_depths(broker, f"{prefix}orders.x") == {}, pause=2.0)  # looking is using
    queue.put(b"again", 1)
    assert [one.body for one in queue.get(10, 0)] == [b"again"]
    assert queue.get(10, 0) == []


def describe_depths(broker: Broker, name: str) -> dict[str, int]:
    with closing(message_queue.connect(broker.url, "look")) as queue:
        assert isinstance(queue, KombuQueue)
        return queue.inspect([name])[1]


def test_a_queue_that_somebody_made_otherwise_is_used(rabbitmq: RabbitMq, stack: ExitStack, prefix: str) -> None:
    channel = plain_amqp(stack, rabbitmq)
    channel.queue_declare(f"{prefix}q", durable=True, auto_delete=False, arguments={"x-queue-type": "quorum"})
    queue = opened(stack, rabbitmq.url, prefix)
    queue.put(b"x", 5)
    assert [one.body for one in queue.get(1, 5)] == [b"x"]
    channel.queue_delete(f"{prefix}q")


@pytest.mark.parametrize("old", [False, True])
def test_many_messages_of_redis_are_two_commands(
    redis: Redis, stack: ExitStack, prefix: str, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """... and one each on a server of before 6.2."""
    queue = opened(stack, redis.url, prefix)
    asked: list[object] = []
    rpop = redis_client.Redis.rpop

    def spied(client: redis_client.Redis, name: str, count: int | None = None) -> object:
        asked.append(count)
        if old and count is not None:
            raise redis_client.ResponseError("wrong number of arguments for 'rpop' command")
        return rpop(client, name, count)

    monkeypatch.setattr(redis_client.Redis, "rpop", spied)
    bodies = [b"%d" % number for number in range(12)]
    for body in bodies:
        queue.put(body, 1)
    taken: list[bytes] = []
    for _ in range(3):
        taken += [received.body for received in queue.get(6, 0)]
    assert taken == bodies
    assert asked == ([None, 5, *[None] * 12] if old else [None, 5, None, 5, None])


def test_a_key_of_another_type_on_redis(redis: Redis, stack: ExitStack, prefix: str) -> None:
    with redis.client() as client:
        client.set(f"{prefix}q", "text")
    with pytest.raises(QueueError, match="wrong kind of value"):
        opened(stack, redis.url, prefix).put(b"x", 1)


def test_the_largest_message(broker: Broker, stack: ExitStack, prefix: str) -> None:
    queue = opened(stack, broker.url, prefix)
    queue.put(b"x" * codec.MAX_ENCODED, 5)
    with pytest.raises(MessageTooLarge):
        queue.put(b"x" * (codec.MAX_ENCODED + 1), 5)
    assert len(queue.get(1, 5)[0].body) == codec.MAX_ENCODED


@pytest.mark.behaviour("Q7")
def test_many_putters_stay_near_the_bound(broker: Broker, stack: ExitStack, prefix: str) -> None:
    putters = [opened(stack, broker.url, prefix, maxsize=50) for _ in range(5)]
    refused = 0
    for _ in range(40):
        for putter in putters:
            if putter in putters[refused:]:
                try:
                    putter.put(b"x", 0)
                except QueueError:
                    refused += 1
                    putters.remove(putter)
                    putters.insert(0, putter)
    assert 50 <= putters[0].qsize() <= 50 + 5 * 5
    assert refused == 5
