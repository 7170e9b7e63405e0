"""`Scheduler.step`: what dead, late and leaving workers had in hand, and what a new leader takes over."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, Outlet, beat, claim, done, empty, fails, links, new, raw, runs

from pyspider_lite.errors import LostLeadership
from pyspider_lite.models.batch import NewTaskBatch, StatusBatch, TaskBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.report import Message
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.models.worker import Claim, Handover, Release
from pyspider_lite.scheduler.inbox import Heard


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


def thought_lost(crawl: Crawl) -> TaskBatch:
    """A batch whose worker was silent for too long, and that the project's pace does not let out again."""
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
    return batch


def test_a_result_that_comes_after_its_run_was_lost_still_counts(crawl: Crawl) -> None:
    batch = thought_lost(crawl)
    assert crawl.tasks() == []
    crawl.step(fails(batch.tasks[0]))
    assert crawl.task("t").run == 1
    crawl.change("p", rate=1.0)
    crawl.step()
    assert crawl.tasks() == [], "it waits for its retry"


def test_a_run_thought_lost_that_ends_after_all_waits_no_longer(crawl: Crawl, caplog: pytest.LogCaptureFixture) -> None:
    batch = thought_lost(crawl)
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


def hears(crawl: Crawl, times: int) -> list[Any]:
    """A crawl of which the scheduler hears everything so often; what came of it."""
    crawl.project()
    crawl.project("q")
    crawl.ready("p", "q")
    crawl.pages["on_start"] = links("index")
    crawl.pages["http://x/index"] = lambda task: replace(
        links("a", "b", "c")(task), messages=[Message("q", "hello", "m")]
    )
    crawl.start()
    crawl.step(new=[(NewTaskBatch(tasks=[raw(new("fed"))]), crawl.ack)] * times)
    for _ in range(40):
        given = [*crawl.controls(), *crawl.tasks()]
        crawl.step(*[crawl.answer(task) for task in given] * times)
    crawl.check()
    keys = [(task.project, task.taskid, task.run) for task in crawl.given]
    return [crawl.events("success"), crawl.callbacks(), crawl.callbacks("q"), keys]


def test_every_message_may_come_twice(tmp_path: Path) -> None:
    """A put that was answered too late is repeated: whatever the scheduler hears counts once."""
    came = []
    for times in (1, 2):
        (tmp_path / str(times)).mkdir()
        crawl = Crawl(tmp_path / str(times))
        came.append(hears(crawl, times))
        crawl.close()
    assert came[0] == came[1]
    assert came[0][:2] == [7, ["_on_get_info", "on_start", "on_finished"]]


def test_before_all_stops_nothing_more_is_given_out(crawl: Crawl) -> None:
    """What is given back stays in the table, what comes back is written down."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"), new("u"))
    (batch,) = crawl.batches()
    t, u = batch.tasks
    crawl.step(claim(batch), beat(holds={batch.batch: runs(batch.tasks)}))
    crawl.scheduler.hold()
    crawl.start()
    crawl.submit(new("v"))
    crawl.step(Release(worker="w1", runs=[t.key]), done(u), after=3)
    crawl.step(after=3)
    assert (crawl.tasks(), crawl.controls()) == ([], [])
    assert crawl.task("u").status == TaskStatus.SUCCESS
    crawl.lead()
    crawl.ready("p")
    assert sorted(task.taskid for task in crawl.tasks()) == ["t", "v"]


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
    task = crawl.one_task()
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
    task = crawl.one_task()
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
    task = crawl.one_task()
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
    crawl.one_task()
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
