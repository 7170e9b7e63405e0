"""Broker and database are there and refuse: no memory, no disk, locks, deadlocks, connections cut again and again, queues emptied.

Like `test_outages.py`: no daemon ends, what is waited for is said, work goes on at once, nothing is lost.
"""

import contextlib
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import message_queue
from pyspider_lite.bench import site
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.database import deadlines
from pyspider_lite.log import mask_url
from pyspider_lite.models.names import QueueName

sys.path.insert(0, str(Path(__file__).parent))
from outage_cluster import GOES_ON, MAIN, OTHER, ROLES, Cluster, SqliteFiles, served_by

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

#: pages a second while there is trouble
RATE = "5"
PREFIX = "pyspider_lite."

Trouble = Callable[[Cluster], AbstractContextManager[object]]


def said(cluster: Cluster, url: str, reason: str, within: float = 15.0) -> None:
    """That somebody waits for it is said in the state and in a log."""
    cluster.wait(
        lambda: any(
            any(where.startswith(mask_url(url)) for where in cluster.ready(role)["waiting"])
            and reason in cluster.log(role)
            for role in ROLES
        ),
        within,
    )


# --- Redis --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def redis_is_full(cluster: Cluster) -> Iterator[None]:
    with cluster.broker.client() as client:
        client.config_set("maxmemory", 1)
        said(cluster, cluster.broker.url, "redis is full")
        yield
        client.config_set("maxmemory", 0)


@contextlib.contextmanager
def redis_cannot_save(cluster: Cluster) -> Iterator[None]:
    """As on a full disk: it takes nothing any more."""
    with cluster.broker.client() as client:
        in_the_way = cluster.broker.folder / "dump.rdb"
        in_the_way.mkdir()
        client.bgsave()
        said(cluster, cluster.broker.url, "redis cannot save")
        yield
        in_the_way.rmdir()
        client.bgsave()


# --- RabbitMQ -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def rabbitmq_has_no_memory(cluster: Cluster) -> Iterator[None]:
    cluster.broker.control("set_vm_memory_high_watermark", "absolute", "1000")
    said(cluster, cluster.broker.url, "takes no messages now")
    yield
    cluster.broker.control("set_vm_memory_high_watermark", "0.4")


@contextlib.contextmanager
def rabbitmq_has_no_disk(cluster: Cluster) -> Iterator[None]:
    cluster.broker.control("set_disk_free_limit", "1000000GB")
    said(cluster, cluster.broker.url, "takes no messages now")
    yield
    cluster.broker.control("set_disk_free_limit", "10MB")


@contextlib.contextmanager
def queues_are_deleted(cluster: Cluster) -> Iterator[None]:
    for name in (QueueName.TO_FETCHER, QueueName.STATUS):
        cluster.broker.control("delete_queue", f"{PREFIX}{name}")
    yield


# --- any ----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def queues_are_purged(cluster: Cluster) -> Iterator[None]:
    for name in QueueName:
        with closing(message_queue.connect(cluster.broker.url, name, prefix=PREFIX)) as queue:
            queue.purge()
    yield


@contextlib.contextmanager
def connections_are_cut_again_and_again(cluster: Cluster) -> Iterator[None]:
    for _ in range(6):
        cluster.broker.cut()
        cluster.database.cut()
        time.sleep(0.4)
    yield


@contextlib.contextmanager
def deadlocks(cluster: Cluster) -> Iterator[None]:
    """Somebody takes the tasks, which the scheduler wants, and then the leader row, which it has."""
    database = cluster.database
    server = "mariadb" if isinstance(database, MariaDb) else "postgresql"
    many, tasks, leader, number = _SQL[server]
    database.execute(*_PREPARE[server], **_WHERE[server])

    def count() -> int:
        return int(database.execute(number)[0][-1])

    before, end = count(), time.monotonic() + 30
    while count() < before + 2:
        assert time.monotonic() < end, "no deadlock came about"
        with closing(database.connect(**_WHERE[server])) as connection, connection.cursor() as cursor:
            cursor.execute("begin")
            cursor.execute(many)  # whoever has changed little is the one that is rolled back
            cursor.execute(tasks)
            time.sleep(0.4)
            with contextlib.suppress(Exception):  # or it is us
                cursor.execute(leader)
            cursor.execute("rollback")
        time.sleep(0.2)
    yield


_PREPARE = {
    "mariadb": ["create table if not exists taskdb.many (number integer)"],
    "postgresql": ["create table if not exists many (number integer)"],
}
_WHERE: dict[str, dict[str, Any]] = {"mariadb": {}, "postgresql": {"database": "taskdb"}}
_SQL = {
    "mariadb": (
        "insert into taskdb.many select seq from taskdb.seq_1_to_20000",
        "select taskid from taskdb.gen for update",
        "select * from taskdb.`lite-leader` for update",
        "show global status like 'Innodb_deadlocks'",
    ),
    "postgresql": (
        "insert into many select generate_series(1, 10)",
        "select taskid from gen for update",
        'select * from "lite-leader" for update',
        "select deadlocks from pg_stat_database where datname = 'taskdb'",
    ),
}
ANY = [queues_are_purged, connections_are_cut_again_and_again, deadlocks]


@pytest.mark.parametrize(
    ("kinds", "troubles"),
    [
        pytest.param(MAIN, [redis_is_full, redis_cannot_save, *ANY], id="redis"),
        pytest.param(
            OTHER,
            [rabbitmq_has_no_memory, rabbitmq_has_no_disk, queues_are_deleted, *ANY],
            id="rabbitmq",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_troubles_under_load(tmp_path: Path, kinds: Any, troubles: list[Trouble]) -> None:
    with served_by(tmp_path, *(kind() for kind in kinds)) as cluster, site.Site(600, delay=0.02) as served:
        cluster.broker.start()
        cluster.database.start()
        cluster.start()
        cluster.crawl(served, RATE)
        cluster.wait(lambda: cluster.count() > 20, 60)
        for trouble in troubles:
            with trouble(cluster):
                asked = sum(served.requests.values())
            took = cluster.wait(lambda asked=asked: sum(served.requests.values()) > asked, GOES_ON)
            print(f"{trouble.__name__}: work went on after {took:.1f} s")
            cluster.goes_on(served.pages)
        assert cluster.count() < served.pages
        cluster.command("project", "set", "gen", "--rate", "unlimited")
        cluster.complete(served)
        assert not any("Traceback" in cluster.log(role) for role in ROLES)
        cluster.stop()


@pytest.mark.slow
def test_files_of_sqlite_are_locked_for_long(tmp_path: Path) -> None:
    with served_by(tmp_path, Redis(), SqliteFiles(tmp_path)) as cluster, site.Site(600) as served:
        cluster.broker.start()
        cluster.start()
        cluster.crawl(served, RATE)
        cluster.wait(lambda: cluster.count() > 20, 60)
        for kind in ("taskdb", "resultdb"):
            with closing(sqlite3.connect(tmp_path / f"{kind}.db", timeout=30, isolation_level=None)) as other:
                other.execute("begin immediate")
                # SQLite counts the seconds that it meant to sleep, and on a busy machine sleeps longer
                said(
                    cluster,
                    f"sqlite+{kind}",
                    "another process holds its lock",
                    within=2 * deadlines.SQLITE_LOCK + GOES_ON,
                )
                other.execute("rollback")
            asked = sum(served.requests.values())
            cluster.wait(lambda asked=asked: sum(served.requests.values()) > asked, GOES_ON)
            cluster.goes_on(served.pages)
        cluster.command("project", "set", "gen", "--rate", "unlimited")
        cluster.complete(served)
        cluster.stop()
