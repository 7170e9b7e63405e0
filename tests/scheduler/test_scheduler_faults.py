"""`Scheduler.step` with databases that fail, and with work that cannot be stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from played_crawl import Crawl, beat, claim, done, links, new, raw, runs

from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.batch import NewTaskBatch
from pyspider_lite.models.task import TaskStatus


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
    task = faulty.one_task()
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


def test_a_command_that_fails_loses_nothing_that_was_heard_with_it(
    crawl: Crawl, caplog: pytest.LogCaptureFixture
) -> None:
    task = crawl.one_task()

    def wrong(scheduler: Any) -> None:
        raise ValueError("a mistake")

    carried_out: list[Any] = []
    commands = [wrong, carried_out.append]
    crawl.step(done(task), new=[(NewTaskBatch(tasks=[raw(new("u"))]), crawl.ack)], commands=commands)
    assert carried_out == [crawl.scheduler] and "a mistake" in caplog.text
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
