"""What it costs that some tasks wait apart: nothing for what is in flight, and one look each, whatever the number of steps."""

from collections.abc import Iterator
from typing import Any

import pytest
from played_crawl import Crawl, done, new

from pyspider_lite.models.task import DueKey
from pyspider_lite.scheduler.apart import FREE, Gate
from pyspider_lite.scheduler.blame import LeaseKey
from pyspider_lite.scheduler.leases import Leases


class Asked:
    """What is in flight, for those who ask for one key."""

    def __init__(self, keys: Any) -> None:
        self._keys = keys

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[LeaseKey]:
        raise AssertionError("all that is in flight is looked at")

    __or__ = __and__ = __len__ = __iter__


def test_a_refill_does_not_look_at_all_that_is_in_flight(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    crawl.project()
    crawl.ready("p")
    in_flight = Asked(crawl.scheduler.leases.in_flight())
    monkeypatch.setattr(crawl.scheduler.leases, "in_flight", lambda: in_flight)
    crawl.submit(*[new(f"t{number}") for number in range(9)])
    first = crawl.tasks()
    assert crawl.scheduler.look_again("p"), "so its window is filled anew"
    crawl.submit(new("last"))
    assert len(first) == 9 and [task.taskid for task in crawl.tasks()] == ["last"]
    crawl.step(*[done(task) for task in first])
    assert crawl.tasks() == []


def test_tasks_that_wait_apart_are_looked_at_when_a_toll_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases()
    gate, blame = Gate(leases), leases.blame
    for number in range(9):
        gate.park("p", DueKey(taskid=f"t{number}", priority=0, due=0.0, seq=number))
        for _ in range(2):
            blame.count_kill(("p", f"t{number}"))
    looks: list[LeaseKey] = []
    kills = blame.kills
    monkeypatch.setattr(blame, "kills", lambda key: looks.append(key) or kills(key))

    def stopped(name: str) -> bool:
        return False

    assert gate.begin_round(0.0, lambda name: True) == []
    for step in range(100):
        assert gate.begin_round(FREE + step / 100, stopped) == []
    assert len(looks) == 9 and not gate.holds
    blame.acquit(("p", "t3"))
    assert [key.taskid for _, key in gate.begin_round(FREE + 2, stopped)] == ["t3"]
    assert gate.begin_round(FREE + 3, lambda name: True) == [] and gate.holds
