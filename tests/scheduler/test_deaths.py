"""Deaths of workers over a task outlive the leader: in the row, and in what processors left behind when everything was killed."""

from typing import Any

import pytest
from played_crawl import Crawl, beat, done, new

from pyspider_lite.errors import DatabaseError
from pyspider_lite.flight_recorder import Begun
from pyspider_lite.models.batch import StatusItem
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.models.worker import Beat, Claim, Release
from pyspider_lite.scheduler.apart import FREE, LONGEST
from pyspider_lite.scheduler.task_orders import TaskAction, TaskOrder

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
    assert not crawl.scheduler.leases.blame.suspects and not crawl.scheduler.leases.blame.tolls


def test_who_was_only_silent_is_absolved_in_the_row_too(crawl: Crawl) -> None:
    task = crawl.one_task()
    dies(crawl, task, "w1")
    assert stored(crawl) == 1
    crawl.step(beat("w1", Role.PROCESSOR, 1))
    assert stored(crawl) is None


def given(crawl: Crawl, seconds: int = 30) -> list[Dispatch]:
    """The tasks that go out next, whatever they wait for; control work is done at once."""
    for _ in range(seconds):
        if tasks := crawl.tasks():
            return tasks
        later(crawl)
    return []


def later(crawl: Crawl, *items: StatusItem) -> None:
    """A second later, control work is done."""
    crawl.step(*[done(task) for task in crawl.controls()], *items, after=1)


def test_a_page_that_kills_everything_is_given_up(crawl: Crawl) -> None:
    task = crawl.one_task()
    for death in range(1, 4):
        forgotten = new_leader(crawl, Begun([task.key]), Begun([("gone", "x", 0)]))
        assert forgotten == ["w0", "w1"]
        if death < 3:
            assert stored(crawl) == death
            (task,) = given(crawl)
            assert task.suspect and task.schedule == {}
    assert crawl.task("t").status == TaskStatus.FAILED and given(crawl) == []
    assert not crawl.scheduler.leases.blame.tolls


def test_what_the_dead_said_before_counts_no_second_death(crawl: Crawl) -> None:
    """A broker that lived on has their last beats."""
    task = crawl.one_task()
    crawl.lead()
    crawl.scheduler.deaths.found({"w": Begun([task.key])}, lambda name: None)
    crawl.step(beat("w", Role.PROCESSOR, 1, holds={"pages": [task.key]}, running=task.key))
    for _ in range(9):
        crawl.step(after=1)
    assert stored(crawl) == 1
    assert [again.key for again in given(crawl)] == [task.key]


@pytest.mark.parametrize("number", [1, 7])
def test_a_run_that_is_over_is_not_to_blame(crawl: Crawl, number: int) -> None:
    """A power cut leaves an older page of the file."""
    task = crawl.one_task()
    assert new_leader(crawl, Begun([("p", "t", number)]), Begun([("p", "on_start:x", -1)])) == ["w0", "w1"]
    assert stored(crawl) is None and not crawl.scheduler.leases.blame.suspects
    assert [again.key for again in crawl.tasks()] == [task.key]


def two_projects(crawl: Crawl, *names: str) -> None:
    """Tasks of q, and nothing of p so far; all of q ran when all was killed, twice."""
    crawl.project()
    crawl.project("q")
    crawl.ready("p", "q")
    crawl.submit(*[new(name, project="q") for name in names])
    crawl.tasks()
    for _ in range(2):
        new_leader(crawl, Begun([("q", name, 0) for name in names]))


def test_what_ran_at_one_kill_waits_for_a_moment_and_holds_nobody_up(crawl: Crawl) -> None:
    """A power cut is no script's fault."""
    crawl.project()
    crawl.project("q")
    crawl.ready("p", "q")
    crawl.submit(*[new(f"t{number}", project="q") for number in range(9)])
    assert len(crawl.tasks()) == 9
    new_leader(crawl, Begun([("q", f"t{number}", 0) for number in range(4)]))
    assert {task.taskid for task in crawl.tasks()} == {f"t{number}" for number in range(4, 9)}
    crawl.submit(new("c"))
    assert [task.taskid for task in crawl.tasks()] == ["c"]
    for _ in range(int(FREE)):
        crawl.step(after=1)
    crawl.submit(new("d"))
    assert {(task.taskid, task.suspect) for task in crawl.tasks()} == {
        ("d", False),
        *((f"t{number}", True) for number in range(4)),
    }


