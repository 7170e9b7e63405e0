"""Deleting a project (UA46): everything of it goes, whatever breaks meanwhile, and the next one of its name never meets it."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, beat, claim, done, empty, fails, links, new

from pyspider_lite import bootstrap
from pyspider_lite.errors import DatabaseError, LostLeadership
from pyspider_lite.models.batch import StatusItem, TaskBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Item, Message
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.models.worker import Handover, Release


class Breaks:
    """A database that fails once, before or after it did what was asked."""

    def __init__(self, database: Any, method: str, when: str) -> None:
        self._database, self._method, self._when = database, method, when
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._database, name)
        if name != self._method or self.broken:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self.broken = True
            if self._when == "after":
                found(*args, **kwargs)
            raise DatabaseError("gone for a moment")

        return call


def delete(crawl: Crawl, name: str = "p") -> None:
    """What the command does."""
    project = crawl.look(name)
    crawl.change(name, status="STOP")
    bootstrap.enter_delete(crawl.taskdb, project)
    crawl.scheduler.update_projects()


def crawled(crawl: Crawl) -> str:
    """A project with tasks, results and control work; its generation."""
    generation = crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"), new("late", schedule={"exetime": 9e9}))
    crawl.crawl(1)
    store(crawl, generation, 0)
    crawl.start(run="never")
    return generation


def store(crawl: Crawl, generation: str, run: int) -> None:
    items = [Item("", '"text"')]
    crawl.resultdb.store([TaskResult(project="p", taskid="t", url="u", run=run, generation=generation, items=items)])


def nothing_is_left(crawl: Crawl) -> bool:
    return (
        crawl.projectdb.get("p") is None
        and "p" not in crawl.taskdb.projects()
        and "p" not in crawl.resultdb.projects()
        and crawl.taskdb.controls(0, 100) == []
        and "p" not in crawl.taskdb.project_states()
    )


@pytest.mark.behaviour("X-S15")
def test_it_is_gone_at_once(crawl: Crawl) -> None:
    generation = crawled(crawl)
    crawl.project("other")
    crawl.ready("other")
    delete(crawl)
    crawl.step()
    assert nothing_is_left(crawl)
    assert list(crawl.scheduler.projects) == ["other"]
    assert "p" not in crawl.scheduler.counters.get(crawl.now, "all")
    store(crawl, generation, 5)
    assert crawl.resultdb.count("p") == 0, "a late result made the table anew"


@pytest.mark.behaviour("X-S15")
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("kind", "method"), [("wrapped", "drop_project"), ("resultdb", "drop"), ("projectdb", "drop")])
def test_a_deletion_that_breaks_off_is_done_again(
    crawl: Crawl, kind: str, method: str, when: str, restarted: bool
) -> None:
    crawled(crawl)
    breaks = Breaks(getattr(crawl, kind), method, when)
    setattr(crawl, kind, breaks)
    crawl.lead()
    crawl.project("other")
    crawl.ready("p", "other")
    delete(crawl)
    crawl.submit(new("t", "other"))
    assert breaks.broken
    name_is_free = crawl.projectdb.get("p") is None
    assert name_is_free == (kind == "projectdb" and when == "after")
    if name_is_free:
        # the user is quick
        crawl.project()
    if restarted:
        crawl.lead()
    crawl.crawl(5)
    # it kept nobody waiting
    assert crawl.task("t", "other").status == TaskStatus.SUCCESS
    if name_is_free:
        assert crawl.taskdb.status_count("p") == {} and crawl.resultdb.count("p") == 0
        assert crawl.taskdb.controls(0, 100) == []
    else:
        assert nothing_is_left(crawl)


def test_the_next_one_of_the_name_is_not_deleted_by_a_scheduler_that_was_frozen(crawl: Crawl) -> None:
    crawled(crawl)
    frozen, taskdb = crawl.scheduler, crawl.taskdb
    old = crawl.look()
    delete(crawl)
    crawl.lead()
    crawl.crawl(2)
    crawl.project()
    crawl.crawl(1)
    crawl.submit(new("t"))
    crawl.crawl(1)
    with pytest.raises(LostLeadership):
        taskdb.drop_project("p", frozen._deletion._epoch)
    crawl.projectdb.drop("p", old.generation)
    crawl.resultdb.drop("other", old.generation)
    assert crawl.look().generation != old.generation
    assert crawl.task("t").status == TaskStatus.SUCCESS


# --- what comes late ----------------------------------------------------------------------------------------------------


def from_all(*tasks: Dispatch) -> list[StatusItem]:
    return [links("ghost")(task) for task in tasks]


#: what a worker may still say of the old project's run; the new one has a task of the same id, run 0 too
LATE: dict[str, Callable[[Dispatch, TaskBatch], list[StatusItem]]] = {
    "report": lambda task, _: from_all(task),
    "failure": lambda task, _: [fails(task)],
    "message": lambda task, _: [done(task, messages=[Message("p", 1, "data:,ghost"), Message("q", 1, "data:,m")])],
    "first-part": lambda task, _: [replace(item, part=0, parts=0) for item in from_all(task)],
    "last-part": lambda task, _: [replace(item, part=1, parts=2) for item in from_all(task)],
    "claim": lambda task, batch: [beat("old"), claim(batch, "old"), beat("old")],
    "holds": lambda task, batch: [beat("old", holds={batch.batch: [task.key]}), beat("old")],
    "handover": lambda task, batch: [
        beat("old", holds={batch.batch: [task.key]}),
        Handover(worker="old", queue=QueueName.TO_PROCESSOR, batch="pages", runs=[task.key]),
    ],
    "release": lambda task, batch: [Release(worker="old", runs=[task.key])],
    "death": lambda task, batch: [beat("old", holds={batch.batch: [task.key]}, running=task.key)],
}


@pytest.mark.behaviour("X-S15")
@pytest.mark.parametrize("moment", ["waiting", "in-flight", "ended", "in-flight-restarted"])
@pytest.mark.parametrize("what", LATE)
def test_what_comes_late_of_the_old_project_changes_nothing(crawl: Crawl, what: str, moment: str) -> None:
    crawl.project("q")
    crawl.project()
    crawl.ready("p", "q")
    crawl.submit(new("t"))
    (batch,) = crawl.batches()
    (old,) = batch.tasks
    delete(crawl)
    crawl.crawl(2)
    if moment == "in-flight-restarted":
        crawl.lead()
        crawl.crawl(1)
    generation = crawl.project(rate=0.0 if moment == "waiting" else 1e6)
    crawl.crawl(1)
    assert crawl.scheduler.leases.tasks["p"] == 0
    crawl.submit(new("t"))
    flying = crawl.tasks()
    assert len(flying) == (moment != "waiting")
    if moment == "ended":
        crawl.step(done(flying.pop()))
    late = LATE[what](old, batch)
    for item in late:
        crawl.step(item)
    assert crawl.task("t").status == (TaskStatus.SUCCESS if moment == "ended" else TaskStatus.ACTIVE)
    assert crawl.task("t").run == (moment == "ended")
    crawl.change("p", rate=1e6)
    crawl.step(*[done(task) for task in flying], after=1)
    crawl.step(depths=empty(crawl.scheduler.leases.clock, QueueName.TO_PROCESSOR))
    crawl.crawl(15)
    assert crawl.taskdb.status_count("p") == {TaskStatus.SUCCESS: 2}, "t and on_finished"
    assert crawl.task("t").run == 1
    assert {task.generation for task in crawl.given if task.project == "p"} == {old.generation, generation}
    assert not any(task.process.get("callback") == "_on_message" for task in crawl.given)
    assert crawl.events("failed") + crawl.events("retry") == 0


def test_submissions_meant_for_the_old_project(crawl: Crawl) -> None:
    old = crawl.project()
    crawl.ready("p")
    delete(crawl)
    crawl.crawl(2)
    crawl.submit(new("t"))
    assert crawl.scheduler.counters.get(crawl.now, "1h")[""]["dropped-unknown-project"] == 1
    crawl.project()
    crawl.crawl(1)
    crawl.submit(new("t", generation=old))
    assert (crawl.tasks(), crawl.events("dropped-old-generation")) == ([], 1)


def test_a_message_of_a_sender_made_anew_is_another_one(crawl: Crawl) -> None:
    """The first one still waits, the receiver is stopped; the second has the same run and place."""
    crawl.project("q", status="STOP")
    for n in (1, 2):
        crawl.project()
        crawl.crawl(1)
        crawl.pages = {"http://x/t": lambda task, n=n: done(task, messages=[Message("q", n, "data:,m")])}
        crawl.submit(new("t"))
        crawl.crawl(2)
        if n == 1:
            delete(crawl)
            crawl.crawl(2)
    crawl.change("q", status="RUNNING")
    crawl.crawl(3)
    got = [task.fetch["save"] for task in crawl.given if task.process.get("callback") == "_on_message"]
    assert got == [["p", 1], ["p", 2]]


def test_the_same_name_again_and_again(crawl: Crawl) -> None:
    """Also when it is made anew before the scheduler has looked."""
    generations = set()
    for _ in range(4):
        generations.add(crawl.project())
        crawl.crawl(2)
        crawl.submit(new("t"))
        crawl.crawl(1)
        assert crawl.taskdb.status_count("p") == {TaskStatus.SUCCESS: 2}
        assert crawl.taskdb.project_states()["p"].crawl == 1
        delete(crawl)
        crawl.now += 2
        crawl.scheduler._control.load(crawl.now)
        crawl.scheduler._deletion.step(crawl.now)
        crawl.projectdb.insert(Project(name="x"))
        crawl.projectdb.drop("x")
    assert len(generations) == 4
