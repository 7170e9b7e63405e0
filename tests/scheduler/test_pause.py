"""The automatic pause (behaviour S55 to S57, UA23) in a scheduler: its reason, its tries, and that it outlives the scheduler."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from played_crawl import Crawl, done, fails, new

from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.project import ProjectState
from pyspider_lite.scheduler.project_state import AutoPause, PauseState

BROKEN = {"fetch": {"ok": False, "status_code": 500}, "process": {"ok": False, "exception": "HTTP 500: no good"}}


def broken(task: Dispatch) -> Any:
    return fails(task) if task.control else done(task, ok=False, track=BROKEN)


def paused(crawl: Crawl) -> None:
    """A project with ten failures and twenty tasks more."""
    crawl.project()
    # a project that was changed after its pause began is paused no longer, and the real time stands in its row
    crawl.now = max(crawl.now, crawl.taskdb.time())
    crawl.ready("p")
    crawl.submit(*[new(f"bad{number}", schedule={"retries": 0}) for number in range(10)])
    crawl.step(*[broken(task) for task in crawl.tasks()])
    crawl.submit(*[new(f"more{number}", schedule={"retries": 0}) for number in range(20)])
    crawl.step()
    assert crawl.tasks() == []


def state(crawl: Crawl) -> ProjectState:
    return crawl.taskdb.project_states()["p"]


@pytest.mark.behaviour("S55")
def test_it_says_why(crawl: Crawl, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "scheduler"):
        paused(crawl)
    reason = "the last 10 tasks all failed, the last one http://x/bad9: HTTP 500: no good"
    assert state(crawl).pause_reason == reason
    assert 299 <= state(crawl).paused_until - crawl.now <= 300
    (said,) = [record.getMessage() for record in caplog.records if "pauses" in record.getMessage()]
    assert said.startswith("project p pauses for 300 s") and said.endswith(reason)


#: what happens after the pause began: seconds that pass, and how a task ends that was given out then; the state after it
STORIES: dict[str, list[tuple[float, str, PauseState]]] = {
    "it-waits": [(200, "", PauseState.PAUSED)],
    "tried-and-not-answered": [(301, "", PauseState.CHECKING)],
    "tried-and-good": [(301, "o", PauseState.FREE)],
    "tried-and-bad-then-good": [(301, "ffo", PauseState.FREE)],
    "tried-and-bad": [(301, "fff", PauseState.PAUSED)],
    "bad-and-good": [(301, "fff", PauseState.PAUSED), (299, "", PauseState.PAUSED), (2, "o", PauseState.FREE)],
    "bad-and-bad": [(301, "fff", PauseState.PAUSED), (301, "fff", PauseState.PAUSED)],
}


@pytest.mark.behaviour("S55", "S56")
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("story", STORIES)
def test_a_pause_from_beginning_to_end(crawl: Crawl, story: str, restarted: bool) -> None:
    paused(crawl)
    for seconds, ends, wanted in STORIES[story]:
        if restarted:
            crawl.lead()
            crawl.ready("p")
        crawl.step(after=seconds)
        given = crawl.tasks()
        assert len(given) == (0 if wanted is PauseState.PAUSED and not ends else 3)
        for task, end in zip(given, ends, strict=False):
            crawl.step(broken(task) if end == "f" else done(task))
        pause = crawl.scheduler.projects["p"].pause
        assert (pause.paused(crawl.now), pause.state) == (wanted is PauseState.PAUSED, wanted)
        crawl.step()
        assert bool(state(crawl).paused_until) == (wanted is not PauseState.FREE)
        if ends == "fff":
            assert "all 3 tasks that were tried after the last pause failed" in state(crawl).pause_reason
    if pause.state is PauseState.FREE:
        crawl.step(*[done(task) for task in given])
        crawl.crawl(2)
        assert state(crawl).active == 0
        assert state(crawl).pause_reason == ""


@pytest.mark.behaviour("S56")
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("kind", ["every", "auto-recrawl"])
def test_it_ends_also_when_only_periodic_work_is_left(crawl: Crawl, kind: str, restarted: bool) -> None:
    """UA23."""
    schedule = {"age": 30, "auto_recrawl": True} if kind == "auto-recrawl" else {"retries": 0, "age": 30}
    good = False

    def index(task: Dispatch) -> Any:
        return done(task) if good else broken(task)

    def tick(task: Dispatch) -> Any:
        return done(task, follows=[new("index", schedule=schedule, generation=task.generation)])

    crawl.pages = {"http://x/index": index, "_on_cronjob": tick}
    crawl.info["p"] = {"cron": [60]} if kind == "every" else {"cron": []}
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("index", schedule=schedule))
    crawl.crawl(800, step=10)
    assert state(crawl).paused_until > 0
    good = True
    if restarted:
        crawl.lead()
    crawl.crawl(500, step=10)
    assert state(crawl).paused_until == 0
    assert crawl.task("index").track["process"]["ok"]


@pytest.mark.behaviour("S55")
@pytest.mark.parametrize("moment", ["running", "while-none-ran"])
@pytest.mark.parametrize("change", ["resume", "script", "stop-and-run"])
def test_who_changes_the_project_lifts_its_pause(
    crawl: Crawl, change: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspider_lite.database.projectdb.time", SimpleNamespace(time=lambda: crawl.now))
    paused(crawl)
    crawl.step(after=5)
    crawl.projectdb.update("p", status="STOP" if change == "stop-and-run" else "RUNNING")
    if change == "script":
        crawl.projectdb.update("p", script="v2")
    if change == "stop-and-run":
        crawl.scheduler.update_projects()
        crawl.step(after=1)
        crawl.projectdb.update("p", status="RUNNING")
    crawl.scheduler.update_projects()
    if moment == "while-none-ran":
        crawl.lead()
    crawl.crawl(3)
    assert state(crawl).paused_until == 0
    assert state(crawl).active == 0


def test_a_pause_that_is_switched_off_is_not_taken_up_again() -> None:
    assert not AutoPause(0, until=1e9).paused(0.0)
    assert AutoPause(10, until=1e9).paused(0.0)
