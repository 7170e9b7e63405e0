"""The fetcher's XML-RPC on a real port, called with xmlrpc.client; queues in memory, a real heartbeat."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import msgspec
import pytest

from pyspider_lite import bounded_server, codec
from pyspider_lite.fetcher.fetch import Fetch
from pyspider_lite.fetcher.fetcher import Fetcher
from pyspider_lite.fetcher.http import HttpEngine
from pyspider_lite.fetcher.remote import Remote
from pyspider_lite.fetcher.request import Defaults
from pyspider_lite.fetcher.transfer import EngineOptions
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.memory import MemoryQueue
from pyspider_lite.models.batch import PageBatch, StatusBatch, TaskBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.worker import Beat, Release
from pyspider_lite.rpc import RpcServer, server

POOLSIZE = 4


class World:
    """A running fetcher and its port, with what came out of it so far."""

    def __init__(self) -> None:
        self.space = uuid.uuid4().hex
        self.heartbeat = Heartbeat(
            WorkerInfo.make(Role.FETCHER, POOLSIZE), self.connect(QueueName.STATUS), interval=0.2
        )
        self.fetcher = Fetcher(
            fetch=Fetch(HttpEngine(EngineOptions()), Defaults()),
            heartbeat=self.heartbeat,
            connect_in=self.connect(QueueName.TO_FETCHER),
            connect_out=self.connect(QueueName.TO_PROCESSOR),
            poolsize=POOLSIZE,
        )
        self.inbound = self.connect(QueueName.TO_FETCHER)()
        self.outbound = self.connect(QueueName.TO_PROCESSOR)()
        self.status = self.connect(QueueName.STATUS)()
        self.pages: list[str] = []
        self.released: list[str] = []
        self.beat: Beat | None = None
        self.thread = threading.Thread(target=self.fetcher.run)

    def connect(self, name: QueueName) -> Callable[[], MemoryQueue]:
        return lambda: MemoryQueue(self.space, name, maxsize=1000)

    def send(self, urls: list[str], batch: str) -> None:
        tasks = [Dispatch(taskid=f"{batch}-{number}", project="p", url=url, run=1) for number, url in enumerate(urls)]
        self.inbound.put(codec.encode(TaskBatch(batch=batch, epoch=1, tasks=tasks, processors=100)), 5)

    def listen(self) -> None:
        for received in self.outbound.get(1000, 0):
            self.pages += [page.task.taskid for page in codec.decode(received.body, PageBatch).pages]
        for received in self.status.get(1000, 0):
            for item in codec.decode(received.body, StatusBatch).items:
                if isinstance(item, Beat):
                    self.beat = item
                elif isinstance(item, Release):
                    self.released += [taskid for _, taskid, _ in item.runs]

    def wait(self, condition: Callable[[], Any], seconds: float = 15.0) -> None:
        until = time.monotonic() + seconds
        while self.listen() or not condition():
            assert time.monotonic() < until, "it did not happen in time"
            time.sleep(0.01)

    def says(self, state: str) -> bool:
        """The newest beat has this state."""
        return self.beat is not None and self.beat.state == state


def answers(proxy: ServerProxy) -> bool:
    """The fetcher's loop runs and has its queues: the port is there before it."""
    try:
        return bool(proxy.status()["queues"])
    except Fault as fault:
        assert "does not run yet" in fault.faultString
        return False


@contextmanager
def running(secret: str = "") -> Iterator[tuple[World, ServerProxy]]:
    world = World()
    port = RpcServer("127.0.0.1", 0, secret=secret)
    world.heartbeat.start()
    world.thread.start()
    try:
        port.serve(Remote(world.fetcher).functions())
        url = port.url.replace("//", f"//:{secret}@") if secret else port.url
        with ServerProxy(url, allow_none=True, use_builtin_types=True) as proxy:
            world.wait(lambda: answers(proxy))
            yield world, proxy
    finally:
        world.fetcher.stop()
        world.thread.join(20)
        port.stop()
        assert not world.thread.is_alive()
        assert world.heartbeat.stop(5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "LOOK_EACH", 0.05)


