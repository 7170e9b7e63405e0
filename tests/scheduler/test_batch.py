"""What is committed together: cutting loses nothing and keeps the order."""

import random
from typing import Any

import pytest

from pyspider_lite.models.letter import DeadLetter
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.scheduler import control
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.plan import Plan

PLAN = Plan(0.0, lambda project, taskid: None)


def report(number: int, follows: int = 0) -> Report:
    links = [NewTask(f"{number}-{link}", "p", "u") for link in range(follows)]
    return Report(project="p", taskid=str(number), url="u", run=0, follows=links)


def batch_of(reports: int = 0, submissions: int = 0, poisoned: int = 0, follows: int = 0) -> tuple[Batch, list[Plan]]:
    batch, called = Batch(), list[Plan]()
    batch.reports = [report(number, follows) for number in range(reports)]
    batch.submissions = [NewTask(f"s{number}", "p", "u") for number in range(submissions)]
    batch.poisoned = [report(1000 + number) for number in range(poisoned)]
    batch.dead_letters = [DeadLetter(kind="message", reason="r", payload=b"", time=0.0)]
    batch.ticks = {"p": 60}
    batch.then = [called.append]
    return batch, called


def joined(batches: list[Batch], name: str) -> list[Any]:
    return [value for batch in batches for value in getattr(batch, name)]


def check_whole(batch: Batch, called: list[Plan], pieces: list[Batch]) -> None:
    for name in ("reports", "submissions", "poisoned", "controls", "dead_letters"):
        assert joined(pieces, name) == getattr(batch, name), name
    assert [piece.ticks for piece in pieces if piece.ticks] == [batch.ticks]
    for piece in pieces[:-1]:
        assert piece.then == []
    for then in joined(pieces, "then"):
        then(PLAN)
    assert called == [PLAN]


@pytest.mark.parametrize("seed", range(30))
def test_cut(seed: int) -> None:
    random_ = random.Random(seed)
    numbers = [random_.choice([0, 1, 2, 7, 40]) for _ in range(3)]
    batch, called = batch_of(*numbers, follows=random_.choice([0, 3]))
    pieces = batch.cut(5, 12)
    check_whole(batch, called, pieces)
    for piece in pieces:
        assert len(piece.reports) <= 5
        assert len(piece.submissions) <= 12
        assert piece.rows() <= 12 + 3


def test_a_report_with_many_links_is_not_cut() -> None:
    batch, called = batch_of(reports=3, follows=100)
    pieces = batch.cut(500, 50)
    check_whole(batch, called, pieces)
    assert [len(piece.reports) for piece in pieces] == [1, 1, 1]


def test_an_empty_batch_is_still_one() -> None:
    batch, called = batch_of()
    check_whole(batch, called, batch.cut(5, 5))


@pytest.mark.parametrize("reports", range(4))
@pytest.mark.parametrize("submissions", range(4))
@pytest.mark.parametrize("poisoned", range(4))
def test_halves_come_down_to_single_things(reports: int, submissions: int, poisoned: int) -> None:
    batch, called = batch_of(reports, submissions, poisoned)
    waiting, singles = [batch], list[Batch]()
    for _ in range(100):
        if not waiting:
            break
        first = waiting.pop(0)
        waiting[:0] = first.halves()
        if not first.halves():
            singles.append(first)
    assert not waiting, "halving must end"
    check_whole(batch, called, singles)
    for single in singles:
        assert len(single.reports) + len(single.submissions) + len(single.poisoned) <= 1


def test_the_halves_of_a_last_resort_are_one() -> None:
    batch, _ = batch_of(reports=2)
    batch.last_resort = True
    assert [half.last_resort for half in batch.halves()] == [True, True]


def test_failed_carries_nothing_that_could_be_refused_again() -> None:
    batch, called = batch_of()
    batch.reports = [report(1, follows=3)]
    failed = batch.failed("no room")
    check_whole(failed, called, [failed])
    (only,) = failed.reports
    assert (only.ok, only.follows, only.items, only.messages, only.key) == (False, [], [], [], ("p", "1", 0))
    assert only.track["process"]["exception"] == "no room"
    assert failed.last_resort
    assert (failed.dead_letters, failed.ticks) == (batch.dead_letters, batch.ticks)


def test_what_is_given_up_is_kept_with_the_reason() -> None:
    batch, _ = batch_of(1, 1, 1)
    letters = batch.as_dead_letters("because", 5.0)
    assert [(letter.kind, letter.taskid, letter.reason) for letter in letters] == [
        ("report", "0", "because"),
        ("report", "1000", "because"),
        ("submission", "s0", "because"),
    ]
    assert all(letter.payload and letter.time == 5.0 for letter in letters)


def test_a_batch_is_true_as_soon_as_it_holds_anything() -> None:
    assert not Batch()
    for name, value in (("then", [print]), ("ticks", {"p": 1}), ("poisoned", [report(1)]), ("controls", [control])):
        batch = Batch()
        setattr(batch, name, value)
        assert batch, name
