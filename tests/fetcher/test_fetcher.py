"""The role from queue to queue: memory queues, a real heartbeat, real servers."""

import math
import re
import threading
import time
import uuid
from contextlib import contextmanager
from xmlrpc.client import Fault

import pytest

from pyspider_lite import codec
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
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.worker import Beat, Claim, Handover, Release


class World:
    """The queues around one fetcher, and what came out of them so far."""

    def __init__(self, out_size=1000):
        self.space = uuid.uuid4().hex
        self.out_size = out_size
        self.inbound = self.connect(QueueName.TO_FETCHER)()
        self.outbound = self.connect(QueueName.TO_PROCESSOR)()
        self.status = self.connect(QueueName.STATUS)()
        self.pages = []
        self.batches = []
        self.said = []

    def connect(self, name):
        return lambda: MemoryQueue(self.space, name, maxsize=self.out_size if name == QueueName.TO_PROCESSOR else 1000)

    def send(self, urls, batch="b1", processors=1000, epoch=1, **fetch):
        tasks = [
            Dispatch(taskid=f"{batch}-{number}", project="p", url=url, run=1, fetch=fetch)
            for number, url in enumerate(urls)
        ]
        self.inbound.put(codec.encode(TaskBatch(batch=batch, epoch=epoch, tasks=tasks, processors=processors)), 5)
        return [task.key for task in tasks]

    def collect(self):
        for received in self.outbound.get(1000, 0):
            batch = codec.decode(received.body, PageBatch)
            self.batches.append(batch)
            self.pages += batch.pages
        self.listen()

    def listen(self):
        for received in self.status.get(1000, 0):
            self.said += codec.decode(received.body, StatusBatch).items

    def runs(self, kind):
        return [run for item in self.said if isinstance(item, kind) for run in item.runs]

    def beats(self):
        self.listen()
        return sum(isinstance(item, Beat) for item in self.said)


def wait_until(condition, seconds=15):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def running(world, kind=Fetcher, engine=None, **options):
    heartbeat = Heartbeat(WorkerInfo.make(Role.FETCHER, 100), world.connect(QueueName.STATUS), interval=0.2)
    fetcher = kind(
        fetch=Fetch(HttpEngine(EngineOptions(**(engine or {}))), Defaults()),
        heartbeat=heartbeat,
        connect_in=world.connect(QueueName.TO_FETCHER),
        connect_out=world.connect(QueueName.TO_PROCESSOR),
        **options,
    )
    thread = threading.Thread(target=fetcher.run)
    heartbeat.start()
    thread.start()
    try:
        yield fetcher
    finally:
        fetcher.stop()
        thread.join(20)
        assert not thread.is_alive()
        assert heartbeat.stop(5)


@pytest.mark.behaviour("F3")
def test_200_tasks_in_200_pages_out(serve):
    server, world = serve(), World()
    with running(world) as fetcher:
        keys = []
        for number in range(8):
            keys += world.send([f"{server.url}/{number}/{each}" for each in range(25)], batch=f"b{number}")
        wait_until(lambda: world.collect() or len(world.pages) == 200)
        wait_until(lambda: fetcher.size() == 0)
    world.collect()
    assert sorted(page.task.key for page in world.pages) == sorted(keys)
    assert {(page.response.status_code, page.response.content) for page in world.pages} == {(200, b"hello")}
    assert sorted(world.runs(Claim)) == sorted(world.runs(Handover)) == sorted(keys)
    assert world.runs(Release) == []
    handovers = {item.batch: item.runs for item in world.said if isinstance(item, Handover)}
    assert handovers == {batch.batch: [page.task.key for page in batch.pages] for batch in world.batches}
    assert max(len(batch.pages) for batch in world.batches) <= 20
    last = world.said[-1]
    assert isinstance(last, Beat) and last.leaving and last.holds == {} and last.progress == 200


def test_what_an_older_leader_gave_out_is_dropped(serve):
    """One that was frozen with a batch in its hands, and woken when another had given those tasks out."""
    server, world = serve(), World()
    with running(world):
        keys = world.send([f"{server.url}/new"], batch="b1", epoch=2)
        world.send([f"{server.url}/old"], batch="b2", epoch=1)
        keys += world.send([f"{server.url}/newer"], batch="b3", epoch=3)
        world.send([f"{server.url}/old"], batch="b4", epoch=2)
        wait_until(lambda: world.collect() or (len(world.pages) == 2 and not world.inbound.qsize()))
    world.collect()
    assert sorted(world.runs(Claim)) == sorted(page.task.key for page in world.pages) == sorted(keys)


