"""`explain` against rows in real databases, without and with a scheduler that can be asked. (What that knows: scheduler/test_remote.)"""

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pyspider_lite import bounded_server
from pyspider_lite.database import connect_projectdb, connect_taskdb
from pyspider_lite.database.base import NewRow
from pyspider_lite.models.project import Project, ProjectState
from pyspider_lite.models.task import NewTask, TaskEnd, TaskRestart, TaskStatus
from pyspider_lite.rpc import RpcServer
from pyspider_lite.scheduler import explanation

URL = "http://shop.test/a"
ID = md5(URL.encode()).hexdigest()
OK = {"fetch": {"ok": True, "status_code": 200}, "process": {"ok": True, "follows": 3}}
NOT_FOUND = {
    "fetch": {"ok": False, "status_code": 404},
    "process": {"ok": False, "exception": "Traceback ...\nHTTPError: HTTP 404: Not Found\n"},
}
NOT_MODIFIED = {"fetch": {"ok": True, "status_code": 304}, "process": {"ok": True, "follows": 0}}
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
NOT_ASKED = (
    "Dropped submissions are known to the scheduler only, and it cannot be asked: "
    "no scheduler leads now: start one, or set scheduler-rpc.\n"
)


class Shop:
    """A project with tasks, written as the scheduler writes them."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir()
        self.taskdb = connect_taskdb(f"sqlite+taskdb:///{folder}/data/task.db")
        self.projectdb = connect_projectdb(f"sqlite+projectdb:///{folder}/data/project.db")
        self.projectdb.insert(Project(name="shop", script="", status="RUNNING", rate=2.0))
        self.taskdb.open_project("shop")
        self.now = time.time()

    def close(self) -> None:
        self.taskdb.close()
        self.projectdb.close()

    def change(self, **fields: object) -> None:
        assert self.projectdb.update("shop", **fields)

    def lead(self, rpc: str = "") -> None:
        self.taskdb.lead(f"{socket.gethostname()}:7:abc", 60.0, rpc)

    def submitted(self, url: str = URL, taskid: str = ID, due: float = 0.0, **schedule: Any) -> NewTask:
        task = NewTask(taskid, "shop", url, schedule=schedule)
        row = NewRow(task=task, due=due or self.now, priority=0, updatetime=self.now)
        with self.taskdb.begin(None) as tx:
            tx.insert("shop", [row])
        return task

    def ended(
        self,
        status: TaskStatus,
        track: dict[str, Any] | None,
        *,
        ago: float = 60.0,
        due: float | None = None,
        **schedule: Any,
    ) -> None:
        end = TaskEnd(
            taskid=ID,
            status=status,
            schedule=schedule,
            due=due,
            priority=0,
            run=1,
            updatetime=self.now - ago,
            lastcrawltime=self.now - ago if track else None,
            track=track,
        )
        with self.taskdb.begin(None) as tx:
            tx.end("shop", [end])

    def restarted(self, *, forced: bool, **schedule: Any) -> None:
        task = NewTask(ID, "shop", URL, schedule=schedule)
        row = TaskRestart(task=task, due=self.now, priority=0, run=2, updatetime=self.now, unconditional=forced)
        with self.taskdb.begin(None) as tx:
            tx.restart("shop", [row])


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bounded_server, "LOOK_EACH", 0.02)
    for name in ("TASKDB", "PROJECTDB", "RPC_SECRET"):
        monkeypatch.delenv(name, raising=False)
    with closing(Shop(tmp_path)) as shop:
        yield shop


@pytest.fixture
def said(command: Callable[..., Any]) -> Callable[..., str]:
    """What `explain` says of the page, with points in time as T."""

    def say(page: str = URL, project: str = "shop", *first: str) -> str:
        outcome = command(*first, "explain", project, page)
        assert (outcome.code, outcome.err) == (0, "")
        text: str = re.sub(STAMP, "T", outcome.out)
        return text

    return say


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
        f"{new}comes as soon as the project's rate of 2 a second and better tasks leave room, if it is not under way already."
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


# --- pages that are not there, and how one is found ---


def test_a_page_that_was_never_submitted(said: Callable[..., str]) -> None:
    assert said("http://shop.test/b") == (
        "http://shop.test/b was never crawled: project shop has no such task, so nothing submitted it, or each submission "
        f"was dropped or is not stored yet.\n{NOT_ASKED}"
    )
    assert said("no-id").startswith("no-id was never crawled")


def test_a_link_that_is_no_url(said: Callable[..., str]) -> None:
    assert said("http://shop.test/" + "x" * 1024).startswith("http://shop.test/xxx")
    assert "is never crawled: self.crawl drops it (bad-url): Maximum (1024)" in said("http://shop.test/" + "x" * 1024)


def test_a_url_is_found_as_self_crawl_writes_it(shop: Shop, said: Callable[..., str]) -> None:
    written = "http://shop.test/%E4%BB%B7"
    shop.submitted(written, md5(written.encode()).hexdigest())
    assert said("http://shop.test/价").startswith(f"{written} was submitted")


@pytest.mark.parametrize(
    ("page", "written"),
    [
        ("mailto:a@b.c", "mailto:a@b.c"),
        ("javascript:void(0)", "javascript:void(0)"),
        ("tel:1", "tel:1"),
        ("about.html", "about.html"),
        ("", "/"),
    ],
)
def test_whatever_self_crawl_takes_is_found_by_its_text(
    shop: Shop, said: Callable[..., str], page: str, written: str
) -> None:
    shop.submitted(written, md5(written.encode()).hexdigest())
    assert said(page).startswith(f"{written} was submitted")


def test_an_id_may_look_like_a_url(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted("http://shop.test/api", "shop://item/1")
    assert said("shop://item/1").startswith("http://shop.test/api was submitted")


def test_tasks_with_ids_of_their_own_are_found_by_url(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted("http://shop.test/api", "page-1")
    shop.submitted("http://shop.test/api", "page-2")
    lines = said("http://shop.test/api").splitlines()
    assert [lines[0], lines[2]] == ["page-2:", "page-1:"]
    assert lines[1] == lines[3]
    assert said("page-1").startswith("http://shop.test/api was submitted")


def test_a_project_that_is_not_there(shop: Shop, command: Callable[..., Any], said: Callable[..., str]) -> None:
    outcome = command("explain", "shpo", URL)
    assert outcome.code == 2
    assert outcome.err == (
        "pyspider_lite: there is no project shpo, so submissions to it are dropped; did you mean shop?\n"
    )
    shop.submitted()
    shop.projectdb.drop("shop")
    assert "but there is no project shop any more, so nothing gives it out." in said()


def test_rows_of_pyspider_with_odd_content(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted()
    shop.ended(TaskStatus.FAILED, {"fetch": None, "process": "gone"})
    assert "(HTTP status unknown)" in said()
    shop.ended(TaskStatus.ACTIVE, {"save": 1}, age="soon")
    assert ". Its schedule.age is 'soon', not a number, so the default is taken.\n" in said()


def test_an_exception_without_a_text_is_named(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted()
    process = {"ok": False, "exception": "", "error": "AssertionError"}
    shop.ended(TaskStatus.FAILED, {"fetch": {"ok": True, "status_code": 200}, "process": process})
    assert "(AssertionError)" in said()


def test_links_that_the_callback_dropped(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted()
    track = {"fetch": {"status_code": 200}, "process": {"ok": True, "dropped": {"bad-url": 2, "duplicate": 1}}}
    shop.ended(TaskStatus.SUCCESS, track)
    assert "\nIts callback dropped links: bad-url 2, duplicate 1.\n" in said()


# --- a project that pauses by itself, which the database knows ---


def test_a_pause_its_reason_and_what_lifts_it(shop: Shop, said: Callable[..., str], live: dict[str, Any]) -> None:
    shop.submitted()
    new = f"{URL} was submitted and not crawled yet; its next run is due since T, but the project "
    state = ProjectState(project="shop", paused_until=shop.now + 300, pause_reason="the last 10 tasks all failed")
    with shop.taskdb.begin(None) as tx:
        tx.put_project_states([state])
    assert said() == (
        f"{new}pauses until T, because the last 10 tasks all failed; then a few tasks are tried, and "
        "`pyspider_lite project resume shop` does so at once.\n"
    )
    with shop.taskdb.begin(None) as tx:
        tx.put_project_states([replace(state, paused_until=shop.now - 1)])
    assert said() == (
        f"{new}was paused, because the last 10 tasks all failed; it goes on as soon as one of the few tasks that are tried now "
        "goes well.\n"
    )


# --- with a scheduler ---


@pytest.fixture
def live(shop: Shop) -> Iterator[dict[str, Any]]:
    """What the scheduler that leads answers."""
    answer: dict[str, Any] = {
        "known": True, "asked": True, "in_flight": False, "drop": None, "dropped": {},
    }  # fmt: skip
    port = RpcServer("127.0.0.1", 0, secret="")
    port.serve({"explain": lambda project, taskid: answer if project == "shop" else {"known": False}})
    shop.lead(port.url)
    yield answer
    port.stop()


def test_what_only_the_scheduler_knows(shop: Shop, said: Callable[..., str], live: dict[str, Any]) -> None:
    shop.submitted()
    new = f"{URL} was submitted and not crawled yet; its next run "
    assert said() == f"{new}comes as soon as the project's rate of 2 a second and better tasks leave room.\n"
    live["held_until"] = time.time() + 9.6
    assert "what ran when all was killed waits so long after each start" in said()
    live.update(in_flight=True, held_until=None)
    assert said() == f"{new}is under way now.\n"
    live.update(in_flight=False, asked=False)
    assert said() == f"{new}is due since T, but its script was not loaded yet (processors do that).\n"
    live.update(asked=True, alone={"project": "x", "taskid": "y", "since": time.time() - 5})
    assert re.search(r" all waits for x:y, which goes alone, since \ds: it ran whenever everything", said())


@pytest.mark.parametrize(
    ("reason", "until", "times", "sentence"),
    [
        ("seen", None, 7, "A submission of it (the last of 7) was dropped at T: seen (it is stored, and neither age,"),
        ("fresh", 3 * 86400.0, 1, "A submission of it was dropped at T: fresh for 3d, until T.\n"),
        ("same-itag", None, 1, "A submission of it was dropped at T: same itag.\n"),
        ("active", None, 1, "dropped at T: active (it waited for its turn or ran already).\n"),
        ("invalid: schedule.age is 'x', not a number", None, 1, "dropped at T: invalid: schedule.age is 'x', not a number.\n"),
    ],
    ids=["seen", "fresh", "same-itag", "active", "invalid"],
)  # fmt: skip
def test_why_a_submission_was_dropped(
    shop: Shop, said: Callable[..., str], live: dict[str, Any], reason: str, until: Any, times: int, sentence: str
) -> None:
    shop.submitted()
    live["drop"] = {
        "time": shop.now, "taskid": ID, "url": URL, "reason": reason,
        "until": until and shop.now + until, "times": times,
    }  # fmt: skip
    assert sentence in said()


def test_a_stranger_and_the_drops_of_its_project(said: Callable[..., str], live: dict[str, Any]) -> None:
    live["dropped"] = {"seen": 12.0, "bad-url": 1.0}
    assert said("http://shop.test/b").endswith(
        "\nNone of the last drops of the project is of it; in all it had: bad-url 1, seen 12.\n"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (3599, "60m"), (3600, "1h"), (86400, "24h"), (172800, "2d")],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert explanation.span(seconds) == text


def test_a_time_that_no_calendar_has() -> None:
    assert explanation.moment(1e15 * 1e15) == "the end of time"