def test_what_ran_at_two_kills_goes_alone_and_all_else_has_as_long(crawl: Crawl) -> None:
    two_projects(crawl, "a", "b")
    free, alone, order = 0, 0, []
    for number in range(200):
        crawl.submit(new(f"p{number}"))
        out = crawl.tasks()
        assert len(out) == 1 or not any(task.suspect for task in out)
        if out and out[0].suspect:
            order.append(out[0].taskid)
            for _ in range(25):  # it takes its time
                crawl.submit(new(f"beside{number}"))
                later(crawl)
                assert crawl.tasks() == []
                alone += 1
        free += any(not task.suspect for task in out)
        later(crawl, *[done(task) for task in out])
        if len(order) == 2 and not crawl.scheduler.leases.blame.tolls:
            break
    assert order == ["a", "b"] and alone == 50
    assert free >= FREE + 25


def test_one_that_has_to_go_alone_waits_for_what_is_in_flight_but_not_for_ever(crawl: Crawl) -> None:
    """As long as some of it ends; then all else is given out again, and it tries later."""
    two_projects(crawl, "a", "b")
    crawl.submit(*[new(f"slow{number}", fetch={"timeout": 9000}) for number in range(8)])
    slow = crawl.tasks()
    for _ in range(int(FREE)):
        later(crawl, held(slow))
    crawl.submit(new("c"))
    while len(slow) > 1:
        later(crawl, done(slow.pop()))
        for _ in range(60):
            later(crawl, held(slow))
            assert crawl.tasks() == [], "others are in flight"
    for _ in range(int(LONGEST) - 65):
        later(crawl, held(slow))
        assert crawl.tasks() == []
    waited = given(crawl, 10)
    assert [task.taskid for task in waited] == ["c"]
    later(crawl, done(slow[0]), done(waited[0]))
    for _ in range(int(LONGEST) - 10):
        later(crawl)
        assert crawl.tasks() == []
    (first,) = next(tasks for _ in range(60) if (tasks := given(crawl)))
    assert first.suspect


def held(tasks: list[Dispatch]) -> Beat:
    return beat("w", Role.PROCESSOR, 1, holds={"b": [task.key for task in tasks]})


@pytest.mark.parametrize("way", ["stop", "cancel", "delete"])
def test_who_holds_all_else_can_be_ended(crawl: Crawl, way: str) -> None:
    two_projects(crawl, "a")
    crawl.submit(new("slow", fetch={"timeout": 9000}))
    slow = crawl.tasks()
    for _ in range(int(FREE) + 2):
        later(crawl, held(slow))
    crawl.submit(new("c"))
    assert crawl.tasks() == []
    alone = crawl.scheduler.alone
    assert alone and (alone.project, alone.taskid) == ("q", "a") and crawl.scheduler.has("q", "a")
    if way == "cancel":
        order = TaskOrder(project="q", action=TaskAction.CANCEL, tasks={"a": 0})
        crawl.scheduler.order(order, lambda plan: None)
    elif way == "stop":
        crawl.projectdb.update("q", status="STOP")
    else:
        crawl.projectdb.drop("q")
    crawl.scheduler.update_projects()
    later(crawl, held(slow))
    later(crawl, held(slow))
    assert [task.taskid for task in crawl.tasks()] == ["c"] and not crawl.scheduler.alone


