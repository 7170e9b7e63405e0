"""`outages`: what is waited for, and what the log says of it."""

import gc
import time
from collections.abc import Iterator

import pytest

from pyspider_lite import outages
from pyspider_lite.errors import DatabaseError, QueueError

BROKER = "redis://:***@127.0.0.1:6379/0"
DATABASE = "mysql+taskdb://u:***@127.0.0.1:3306/taskdb"


@pytest.fixture(autouse=True)
def nothing_said_before() -> Iterator[None]:
    outages._said.clear()
    outages._open.clear()
    yield
    gc.collect()
    assert outages.waiting() == {}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_all_connections_of_one_broker_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    waiters = [outages.Waiter() for _ in range(5)]
    before = time.time()
    for _ in range(3):
        for waiter in waiters:
            waiter.away(QueueError("refused"), BROKER)
    assert list(outages.waiting()) == [BROKER]
    assert before <= outages.waiting()[BROKER] <= waiters[1].since <= time.time()
    for waiter in waiters[1:]:
        waiter.back()
    assert list(outages.waiting()) == [BROKER]
    waiters[0].back()
    lines = said(caplog)
    assert lines[0].startswith(f"waiting for {BROKER} since 20")
    assert lines[0].endswith(": refused")
    assert lines[1].startswith(f"{BROKER} is back after ")
    assert len(lines) == 2


def test_a_database_error_names_what_is_away(caplog: pytest.LogCaptureFixture) -> None:
    waiter = outages.Waiter()
    waiter.away(DatabaseError(f"{DATABASE}: refused", DATABASE))
    assert list(outages.waiting()) == [DATABASE]
    assert said(caplog)[0].endswith(": refused")
    assert said(caplog)[0].count(DATABASE) == 1
    assert waiter.since is not None
    waiter.back()
    assert waiter.since is None


def test_another_reason_is_said_once_and_not_without_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiter = outages.Waiter()
    for reason in ("closed by the server", "refused"):
        waiter.away(QueueError(reason), BROKER)
    assert len(said(caplog)) == 1, "what is said within seconds is one outage"
    monkeypatch.setattr(outages, "_QUIET", 0.0)
    waiter.back()
    caplog.clear()
    for _ in range(3):
        for reason in ("refused", "the password is wrong"):
            waiter.away(QueueError(reason), BROKER)
    first, second = said(caplog)
    since = first.removeprefix(f"waiting for {BROKER} since ").removesuffix(": refused")
    assert second == f"{BROKER}, away since {since}, is away for another reason now: the password is wrong"
    for number in range(50):
        waiter.away(QueueError(f"reason {number}"), BROKER)
    assert len(said(caplog)) == 5


def test_what_flickers_is_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level("INFO")
    waiter = outages.Waiter()
    for _ in range(5):
        waiter.away(QueueError("cut"), BROKER)
        waiter.back()
    assert len(said(caplog)) == 2  # away and back
    # but if it stays away, that is said
    waiter.away(QueueError("cut"), BROKER)
    monkeypatch.setattr(outages, "_QUIET", 0.0)
    waiter.away(QueueError("cut"), BROKER)
    assert len(said(caplog)) == 3
    waiter.back()


def test_who_waits_no_longer_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    waiter, dropped = outages.Waiter(), outages.Waiter()
    waiter.away(QueueError("refused"), BROKER)
    dropped.away(DatabaseError("refused", DATABASE))
    waiter.stop()
    del dropped
    gc.collect()
    assert outages.waiting() == {}
    assert not any("back" in line for line in said(caplog))


def test_an_unexpected_error_keeps_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    waiter = outages.Waiter()
    waiter.away(ZeroDivisionError("of a driver"), BROKER)
    waiter.away(DatabaseError("refused", DATABASE))
    assert [bool(record.exc_info) for record in caplog.records] == [True, False]
    waiter.back()
