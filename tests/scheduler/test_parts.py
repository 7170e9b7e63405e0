"""Reports in parts: the end of a run waits for everything it said before."""

import itertools

import pytest

from pyspider_lite.models.report import Report
from pyspider_lite.scheduler.parts import Parts


def part(number: int, parts: int = 0, run: int = 0, taskid: str = "t") -> Report:
    return Report(project="p", taskid=taskid, url="u", run=run, part=number, parts=parts)


def test_a_whole_report_passes() -> None:
    report = part(0, 1)
    assert Parts().take(report) == [report]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_last_comes_out_last_whatever_the_order(order: tuple[int, ...]) -> None:
    all_parts = [part(0), part(1), part(2), part(3, 4)]
    parts = Parts()
    out = [report for number in order for report in parts.take(all_parts[number])]
    assert sorted(report.part for report in out) == [0, 1, 2, 3]
    assert out[-1] == all_parts[3]
    # what comes goes on at once, but for the last
    assert [report.part for report in out[:-1]] == [number for number in order if number != 3]


def test_the_same_part_twice_counts_once() -> None:
    parts = Parts()
    assert parts.take(part(2, 3)) == []
    assert len(parts.take(part(0))) == 1
    assert len(parts.take(part(0))) == 1
    assert [report.part for report in parts.take(part(1))] == [1, 2]


def test_runs_do_not_mix() -> None:
    parts = Parts()
    assert parts.take(part(1, 2, run=0)) == []
    assert parts.take(part(0, run=1)) == [part(0, run=1)]
    assert parts.take(part(0, taskid="u")) == [part(0, taskid="u")]
    assert parts.take(part(0, run=0)) == [part(0), part(1, 2)]


def test_a_lost_run_says_everything_again() -> None:
    parts = Parts()
    parts.take(part(0))
    parts.take(part(2, 3))
    parts.drop(("p", "t", 0))
    assert parts.take(part(1)) == [part(1)]
    assert parts.take(part(2, 3)) == []
    assert parts.take(part(0)) == [part(0), part(2, 3)]


def test_a_run_that_failed_after_its_first_parts_waits_for_nothing() -> None:
    parts = Parts()
    parts.take(part(0))
    assert parts.take(part(0, 1)) == [part(0, 1)]
    assert parts.take(part(1, 2)) == []


def test_nothing_is_kept_of_what_ended() -> None:
    parts = Parts()
    for run in range(10):
        parts.take(part(0, run=run))
        parts.take(part(1, 2, run=run))
    assert parts.take(part(1, 2, run=3)) == []
