"""`Scheduler.step` on SQLite: crawls from beginning to end, submissions, pace and shares; workers are played by the test, the clock is counted."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from played_crawl import INFO, Crawl, beat, done, fails, links, new, raw

from pyspider_lite.models.batch import NewTaskBatch
from pyspider_lite.models.names import Role
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.models.worker import Claim, Release
from pyspider_lite.scheduler.scheduler import Options

ORACLE = json.loads((Path(__file__).parents[1] / "data/oracle/scheduler.json").read_text())

# --- a crawl from beginning to end --------------------------------------------------------------------------------------


def test_a_project_from_its_script_to_on_finished(crawl: Crawl) -> None:
    crawl.project()
    crawl.start()
    crawl.pages = {
        "on_start": links("index"),
        "http://x/index": links("a", "b", "c"),
        "http://x/a": links("a1", "b", "index"),
        "http://x/b": links("a1", "c"),
    }
    crawl.crawl(5)
    assert crawl.callbacks() == ["_on_get_info", "on_start", "on_finished"]
    assert [task.taskid for task in crawl.given if not task.control] == ["index", "a", "b", "c", "a1"]
    # on_start and on_finished show as tasks too
    assert crawl.taskdb.status_count("p") == {TaskStatus.SUCCESS: 7}
    assert crawl.events("dropped-seen") + crawl.events("dropped-active") == 4
    assert crawl.scheduler.idle
    assert crawl.task("a").track["process"]["ok"] is True


@pytest.mark.behaviour("S12")
def test_nothing_is_given_out_before_the_script_has_answered(crawl: Crawl) -> None:
    """S12."""
    crawl.project()
    crawl.submit(new("t"))
    crawl.step(after=30)
    assert crawl.tasks() == []
    (asked,) = crawl.controls()
    assert asked.process["callback"] == "_on_get_info"
    crawl.step(done(asked, info=INFO))
    assert [task.taskid for task in crawl.tasks()] == ["t"]


@pytest.mark.behaviour("X-K12")
def test_the_answer_of_a_broken_script_is_empty(crawl: Crawl) -> None:
    crawl.project()
    crawl.submit(new("t"))
    (asked,) = crawl.controls()
    crawl.step(done(asked, ok=False))
    assert [task.taskid for task in crawl.tasks()] == ["t"]


@pytest.mark.behaviour("S50")
def test_on_finished_comes_again_for_the_crawl_that_it_begins(crawl: Crawl) -> None:
    """S50: its follow-ups are a new crawl, which arms it again."""
    crawl.project()
    crawl.start()
    rounds = iter(["again"])

    def finished(task: Dispatch) -> Any:
        taskid = next(rounds, None)
        return links(taskid)(task) if taskid else done(task)

    crawl.pages = {"on_finished": finished}
    crawl.crawl(3)
    assert crawl.callbacks() == ["_on_get_info", "on_start", "on_finished", "on_finished"]


@pytest.mark.behaviour("S50")
def test_on_finished_waits_for_retries_and_for_delayed_tasks(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    tries = iter([fails, done])
    crawl.pages = {"http://x/flaky": lambda task: next(tries)(task)}
    crawl.submit(new("flaky"), new("late", schedule={"exetime": crawl.now + 60}))
    crawl.crawl(40)
    assert crawl.events("retry") == 1
    assert crawl.events("success") == 1
    assert "on_finished" not in crawl.callbacks()
    crawl.crawl(40)
    assert crawl.callbacks().count("on_finished") == 1


def test_periodic_work_does_not_hold_on_finished_up(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("ever", schedule={"age": 10, "auto_recrawl": True}), new("once"))
    crawl.crawl(35)
    assert [task.taskid for task in crawl.given].count("ever") == 4
    assert crawl.callbacks().count("on_finished") == 1
    assert crawl.task("ever").status == TaskStatus.ACTIVE


# --- submissions --------------------------------------------------------------------------------------------------------


def test_submissions_are_acknowledged_after_their_commit(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    broken = Raw(b"\xc1")
    no_url = raw(NewTask("t", "p", ""))
    crawl.step(new=[(NewTaskBatch(tasks=[broken, raw(new("good")), no_url]), crawl.ack)])
    assert crawl.acked == 1
    assert crawl.task("good").status == TaskStatus.ACTIVE
    letters = crawl.taskdb.dead_letters()
    assert sorted(letter.payload for letter in letters) == sorted([bytes(broken), bytes(no_url)])
    assert any("url is missing" in letter.reason for letter in letters)


@pytest.mark.behaviour("S14")
def test_a_submission_to_nobody_is_dropped_with_a_reason(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t", "nobody"), new("t", generation="of an earlier p"), new("u"))
    assert crawl.acked == 1
    assert [task.taskid for task in crawl.tasks()] == ["u"]
    assert crawl.scheduler.counters.get(crawl.now, "all")[""]["dropped-unknown-project"] == 1
    assert crawl.events("dropped-old-generation") == 1


@pytest.mark.parametrize("status", ["TODO", "STOP"])
def test_a_submission_to_a_project_that_never_ran_disturbs_nobody(crawl: Crawl, status: str) -> None:
    crawl.project()
    crawl.project("sleeping", status=status)
    crawl.ready("p")
    crawl.submit(new("t", "sleeping"), new("t"))
    assert crawl.acked == 1
    assert [(task.project, task.taskid) for task in crawl.tasks()] == [("p", "t")]
    assert crawl.taskdb.dead_letters() == []


@pytest.mark.behaviour("X-S1")
def test_equal_taskids_of_two_projects_do_not_meet(crawl: Crawl) -> None:
    """X-S1."""
    crawl.project("a")
    crawl.project("b")
    crawl.ready("a", "b")
    crawl.submit(new("t", "a"), new("t", "b"))
    assert sorted(task.project for task in crawl.tasks()) == ["a", "b"]


@pytest.mark.behaviour("S15")
@pytest.mark.parametrize("row", ORACLE["request_batches"], ids=lambda row: row["id"])
def test_the_recorded_messages_of_one_loop(crawl: Crawl, row: dict[str, Any]) -> None:
    crawl.project("a")
    crawl.project("b")
    crawl.ready("a", "b")
    tasks = [task for message in row["messages"] for task in (message if isinstance(message, list) else [message])]
    crawl.step(new=[(NewTaskBatch(tasks=[Raw(msgspec.msgpack.encode(task)) for task in tasks]), crawl.ack)])
    wanted = row["expect_stored_urls"]
    if row.get("fix") == "X-S1":  # there, two projects with one taskid lost one of the tasks
        wanted = {"a": {"t": "u1"}, "b": {"t": "u1"}}
    ids = {task.get("taskid", "") for task in tasks}
    assert {name: {task.taskid: task.url for task in crawl.taskdb.get(name, ids)} for name in "ab"} == wanted
    assert crawl.acked == 1


@pytest.mark.behaviour("S26")
def test_priority_then_arrival(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("a"), new("low", schedule={"priority": -1}), new("b"), new("high", schedule={"priority": 5}))
    assert [task.taskid for task in crawl.tasks()] == ["high", "a", "b", "low"]


def test_exetime_in_the_future(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    wake = crawl.submit(new("late", schedule={"exetime": crawl.now + 5}))
    assert wake <= crawl.now + 1
    crawl.step(after=4)
    assert crawl.tasks() == []
    wake = crawl.step(after=0.5)
    assert crawl.tasks() == []
    crawl.step(after=wake - crawl.now)
    assert [task.taskid for task in crawl.tasks()] == ["late"]


def test_more_than_one_transaction_can_take_is_cut(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(*[new(str(number)) for number in range(6_000)])
    assert crawl.acked == 1
    assert crawl.taskdb.status_count("p") == {TaskStatus.ACTIVE: 6_000}
    order = [int(task.taskid) for task in crawl.tasks()]
    assert order == list(range(200))


@pytest.mark.behaviour("S16")
def test_what_waits_is_bounded_by_the_user(tmp_path: Path) -> None:
    """S16."""
    crawl = Crawl(tmp_path, Options(inqueue_limit=3))
    crawl.project()
    crawl.ready("p")
    crawl.submit(*[new(str(number)) for number in range(5)])
    assert crawl.taskdb.status_count("p") == {TaskStatus.ACTIVE: 3}
    assert crawl.events("dropped-overflow") == 2
    crawl.check()
    crawl.close()


# --- pace and shares ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S28", "S31")
def test_rate_and_burst(crawl: Crawl) -> None:
    crawl.project(rate=1, burst=3)
    crawl.ready("p")
    crawl.submit(*[new(str(number)) for number in range(100)])
    assert len(crawl.tasks()) == 3
    began = crawl.now
    given = 0
    while crawl.now < began + 30:
        wake = crawl.step(after=0)
        given += len(crawl.tasks())
        crawl.now = max(wake, crawl.now + 0.001)
    assert 29 <= given <= 30


@pytest.mark.behaviour("S11")
def test_rate_zero_gives_nothing_until_it_is_raised(crawl: Crawl) -> None:
    crawl.project(rate=0)
    crawl.ready("p")
    crawl.submit(new("t"))
    crawl.crawl(5, step=1)
    assert [task for task in crawl.given if not task.control] == []
    crawl.change("p", rate=1.0)
    crawl.step()
    assert len(crawl.tasks()) == 1


@pytest.mark.behaviour("S36")
def test_no_project_holds_more_than_half_while_another_waits(crawl: Crawl) -> None:
    crawl.project("large")
    crawl.project("small")
    crawl.ready("large", "small")
    crawl.submit(*[new(str(n), "large") for n in range(1_000)], *[new(str(n), "small") for n in range(10)])
    first = crawl.tasks()
    assert sum(task.project == "small" for task in first) == 10
    assert sum(task.project == "large" for task in first) == 100
    crawl.step()
    # alone, it may have all of the budget
    assert len(crawl.tasks()) == 90
    assert len(crawl.scheduler.leases) == 200


def test_a_run_that_is_given_out_again_is_told_from_its_first_time(crawl: Crawl) -> None:
    """By the number that its results are stored with: of two workers that store them the later one's stay."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    (first,) = crawl.tasks()
    crawl.step(beat("w1"), Claim(worker="w1", queue="scheduler2fetcher", batch="b", runs=[first.key]))
    crawl.step(Release(worker="w1", runs=[first.key]))
    (again,) = crawl.tasks()
    assert again.key == first.key and again.epoch > first.epoch


