"""What the scheduler keeps as dead letters, and that it keeps no more than it may."""

import logging
import random
from pathlib import Path

import pytest
from msgspec import Raw
from played_crawl import Away, Crawl, beat, claim, new, raw

from pyspider_lite.models.batch import NewTaskBatch
from pyspider_lite.models.letter import Broken, DeadLetter, LetterKind
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.scheduler import dead_letters
from pyspider_lite.scheduler.leases import POISON_AFTER


def kinds(crawl: Crawl) -> list[tuple[str, str, str]]:
    return [(letter.kind, letter.project, letter.taskid) for letter in crawl.taskdb.dead_letters()]


def test_a_task_that_workers_died_over_is_kept(ready: Crawl) -> None:
    ready.submit(new("t"))
    for death in range(POISON_AFTER):
        (batch,) = ready.batches()
        worker = f"w{death}"
        ready.step(
            claim(batch, worker), beat(worker, running=batch.tasks[0].key, holds={batch.batch: [batch.tasks[0].key]})
        )
        for _ in range(12):
            ready.step(after=1.0)
    assert ready.task("t").status == TaskStatus.FAILED
    assert kinds(ready) == [(LetterKind.TASK, "p", "t")]
    (letter,) = ready.taskdb.dead_letters()
    assert (letter.reason, letter.payload, letter.cut) == ("3 workers died over it", b"", False)


def test_a_task_that_no_queue_carries_is_kept(ready: Crawl) -> None:
    # it compresses badly
    noise = random.Random(2).randbytes(13 * 1024 * 1024).hex()
    ready.submit(new("t", fetch={"data": noise}))
    ready.step()
    ready.step()
    assert kinds(ready) == [(LetterKind.TASK, "p", "t")]
    assert ready.task("t").status == TaskStatus.FAILED


def test_results_that_could_not_be_stored_are_kept_with_their_task(ready: Crawl) -> None:
    said = Broken(
        kind=LetterKind.RESULT,
        queue=QueueName.RESULTS,
        project="p",
        taskid="t",
        reason="too odd",
        body=b"r" * 70_000,
        size=90_000,
    )
    ready.step(said)
    (letter,) = ready.taskdb.dead_letters()
    assert kinds(ready) == [(LetterKind.RESULT, "p", "t")]
    assert (len(letter.payload), letter.size, letter.cut, letter.reason) == (70_000, 90_000, True, "too odd")


def test_messages_that_could_not_be_read_are_kept_up_to_64_kib(ready: Crawl) -> None:
    long = Raw(b"\xc1" * 100_000)
    ready.step(new=[(NewTaskBatch(tasks=[long, raw(NewTask("t", "p", ""))]), ready.ack)])
    first, second = ready.taskdb.dead_letters()
    assert (first.reason, first.queue, first.cut) == ("url is missing", QueueName.NEW_TASKS, False)
    assert (len(second.payload), second.size, second.cut) == (64 * 1024, 100_000, True)
    assert ready.scheduler.counters.get(ready.now, "1h")[""]["broken"] == 2


def test_an_older_workers_word_has_no_size(ready: Crawl) -> None:
    ready.step(Broken(queue=QueueName.TO_FETCHER, reason="r", body=b"abc"))
    (letter,) = ready.taskdb.dead_letters()
    assert (letter.size, letter.cut) == (3, False)


def test_the_oldest_are_dropped_and_it_is_said(
    ready: Crawl, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_ROWS", 10)
    broken = [Broken(queue="q", reason=str(number), body=b"abc") for number in range(15)]
    with caplog.at_level(logging.WARNING):
        ready.step(*broken)
        ready.step(after=dead_letters.LOOK_SOON + 1)
    assert [int(letter.reason) for letter in ready.taskdb.dead_letters()] == list(range(14, 4, -1))
    assert "the oldest 5 dead letters are dropped: at most 10, 64 MiB and 30 days are kept" in caplog.text
    assert (ready.scheduler.dead_letters.dropped, dict(ready.scheduler.dead_letters.counts)) == (5, {"message": 10})
    # a command purged them
    ready.taskdb.drop_dead_letters([letter.seq for letter in ready.taskdb.dead_letters()])
    ready.step(after=dead_letters.LOOK_EVERY + 1)
    assert dict(ready.scheduler.dead_letters.counts) == {}


def test_old_ones_are_dropped(ready: Crawl) -> None:
    with ready.taskdb.begin(None) as tx:
        tx.add_dead_letters(
            [
                DeadLetter(kind="message", reason=str(days), payload=b"", time=ready.now - days * 86_400)
                for days in (31, 29)
            ]
        )
    ready.step(after=dead_letters.LOOK_EVERY + 1)
    assert [letter.reason for letter in ready.taskdb.dead_letters()] == ["29"]


def test_while_the_database_is_away_only_so_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_WAITING", 10_000)
    crawl = Crawl(tmp_path, wrap=Away)
    crawl.step()
    crawl.wrapped.away = True
    for number in range(30):
        crawl.step(Broken(queue="q", reason=str(number), body=b"x" * 500))
    assert "a dead letter is dropped, because too many wait for the taskdb: 29" in caplog.text
    crawl.wrapped.away = False
    crawl.step(after=10)
    assert [int(letter.reason) for letter in crawl.taskdb.dead_letters()] == list(range(9, -1, -1))
    assert crawl.scheduler.dead_letters.dropped == 20
    # there is room again
    for _ in range(3):
        crawl.step(*[Broken(queue="q", reason="more", body=b"x" * 500) for _ in range(10)])
    assert len(crawl.taskdb.dead_letters()) == 40
    crawl.close()
