"""Deaths of workers over a task outlive the leader: in the row, and in what processors left behind when everything was killed."""

from typing import Any

import pytest
from played_crawl import Crawl, beat, done, new

from pyspider_lite.errors import DatabaseError
from pyspider_lite.flight_recorder import Begun
from pyspider_lite.models import Claim, Dispatch, QueueName, Release, Role, RunKey, TaskStatus

A, B = ("p", "a", 0), ("p", "b", 0)


@pytest.mark.parametrize(
    ("left", "guilty"),
    [
        ([], None),
        ([Begun()], None),
        ([Begun([A])], "a"),
        ([Begun([A]), Begun()], "a"),
        ([Begun([A, B])], None),
        ([Begun([A]), Begun([B])], None),
        # what is over has killed nobody
        ([Begun([A]), Begun([("p", "c", 7)])], "a"),
    ],
)
def test_who_killed_all(crawl: Crawl, left: list[Begun], guilty: str | None) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(*[new(name) for name in "abc"])
    crawl.tasks()
    new_leader(crawl, *left)
    assert {name: stored(crawl, name) for name in "abc" if stored(crawl, name)} == ({guilty: 1} if guilty else {})


def stored(crawl: Crawl, taskid: str = "t") -> Any:
    return crawl.task(taskid).schedule.get("deaths")


def dies(crawl: Crawl, task: Dispatch, name: str, queue: str = QueueName.TO_PROCESSOR) -> None:
    """A processor dies while it is known to run the task, and this leader sees it."""
    held = beat(name, Role.PROCESSOR, 1, holds={name: [task.key]}, running=task.key)
    crawl.step(Claim(worker=name, queue=queue, batch=name, runs=[task.key]), held)
    for _ in range(8):
        crawl.step(after=1)


def new_leader(crawl: Crawl, *left: Begun) -> list[str]:
    """Another leads, and finds this; which of the files it wants to be forgotten."""
    forgotten: list[str] = []
    crawl.lead()
    crawl.scheduler.deaths.found({f"w{number}": begun for number, begun in enumerate(left)}, forgotten.append)
    crawl.step()
    crawl.step(after=1.1)
    return forgotten


def test_a_count_outlives_the_leader_that_counted(crawl: Crawl) -> None:
    task = crawl.one_task(priority=3)
    for death in range(1, 4):
        dies(crawl, task, f"w{death}")
        if death < 3:
            assert stored(crawl) == death and crawl.task("t").priority == 3
            new_leader(crawl)
            (task,) = crawl.tasks()
            # scripts do not see it
            assert task.suspect and task.schedule == {"priority": 3}
    row = crawl.task("t")
    assert row.status == TaskStatus.FAILED and "3 workers died over it" in row.track["process"]["exception"]
    assert stored(crawl) is None


def test_a_run_that_ends_acquits(crawl: Crawl) -> None:
    dies(crawl, crawl.one_task(), "w1")
    (task,) = crawl.tasks()
    crawl.step(done(task, ok=False))
    assert stored(crawl) is None and crawl.task("t").schedule["retried"] == 1
    assert not crawl.scheduler.leases.blame.suspects and not crawl.scheduler.leases.blame.apart


def test_who_was_only_silent_is_absolved_in_the_row_too(crawl: Crawl) -> None:
    task = crawl.one_task()
    dies(crawl, task, "w1")
    assert stored(crawl) == 1
    crawl.step(beat("w1", Role.PROCESSOR, 1))
    assert stored(crawl) is None


def test_a_page_that_kills_everything_is_given_up(crawl: Crawl) -> None:
    task = crawl.one_task()
    for death in range(1, 4):
        forgotten = new_leader(crawl, Begun([task.key]), Begun([("gone", "x", 0)]))
        assert forgotten == ["w0", "w1"]
        if death < 3:
            assert stored(crawl) == death
            (task,) = crawl.tasks()
            assert task.suspect
    assert crawl.task("t").status == TaskStatus.FAILED and crawl.tasks() == []
    assert not crawl.scheduler.leases.blame.apart


def test_what_the_dead_said_before_counts_no_second_death(crawl: Crawl) -> None:
    """A broker that lived on has their last beats."""
    task = crawl.one_task()
    crawl.lead()
    crawl.scheduler.deaths.found({"w": Begun([task.key])}, lambda name: None)
    crawl.step(beat("w", Role.PROCESSOR, 1, holds={"pages": [task.key]}, running=task.key))
    for _ in range(9):
        crawl.step(after=1)
    assert stored(crawl) == 1
    assert [again.key for again in crawl.tasks()] == [task.key]


@pytest.mark.parametrize("number", [1, 7])
def test_a_run_that_is_over_is_not_to_blame(crawl: Crawl, number: int) -> None:
    """A power cut leaves an older page of the file."""
    task = crawl.one_task()
    assert new_leader(crawl, Begun([("p", "t", number)]), Begun([("p", "on_start:x", -1)])) == ["w0", "w1"]
    assert stored(crawl) is None and not crawl.scheduler.leases.blame.suspects
    assert [again.key for again in crawl.tasks()] == [task.key]


