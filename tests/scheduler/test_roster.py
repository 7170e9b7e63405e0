"""The list of workers: what the leader writes down, and when it forgets."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyspider_lite.database import connect_taskdb
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.batch import StatusBatch
from pyspider_lite.models.worker import Beat, Claim, WorkerRow
from pyspider_lite.scheduler import roster as roster_module
from pyspider_lite.scheduler.roster import Roster

OWN = Beat(worker="master:1:aa", role="scheduler", host="master", pid=1, state="leading")


def beat(worker: str = "web:2:bb", **said: Any) -> Beat:
    return Beat(worker=worker, role="fetcher", host="web", pid=2, **said)


def batch(*items: Any) -> StatusBatch:
    return StatusBatch(items=list(items))


@pytest.fixture
def taskdb() -> Iterator[Any]:
    database = connect_taskdb("sqlite+taskdb://")
    yield database
    database.close()


@pytest.fixture
def roster(taskdb: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Roster]:
    monkeypatch.setattr(roster_module, "_EACH", 0.05)
    roster = Roster(taskdb.copy(), lambda: OWN, lambda: True)
    yield roster
    roster.stop()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "not within 10 s"
        time.sleep(0.01)


def listed(taskdb: Any) -> dict[str, WorkerRow]:
    return {row.beat.worker: row for row in taskdb.workers()}


def test_who_beats_is_listed_and_who_leaves_is_not(roster: Roster, taskdb: Any) -> None:
    roster.start()
    until(lambda: set(listed(taskdb)) == {OWN.worker})
    roster.hear(batch(beat(load=1), Claim(worker="web:2:bb", queue="q", batch="b"), beat(load=2)))
    until(lambda: len(listed(taskdb)) == 2)
    row = listed(taskdb)["web:2:bb"]
    assert row.beat.load == 2
    assert abs(row.seen - taskdb.time()) < 5
    # the row is only as young as the beat
    until(lambda: listed(taskdb)[OWN.worker].seen > row.seen + 0.1)
    assert listed(taskdb)["web:2:bb"].seen == row.seen
    roster.hear(batch(beat(leaving=True)))
    until(lambda: set(listed(taskdb)) == {OWN.worker})
    roster.stop()
    assert listed(taskdb) == {}


def test_rows_of_a_day_ago_are_forgotten(roster: Roster, taskdb: Any) -> None:
    now = taskdb.time()
    taskdb.put_workers(
        [WorkerRow(beat=beat("old"), seen=now - 90_000), WorkerRow(beat=beat("recent"), seen=now - 80_000)]
    )
    roster.start()
    until(lambda: set(listed(taskdb)) == {OWN.worker, "recent"})


def test_a_database_that_is_away_is_said_once_and_nothing_is_forgotten(
    roster: Roster, taskdb: Any, caplog: pytest.LogCaptureFixture
) -> None:
    away, tries = threading.Event(), []
    put = roster._taskdb.put_workers

    def refuse(rows: Any) -> None:
        tries.append(rows)
        if away.is_set():
            raise DatabaseError("the roster's database is away", "the roster's database")
        put(rows)

    roster._taskdb.put_workers = refuse  # type: ignore[method-assign]
    away.set()
    roster.start()
    roster.hear(batch(beat(load=1)))
    until(lambda: len(tries) > 3)
    roster.hear(batch(beat(load=2), beat("web:3:cc")))
    away.clear()
    until(lambda: len(listed(taskdb)) == 3)
    assert listed(taskdb)["web:2:bb"].beat.load == 2
    assert caplog.text.count("the roster's database is away") == 1


def test_the_rate_is_over_the_last_minute(roster: Roster) -> None:
    assert roster._rate(beat(progress=0), 100.0) == 0.0
    for second in range(2, 31, 2):
        rate = roster._rate(beat(progress=second * 10), 100.0 + second)
    assert rate == pytest.approx(10.0)
    for second in range(32, 151, 2):
        rate = roster._rate(beat(progress=300), 100.0 + second)
    assert rate == 0.0, "nothing for more than a minute"


def test_beats_that_had_to_wait_for_a_new_leader_tell_no_higher_rate(roster: Roster) -> None:
    rates = [roster._rate(beat(progress=second * 10, time=1000.0 + second), 5.0) for second in range(0, 12, 2)]
    assert rates[-1] == pytest.approx(10.0), "all heard at once"
    assert roster._rate(beat(progress=120, time=900.0), 6.0) == 0.0, "its clock was set back"
    assert roster._rate(beat(progress=140, time=902.0), 8.0) == pytest.approx(10.0)
