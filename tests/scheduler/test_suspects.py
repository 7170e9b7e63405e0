"""`Scheduler.step`: what a processor died with is run alone, and given up when it kills more of them; control work like tasks, and when no
queue carries it."""

import pytest
from played_crawl import Crawl, beat, done, empty, new

from pyspider_lite.models.letter import LetterKind
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import Message
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.models.worker import Beat, Claim, Handover


def processor(name: str, task: Dispatch, batch: str, queue: str, named: bool) -> list[Claim | Beat]:
    """It takes a batch, and dies before or after it could say that the task runs."""
    held = beat(name, Role.PROCESSOR, 1, holds={batch: [task.key]}, running=task.key if named else None)
    return [Claim(worker=name, queue=queue, batch=batch, runs=[task.key]), held]


def test_what_a_processor_died_with_is_named_before_it_runs_again(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    (task,) = crawl.tasks()
    for death in range(4):
        assert task.suspect == (death > 0)
        crawl.step(*processor(f"w{death}", task, f"pages{death}", QueueName.TO_PROCESSOR, named=task.suspect))
        for _ in range(8):
            crawl.step(after=1)
        if death < 3:
            (task,) = crawl.tasks()
    assert crawl.task("t").status == TaskStatus.FAILED
    assert crawl.tasks() == [] and not crawl.scheduler.leases.blame.suspects and not crawl.scheduler.leases.blame.tolls


@pytest.mark.parametrize("claimed", [True, False])
def test_a_result_that_kills_workers_of_a_class_of_the_user_is_given_up(crawl: Crawl, claimed: bool) -> None:
    """Also when they die before they can say what they took."""
    task = crawl.one_task()
    for death in range(4):
        assert task.suspect == (death > 0)
        name, batch = f"r{death}", f"results{death}"
        crawl.step(
            Claim(worker="w", queue=QueueName.TO_PROCESSOR, batch=f"pages{death}", runs=[task.key]),
            Handover(worker="w", queue=QueueName.RESULTS, batch=batch, runs=[task.key]),
        )
        crawl.step(beat(name, Role.RESULT_WORKER, 1, own_class=True))
        if claimed or death:
            held = {batch: [task.key]}
            running = task.key if death else None
            crawl.step(beat(name, Role.RESULT_WORKER, 1, own_class=True, holds=held, running=running))
        for _ in range(12):
            crawl.step(after=1, depths=empty(crawl.scheduler.leases.clock, QueueName.RESULTS))
        if death < 3:
            (task,) = crawl.tasks()
    row = crawl.task("t")
    assert row.status == TaskStatus.FAILED and "3 workers died over it" in row.track["process"]["exception"]
    assert not crawl.scheduler.leases.blame.suspects


def test_a_result_worker_of_ours_runs_nothing_that_is_to_blame(crawl: Crawl) -> None:
    """Hundreds of results in its hands are not run one by one."""
    task = crawl.one_task()
    held = beat("r", Role.RESULT_WORKER, 1, holds={"results": [task.key]})
    crawl.step(Claim(worker="r", queue=QueueName.RESULTS, batch="results", runs=[task.key]), held)
    for _ in range(8):
        crawl.step(after=1)
    (again,) = crawl.tasks()
    assert again.key == task.key and not again.suspect


def test_control_work_that_kills_its_processors_is_given_up(crawl: Crawl) -> None:
    """on_start fails as a task does, without another try; what came after it is run."""
    crawl.project()
    crawl.ready("p")
    crawl.start()
    for death in range(4):
        for _ in range(2):
            crawl.step()
        (task,) = crawl.controls()
        assert (task.taskid, task.suspect) == ("on_start", death > 0)
        crawl.step(*processor(f"w{death}", task, f"pages{death}", QueueName.CONTROL, named=task.suspect))
        for _ in range(8):
            crawl.step(after=1)
    row = crawl.task("on_start")
    assert row.status == TaskStatus.FAILED and "3 workers died over it" in row.track["process"]["exception"]
    (letter,) = crawl.taskdb.dead_letters()
    assert (letter.kind, letter.queue, letter.taskid) == (LetterKind.TASK, QueueName.CONTROL, "on_start")
    crawl.start(run="2")
    crawl.crawl(1)
    assert crawl.task("on_start").status == TaskStatus.SUCCESS


def test_control_work_that_is_too_large_fails_with_the_reason(crawl: Crawl, caplog: pytest.LogCaptureFixture) -> None:
    """A message that no queue carries is kept aside, and what waits behind it is done."""
    crawl.project()
    crawl.project("q")
    crawl.ready("p", "q")
    large = "".join(f"{number * 2654435761 % 2**32:08x}" for number in range(4_000_000))
    crawl.pages["page"] = lambda task: done(task, messages=[Message("q", large, "u"), Message("q", "small", "v")])
    crawl.submit(new("t", process={"callback": "page"}))
    crawl.crawl(1)
    assert "cannot be given out: a message of" in caplog.text
    assert crawl.callbacks("q").count("_on_message") == 1
    (letter,) = crawl.taskdb.dead_letters()
    assert (letter.kind, letter.queue, letter.project) == (LetterKind.TASK, QueueName.CONTROL, "q")
    assert "cannot be given out" in letter.reason and letter.cut and letter.size > 30_000_000
    assert not crawl.scheduler.leases.controls and not crawl.scheduler.leases.in_flight()
    crawl.lead()
    crawl.ready("p", "q")
    crawl.crawl(4)
    assert crawl.callbacks("q").count("_on_message") == 1