def test_a_project_whose_runs_do_not_come_back_holds_up_no_other(crawl: Crawl) -> None:
    """It was alone when it took all of the budget; each that comes later gets a part of what is on top."""
    names = ["slow", "second", "third", "fourth"]
    for name in names:
        crawl.project(name)
    crawl.ready(*names)
    crawl.submit(*[new(str(n), "slow") for n in range(1_000)])
    assert len(crawl.tasks()) == 200
    got = {}
    for name in names[1:]:
        crawl.submit(*[new(str(n), name) for n in range(1_000)])
        crawl.step(after=1)
        got[name] = [task for task in crawl.tasks() if task.project == name]
    assert [len(tasks) for tasks in got.values()] == [25, 12, 6]
    # they go on with what comes back, and the slow one gets nothing more
    quick = [task for tasks in got.values() for task in tasks]
    for _ in range(5):
        crawl.step(*map(done, quick), after=1)
        quick = crawl.tasks()
        assert {task.project for task in quick} == {"second", "third", "fourth"} and len(quick) > 30


@pytest.mark.behaviour("X-M5")
def test_the_budget_is_twice_the_pools(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.step(beat("w1", pool=100), beat("w2", pool=60), beat("w3", Role.PROCESSOR, 40))
    crawl.submit(*[new(str(number)) for number in range(1_000)])
    batches = crawl.batches()
    assert sum(len(batch.tasks) for batch in batches) == 320
    # a quarter of the smallest pool
    assert {len(batch.tasks) for batch in batches} <= {15, 320 % 15}
    assert {batch.processors for batch in batches} == {1}
    crawl.step(*[done(task) for task in batches[0].tasks])
    assert len(crawl.tasks()) == 15


@pytest.mark.behaviour("S35", "S37")
def test_a_full_publisher_is_not_given_more(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.tasks_out.space = 1
    crawl.submit(*[new(str(number)) for number in range(150)])
    assert len(crawl.tasks_out.bodies) == 1
    crawl.step()
    assert len(crawl.tasks_out.bodies) == 1
    crawl.tasks()
    crawl.step()
    assert len(crawl.tasks_out.bodies) == 1


@pytest.mark.behaviour("S55")
def test_a_project_that_only_fails_is_paused(crawl: Crawl) -> None:
    """S55, S56."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(*[new(str(number), schedule={"retries": 0}) for number in range(300)])
    crawl.step(*[fails(task) for task in crawl.tasks()])
    left = crawl.tasks()
    crawl.step(after=299)
    assert crawl.tasks() == left == []
    crawl.step(after=1.1)
    assert len(crawl.tasks()) == 3
