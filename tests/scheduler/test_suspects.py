"""`Scheduler.step`: what a processor died with is run alone, and given up when it kills more of them; control work like tasks, and when no
queue carries it."""

import pytest
from played_crawl import Crawl, beat, done, new

from pyspider_lite.models.letter import LetterKind
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import Message
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.models.worker import Beat, Claim


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
