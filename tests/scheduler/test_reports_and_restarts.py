"""`Scheduler.step`: what becomes of reports, and of tasks that are to run again."""

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, beat, claim, done, fails, links, new, raw, runs

from pyspider_lite.models.batch import NewTaskBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.models.worker import Claim

# --- reports ------------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S44")
def test_a_failure_is_tried_again_when_it_is_due(crawl: Crawl) -> None:
    task = crawl.one_task()
    crawl.step(fails(task))
    row = crawl.task("t")
    assert (row.status, row.run, row.schedule["retried"], row.due) == (TaskStatus.ACTIVE, 1, 1, crawl.now + 30)
    crawl.step(after=29)
    assert crawl.tasks() == []
    crawl.step(after=1.1)
    (again,) = crawl.tasks()
    assert (again.run, again.schedule["retried"]) == (1, 1)


def test_retries_end(crawl: Crawl) -> None:
    task = crawl.one_task(retries=1)
    crawl.step(fails(task))
    crawl.step(after=31)
    crawl.step(*[fails(task) for task in crawl.tasks()])
    assert crawl.task("t").status == TaskStatus.FAILED
    assert (crawl.events("retry"), crawl.events("failed")) == (1, 1)


def test_the_handlers_retry_delay(crawl: Crawl) -> None:
    crawl.info["p"] = {"retry_delay": {"0": 2, "": -1}}
    task = crawl.one_task()
    crawl.step(fails(task))
    crawl.step(after=2.1)
    crawl.step(*[fails(task) for task in crawl.tasks()])
    assert crawl.task("t").status == TaskStatus.FAILED


def test_of_two_reports_of_a_run_the_first_counts(crawl: Crawl) -> None:
    task = crawl.one_task()
    crawl.step(done(task, follows=[new("first")]), done(task, ok=False, follows=[new("second")]))
    crawl.step(done(task, ok=False, follows=[new("third")]))
    assert crawl.task("t").status == TaskStatus.SUCCESS
    assert crawl.events("stale") == 2
    assert crawl.taskdb.get("p", ["second", "third"]) == []


@pytest.mark.behaviour("S30", "S40")
def test_a_report_of_a_run_that_never_was(crawl: Crawl) -> None:
    task = crawl.one_task()
    crawl.step(done(replace(task, run=7)), done(replace(task, taskid="unknown")))
    assert crawl.events("stale") == 2
    assert crawl.task("t").status == TaskStatus.ACTIVE
    crawl.step(done(task))
    assert crawl.task("t").status == TaskStatus.SUCCESS


def test_no_status_ends_the_run_and_leaves_the_track(crawl: Crawl) -> None:
    """H35: @not_send_status."""
    task = crawl.one_task()
    crawl.step(done(task, no_status=True, follows=[new("u")]))
    assert crawl.task("t").track == {}
    assert [task.taskid for task in crawl.tasks()] == ["u"]
    assert len(crawl.scheduler.leases) == 1


def test_a_report_in_parts_the_last_first(crawl: Crawl) -> None:
    task = crawl.one_task()
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
    task = crawl.one_task()
    crawl.step(done(task))
    late = [done(task, part=number, parts=0, track={}) for number in range(2)]
    crawl.step(*late)
    assert not crawl.scheduler._parts._seen


def test_a_report_that_misses_a_part_is_made_again(crawl: Crawl) -> None:
    task = crawl.one_task()
    sender = crawl.scheduler._dispatcher._sender
    batch = f"scheduler-{sender.epoch}-{sender.batches}"
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
    task = crawl.one_task()
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
    task = crawl.one_task()
    crawl.step(
        done(task),
        new=[(NewTaskBatch(tasks=[raw(new("t", schedule={"force_update": True}))]), crawl.ack)],
    )
    (again,) = crawl.tasks()
    assert again.run == 2
    crawl.step(done(again))


def test_a_page_that_forces_itself(crawl: Crawl) -> None:
    task = crawl.one_task()
    crawl.step(links("t", force_update=True)(task))
    (again,) = crawl.tasks()
    assert again.run == 2


@pytest.mark.behaviour("S21")
@pytest.mark.parametrize("ok", [True, False])
def test_a_postponed_restart_outlives_the_scheduler(crawl: Crawl, ok: bool) -> None:
    task = crawl.one_task()
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
    task = crawl.one_task()
    crawl.submit(new("t", schedule={"cancel": True, "force_update": True}))
    crawl.step(done(task, track={"save": {"page": 3}, "process": {"ok": True}}))
    row = crawl.task("t")
    assert (row.status, row.run) == (TaskStatus.BAD, 2)
    assert row.track == {"save": {"page": 3}, "process": {"ok": True}}


@pytest.mark.behaviour("S20")
def test_age_restarts_what_was_crawled_before(crawl: Crawl) -> None:
    task = crawl.one_task()
    crawl.step(done(task))
    crawl.submit(new("t", schedule={"age": 60}))
    assert crawl.tasks() == []
    crawl.submit(new("t", schedule={"age": 60}), after=61)
    (again,) = crawl.tasks()
    assert (again.run, again.unconditional) == (2, False)
    assert crawl.events("dropped-fresh") == 1