def test_those_that_may_have_done_it_go_alone(crawl: Crawl) -> None:
    """Nothing is in flight beside one of them, so whatever kills all while it runs is it."""
    crawl.project()
    crawl.project("q")
    crawl.ready("p", "q")
    names = [f"t{number}" for number in range(6)]
    crawl.submit(*[new(name, project=name_of) for name in names for name_of in "pq"])
    assert len(crawl.tasks()) == 12
    new_leader(crawl, Begun([("p", name, 0) for name in names[:3]]), Begun([("q", "t0", 0)]))
    over: list[RunKey] = []
    alone = 0
    waiting = crawl.tasks()
    while waiting:
        alone += any(task.suspect for task in waiting)
        assert len(waiting) == 1 or not any(task.suspect for task in waiting)
        over += [task.key for task in waiting]
        crawl.step(*[done(task) for task in waiting])
        waiting = crawl.tasks()
    assert alone == 4
    assert len(set(over)) == len(over) == 12
    assert {crawl.task(name).status for name in names} == {TaskStatus.SUCCESS}


def test_one_that_has_to_go_alone_waits_for_what_is_in_flight_but_not_for_ever(crawl: Crawl) -> None:
    crawl.project()
    crawl.project("q")
    crawl.ready("p", "q")
    crawl.submit(new("slow"), new("a", project="q"), new("b", project="q"))
    crawl.tasks()
    new_leader(crawl, Begun([("q", "a", 0), ("q", "b", 0)]))
    (slow,) = crawl.tasks()
    crawl.submit(new("c"), new("d", project="q"))
    for _ in range(25):
        crawl.step(after=1)
        assert crawl.tasks() == [], "slow is in flight"
    for _ in range(6):
        crawl.step(after=1)
    (first,) = crawl.tasks()
    assert first.suspect
    crawl.step(done(slow))
    assert crawl.tasks() == [], "one is out"
    crawl.step(done(first))
    rest = [first.taskid]
    while waiting := crawl.tasks():
        assert len(waiting) == 1 or not any(task.suspect for task in waiting)
        rest += [task.taskid for task in waiting]
        crawl.step(*[done(task) for task in waiting])
    assert sorted(rest) == ["a", "b", "c", "d"]


def test_all_else_does_not_wait_for_ever_for_one_that_goes_alone(crawl: Crawl) -> None:
    crawl.project()
    crawl.project("q")
    crawl.ready("p", "q")
    crawl.submit(new("a", project="q"), new("b", project="q"))
    crawl.tasks()
    new_leader(crawl, Begun([("q", "a", 0), ("q", "b", 0)]))
    (alone,) = crawl.tasks()
    crawl.submit(new("c"))
    for _ in range(25):
        crawl.step(after=1)
        assert crawl.tasks() == []
    for _ in range(7):
        crawl.step(after=1)
    assert [task.taskid for task in crawl.tasks()] == ["c"]
    crawl.step(done(alone))


def test_who_was_cut_off_once_holds_nobody_up_under_the_next_leader(crawl: Crawl) -> None:
    """A processor was stopped while its callback ran, as at any restart."""
    crawl.submit(new("other"))
    task = crawl.one_task()
    held = beat("w", Role.PROCESSOR, 1, holds={"w": [task.key]}, running=task.key)
    crawl.step(Claim(worker="w", queue=QueueName.TO_PROCESSOR, batch="w", runs=[task.key]), held)
    crawl.step(Release(worker="w", runs=[task.key], cut_off=True))
    crawl.step(after=1)
    assert stored(crawl) == 1
    new_leader(crawl)
    crawl.submit(*[new(f"more{number}") for number in range(3)])
    given = {again.taskid: again.suspect for again in crawl.tasks()}
    assert given["t"] and {"more0", "more1", "more2"} <= given.keys()


def test_one_that_is_no_longer_wanted_holds_nobody_up(crawl: Crawl) -> None:
    crawl.project()
    crawl.project("q")
    crawl.ready("p", "q")
    crawl.submit(new("slow"), new("a", project="q"), new("b", project="q"))
    crawl.tasks()
    new_leader(crawl, Begun([("q", "a", 0), ("q", "b", 0)]))
    assert [task.taskid for task in crawl.tasks()] == ["slow"]
    crawl.projectdb.update("q", status="STOP")
    crawl.scheduler.update_projects()
    crawl.submit(new("c"))
    for _ in range(7):
        crawl.step(after=1)
    assert [task.taskid for task in crawl.tasks()] == ["c"]


def test_an_on_start_that_kills_everything_is_given_up(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.start()
    crawl.step()
    crawl.step(after=1.1)
    for death in range(1, 4):
        (task,) = crawl.controls()
        assert task.taskid == "on_start" and task.suspect == (death > 1)
        new_leader(crawl, Begun([task.key]))
        (row,) = [row for row in crawl.taskdb.controls(0, 10) if "start" in row.id] if death < 3 else [None]
        assert row is None or row.task.schedule == {"deaths": death}
    crawl.step(after=1.1)
    task_row = crawl.task("on_start")
    assert task_row.status == TaskStatus.FAILED and "3 workers died over it" in task_row.track["process"]["exception"]
    assert [task.taskid for task in crawl.controls()] == ["on_finished"]
    assert not any("start" in row.id for row in crawl.taskdb.controls(0, 10))


def test_a_database_that_is_away_loses_no_count(crawl: Crawl) -> None:
    task = crawl.one_task()
    crawl.lead()
    forgotten: list[str] = []
    crawl.scheduler.deaths.found({"w": Begun([task.key])}, forgotten.append)
    reader, crawl.scheduler.deaths._taskdb = crawl.scheduler.deaths._taskdb, Absent()  # type: ignore[assignment]
    crawl.step()
    assert not forgotten
    crawl.scheduler.deaths._taskdb = reader
    crawl.step(after=2)
    assert stored(crawl) == 1 and forgotten == ["w"]


class Absent:
    def get(self, project: str, taskids: list[str]) -> list[Any]:
        raise DatabaseError("away")
