"""Orders to a worker: what is followed, what is ignored, and a broker that is away."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pyspider_lite import codec, message_queue, orders
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.message_queue.builtin_server import QueueServer
from pyspider_lite.models.batch import StatusBatch
from pyspider_lite.models.worker import Beat, Order, OrderKind
from pyspider_lite.orders import OrderWatch

_spaces = itertools.count()


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "LOOK_EACH", 0.02)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "not within 10 s"
        time.sleep(0.01)


class Role:
    """Notes what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        for kind in OrderKind:
            setattr(self, kind, lambda kind=kind: self.told.append(str(kind)))


@contextmanager
def watched(connect: Callable[[], MessageQueue], role: Role) -> Iterator[OrderWatch]:
    watch = OrderWatch(connect, {str(kind): getattr(role, kind) for kind in OrderKind})
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
        watch.join(5)


def test_orders_are_followed_in_turn() -> None:
    space, role = f"memory://orders{next(_spaces)}", Role()
    queue = message_queue.connect(space, orders.queue_name("web:1:ab"))
    for kind in OrderKind:
        orders.give(queue, kind)
    with watched(lambda: message_queue.connect(space, "orders.web:1:ab"), role):
        until(lambda: len(role.told) == 4)
    assert role.told == ["pause", "drain", "resume", "stop"]


def test_what_is_old_unknown_or_no_order_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    space, role = f"memory://orders{next(_spaces)}", Role()
    queue = message_queue.connect(space, "orders.w")
    now = time.time()
    for age in (100, -100):
        queue.put(codec.encode(Order(id="1", order="stop", time=now - age)), 1)
    queue.put(codec.encode(Order(id="2", order="dance", time=now)), 1)
    queue.put(b"nonsense", 1)
    orders.give(queue, OrderKind.PAUSE)
    with watched(lambda: message_queue.connect(space, "orders.w"), role):
        until(lambda: role.told)
    assert role.told == ["pause"]
    assert "the order to stop was ignored: by the clocks of the two machines it is 100 s old" in caplog.text
    assert "it is -100 s old" in caplog.text
    assert "the order to dance was ignored: this worker follows pause, drain, resume, stop" in caplog.text
    assert "an order was ignored: not a message of pyspider_lite" in caplog.text


def test_a_broker_that_is_away_is_no_news_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, role = str(tmp_path / "queue.sock"), Role()
    tried = threading.Event()

    def connect() -> MessageQueue:
        tried.set()
        return message_queue.connect(f"builtin://{path}", "orders.w")

    with caplog.at_level(logging.INFO), watched(connect, role):
        assert tried.wait(5)
        server = QueueServer(path)
        server.start()
        try:
            queue = connect()
            orders.give(queue, OrderKind.DRAIN)
            until(lambda: role.told)
            queue.close()
        finally:
            server.stop()
    assert [
        record.message.partition(" (")[0] for record in caplog.records if record.name == "pyspider_lite.orders"
    ] == ["ordered to drain"]


def test_a_role_that_breaks_down_over_an_order_is_no_end(caplog: pytest.LogCaptureFixture) -> None:
    space, role = f"memory://orders{next(_spaces)}", Role()

    def broken() -> None:
        raise ValueError("no")

    role.pause = broken  # type: ignore[attr-defined]
    queue = message_queue.connect(space, "orders.w")
    orders.give(queue, OrderKind.PAUSE)
    orders.give(queue, OrderKind.RESUME)
    with watched(lambda: message_queue.connect(space, "orders.w"), role):
        until(lambda: role.told)
    assert "an order could not be followed" in caplog.text


def test_beats_say_the_state_at_once() -> None:
    space = f"memory://orders{next(_spaces)}"
    status = message_queue.connect(space, "status_queue")

    def states() -> list[str]:
        for received in status.get(100, 0):
            for item in codec.decode(received.body, StatusBatch).items:
                assert isinstance(item, Beat) or item
                if isinstance(item, Beat):
                    heard.append(item.state)
        return heard

    heard: list[str] = []
    role = Role()
    info = WorkerInfo.make("fetcher", 10)
    worker = Heartbeat(
        info,
        lambda: message_queue.connect(space, "status_queue"),
        interval=60.0,
        orders=lambda: message_queue.connect(space, orders.queue_name(info.worker)),
    )
    worker.obey(role)  # type: ignore[arg-type]  # its methods are set one by one
    worker.start()
    worker.take("scheduler2fetcher", "b", [("shop", "t", 1)])
    until(lambda: states() == [""])
    for state, shown in (("paused", "paused"), ("draining", "draining"), ("", "")):
        worker.set_state(state)
        until(lambda shown=shown: states()[-1] == shown)
    worker.set_state("draining")
    worker.forget([("shop", "t", 1)])
    worker.set_state("draining")
    until(lambda: states()[-1] == "drained")
    orders.give(message_queue.connect(space, orders.queue_name(info.worker)), OrderKind.STOP)
    until(lambda: states()[-1] == "stopping")
    assert role.told == ["stop"]
    worker.stop(2.0)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_an_idle_worker_on_a_broker_waits_for_its_orders(broker: str, request: pytest.FixtureRequest) -> None:
    url, prefix = request.getfixturevalue(broker).url, f"orders-{next(_spaces)}."

    def connect(name: str) -> MessageQueue:
        return message_queue.connect(url, name, prefix=prefix, expires=60)

    role = Role()
    with watched(lambda: connect("orders.w"), role) as watch, closing(connect("orders.w")) as queue:
        orders.give(queue, OrderKind.PAUSE)
        until(lambda: role.told == ["pause"])
        began = time.monotonic()
        orders.give(queue, OrderKind.RESUME)
        until(lambda: role.told == ["pause", "resume"])
        assert time.monotonic() - began < 0.5
        watch.stop()
        watch.join(1.0)
        assert not watch.is_alive()


def test_an_idle_worker_costs_redis_a_command_a_beat_and_one_each_few_seconds(redis: Redis) -> None:
    prefix = f"orders-{next(_spaces)}."
    info = WorkerInfo.make("fetcher", 10)

    def connect(name: str) -> MessageQueue:
        return message_queue.connect(redis.url, name, prefix=prefix)

    worker = Heartbeat(
        info,
        lambda: connect("status_queue"),
        interval=0.1,
        orders=lambda: connect(orders.queue_name(info.worker)),
    )
    worker.obey(Role())  # type: ignore[arg-type]  # its methods are set one by one
    worker.start()
    with closing(redis.client()) as client:

        def calls(command: str) -> int:
            return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))

        start = calls("lpush")
        until(lambda: calls("lpush") >= start + 3)
        before = {command: calls(command) for command in ("lpush", "llen", "rpop", "brpop")}
        until(lambda: calls("lpush") >= before["lpush"] + 20)
        assert (calls("llen"), calls("rpop")) == (before["llen"], before["rpop"])
        assert calls("brpop") <= before["brpop"] + 2
    assert worker.stop(2.0)
