"""Broker and database of the cluster are away: at boot, under load, and while 100,000 tasks lie in the broker's queue."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kombu
import pytest

from pyspider_lite import codec
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.tutorial_cluster import SCRIPT, Cluster
from pyspider_lite.models.batch import StatusBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.report import Report

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

PAGES = 100_000
#: seconds for which the servers are away
OUTAGES = [5, 60]
#: where on_start's report waits for the scheduler, in parts of a thousand tasks; `queue-maxsize` is 100 messages, a message has a megabyte
QUEUE = "pyspider_lite.status_queue"
SCHEDULER = "scheduler:scheduler_00"
#: on_start says that it began, and goes on when it may: with a time limit of 30 s. Its links are sent at its end, not while it runs, as
#: they would be with a scheduler that is there: all of them are to lie in the queue
GATED = SCRIPT.replace(
    "    def on_start(self):\n",
    """    def on_start(self):
        import os, time
        open("{began}", "w").close()
        while not os.path.exists("{gate}"):
            time.sleep(0.1)
        self._run._send = None
""",
)


@pytest.mark.parametrize(("broker", "database"), [("redis", "mariadb"), ("rabbitmq", "postgresql")])
def test_broker_and_database_are_away(
    make_cluster: Callable[..., Cluster], tmp_path: Path, broker: str, database: str
) -> None:
    """With 100,000 tasks: at boot, with all of them in a queue, under load, with connections cut, with the broker emptied."""
    cluster = make_cluster(broker, database)
    # the first boot: neither is there, nor are tables
    cluster.master.supervise("master")
    for _ in range(2):
        cluster.add_slave()
    cluster.wait(cluster.all_up, 60, "the programs were not RUNNING")
    before = cluster.programs()
    time.sleep(OUTAGES[0])
    assert cluster.programs() == before
    cluster.start_servers()

    cluster.crawl(
        PAGES, script=GATED.replace("{began}", str(tmp_path / "began")).replace("{gate}", str(tmp_path / "gate"))
    )
    away_with_a_full_queue(cluster, tmp_path)
    for what, seconds, act in outages(cluster):
        act()
        before = cluster.programs()
        print(f"{what}: ", end="", flush=True)
        if seconds:
            time.sleep(seconds)
            cluster.start_servers()
        returned = time.monotonic()
        cluster.wait(partial(crawled_since, cluster, returned, 200), 10, f"{what}: work did not go on")
        print(f"work went on after {time.monotonic() - returned:.1f} s, {len(cluster.site.requests)} requests")
        assert cluster.programs() == before, f"{what}: a program ended"
        # a bit of quiet, so that each finds a crawl that goes well
        cluster.wait(partial(crawled_since, cluster, returned, 2000), 60, f"{what}: work did not go on well")
    cluster.wait_until_finished(600)
    assert cluster.programs() == before
    print(cluster.speed())
    cluster.check_results()


def away_with_a_full_queue(cluster: Cluster, folder: Path) -> None:
    """All tasks lie in the broker while its queues are emptied, and while both servers are stopped. Redis has them again when it is back;
    RabbitMQ does not, as no message but those of newtask_queue is persistent: then on_start is given out again. At last the scheduler starts
    while the servers are still away, and work goes on when they are back."""
    began, gate = folder / "began", folder / "gate"
    for what, seconds in [
        ("its queues emptied", 0),
        *((f"both stopped for {seconds} s", seconds) for seconds in OUTAGES),
    ]:
        fill_the_queue(cluster, began, gate)
        print(f"the broker holds {tasks_in_the_queue(cluster)} tasks; {what}: ", end="", flush=True)
        before = others(cluster)
        last = seconds == OUTAGES[-1]
        if not seconds:
            inside(cluster, partial(empty, cluster))()
        else:
            cluster.stop_servers()
            if last:
                began.unlink()
                cluster.master.supervisorctl("start", SCHEDULER)
            time.sleep(seconds)
            cluster.start_servers()
        returned = time.monotonic()
        assert others(cluster) == before, f"{what}: a program ended"
        if not last:
            print(f"then it holds {tasks_in_the_queue(cluster)}", flush=True)
    pages = partial(crawled_since, cluster, returned, 200)
    if not isinstance(cluster.broker, Redis):
        # the first work is on_start, which takes its time to name them all
        cluster.wait(began.exists, 10, f"{what}: on_start was not given out again")
        print(f"on_start was given out again after {time.monotonic() - returned:.1f} s, ", end="", flush=True)
    cluster.wait(pages, 10 if isinstance(cluster.broker, Redis) else 60, f"{what}: work did not go on")
    print(f"work went on after {time.monotonic() - returned:.1f} s")


def fill_the_queue(cluster: Cluster, began: Path, gate: Path) -> None:
    """Have on_start's report lie in the broker: the scheduler gives on_start out and is stopped before that ends."""
    if tasks_in_the_queue(cluster) == PAGES:
        return
    if gate.exists():
        began.unlink()
        gate.unlink()
        cluster.master.supervisorctl("start", SCHEDULER)
    cluster.wait(began.exists, 60, "on_start was not given out")
    cluster.master.supervisorctl("stop", SCHEDULER)
    gate.touch()
    cluster.wait(lambda: tasks_in_the_queue(cluster) == PAGES, 60, "the report of on_start did not come")