def test_drain_gives_back_what_is_not_started(serve: Any, reply: Any) -> None:
    """And finishes what runs, and takes nothing until resume; the beats say so."""
    go = threading.Event()
    site = serve(lambda seen, connection: go.wait(10) and reply(b"x"))
    with running() as (world, proxy):
        world.send([f"{site.url}/{number}" for number in range(POOLSIZE + 6)], "b")
        world.wait(lambda: proxy.size() == POOLSIZE)
        before = proxy.status()
        assert (before["state"], before["running"], before["waiting"], before["load"]) == (
            "",
            POOLSIZE,
            6,
            POOLSIZE + 6,
        )
        assert proxy.drain() is None
        world.wait(lambda: world.says("draining") and len(world.released) == 6)
        assert (proxy.status()["state"], proxy.status()["load"]) == ("draining", POOLSIZE)
        assert sorted(world.released) == [f"b-{number}" for number in range(POOLSIZE, POOLSIZE + 6)]
        go.set()
        world.wait(lambda: world.says("drained") and proxy.status()["state"] == "drained")
        assert sorted(world.pages) == [f"b-{number}" for number in range(POOLSIZE)]
        assert proxy.size() == proxy.status()["load"] == 0

        # one batch may come in that the consumer was waiting for already: it is given back
        for number in range(3):
            world.send(["data:,1"], f"late{number}")
        assert proxy.status()["state"] in ("draining", "drained")
        world.wait(lambda: world.says("drained"))
        assert (len(world.pages), world.inbound.qsize() >= 2) == (POOLSIZE, True)
        proxy.resume()
        world.wait(lambda: world.says("") and len(world.pages) + len(world.released) == POOLSIZE + 6 + 3)


def test_pause_fetches_what_was_taken(serve: Any, reply: Any) -> None:
    go = threading.Event()
    site = serve(lambda seen, connection: go.wait(10) and reply(b"x"))
    with running() as (world, proxy):
        world.send([f"{site.url}/{number}" for number in range(POOLSIZE + 2)], "b")
        world.wait(lambda: proxy.size() == POOLSIZE)
        proxy.pause()
        world.wait(lambda: world.says("paused"))
        go.set()
        world.wait(lambda: len(world.pages) == POOLSIZE + 2)
        assert proxy.status()["state"] == "paused"
        # an order replaces the one before it
        proxy.drain()
        world.wait(lambda: world.says("drained"))
        proxy.pause()
        world.wait(lambda: world.says("paused"))
        proxy.resume()
        world.send(["data:,1"], "more")
        world.wait(lambda: "more-0" in world.pages and world.says(""))
        assert world.released == []


def test_set_poolsize() -> None:
    with running() as (world, proxy):
        assert proxy.set_poolsize(7) is None
        world.wait(lambda: world.beat is not None and world.beat.pool_size == 7)
        assert proxy.status()["poolsize"] == 7
        for wrong in (0, -1, 10_001, "7", 7.5, True, None, [7], "x" * 10_000):
            with pytest.raises(Fault, match="set_poolsize: expected a whole number from 1 to 10000, got"):
                proxy.set_poolsize(wrong)
        assert proxy.status()["poolsize"] == 7


@pytest.mark.behaviour("F45", "X-F8")
def test_pyspiders_methods() -> None:
    with running() as (world, proxy):
        task = {"taskid": "t", "project": "p", "url": "data:,direct", "fetch": {"save": {"a": ["日本", None]}}}
        answer = msgspec.msgpack.decode(proxy.fetch(task))
        assert (answer["status_code"], answer["content"], answer["save"]) == (200, "direct", {"a": ["日本", None]})
        assert proxy.size() == 0
        assert proxy.counter("5m", "sum") == {"p": {"200": 1}}
        assert proxy.status()["counter"] == {"p": {"200": 1}}
        for wrong in ({"url": 5}, 5, None, [], "x", {}):
            with pytest.raises(Fault, match="fetch: this is no task: "):
                proxy.fetch(wrong)
        for arguments in (("5m", "most"), ("2m", "sum"), ([], {}), (None, None)):
            with pytest.raises(Fault, match="counter: time must be one of 5m_time"):
                proxy.counter(*arguments)
        assert proxy._quit() is None
        world.wait(lambda: not world.thread.is_alive())


def test_what_needs_the_secret() -> None:
    with running("s3cret") as (_, proxy):
        assert proxy.status()["state"] == ""
        functions = set(proxy.system.listMethods())
    assert functions - server.READING == {"_quit", "pause", "resume", "drain", "set_poolsize", "fetch"}


def test_before_and_after_it_runs() -> None:
    remote = Remote(World().fetcher).functions()
    for call in (
        lambda: remote["counter"]("5m", "sum"),
        lambda: remote["status"](),
        lambda: remote["fetch"]({"taskid": "t", "project": "p", "url": "data:,x"}),
    ):
        with pytest.raises(Fault, match="the fetcher does not run yet, or no more"):
            call()