@pytest.mark.behaviour("F4")
def test_failures_are_pages_too_and_rubbish_is_kept_aside(serve):
    world = World()
    with running(world):
        world.inbound.put(b"rubbish", 5)
        world.send(["http://no-such-host.invalid/", "data:,x", "ftp://a/"])
        wait_until(lambda: world.collect() or len(world.pages) == 3)
        wait_until(lambda: world.listen() or any(isinstance(item, Broken) for item in world.said))
    kinds = {page.task.url: page.response.error_kind for page in world.pages}
    assert kinds == {"http://no-such-host.invalid/": "dns", "data:,x": None, "ftp://a/": "invalid-url"}


@pytest.mark.behaviour("F1")
def test_no_more_than_poolsize_at_once(serve, reply):
    now, most, lock = 0, 0, threading.Lock()

    def respond(seen, connection):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        server.released.wait(0.05)
        with lock:
            now -= 1
        return reply(b"x")

    server, world = serve(respond), World()
    with running(world, poolsize=4):
        world.send([f"{server.url}/{number}" for number in range(20)])
        wait_until(lambda: world.collect() or len(world.pages) == 20)
    assert most == 4


def test_takes_only_what_it_has_slots_for(serve):
    hanging = serve(lambda seen, connection: hanging.released.wait(20) and None)
    world = World()
    with running(world, poolsize=2, drain_timeout=0.2) as fetcher:
        world.send([f"{hanging.url}/1", f"{hanging.url}/2"], batch="b1")
        wait_until(lambda: fetcher.size() == 2)
        world.send(["data:,x"], batch="b2")
        enough = world.beats() + 3  # in which it would have been taken
        wait_until(lambda: world.beats() >= enough)
        assert world.inbound.qsize() == 1
    assert world.inbound.qsize() == 1


@pytest.mark.behaviour("X-F3", "X-M5")
@pytest.mark.parametrize("processors", [1, 2])
def test_holds_back_while_the_processors_do_not_keep_up(serve, processors):
    """Demand UA30: at most 4 batches a processor, and a few that were on their way."""
    world = World()
    with running(world):
        sent, enough = 0, math.inf
        while world.beats() < enough:
            if world.outbound.qsize() == sent:
                # the last one came through
                world.send(["data:,x"], batch=f"b{sent}", processors=processors)
                sent, enough = sent + 1, world.beats() + 3
            time.sleep(0.01)
        assert world.inbound.qsize() == 1, "the last one is left where it was"
        assert 4 * processors < world.outbound.qsize() == sent - 1 <= 4 * processors + 7
        wait_until(lambda: world.collect() or len(world.pages) == sent)


def test_drain(serve, reply):
    """What waits is given back at once, what runs may finish, what does not finish is given back at the deadline."""
    slow = serve(lambda seen, connection: slow.released.wait(0.5) or reply(b"slow"))
    hanging = serve(lambda seen, connection: hanging.released.wait(20) and None)
    world = World()
    with running(world, poolsize=2, drain_timeout=2.0) as fetcher:
        keys = world.send([slow.url, hanging.url, "data:,a", "data:,b"])
        wait_until(lambda: fetcher.size() == 2 and len(slow.seen) == 1 and len(hanging.seen) == 1)
        started = time.monotonic()
    assert 1.5 < time.monotonic() - started < 8
    world.collect()
    # the free slot of the one that finished is not filled any more
    assert [page.task.key for page in world.pages] == [keys[0]]
    assert sorted(world.runs(Release)) == sorted(keys[1:])
    assert world.runs(Handover) == [keys[0]]
    assert world.said[-1].leaving


def test_a_page_that_is_too_large_becomes_a_failure(serve, reply):
    import random

    huge = random.Random(1).randbytes(13 * 1024 * 1024)
    server = serve(lambda seen, connection: reply(huge if seen.target == "/huge" else b"small"))
    world = World()
    with running(world, engine={"body_limit": 16 * 1024 * 1024}):
        world.send([f"{server.url}/huge", f"{server.url}/small"], save={"kept": 1})
        wait_until(lambda: world.collect() or len(world.pages) == 2)
    found = {page.task.url.rpartition("/")[2]: page.response for page in world.pages}
    assert (found["huge"].status_code, found["huge"].error_kind, found["huge"].save) == (599, "too-large", {"kept": 1})
    assert found["small"].content == b"small"