def test_what_goes_alone_does_so_under_the_next_leader_too(crawl: Crawl) -> None:
    """It may have killed the leader first; what were beside it when it kills all would be blamed with it."""
    two_projects(crawl, "a")
    (alone,) = given(crawl)
    crawl.lead()
    later(crawl, held([alone]))
    crawl.submit(new("c"))
    for _ in range(int(LONGEST) // 3):
        later(crawl, held([alone]))
        assert crawl.tasks() == []
    assert crawl.scheduler.alone and crawl.scheduler.alone.taskid == "a"
    later(crawl, done(alone))
    later(crawl)
    assert [task.taskid for task in crawl.tasks()] == ["c"] and not crawl.scheduler.alone


def test_it_is_said_until_when_waits_what_ran_at_a_kill(crawl: Crawl) -> None:
    task = crawl.one_task()
    assert crawl.scheduler.held_until("p", "t") is None
    new_leader(crawl, Begun([task.key]))
    assert crawl.scheduler.held_until("p", "t") == pytest.approx(crawl.now + FREE, abs=2)
    for _ in range(int(FREE) + 1):
        later(crawl)
    assert crawl.scheduler.held_until("p", "t") is None


def test_all_else_does_not_wait_for_ever_for_one_that_goes_alone(crawl: Crawl) -> None:
    two_projects(crawl, "a", "b")
    (alone,) = given(crawl)
    assert alone.suspect
    crawl.submit(new("c"))
    for _ in range(int(LONGEST) - 3):
        later(crawl, beat("w", Role.PROCESSOR, 1, holds={"b": [alone.key]}))
        assert crawl.tasks() == []
    for _ in range(4):
        later(crawl, beat("w", Role.PROCESSOR, 1, holds={"b": [alone.key]}))
    assert [task.taskid for task in crawl.tasks()] == ["c"]


def test_killers_are_given_up_and_others_go_on_meanwhile(crawl: Crawl) -> None:
    """Two pages kill all that runs whenever they run; each start of the rest has its time for another project and slow innocents."""
    crawl.project()
    crawl.project("q")
    crawl.ready("p", "q")
    crawl.submit(*[new(name, project="q") for name in ("k1", "k2", "slow1", "slow2")])
    crawl.submit(*[new(f"p{number}") for number in range(500)])
    crawl.projectdb.update("p", rate=5, burst=5)
    crawl.scheduler.update_projects()
    starts, over, since = 1, 0, {}
    for _ in range(1500):
        out = {**{task.key: task for task in crawl.tasks()}, **since}
        since = {key: task for key, task in out.items() if "slow" in key[1]}
        if killers := [key for key in out if key[1][0] == "k"]:
            running = [*killers, *since]
            new_leader(crawl, *[Begun([key]) for key in running])
            crawl.ready("p", "q")
            assert over >= 20 * (starts - 3), "others went on in each start but the first ones"
            starts, since = starts + 1, {}
            continue
        ended = [task for key, task in out.items() if key not in since or crawl.now % 7 < 1]
        over += sum(task.project == "p" for task in ended)
        later(crawl, *[done(task) for task in ended])
        since = {key: task for key, task in since.items() if task not in ended}
        if not crawl.scheduler.leases.blame.tolls and starts > 8:
            break
    assert {crawl.task(name, "q").status for name in ("k1", "k2")} == {TaskStatus.FAILED}
    assert starts <= 10
    assert {crawl.task(name, "q").status for name in ("slow1", "slow2")} == {TaskStatus.SUCCESS}


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
    two_projects(crawl, "a", "b")
    crawl.projectdb.update("q", status="STOP")
    crawl.scheduler.update_projects()
    for number in range(40):
        crawl.submit(new(f"c{number}"))
        (task,) = given(crawl, 3)
        later(crawl, done(task))
    crawl.projectdb.update("q", status="RUNNING")
    crawl.scheduler.update_projects()
    over: list[str] = []
    for _ in range(60):
        tasks = crawl.tasks()
        over += [task.taskid for task in tasks]
        later(crawl, *[done(task) for task in tasks])
    assert over == ["a", "b"]


def test_an_on_start_that_kills_everything_is_given_up(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.start()
    crawl.step()
    crawl.step(after=1.1)
    for death in range(1, 4):
        for _ in range(int(FREE) + 2):
            crawl.step(after=1)
        (task,) = crawl.controls()
        assert task.taskid == "on_start" and task.suspect == (death > 1)
        new_leader(crawl, Begun([task.key]))
        (row,) = [row for row in crawl.taskdb.controls(0, 10) if "start" in row.id] if death < 3 else [None]
        assert row is None or row.task.schedule == {"deaths": death, "kills": death}
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
