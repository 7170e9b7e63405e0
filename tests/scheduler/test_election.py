"""`coordination`: who leads is decided by a real ZooKeeper; what is written is still guarded by the epoch in the database."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import outages
from pyspider_lite.bench.servers.zookeeper import ZooKeeper
from pyspider_lite.database import connect_taskdb
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import ConfigError, CoordinationError, LostLeadership
from pyspider_lite.scheduler import election
from pyspider_lite.scheduler.leader import Leadership


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as server:
        yield server


class Candidates:
    """Leaderships on one taskdb."""

    def __init__(self, zookeeper: ZooKeeper, taskdb: TaskDB, path: str) -> None:
        self.address = election.parse(f"zookeeper://{zookeeper.host}:{zookeeper.port}/{path}")
        self.taskdb = taskdb
        self.all: list[Leadership] = []
        self.lost: list[str] = []

    def start(self, name: str) -> Leadership:
        one = Leadership(self.taskdb.copy(), name, str, lambda: self.lost.append(name), self.address)
        self.all.append(one)
        one.start()
        return one

    def close(self) -> None:
        for one in self.all:
            one.stop()
            one.join(10)
            assert not one.is_alive()
        self.taskdb.close()


@pytest.fixture
def candidates(zookeeper: ZooKeeper, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Candidates]:
    taskdb = connect_taskdb(f"sqlite+taskdb:///{tmp_path}/task.db")
    candidates = Candidates(zookeeper, taskdb, request.node.name)
    yield candidates
    candidates.close()


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("url", "hosts", "path"),
    [
        ("zookeeper://one", "one:2181", "/pyspider_lite"),
        ("zookeeper://one/", "one:2181", "/pyspider_lite"),
        ("zookeeper://one:2182,two/a/b/", "one:2182,two:2181", "/a/b"),
    ],
)
def test_addresses(url: str, hosts: str, path: str) -> None:
    assert election.parse(url) == (hosts, path)


@pytest.mark.parametrize("url", ["zookeeper://", "redis://one", "one:2181", "zookeeper://one:x", "zookeeper://u:p@one"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigError, match="expected zookeeper://HOST"):
        election.parse(url)


def test_the_next_one_is_elected_when_one_stops(candidates: Candidates) -> None:
    first, second = candidates.start("one"), None
    assert first.wait(10)
    second = candidates.start("two")
    wait_for(lambda: second.leader is not None)
    assert second.leader is not None and second.leader.holder == "one"
    assert second.wait(1.0) is None
    assert election.describe(candidates.address) == "one is elected"
    began = time.monotonic()
    first.stop()
    assert second.wait(10)
    assert time.monotonic() - began < 2
    assert candidates.lost == []


def test_the_election_decides_and_not_the_row(candidates: Candidates) -> None:
    """A leader whose term is not over, and who is not elected, is one that was killed."""
    old = candidates.taskdb.lead("dead", 3600.0, "")
    assert old is not None
    assert (candidates.start("one").wait(10) or 0) > old
    with pytest.raises(LostLeadership), candidates.taskdb.begin(old):
        pass


def test_a_session_that_is_lost_is_the_end_of_a_lead(candidates: Candidates) -> None:
    first = candidates.start("one")
    epoch = first.wait(10)
    assert epoch is not None
    second = candidates.start("two")
    wait_for(lambda: second.leader is not None)
    expire(candidates, first)
    assert (second.wait(20) or 0) > epoch
    wait_for(lambda: candidates.lost == ["one"])
    with pytest.raises(LostLeadership), candidates.taskdb.begin(epoch):
        pass
    wait_for(lambda: not first.is_alive())
    row = candidates.taskdb.leader()
    assert row is not None
    # who lost it did not end the term of the other
    assert row.holder == "two" and row.until > candidates.taskdb.time()


def expire(candidates: Candidates, leadership: Leadership) -> None:
    """As ZooKeeper does when it heard nothing for the length of a session: who resumes a session and closes it ends it."""
    assert leadership._election is not None
    twin = election.connect(candidates.address)
    twin._session_id, twin._session_passwd = leadership._election._client.client_id
    twin.start(timeout=10)
    twin.stop()
    twin.close()


def test_a_zookeeper_that_restarts_takes_no_lead(candidates: Candidates, zookeeper: ZooKeeper) -> None:
    first = candidates.start("one")
    assert first.wait(10)
    shown = candidates.address.shown
    zookeeper.kill()
    try:
        wait_for(lambda: shown in outages.waiting())
        # it goes on: its epoch stands
        time.sleep(election.SESSION + 1)
        assert not first.overdue
        with candidates.taskdb.begin(first.epoch):
            pass
    finally:
        zookeeper.start()
    wait_for(lambda: shown not in outages.waiting())
    second = candidates.start("two")
    wait_for(lambda: second.leader is not None)
    assert second.wait(1.0) is None
    assert candidates.lost == []


def test_a_zookeeper_that_is_away_at_the_start_is_waited_for(candidates: Candidates, zookeeper: ZooKeeper) -> None:
    zookeeper.stop()
    try:
        with pytest.raises(CoordinationError, match="zookeeper://"):
            election.describe(candidates.address)
        first = candidates.start("one")
        wait_for(lambda: candidates.address.shown in outages.waiting())
    finally:
        zookeeper.start()
    assert first.wait(20)
    assert candidates.address.shown not in outages.waiting()


def test_who_hangs_between_two_answers_is_asked_again(candidates: Candidates, zookeeper: ZooKeeper) -> None:
    """A frozen server: connections stay open and nothing is answered."""
    changed = threading.Event()
    one = election.Election(candidates.address, "one", changed.set)
    try:
        wait_for(one.won)
        zookeeper.freeze()
        time.sleep(1.0)
        zookeeper.thaw()
        assert one.won()
        assert not one.lost
    finally:
        zookeeper.thaw()
        one.close()