@pytest.mark.behaviour("F5")
def test_control_and_hooks(caplog):
    seen = []

    class Mine(Fetcher):
        def on_fetch(self, type, task):
            seen.append(("fetch", type, task.url))
            raise RuntimeError("a user's mistake")

        def on_result(self, type, task, result):
            seen.append(("result", type, result.status_code))

    world = World()
    with running(world, kind=Mine) as fetcher:
        world.send(["data:,1"], batch="b1")
        wait_until(lambda: world.collect() or len(world.pages) == 1)
        response = fetcher.fetch_now(Dispatch(taskid="t", project="p", url="data:,now"), timeout=5)
        assert response.content == "now"
        fetcher.set_poolsize(7)
        wait_until(lambda: world.listen() or any(isinstance(i, Beat) and i.pool_size == 7 for i in world.said))
        fetcher.pause()
        # one batch may come in that the consumer was waiting for already: it is given back
        for number in range(3):
            world.send(["data:,2"], batch=f"p{number}")
        assert world.inbound.qsize() >= 2
        fetcher.resume()
        wait_until(lambda: world.listen() or world.collect() or len(world.pages) + len(world.runs(Release)) == 4)

    assert seen[:2] == [("fetch", "data", "data:,1"), ("result", "data", 200)]
    assert "a user's mistake" in caplog.text


@pytest.mark.parametrize("order", ["pause", "drain"])
def test_what_comes_in_spite_of_an_order_is_given_back(order):
    world = World()
    with running(world) as fetcher:
        world.send(["data:,1"], batch="b1")
        wait_until(lambda: world.collect() or len(world.pages) == 1)
        getattr(fetcher, order)()
        task = Dispatch(taskid="late", project="p", url="data:,2")
        fetcher._consumer._deliver(TaskBatch(batch="late", epoch=1, tasks=[task]))
        wait_until(lambda: world.listen() or len(world.runs(Release)) == 1)
        assert fetcher.status()["load"] == 0
        world.collect()
        assert len(world.pages) == 1


@pytest.mark.behaviour("F26", "X-X9")
def test_log_line_has_no_password(caplog):
    world = World()
    with caplog.at_level("INFO", "pyspider_lite.fetcher"), running(world):
        world.send(["http://user:secret@no-such-host.invalid/"])
        wait_until(lambda: world.collect() or len(world.pages) == 1)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("[599]")]
    assert lines[0].startswith("[599] p:b1-0 http://user:***@no-such-host.invalid/ ")
    assert "secret" not in caplog.text


def test_stop_before_run_and_twice():
    world = World()
    with running(world) as fetcher:
        fetcher.stop()
        fetcher.stop()


def test_what_it_says_of_itself(serve, reply):
    """F45, X-F8: counters by status code, read from another thread."""
    server = serve(lambda seen, connection: reply(b"x", "404 Not Found" if "no" in seen.target else "200 OK"))
    world = World()
    with running(world, poolsize=7) as fetcher:
        remote = Remote(fetcher).functions()
        world.send([f"{server.url}/{number}" for number in range(5)] + [f"{server.url}/no"])
        wait_until(lambda: world.collect() or len(world.pages) == 6)
        assert remote["counter"]("5m", "sum") == {"p": {"200": 5, "404": 1}}
        assert remote["counter"]("all", "sum") == {"p": {"200": 5, "404": 1}}
        mean = sum(page.response.time for page in world.pages) / 6
        assert remote["counter"]("5m_time", "avg") == {"p": {"time": pytest.approx(mean)}}
        wait_until(lambda: remote["size"]() == 0)
        for wrong in (("5m", "most"), ("2m", "sum")):
            with pytest.raises(Fault, match="counter: time must be one of 5m_time"):
                remote["counter"](*wrong)
        with pytest.raises(Fault, match="fetch: this is no task"):
            remote["fetch"]({"url": 5})
    with pytest.raises(Fault, match="does not run"):
        remote["counter"]("5m", "sum")


@pytest.mark.behaviour("F26")
def test_one_line_for_each_fetch(serve, reply, caplog):
    server = serve(lambda seen, connection: reply(b"x", "404 Not Found" if seen.target == "/no" else "200 OK"))
    world = World()
    with caplog.at_level("INFO", "pyspider_lite.fetcher"), running(world):
        world.send([f"{server.url}/yes", f"{server.url}/no"])
        wait_until(lambda: world.collect() or len(world.pages) == 2)
    said = sorted((one.levelname, one.getMessage()) for one in caplog.records if one.getMessage().startswith("["))
    url = server.url.replace(".", r"\.")
    assert [level for level, _ in said] == ["INFO", "WARNING"]
    assert re.fullmatch(rf"\[200\] p:b1-0 {url}/yes \d+\.\d\ds", said[0][1])
    assert re.fullmatch(rf"\[404\] p:b1-1 {url}/no \d+\.\d\ds", said[1][1])
