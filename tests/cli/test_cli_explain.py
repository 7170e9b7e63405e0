"""`explain` of tasks in real databases, without a scheduler that can be asked."""

from collections.abc import Callable
from typing import Any

import pytest
from explained_shop import ID, NOT_ASKED, NOT_FOUND, NOT_MODIFIED, OK, URL, Shop

from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.scheduler import explanation

# --- tasks that ended ---


@pytest.mark.parametrize(
    ("status", "track", "schedule", "sentence"),
    [
        (
            TaskStatus.SUCCESS, OK, {},
            "was crawled at T (HTTP 200, 3 links); it rests: the same submission again is dropped (seen), "
            "one with force_update, an age under 1m or an itag crawls it.",
        ),
        (
            TaskStatus.SUCCESS, OK, {"age": 3 * 86400 + 70},
            "was crawled at T (HTTP 200, 3 links); it rests: the same submission again is dropped (fresh for 3d, until T), "
            "one with force_update, an age under 1m or an itag crawls it.",
        ),
        (
            TaskStatus.SUCCESS, OK, {"age": 5},
            "was crawled at T (HTTP 200, 3 links); it rests until it is submitted again: its age of 5s is over, "
            "so that crawls it.",
        ),
        (
            TaskStatus.SUCCESS, OK, {"itag": "v1"},
            "was crawled at T (HTTP 200, 3 links); it rests: the same submission again is dropped (same itag), "
            "one with force_update, an age under 1m or another itag than 'v1' crawls it.",
        ),
        (
            TaskStatus.SUCCESS, NOT_MODIFIED, {},
            "was crawled at T (HTTP 304: the page had not changed since the crawl before, its results stay); it rests: "
            "the same submission again is dropped (seen), one with force_update, an age under 1m or an itag crawls it.",
        ),
        (
            TaskStatus.FAILED, NOT_FOUND, {"retries": 2, "retried": 2},
            "failed for good at T, after 2 of 2 retries (HTTPError: HTTP 404: Not Found); it rests: the same submission "
            "again is dropped (seen), one with force_update, an age under 1m or an itag crawls it.",
        ),
        (
            TaskStatus.BAD, None, {},
            "was cancelled at T; it rests: the same submission again is dropped (seen), one with force_update or an itag "
            "crawls it.",
        ),
    ],
    ids=["seen", "fresh", "stale", "same-itag", "not-modified", "failed", "cancelled"],
)  # fmt: skip
def test_what_ended(
    shop: Shop, said: Callable[..., str], status: TaskStatus, track: Any, schedule: dict[str, Any], sentence: str
) -> None:
    shop.submitted()
    shop.ended(status, track, **schedule)
    assert said() == f"{URL} {sentence}\n{NOT_ASKED}"
    assert said(ID) == said()


# --- tasks that wait ---


def test_a_task_that_was_never_tried(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted()
    new = f"{URL} was submitted and not crawled yet; its next run "
    assert said() == f"{new}is due since T, but no scheduler runs now.\n{NOT_ASKED}"
    shop.lead()
    first, second, _ = said().split("\n")
    assert first == (
        f"{new}comes as soon as the project's rate of 2 a second, better tasks and the runs in flight leave room, if it is not under way already."
    )
    assert second.endswith("runs without XML-RPC.")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"status": "STOP"},
            "but the project is STOP: `pyspider_lite project set shop --status RUNNING` has it go on.",
        ),
        ({"rate": 0}, "but the project's rate is 0: `pyspider_lite project set shop --rate 1` changes that."),
        ({"burst": 0}, "but the project's burst is 0: `pyspider_lite project set shop --burst 1` changes that."),
    ],
)
def test_what_holds_a_project_up(shop: Shop, said: Callable[..., str], fields: dict[str, Any], text: str) -> None:
    shop.submitted()
    shop.lead()
    shop.change(**fields)
    assert said().split("\n")[0].endswith(text)


def test_a_retry_and_what_is_to_come_later(shop: Shop, said: Callable[..., str]) -> None:
    shop.lead()
    shop.submitted(due=shop.now + 7205)
    assert "its next run comes at T (in 2h)." in said()
    shop.ended(TaskStatus.ACTIVE, NOT_FOUND, due=shop.now + 3605, retried=2)
    assert f"{URL} failed at T (HTTPError: HTTP 404: Not Found); retry 2 of 3 comes at T (in 1h).\n" in said()
    shop.ended(TaskStatus.ACTIVE, NOT_FOUND, due=shop.now + 3605, retried=2, deaths=1)
    assert "; retry 2 of 3, over which 1 worker died so far, comes at T (in 1h)." in said()
    shop.ended(TaskStatus.ACTIVE, NOT_FOUND, due=shop.now + 3605, retried=2, deaths=2)
    assert "; retry 2 of 3, over which 2 workers died so far, comes" in said()
    shop.ended(TaskStatus.ACTIVE, OK, due=shop.now + 3605, age=3665, auto_recrawl=True)
    assert (
        f"{URL} was crawled at T (HTTP 200, 3 links) and is again each 1h (auto_recrawl); its next run comes" in said()
    )


def test_a_forced_run_and_one_that_waits_for_the_one_in_flight(shop: Shop, said: Callable[..., str]) -> None:
    """UA11: that the answer before was 304 says nothing of a forced run."""
    shop.lead()
    task = shop.submitted()
    shop.ended(TaskStatus.SUCCESS, NOT_MODIFIED)
    shop.restarted(forced=True, force_update=True)
    sentence = said()
    assert (
        "(HTTP 304: the page had not changed since the crawl before, its results stay) and was submitted again at T"
        in sentence
    )
    assert "; its next run, forced (the server is not asked whether the page changed), comes as soon as" in sentence
    shop.ended(TaskStatus.FAILED, NOT_FOUND, retried=3)
    shop.restarted(forced=True, force_update=True)
    assert said().startswith(
        f"{URL} failed at T (HTTPError: HTTP 404: Not Found) and was submitted again at T; its next run"
    )
    with shop.taskdb.begin(None) as tx:
        tx.postpone("shop", [task])
    assert "; after the run that is under way it is run again, as a later submission wants." in said()
    with shop.taskdb.begin(None) as tx:
        tx.postpone("shop", [NewTask(ID, "shop", URL, schedule={"cancel": True, "force_update": True})])
    assert "; after the run that is under way it is cancelled, as" in said()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (3599, "60m"), (3600, "1h"), (86400, "24h"), (172800, "2d")],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert explanation.span(seconds) == text


def test_a_time_that_no_calendar_has() -> None:
    assert explanation.moment(1e15 * 1e15) == "the end of time"
