"""When a project is finished (behaviour S50, UA22): what holds on_finished up, with a new scheduler at every moment of it.

Each row leaves one thing undone when the last page of a crawl is reported. on_finished must not come before that is done, and
once after it.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, done, fails, links, new, raw

from pyspider_lite.models.batch import NewTaskBatch, StatusItem
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.project import ProjectState
from pyspider_lite.models.report import Message, Report
from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.scheduler import backlog

Page = Callable[[Dispatch], Report]


class Row:
    """What is undone when the page ``last`` is reported."""

    def __init__(
        self,
        *,
        also: tuple[NewTask, ...] = (),
        started: bool = False,
        last: Page = done,
        heard_with_it: tuple[NewTask, ...] = (),
        pages: dict[str, Page] | None = None,
        held: str = "",
        seconds: float = 0.0,
    ) -> None:
        #: submitted with it
        self.also = also
        #: the user runs on_start meanwhile
        self.started = started
        self.last = last
        #: submissions heard in one step with its report
        self.heard_with_it = heard_with_it
        self.pages = pages or {}
        #: the taskid or callback that no worker ends before the end
        self.held = held
        #: or what has to pass
        self.seconds = seconds


ROWS = {
    "nothing": Row(),
    "a-page-runs": Row(also=(new("slow"),), held="slow"),
    "a-page-waits-for-its-time": Row(also=(new("late", schedule={"exetime": 60.0}),), seconds=60.0),
    "a-page-waits-for-a-retry": Row(
        also=(new("flaky", schedule={"retries": 1}),), pages={"flaky": fails}, seconds=30.0
    ),
    "the-last-page-failed-and-waits": Row(last=fails, seconds=30.0),
    "a-link-of-the-last-page": Row(last=links("slow"), held="slow"),
    "a-forced-run-after-this-one": Row(also=(new("slow"), new("slow", schedule={"force_update": True})), held="slow"),
    "on-start-runs": Row(started=True, held="on_start"),
    "a-message-is-under-way": Row(
        last=lambda task: done(task, messages=[Message("p", 1, "data:,m")]), held="_on_message"
    ),
    "a-submission-heard-with-the-report": Row(heard_with_it=(new("slow"),), held="slow"),
    "a-part-of-the-report-is-missing": Row(last=lambda task: done(task, part=0, parts=0), held="last"),
    "periodic-work-only": Row(also=(new("ever", schedule={"age": 20, "auto_recrawl": True}),)),
    "a-page-that-was-cancelled": Row(
        also=(new("late", schedule={"exetime": 9e9}),),
        heard_with_it=(new("late", schedule={"cancel": True, "force_update": True}),),
    ),
}
NOTHING_HOLDS_IT_UP = {"nothing", "periodic-work-only", "a-page-that-was-cancelled"}


class Played:
    """A crawl whose workers answer all but what a row holds."""

    def __init__(self, crawl: Crawl, row: Row) -> None:
        self.crawl, self.row = crawl, row
        self.last: list[Dispatch] = []
        self.held: list[Dispatch] = []

    def restart(self) -> None:
        self.crawl.lead()
        self.held.clear()
        self.work(1.0)

    def work(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            answers: list[StatusItem] = []
            for task in [*self.crawl.controls(), *self.crawl.tasks()]:
                if task.taskid == "last" and not self.last_is_over:
                    self.last.append(task)
                elif self.row.held in (task.taskid, task.process.get("callback")):
                    self.held.append(task)
                else:
                    answers.append(self.row.pages.get(task.taskid, self.crawl.answer)(task))
            self.crawl.step(*answers, after=0.5)
            self.row.pages.clear()

    last_is_over = False

    def report_last(self) -> None:
        self.last_is_over = True
        batch = NewTaskBatch(tasks=[raw(task) for task in self.row.heard_with_it])
        self.crawl.step(self.row.last(self.last[-1]), after=0, new=[(batch, self.crawl.ack)])
        if self.row.held == "last":
            self.held.append(self.last[-1])

    def release(self) -> None:
        """What was held ends, in all its runs."""
        held, self.row.held = self.held, ""
        parts = ({"part": 0, "parts": 0}, {"part": 1, "parts": 2})
        for task in held:
            self.crawl.step(*([done(task, **part) for part in parts] if task.taskid == "last" else [done(task)]))

    @property
    def entered(self) -> int:
        """How often on_finished was."""
        return self.crawl.taskdb.project_states()["p"].crawl


def timed(task: NewTask, now: float) -> NewTask:
    """Its exetime counts from now."""
    exetime = task.schedule.get("exetime", 0)
    return replace(task, schedule={**task.schedule, "exetime": now + exetime}) if exetime else task


@pytest.mark.behaviour("S50")
@pytest.mark.parametrize("restarted", ["", "between", "each-time"])
@pytest.mark.parametrize("name", ROWS)
def test_on_finished_comes_once_and_not_early(
    crawl: Crawl, name: str, restarted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what is heard in one step is committed in several transactions
    monkeypatch.setattr(backlog, "MAX_ROWS", 1)
    template = ROWS[name]
    row = Row(
        also=template.also, started=template.started, last=template.last, heard_with_it=template.heard_with_it,
        pages=dict(template.pages), held=template.held, seconds=template.seconds,
    )  # fmt: skip
    played = Played(crawl, row)
    crawl.project()
    crawl.ready("p")
    crawl.submit(*[timed(task, crawl.now) for task in (new("last"), *row.also)])
    if row.started:
        crawl.start()
    played.work(2.0)
    if restarted == "each-time":
        played.restart()
    assert played.entered == 0
    played.report_last()
    if restarted:
        played.restart()
    played.work(5.0)
    if name in NOTHING_HOLDS_IT_UP:
        assert played.entered == 1
    else:
        assert played.entered == 0, "too early"
        if row.seconds:
            played.work(row.seconds)
        else:
            played.release()
        played.work(5.0)
    assert played.entered == 1
    if restarted == "each-time":
        played.restart()
    played.work(5.0)
    assert (played.entered, crawl.callbacks().count("on_finished")) == (1, 1)
    assert not crawl.taskdb.project_states()["p"].armed


@pytest.mark.behaviour("S50", "H62")
def test_it_says_what_came_of_the_crawl(crawl: Crawl) -> None:
    """UA22: with its number and counts; what it crawls itself is the next crawl."""
    saves: list[Any] = []

    def finished(task: Dispatch) -> Report:
        saves.append(task.fetch["save"])
        return links("more")(task)

    crawl.project()
    crawl.ready("p")
    crawl.pages = {"on_finished": finished, "http://x/bad": fails}
    crawl.submit(new("good"), new("bad", schedule={"retries": 0}), new("gone", schedule={"exetime": 9e9}))
    crawl.submit(new("gone", schedule={"cancel": True, "force_update": True}))
    crawl.crawl(5)
    counts = {"success": 1, "failed": 1, "bad": 1}
    assert saves == [{"crawl": 1, **counts}, {"crawl": 2, "success": 3, "failed": 1, "bad": 1}]
    assert crawl.task("on_finished").fetch["save"] == saves[-1]


@pytest.mark.behaviour("S50")
def test_a_failed_on_finished_is_tried_again_and_arms_nothing(crawl: Crawl) -> None:
    tries = iter([fails, done])
    crawl.project()
    crawl.ready("p")
    crawl.pages = {"on_finished": lambda task: next(tries)(task), "data:,on_finished": lambda task: next(tries)(task)}
    crawl.submit(new("t"))
    crawl.crawl(10)
    assert crawl.task("on_finished").status == TaskStatus.ACTIVE
    crawl.lead()
    crawl.crawl(40)
    assert crawl.task("on_finished").status == TaskStatus.SUCCESS
    assert crawl.taskdb.project_states()["p"].crawl == 1


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_what_ends_while_the_project_is_stopped_is_finished_when_it_goes_on(crawl: Crawl, restarted: bool) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    (task,) = crawl.tasks()
    crawl.change("p", status="STOP")
    crawl.step(done(task))
    crawl.crawl(3)
    state = crawl.taskdb.project_states()["p"]
    assert (state.finished, state.crawl, state.armed) == (True, 0, True)
    if restarted:
        crawl.lead()
        crawl.crawl(3)
    crawl.change("p", status="RUNNING")
    crawl.crawl(3)
    state = crawl.taskdb.project_states()["p"]
    assert (state.crawl, state.armed, crawl.callbacks().count("on_finished")) == (1, False, 1)


def test_a_commit_that_got_lost_between_the_last_page_and_the_end(crawl: Crawl) -> None:
    """The last scheduler died after it had committed the last page."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    crawl.crawl(3)
    state = crawl.taskdb.project_states()["p"]
    with crawl.taskdb.begin(None) as tx:
        tx.put_project_states([replace(state, armed=True)])
    crawl.lead()
    crawl.crawl(3)
    state = crawl.taskdb.project_states()["p"]
    assert (state.crawl, state.armed) == (2, False)


def test_finished_is_about_counts() -> None:
    assert ProjectState(project="p").finished
    assert ProjectState(project="p", active=2, periodic=2).finished
    assert not ProjectState(project="p", active=2, periodic=1).finished
