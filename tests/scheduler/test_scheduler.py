"""`Scheduler.step` on SQLite: the life of projects and tasks, with workers played by the test and a counted clock."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace
from played_crawl import (
    INFO,
    Crawl,
    Outlet,
    beat,
    claim,
    done,
    empty,
    fails,
    links,
    new,
    raw,
    runs,
)

from pyspider_lite.errors import DatabaseError, LostLeadership
from pyspider_lite.models import (
    Claim,
    Dispatch,
    Handover,
    Message,
    NewTask,
    NewTaskBatch,
    QueueName,
    Release,
    Role,
    StatusBatch,
    TaskStatus,
)
from pyspider_lite.scheduler.inbox import Heard
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


# --- reports ------------------------------------------------------------------------------------------------------------


def one_task(crawl: Crawl, **schedule: Any) -> Dispatch:
    """A project with one task that was given out."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t", schedule=schedule))
    (task,) = crawl.tasks()
    return task


@pytest.mark.behaviour("S44")
def test_a_failure_is_tried_again_when_it_is_due(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.step(fails(task))
    row = crawl.task("t")
    assert (row.status, row.run, row.schedule["retried"], row.due) == (TaskStatus.ACTIVE, 1, 1, crawl.now + 30)
    crawl.step(after=29)
    assert crawl.tasks() == []
    crawl.step(after=1.1)
    (again,) = crawl.tasks()
    assert (again.run, again.schedule["retried"]) == (1, 1)


def test_retries_end(crawl: Crawl) -> None:
    task = one_task(crawl, retries=1)
    crawl.step(fails(task))
    crawl.step(after=31)
    crawl.step(*[fails(task) for task in crawl.tasks()])
    assert crawl.task("t").status == TaskStatus.FAILED
    assert (crawl.events("retry"), crawl.events("failed")) == (1, 1)


def test_the_handlers_retry_delay(crawl: Crawl) -> None:
    crawl.info["p"] = {"retry_delay": {"0": 2, "": -1}}
    task = one_task(crawl)
    crawl.step(fails(task))
    crawl.step(after=2.1)
    crawl.step(*[fails(task) for task in crawl.tasks()])
    assert crawl.task("t").status == TaskStatus.FAILED


def test_of_two_reports_of_a_run_the_first_counts(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.step(done(task, follows=[new("first")]), done(task, ok=False, follows=[new("second")]))
    crawl.step(done(task, ok=False, follows=[new("third")]))
    assert crawl.task("t").status == TaskStatus.SUCCESS
    assert crawl.events("stale") == 2
    assert crawl.taskdb.get("p", ["second", "third"]) == []


@pytest.mark.behaviour("S30", "S40")
def test_a_report_of_a_run_that_never_was(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.step(done(replace(task, run=7)), done(replace(task, taskid="unknown")))
    assert crawl.events("stale") == 2
    assert crawl.task("t").status == TaskStatus.ACTIVE
    crawl.step(done(task))
    assert crawl.task("t").status == TaskStatus.SUCCESS


def test_no_status_ends_the_run_and_leaves_the_track(crawl: Crawl) -> None:
    """H35: @not_send_status."""
    task = one_task(crawl)
    crawl.step(done(task, no_status=True, follows=[new("u")]))
    assert crawl.task("t").track == {}
    assert [task.taskid for task in crawl.tasks()] == ["u"]
    assert len(crawl.scheduler.leases) == 1


def test_a_report_in_parts_the_last_first(crawl: Crawl) -> None:
    task = one_task(crawl)
    last = done(task, part=2, parts=3)
    middle = done(task, part=1, parts=0, track={}, follows=[new("b")])
    first = done(task, part=0, parts=0, track={}, follows=[new("a")])
    crawl.step(last, middle)
    assert [task.taskid for task in crawl.tasks()] == ["b"]
    assert crawl.task("t").status == TaskStatus.ACTIVE
    crawl.step(first)
    assert [task.taskid for task in crawl.tasks()] == ["a"]
    assert crawl.task("t").status == TaskStatus.SUCCESS


def test_parts_of_a_run_that_is_over_are_not_kept(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.step(done(task))
    late = [done(task, part=number, parts=0, track={}) for number in range(2)]
    crawl.step(*late)
    assert not crawl.scheduler._parts._seen


def test_a_report_that_misses_a_part_is_made_again(crawl: Crawl) -> None:
    task = one_task(crawl)
    (batch,) = [f"scheduler-{crawl.scheduler._dispatcher._epoch}-{crawl.scheduler._dispatcher._batches}"]
    held = {batch: [task.key]}
    crawl.step(beat(), Claim(worker="w1", queue=QueueName.TO_FETCHER, batch=batch, runs=[task.key]), beat(holds=held))
    crawl.step(done(task, part=0, parts=0, track={}, follows=[new("a")]), done(task, part=2, parts=3), beat())
    again, _ = sorted(crawl.tasks(), key=lambda task: task.taskid, reverse=True)
    assert again.key == task.key
    parts = [done(again, part=number, parts=0, track={}) for number in range(2)]
    crawl.step(*parts, done(again, part=2, parts=3))
    assert crawl.task("t").status == TaskStatus.SUCCESS


def test_a_beat_after_a_report_loses_nothing(crawl: Crawl) -> None:
    """The worker no longer holds what it has reported; that is no reason to give it out again."""
    crawl.project()
    crawl.ready("p")
    crawl.step(beat())
    crawl.submit(new("t"), new("u"))
    (batch,) = crawl.batches()
    t, u = batch.tasks
    crawl.step(claim(batch), beat(holds={batch.batch: runs([t, u])}))
    crawl.step(fails(t), done(u), beat(), after=2)
    crawl.step(beat(), after=2)
    assert crawl.tasks() == []
    assert crawl.events("lost") == 0
    assert crawl.task("t").run == 1
    crawl.crawl(40)
    # u, the second run of t, on_finished
    assert (crawl.events("retry"), crawl.events("success")) == (1, 3)


def test_a_worker_that_leaves_after_its_report_loses_nothing(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.step(beat())
    crawl.submit(new("t"))
    (batch,) = crawl.batches()
    crawl.step(claim(batch))
    crawl.step(fails(batch.tasks[0]), beat(leaving=True))
    assert crawl.tasks() == []
    assert crawl.events("lost") == 0


# --- restarts -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S21")
def test_a_forced_task_in_flight_runs_again(crawl: Crawl) -> None:
    """S21: stored with the task, applied by the commit that ends the run."""
    task = one_task(crawl)
    crawl.submit(new("t", schedule={"force_update": True, "priority": 7}, fetch={"save": 1}))
    crawl.submit(new("t", schedule={"force_update": True, "priority": 8}, fetch={"save": 2}))
    assert crawl.tasks() == []
    crawl.step(done(task))
    (again,) = crawl.tasks()
    assert (again.run, again.fetch, again.schedule["priority"], again.unconditional) == (2, {"save": 2}, 8, True)
    assert crawl.task("t").track["process"]["ok"] is True
    crawl.step(done(again))
    assert crawl.task("t").status == TaskStatus.SUCCESS
    assert crawl.task("t").unconditional is False


def test_forced_and_reported_in_one_batch(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.step(
        done(task),
        new=[(NewTaskBatch(tasks=[raw(new("t", schedule={"force_update": True}))]), crawl.ack)],
    )
    (again,) = crawl.tasks()
    assert again.run == 2
    crawl.step(done(again))


def test_a_page_that_forces_itself(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.step(links("t", force_update=True)(task))
    (again,) = crawl.tasks()
    assert again.run == 2


@pytest.mark.behaviour("S21")
@pytest.mark.parametrize("ok", [True, False])
def test_a_postponed_restart_outlives_the_scheduler(crawl: Crawl, ok: bool) -> None:
    task = one_task(crawl)
    crawl.submit(new("t", schedule={"force_update": True}))
    crawl.lead()
    crawl.step()
    crawl.step(*[crawl.answer(task) for task in crawl.controls()])
    (given,) = crawl.tasks()
    assert given.key == task.key
    crawl.step(done(given, ok=ok))
    (again,) = crawl.tasks()
    assert again.run == 2


@pytest.mark.behaviour("S22", "X-S9")
def test_cancel(crawl: Crawl) -> None:
    """S22."""
    crawl.project()
    crawl.ready("p")
    cancelled = {"cancel": True, "force_update": True}
    crawl.submit(new("late", schedule={"exetime": crawl.now + 50}), new("flying"))
    (flying,) = crawl.tasks()
    crawl.submit(new("late", schedule=cancelled), new("flying", schedule=cancelled), new("nothing", schedule=cancelled))
    assert crawl.task("late").status == TaskStatus.BAD
    assert crawl.task("flying").status == TaskStatus.ACTIVE
    assert crawl.events("dropped-nothing-to-cancel") == 1
    crawl.step(done(flying))
    assert crawl.task("flying").status == TaskStatus.BAD
    crawl.crawl(60, step=1)
    assert [task.taskid for task in crawl.given if not task.control] == ["flying"]


def test_cancelled_in_flight_the_track_of_the_run_stays(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.submit(new("t", schedule={"cancel": True, "force_update": True}))
    crawl.step(done(task, track={"save": {"page": 3}, "process": {"ok": True}}))
    row = crawl.task("t")
    assert (row.status, row.run) == (TaskStatus.BAD, 2)
    assert row.track == {"save": {"page": 3}, "process": {"ok": True}}


@pytest.mark.behaviour("S20")
def test_age_restarts_what_was_crawled_before(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.step(done(task))
    crawl.submit(new("t", schedule={"age": 60}))
    assert crawl.tasks() == []
    crawl.submit(new("t", schedule={"age": 60}), after=61)
    (again,) = crawl.tasks()
    assert (again.run, again.unconditional) == (2, False)
    assert crawl.events("dropped-fresh") == 1


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


# --- workers ------------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S29", "X-S6")
def test_what_a_dead_worker_had_is_given_out_again_and_the_first_result_counts(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.step(beat())
    crawl.submit(new("t"))
    (batch,) = crawl.batches()
    (task,) = batch.tasks
    crawl.step(claim(batch), sent=[batch.batch])
    for _ in range(8):
        crawl.step(after=1)
    (again,) = crawl.tasks()
    assert again.key == task.key
    assert crawl.events("lost") == 1
    crawl.step(done(task, follows=[new("a")]), done(again, follows=[new("b")]))
    assert crawl.events("stale") == 1
    assert [task.taskid for task in crawl.tasks()] == ["a"]


def test_a_result_that_comes_after_its_run_was_lost_still_counts(crawl: Crawl) -> None:
    crawl.project(rate=1, burst=1)
    crawl.ready("p")
    crawl.step(beat())
    crawl.submit(new("t"))
    (batch,) = crawl.batches()
    crawl.step(claim(batch))
    crawl.change("p", rate=0.0)
    crawl.step()
    for _ in range(8):
        crawl.step(after=1)
    assert crawl.events("lost") == 1
    assert crawl.tasks() == []
    crawl.step(fails(batch.tasks[0]))
    assert crawl.task("t").run == 1
    crawl.change("p", rate=1.0)
    crawl.step()
    assert crawl.tasks() == [], "it waits for its retry"


def test_a_run_thought_lost_that_ends_after_all_waits_no_longer(crawl: Crawl, caplog: pytest.LogCaptureFixture) -> None:
    crawl.project(rate=1, burst=1)
    crawl.ready("p")
    crawl.step(beat())
    crawl.submit(new("t"))
    (batch,) = crawl.batches()
    crawl.step(claim(batch))
    crawl.change("p", rate=0.0)
    crawl.step()
    for _ in range(8):
        crawl.step(after=1)
    assert crawl.events("lost") == 1
    crawl.step(done(batch.tasks[0]))
    crawl.change("p", rate=1.0)
    crawl.step(after=2)
    assert crawl.tasks() == []
    assert "is not there any more" not in caplog.text


def test_released_work_is_given_out_at_once(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.step(beat())
    crawl.submit(new("t"), new("u"))
    (batch,) = crawl.batches()
    t, u = batch.tasks
    crawl.step(claim(batch), Release(worker="w1", runs=[u.key]))
    assert [task.key for task in crawl.tasks()] == [u.key]
    assert len(crawl.scheduler.leases) == 2
    crawl.step(done(t), done(u))


def test_a_batch_that_vanished_from_its_queue(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    (batch,) = crawl.batches()
    crawl.step(sent=[batch.batch])
    for _ in range(20):  # it waits: nobody has to fear anything
        crawl.step(after=1)
    assert crawl.tasks() == []
    crawl.step(depths=empty(crawl.scheduler.leases.clock))
    for _ in range(6):
        crawl.step(after=1)
    assert [task.key for task in crawl.tasks()] == runs(batch.tasks)


def test_a_task_that_kills_its_workers_fails_after_the_third(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("killer"), new("lamb"))
    for death in range(3):
        batches = crawl.batches()
        name = f"w{death}"
        held = {batch.batch: runs(batch.tasks) for batch in batches}
        if death:
            assert ["killer"] in [[task.taskid for task in batch.tasks] for batch in batches], "it travels alone"
        killer = next(task for batch in batches for task in batch.tasks if task.taskid == "killer")
        crawl.step(*[claim(batch, name) for batch in batches], beat(name, holds=held, running=killer.key))
        for _ in range(8):
            crawl.step(after=1)
    row = crawl.task("killer")
    assert row.status == TaskStatus.FAILED
    assert "3 workers died over it" in row.track["process"]["exception"]
    assert crawl.task("lamb").status == TaskStatus.ACTIVE
    assert [task.taskid for task in crawl.tasks()] == ["lamb"]


def test_pages_on_their_way_to_a_processor_are_followed(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.step(beat(), beat("p1", Role.PROCESSOR, 2))
    crawl.submit(new("t"))
    (batch,) = crawl.batches()
    (task,) = batch.tasks
    handover = Handover(worker="w1", queue=QueueName.TO_PROCESSOR, batch="w1-1", runs=[task.key])
    taken = Claim(worker="p1", queue=QueueName.TO_PROCESSOR, batch="w1-1", runs=[task.key])
    # the receiver's claim may come first
    crawl.step(claim(batch), taken, handover, beat())
    for _ in range(10):
        crawl.step(beat(), beat("p1", Role.PROCESSOR, 2, holds={"w1-1": [task.key]}), after=1)
    assert crawl.tasks() == []
    crawl.step(done(task))
    assert crawl.events("lost") == 0


# --- projects that change ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S13")
def test_a_stopped_project_gives_nothing_more_and_takes_reports(crawl: Crawl) -> None:
    crawl.project(rate=2, burst=2)
    crawl.ready("p")
    crawl.submit(*[new(str(number)) for number in range(10)])
    given = crawl.tasks()
    assert len(given) == 2
    crawl.change("p", status="STOP")
    crawl.step(after=5)
    crawl.step(links("found")(given[0]), fails(given[1]))
    crawl.crawl(5)
    assert len(crawl.given) == 3  # with _on_get_info
    assert crawl.task("0").status == TaskStatus.SUCCESS
    assert crawl.task("found").status == TaskStatus.ACTIVE
    crawl.change("p", status="RUNNING", rate=100.0, burst=100.0)
    crawl.crawl(2)
    assert crawl.taskdb.status_count("p")[TaskStatus.SUCCESS] == 10


def test_a_late_report_of_a_project_that_was_stopped_before_we_began_to_lead(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.change("p", status="STOP")
    crawl.taskdb.close()
    crawl.taskdb = crawl.wrapped = crawl.taskdb.copy()
    crawl.lead()
    crawl.step()
    crawl.project("q")
    crawl.scheduler.update_projects()
    crawl.step(done(task))
    assert crawl.task("t").status == TaskStatus.SUCCESS
    crawl.step()
    assert [task.project for task in crawl.controls()] == ["q"], "the others go on"


@pytest.mark.behaviour("S12")
def test_another_script_is_asked_again(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.info["p"] = {"crawl_config": {"timeout": 5, "headers": {"a": "b"}}}
    crawl.change("p", script="v2")
    crawl.submit(new("t", fetch={"headers": {"c": "d"}}))
    assert crawl.tasks() == []
    crawl.step(*[crawl.answer(task) for task in crawl.controls()])
    (task,) = crawl.tasks()
    assert task.fetch == {"timeout": 5, "headers": {"a": "b", "c": "d"}}
    assert task.project_md5sum == crawl.scheduler.projects["p"].md5


@pytest.mark.behaviour("S12", "S65")
def test_a_new_leader_knows_what_the_script_answered(crawl: Crawl) -> None:
    crawl.project()
    crawl.info["p"] = {"crawl_config": {"timeout": 5}, "retry_delay": {"": 7}, "jobs": [{"name": "often", "every": 60}]}
    crawl.ready("p")
    before = crawl.scheduler.projects["p"].info
    crawl.submit(new("t"), new("u"))
    crawl.step(*[done(task) for task in crawl.tasks() if task.taskid == "u"])  # a commit keeps the answer
    crawl.lead()
    crawl.step()
    (task,) = crawl.tasks()
    assert (task.taskid, task.fetch) == ("t", {"timeout": 5})
    assert crawl.scheduler.projects["p"].info == before
    assert crawl.controls() == []
    # who stops a project and starts it again has it asked
    crawl.change("p", status="STOP")
    crawl.step()
    crawl.change("p", status="RUNNING")
    crawl.step()
    assert len(crawl.controls()) == 1


@pytest.mark.parametrize(
    "change", ["pushed", "pushed while it was stopped", "deleted", "replaced", "broken", "large", "unreadable"]
)
def test_a_new_leader_asks_a_script_that_has_not_answered(crawl: Crawl, change: str) -> None:
    crawl.project()
    crawl.step()
    (asked,) = crawl.controls()
    info = {**INFO, "crawl_config": {"headers": {"x": "y" * (9_000 if change == "large" else 9)}}}
    crawl.step(done(asked, ok=change != "broken", info=None if change == "broken" else info))
    if change == "pushed while it was stopped":
        crawl.change("p", status="STOP")
        crawl.step()
    if change == "deleted":
        crawl.taskdb.drop_project("p")
    if change in ("deleted", "replaced"):
        crawl.projectdb.drop("p")
        crawl.project()
    elif change.startswith("pushed"):
        crawl.change("p", script="v2", status="RUNNING")
    elif change == "unreadable":
        with crawl.taskdb.begin(None) as tx:
            tx.put_project_states([replace(tx.project_states(["p"])["p"], info="[1]")])
    crawl.lead()
    crawl.submit(new("t"))
    assert crawl.tasks() == []
    (asked,) = crawl.controls()
    crawl.step(done(asked, info=INFO))
    (task,) = crawl.tasks()
    assert task.fetch == {}


def test_an_answer_of_the_script_before_does_not_count(crawl: Crawl) -> None:
    crawl.project()
    crawl.submit(new("t"))
    (old,) = crawl.controls()
    crawl.change("p", script="v2")
    crawl.step()
    crawl.step(done(old, info={"crawl_config": {"timeout": 1}}))
    assert crawl.tasks() == []
    (asked,) = crawl.controls()
    crawl.step(done(asked, info=INFO))
    (task,) = crawl.tasks()
    assert task.fetch == {}


@pytest.mark.behaviour("X-P9")
def test_deleted_and_made_again_under_the_same_name(crawl: Crawl) -> None:
    """Another generation: what belongs to the old project touches nothing of the new one."""
    task = one_task(crawl)
    crawl.step(done(task))
    crawl.submit(new("u"))
    (late,) = crawl.tasks()
    crawl.projectdb.update("p", status="STOP", group="delete")
    crawl.scheduler.update_projects()
    crawl.step()
    crawl.now = crawl.look().updatetime + 86_401
    crawl.step()
    assert crawl.projectdb.get("p") is None
    assert crawl.taskdb.status_count("p") == {}
    generation = crawl.project()
    crawl.ready("p")
    crawl.step(done(late, follows=[new("ghost", generation=late.generation)]))
    assert crawl.taskdb.status_count("p") == {}
    # what was known of the old one is new here
    crawl.submit(new("t"), new("u"))
    given = crawl.tasks()
    assert {(task.taskid, task.generation) for task in given} == {("t", generation), ("u", generation)}
    crawl.crawl(1)
    crawl.step(*[done(task) for task in given])


def test_a_project_that_was_replaced_while_its_work_was_under_way(crawl: Crawl) -> None:
    crawl.project()
    crawl.start()
    crawl.ready("p")
    crawl.submit(new("t"))
    flying = [*crawl.tasks(), *crawl.controls()]
    crawl.projectdb.drop("p")
    crawl.project()
    crawl.scheduler.update_projects()
    crawl.step()
    crawl.step(*[crawl.answer(task) for task in crawl.controls()])
    crawl.step(*[done(task) for task in flying])
    crawl.submit(new("v"))
    crawl.crawl(3)
    assert crawl.task("v").status == TaskStatus.SUCCESS
    assert "on_finished" in crawl.callbacks()


def test_control_work_of_an_earlier_project_holds_nothing_up(crawl: Crawl) -> None:
    crawl.project()
    crawl.start()
    crawl.projectdb.drop("p")
    crawl.project()
    crawl.lead()
    crawl.ready("p")
    crawl.submit(new("t"))
    crawl.crawl(2)
    assert "on_start" not in crawl.callbacks()
    assert "on_finished" in crawl.callbacks()


# --- control work --------------------------------------------------------------------------------------------------------


def test_cron_ticks(crawl: Crawl) -> None:
    crawl.info["p"] = {"cron": [5, 60]}
    crawl.project()
    crawl.now = 6e9 + 0.5
    crawl.ready("p")
    crawl.crawl(21)
    ticks = [task.fetch["save"]["tick"] for task in crawl.given if task.process["callback"] == "_on_cronjob"]
    assert ticks == [6_000_000_005, 6_000_000_010, 6_000_000_015, 6_000_000_020]
    assert crawl.taskdb.project_states()["p"].last_tick == ticks[-1]
    crawl.step(after=3_600)
    assert len([task for task in crawl.controls() if task.process["callback"] == "_on_cronjob"]) <= 2


def test_cron_ticks_that_nobody_takes_are_bounded(crawl: Crawl) -> None:
    crawl.info["p"] = {"cron": [1]}
    crawl.project()
    crawl.ready("p")
    for _ in range(40):
        crawl.step(after=1)
    assert len(crawl.taskdb.controls(0, 1_000)) == 10


@pytest.mark.behaviour("X-P7", "H61")
def test_messages_between_projects(crawl: Crawl) -> None:
    """H61."""
    crawl.project("a")
    crawl.project("b")
    crawl.ready("a", "b")
    crawl.pages = {
        "http://x/t": lambda task: done(
            task, messages=[Message("b", {"n": 1}, "data:,1"), Message("b", 2, "data:,2"), Message("nobody", 3, "u")]
        ),
        "b:_on_message": links("found"),
    }
    crawl.submit(new("t", "a"))
    crawl.crawl(2)
    got = [task for task in crawl.given if task.process.get("callback") == "_on_message"]
    assert [(task.project, task.fetch["save"]) for task in got] == [("b", ["a", {"n": 1}]), ("b", ["a", 2])]
    assert crawl.task("found", "b").status == TaskStatus.SUCCESS
    assert crawl.taskdb.controls(0, 10) == []


@pytest.mark.behaviour("X-S8", "S12")
def test_control_work_that_is_lost_is_given_out_again(crawl: Crawl) -> None:
    crawl.project()
    crawl.start()
    crawl.step(beat("p1", Role.PROCESSOR))
    asked = crawl.controls()
    assert {task.process["callback"] for task in asked} == {"_on_get_info", "on_start"}
    batch = f"scheduler-{crawl.scheduler._dispatcher._epoch}-1"
    crawl.step(Claim(worker="p1", queue=QueueName.CONTROL, batch=batch, runs=runs(asked)))
    for _ in range(8):
        crawl.step(after=1)
    again = crawl.controls()
    assert {task.key for task in again} == {task.key for task in asked}
    crawl.step(*[done(task) for task in (*asked, *again)])
    crawl.crawl(1)
    assert crawl.callbacks().count("on_finished") == 1


def test_large_messages_do_not_stop_the_control_lane(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    (task,) = crawl.tasks()
    noise = [
        f"{number:x}" + "".join(f"{(number * 7919 + n) * 2654435761 % 2**32:08x}" for n in range(300_000))
        for number in range(6)
    ]
    crawl.step(done(task, messages=[Message("p", text, f"data:,{n}") for n, text in enumerate(noise)]))
    crawl.crawl(2)
    assert crawl.callbacks().count("_on_message") == len(noise)


# --- faults --------------------------------------------------------------------------------------------------------------


class Faulty:
    """A taskdb whose next calls of some methods fail."""

    def __init__(self, taskdb: Any) -> None:
        self._taskdb = taskdb
        self.failing: dict[str, int] = {}

    def _fail(self, name: str) -> None:
        if self.failing.get(name, 0) > 0:
            self.failing[name] -= 1
            raise DatabaseError("gone for a moment")

    @contextmanager
    def begin(self, epoch: int | None) -> Iterator[Any]:
        with self._taskdb.begin(epoch) as tx:
            yield tx
            self._fail("commit")

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._taskdb, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._fail(name)
            return method(*args, **kwargs)

        return call


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Crawl]:
    crawl = Crawl(tmp_path, wrap=Faulty)
    yield crawl
    crawl.check()
    crawl.close()


@pytest.mark.behaviour("X-S3", "X-S5", "P30")
def test_a_commit_that_fails_is_done_again_as_a_whole(faulty: Crawl) -> None:
    task = one_task(faulty)
    faulty.wrapped.failing = {"commit": 3}
    faulty.step(links("a", "b")(task), new=[(NewTaskBatch(tasks=[raw(new("c"))]), faulty.ack)])
    assert faulty.acked == 1  # that of `one_task`
    assert faulty.taskdb.status_count("p") == {TaskStatus.ACTIVE: 1}
    faulty.crawl(5)
    assert faulty.acked == 2
    # t, a, b, c, on_finished
    assert faulty.taskdb.status_count("p") == {TaskStatus.SUCCESS: 5}
    assert faulty.events("success") == 5
    assert [task.taskid for task in faulty.given if not task.control] == ["t", "a", "b", "c"]


@pytest.mark.parametrize("method", ["get", "refill", "controls", "open_project", "begin"])
def test_a_database_that_is_away_costs_time_only(faulty: Crawl, method: str) -> None:
    faulty.wrapped.failing = {method: 2}
    faulty.project()
    faulty.project("q", rate=2, burst=2)
    faulty.start()
    faulty.pages = {"on_start": links("a", "b"), "http://x/a": links("c")}
    faulty.submit(*[new(str(number), "q") for number in range(20)])
    for round_ in range(8):
        faulty.crawl(1.5)
        if round_ < 5:
            faulty.wrapped.failing[method] = 1
    faulty.crawl(5)
    assert faulty.taskdb.status_count("p") == {TaskStatus.SUCCESS: 5}
    assert faulty.taskdb.status_count("q") == {TaskStatus.SUCCESS: 21}
    assert len(faulty.scheduler.leases) == 0


def test_our_outage_is_nobodys_death(faulty: Crawl) -> None:
    faulty.project()
    faulty.ready("p")
    faulty.step(beat())
    faulty.submit(new("t"))
    (batch,) = faulty.batches()
    faulty.step(claim(batch))
    faulty.wrapped.failing = {"refill": 10**6, "begin": 10**6, "commit": 10**6}
    for _ in range(20):
        faulty.step(after=1, drained=False)
    faulty.wrapped.failing = {}
    for _ in range(10):
        faulty.step(beat(holds={batch.batch: runs(batch.tasks)}), after=1)
    assert faulty.events("lost") == 0
    faulty.step(done(batch.tasks[0]))


def test_a_tick_of_a_project_that_vanished_before_the_commit(faulty: Crawl) -> None:
    faulty.info["p"] = {"cron": [1]}
    faulty.project()
    faulty.project("q")
    faulty.ready("p", "q")
    faulty.wrapped.failing = {"commit": 1}
    faulty.step(after=1.5)
    faulty.projectdb.drop("p")
    faulty.scheduler.update_projects()
    faulty.submit(new("t", "q"), after=1)
    assert [task.taskid for task in faulty.tasks()] == ["t"]


@pytest.mark.behaviour("S65")
def test_a_new_leader_on_the_same_files_finishes_the_crawl(crawl: Crawl) -> None:
    crawl.project()
    crawl.start()
    crawl.pages = {
        "on_start": links(*[f"{n}" for n in range(50)]),
        **{f"http://x/{n}": links(f"{n}a", "0") for n in range(50)},
    }
    crawl.crawl(0.3)
    flying = crawl.tasks()
    old = crawl.scheduler
    crawl.lead()
    with pytest.raises(LostLeadership):
        old.step(crawl.now, Heard(status=[StatusBatch(items=[done(flying[0])])]))
    # workers that live on report to the new one
    crawl.step(*[done(task) for task in flying[:5]])
    crawl.crawl(5)
    assert crawl.taskdb.status_count("p") == {TaskStatus.SUCCESS: 102}
    assert crawl.callbacks().count("on_finished") == 1
    assert crawl.callbacks().count("on_start") == 1


def test_a_new_leader_adopts_what_workers_hold(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.lead()
    crawl.step(beat(holds={"scheduler-1-1": [task.key]}))
    crawl.step(*[crawl.answer(asked) for asked in crawl.controls()])
    assert crawl.tasks() == []
    crawl.submit(new("t", schedule={"force_update": True}))
    crawl.step(done(task))
    (again,) = crawl.tasks()
    assert again.run == 2


def test_a_hung_copy_of_a_run_that_is_over_holds_nothing_up_under_a_new_leader(crawl: Crawl) -> None:
    """Two workers had the run: one reported it, the other hangs in it and says so to the next leader."""
    task = one_task(crawl)
    crawl.step(done(task, ok=False))
    assert crawl.task("t").run == 1
    crawl.lead()
    crawl.step(beat("w1"), beat("w2", Role.PROCESSOR, holds={"w1:1": [task.key]}, running=task.key))
    crawl.step(*[crawl.answer(asked) for asked in crawl.controls()])
    crawl.step(after=31)  # the delay of the retry
    (again,) = crawl.tasks()
    assert again.run == 1
    crawl.step(done(again))
    assert crawl.task("t").status == TaskStatus.SUCCESS


def test_a_late_beat_about_an_ended_run_holds_no_restart_up(crawl: Crawl) -> None:
    task = one_task(crawl)
    crawl.step(done(task))
    crawl.step(beat(holds={"scheduler-1-1": [task.key]}))
    crawl.submit(new("t", schedule={"force_update": True}))
    (again,) = crawl.tasks()
    assert again.run == 2
    crawl.step(beat())
    crawl.step(done(again))
    assert crawl.task("t").status == TaskStatus.SUCCESS
    assert crawl.task("t").run == 3


def test_a_new_leader_hears_claims_out_before_it_gives_anything(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path)
    one_task(crawl)
    scheduler = type(crawl.scheduler)(
        taskdb=crawl.taskdb,
        projectdb=crawl.projectdb,
        resultdb=crawl.resultdb,
        epoch=crawl.taskdb.lead("other", 0.0, "") or 0,
        tasks_out=(tasks_out := Outlet()),
        pages_out=(pages_out := Outlet()),
        now=crawl.now,
        adopt_for=2.5,
    )
    wake = scheduler.step(crawl.now + 1, Heard())
    assert (tasks_out.bodies, pages_out.bodies) == ([], [])
    while wake < crawl.now + 2.5:
        wake = scheduler.step(wake, Heard())
    scheduler.step(wake, Heard())
    assert tasks_out.bodies != []
    crawl.close()


def test_a_command_that_fails_loses_nothing_that_was_heard_with_it(crawl: Crawl) -> None:
    task = one_task(crawl)

    def wrong(scheduler: Any) -> None:
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        crawl.step(done(task), new=[(NewTaskBatch(tasks=[raw(new("u"))]), crawl.ack)], commands=[wrong])
    crawl.step()
    assert crawl.task("t").status == TaskStatus.SUCCESS
    assert crawl.acked == 2
    assert [task.taskid for task in crawl.tasks()] == ["u"]


def test_an_unstorable_report_fails_alone(crawl: Crawl) -> None:
    """A value that JSON cannot hold fails its task with the reason; the others of the batch are applied."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(*[new(str(number)) for number in range(9)])
    given = crawl.tasks()
    reports = [done(task) for task in given]
    reports[4] = done(
        given[4], track={"fetch": {}, "process": {"ok": True}, "save": {(1, 2): 3}}, follows=[new("lost")]
    )
    crawl.step(*reports)
    assert crawl.taskdb.status_count("p") == {TaskStatus.SUCCESS: 8, TaskStatus.ACTIVE: 1}
    assert "could not be stored" in crawl.task("4").track["process"]["exception"]
    assert crawl.taskdb.get("p", ["lost"]) == []


def test_an_unstorable_submission_takes_nothing_else_with_it(crawl: Crawl) -> None:
    crawl.project()
    answered: list[Any] = []
    bad = new("bad", fetch={"save": {(1, 2): "a key that JSON cannot have"}})
    crawl.scheduler.update_projects()
    crawl.step()
    crawl.project("q")
    crawl.scheduler.update_projects()
    crawl.scheduler.submit([bad], answered.append)
    crawl.step()
    crawl.step()
    assert len(answered) == 1
    assert crawl.taskdb.dead_letters()[0].taskid == "bad"
    # what stood in the same batch was entered
    assert {task.project for task in crawl.controls()} == {"p", "q"}