def others(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """The programs but for the scheduler, which is stopped and started here."""
    return {name: found for name, found in cluster.programs().items() if SCHEDULER not in name}


def tasks_in_the_queue(cluster: Cluster) -> int:
    """How many follow-ups the reports on the broker have, asked of the broker itself, which keeps them."""
    with cluster.master.inside():
        if isinstance(cluster.broker, Redis):
            with cluster.broker.client() as client:
                bodies = client.lrange(QUEUE, 0, -1)
        else:
            bodies = []
            with kombu.Connection(cluster.broker.url) as connection, connection.channel() as channel:
                while (message := channel.basic_get(QUEUE)) is not None:
                    bodies.append(bytes(message.body))  # not acknowledged: they stay
    items = [item for body in bodies for item in codec.decode(body, StatusBatch).items]
    return sum(len(item.follows) for item in items if isinstance(item, Report))


def empty(cluster: Cluster) -> None:
    """As an administrator does it."""
    if isinstance(cluster.broker, Redis):
        with cluster.broker.client() as client:
            client.flushall()
    else:
        with kombu.Connection(cluster.broker.url) as connection, connection.channel() as channel:
            for name in QueueName:
                channel.queue_purge(f"pyspider_lite.{name}")


def outages(cluster: Cluster) -> Iterator[tuple[str, float, Callable[[], None]]]:
    """What is done, for how long the servers are away (0: they are not), and how it is done."""
    for seconds in OUTAGES:
        yield f"both stopped for {seconds} s", seconds, cluster.stop_servers
        yield f"all programs started while both are away for {seconds} s", seconds, cluster.boot_without_servers
    yield "broker killed", 2, inside(cluster, cluster.broker.kill)
    yield "database killed", 2, inside(cluster, cluster.database.kill)
    yield "connections to the broker cut", 0, inside(cluster, cluster.broker.cut)
    yield "connections to the database cut", 0, inside(cluster, cluster.database.cut)
    yield "all queues emptied", 0, inside(cluster, partial(empty, cluster))


def inside(cluster: Cluster, act: Callable[[], Any]) -> Callable[[], None]:
    """The same, in the network of the master."""

    def do() -> None:
        with cluster.master.inside():
            act()

    return do


def crawled_since(cluster: Cluster, when: float, number: int) -> bool:
    """Whether that many requests came after a time."""
    log = cluster.site.requests
    return len(log) >= number and log[-number].time > when
