"""A leader row whose term ends too late, because the database's clock was set back: a stand-by takes over by its own clock."""

from pathlib import Path

import pytest

from pyspider_lite.database import connect_taskdb
from pyspider_lite.database.base import Leader, TaskDB
from pyspider_lite.scheduler.leader import RENEW, TERM, Leadership, Standstill


def row(epoch: int = 1, until: float = 0.0) -> Leader:
    return Leader(epoch=epoch, holder="h", until=until, rpc="")


def test_a_row_stands_still_when_nobody_renews_it_for_a_term() -> None:
    still = Standstill()
    assert not still.longer_than_a_term(row(), 1_000.0)
    assert not still.longer_than_a_term(row(), 1_000.0 + TERM)
    assert still.longer_than_a_term(row(), 1_000.1 + TERM)
    assert not still.longer_than_a_term(row(epoch=2), 1_000.2 + TERM), "another leads"
    for renewal in range(20):
        assert not still.longer_than_a_term(row(epoch=2, until=float(renewal)), 1_010.0 + renewal * RENEW)


class StandBy(Leadership):
    """One whose rounds the test turns, with a counted clock."""

    def __init__(self, taskdb: TaskDB, lost: list[str]) -> None:
        super().__init__(taskdb, "stand-by", str, lambda: lost.append("lost"))

    def turn(self, now: float) -> int | None:
        assert self._round(now)
        return self.epoch


@pytest.fixture
def urls(tmp_path: Path) -> str:
    return f"sqlite+taskdb:///{tmp_path}/task.db"


def test_a_term_that_ends_in_an_hour_is_not_waited_for(urls: str, caplog: pytest.LogCaptureFixture) -> None:
    taskdb = connect_taskdb(urls)
    old = taskdb.lead("dead", 3600.0, "") or 0
    stand_by = StandBy(taskdb, [])
    times = [100.0 + 0.5 * number for number in range(40)]
    led = next(now for now in times if stand_by.turn(now) is not None)
    assert TERM < led - times[0] <= TERM + 0.5
    assert (stand_by.epoch or 0) > old and stand_by.leader is None and stand_by.wait(0) == stand_by.epoch
    assert "the lead of dead was to end only in 3" in caplog.text
    assert not taskdb.renew(old, TERM)
    taskdb.close()


def test_who_renews_is_not_taken_over_however_far_its_term_seems(urls: str) -> None:
    taskdb = connect_taskdb(urls)
    leader = taskdb.lead("alive", 3600.0, "") or 0
    stand_by = StandBy(taskdb, [])
    for number in range(60):
        assert stand_by.turn(100.0 + 0.5 * number) is None
        if number % 3 == 0:
            assert taskdb.renew(leader, 3600.0 - number)
    taskdb.close()


def test_a_term_that_can_be_is_waited_for(urls: str) -> None:
    """The stand-by was frozen, or its clock runs fast: the row's term ends by the database's clock, within a term."""
    taskdb = connect_taskdb(urls)
    taskdb.lead("other", TERM, "")
    stand_by = StandBy(taskdb, [])
    for now in (100.0, 200.0, 300.0):
        assert stand_by.turn(now) is None
    taskdb.close()
