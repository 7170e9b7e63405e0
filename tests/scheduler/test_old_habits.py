"""What pyspider's users rely on and no other test of the scheduler is about."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, done, fails, links, new

from pyspider_lite.counters import Counters
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Item, Message, Report
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.scheduler import numbers
from pyspider_lite.scheduler.inbox import Inbox
from pyspider_lite.scheduler.project_state import AutoPause
from pyspider_lite.scheduler.remote import Remote
from pyspider_lite.scheduler.scheduler import Options


class _Process:
    """A scheduler's process, for its port; the test turns the loop."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox: Inbox | None = inbox

    def stop(self) -> None: ...


def asked(crawl: Crawl, question: Callable[[Remote], Any]) -> Any:
    """What the scheduler's port answers, while the test turns the loop."""
    inbox = Inbox()
    remote = Remote(_Process(inbox), lambda: crawl.taskdb, deadline=10.0)
    with ThreadPoolExecutor(1) as asker:
        answer = asker.submit(question, remote)
        while not answer.done():
            crawl.step(after=0.0, commands=inbox.collect(0.05).commands)
    return answer.result()


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Crawl]:
    """One whose counts the test puts out of order."""
    crawl = Crawl(tmp_path)
    yield crawl
    crawl.close()


@pytest.mark.behaviour("S57")
@pytest.mark.parametrize("fail_num", [0, -1])
def test_the_pause_can_be_switched_off(fail_num: int) -> None:
    pause = AutoPause(fail_num)
    for now in range(1000):
        pause.record(False, float(now))
        assert not pause.paused(float(now))


@pytest.mark.behaviour("S9", "S80")
@pytest.mark.parametrize("group", ["delete", "Old, DELETE", "a-delete"])
def test_stopped_projects_of_a_group_are_deleted_after_a_day(crawl: Crawl, group: str) -> None:
    crawl.project("p", group=group)
    crawl.project("kept", group="deleted")
    crawl.ready("p", "kept")
    for name in ("p", "kept"):
        crawl.submit(new("t", name))
        crawl.resultdb.store([TaskResult(project=name, taskid="t", url="u", run=0, items=[Item("", "1")])])
        crawl.change(name, status="STOP")
    crawl.step(after=86_000)
    assert crawl.projectdb.get("p") is not None
    crawl.step(after=1_000)
    crawl.step()
    assert crawl.projectdb.get("p") is None and crawl.projectdb.get("kept") is not None
    assert crawl.taskdb.projects() == crawl.resultdb.projects() == {"kept"}
    assert set(crawl.taskdb.project_states()) == {"kept"}


@pytest.mark.behaviour("S80")
def test_an_edit_puts_a_deletion_off(crawl: Crawl) -> None:
    crawl.project("p", group="delete", status="STOP")
    first = crawl.look().updatetime
    time.sleep(0.05)  # projects are stamped with the real time
    crawl.change("p", comments="not yet")
    assert crawl.look().updatetime > first
    crawl.now = first + 86_400.02
    crawl.step(after=0)
    assert crawl.projectdb.get("p") is not None
    crawl.now += 1
    crawl.step(after=0)
    assert crawl.projectdb.get("p") is None


@pytest.mark.behaviour("S4")
def test_the_track_is_that_of_the_last_run(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    for number in (1, 2):
        (run,) = crawl.tasks()
        track = {
            "fetch": {"status_code": 200 + number},
            "process": {"ok": True, f"only {number}": 1},
            "save": {"n": number},
        }
        crawl.step(done(run, track=track))
        assert crawl.task("t").track == track
        crawl.submit(new("t", schedule={"force_update": True}))


@pytest.mark.behaviour("S11")
def test_changes_are_seen_within_a_second(crawl: Crawl) -> None:
    crawl.project(rate=0)
    crawl.ready("p")
    crawl.submit(new("t"))
    crawl.step(after=1)
    # nobody tells the scheduler
    crawl.projectdb.update("p", rate=1.0)
    crawl.projectdb.insert(Project(name="q", status="RUNNING", rate=1, burst=1))
    crawl.step(after=1)
    assert [task.taskid for task in crawl.tasks()] == ["t"]
    assert [task.project for task in crawl.controls() if task.taskid == "_on_get_info"] == ["q"]


@pytest.mark.behaviour("S33", "S55", "S60", "S92")
def test_control_work_needs_no_token_and_no_pause_stops_it(crawl: Crawl) -> None:
    crawl.info["p"] = {"cron": [5]}
    crawl.pages = {"_on_cronjob": links("found")}
    crawl.now = 6e9 + 0.5  # the first tick comes after the pause began
    crawl.project(rate=0)
    crawl.start()
    crawl.crawl(1)
    crawl.change("p", rate=1e6)
    crawl.submit(*[new(str(number), schedule={"retries": 0}) for number in range(10)])
    crawl.step(*map(fails, crawl.tasks()))
    assert crawl.scheduler.projects["p"].pause.paused(crawl.now)
    crawl.project("sender")
    crawl.ready("sender")
    crawl.submit(new("t", "sender"))
    (run,) = crawl.tasks()
    crawl.step(done(run, messages=[Message("p", 1, "data:,m")]))
    crawl.crawl(10)
    assert asked(crawl, lambda remote: remote.get_projects_pause_status()) == {"p": True, "sender": False}
    assert set(crawl.callbacks()) >= {"_on_get_info", "on_start", "_on_cronjob", "_on_message"}
    # what they found waits for the pause to end
    assert crawl.task("found").status == TaskStatus.ACTIVE
    assert "found" not in [task.taskid for task in crawl.given]
    # cron jobs are no tasks: not stored, not counted
    assert crawl.taskdb.get("p", ["_on_cronjob"]) == []


@pytest.mark.behaviour("S45", "S91", "X-S20")
def test_runs_that_ended_at_the_same_moment_are_shown_and_timed(crawl: Crawl) -> None:
    crawl.project("p")
    crawl.project("q")
    crawl.ready("p", "q")
    crawl.submit(*[new(str(number), project) for number in range(3) for project in "pq"])
    crawl.step(*map(done, crawl.tasks()))
    runs, times = asked(crawl, lambda remote: (remote.get_active_tasks(), remote.counter("5m_time", "avg")))
    assert {(task["project"], task["taskid"]) for _, task in runs} == {
        (name, str(n)) for n in range(3) for name in "pq"
    }
    assert len({at for at, _ in runs}) == 1
    assert times == {name: pytest.approx({"fetch_time": 0.1, "process_time": 0.2}) for name in "pq"}


@pytest.mark.behaviour("S19", "S41", "S66", "S86", "S17")
def test_how_many_tasks_there_are_outlives_the_scheduler(crawl: Crawl) -> None:
    """Of the counters, those of an hour and a day begin anew."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(
        new("well"), new("badly", schedule={"retries": 0}), new("later", schedule={"exetime": crawl.now + 1e6})
    )
    crawl.step(*[fails(task) if task.taskid == "badly" else done(task) for task in crawl.tasks()])

    def counted() -> Any:
        return asked(crawl, lambda remote: (remote.counter("all", "sum"), remote.size()))

    assert counted() == ({"p": {"pending": 1, "success": 1, "failed": 1}}, 1)
    crawl.lead()
    crawl.step()
    assert counted() == ({"p": {"pending": 1, "success": 1, "failed": 1}}, 1)
    crawl.ready("p")
    crawl.submit(new("well", schedule={"force_update": True}))
    assert counted() == ({"p": {"pending": 2, "failed": 1}}, 2)


@pytest.mark.behaviour("S71")
def test_a_line_of_counters_each_minute() -> None:
    counters = Counters()
    for number in range(8):
        counters.event(0.0, f"p{number}", "pending", 10 + number)
    counters.event(0.0, "p0", "failed", 1)
    counters.event(0.0, "p1", "failed", 2)
    counters.event(0.0, "p7", "success", 5)
    counters.event(0.0, "p7", "retry", 4)
    counters.event(0.0, "", "dropped-unknown-project", 99)
    assert numbers.summary(counters, 1.0) == (
        "in 5m: new:108,success:5,retry:4,failed:3 p7:17,5,4,0 p6:16,0,0,0 p5:15,0,0,0 p1:11,0,0,2 p0:10,0,0,1"
    )
    assert numbers.summary(counters, 400.0) == numbers.summary(Counters(), 0.0) == ""


@pytest.mark.behaviour("S94")
def test_the_words_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of single tasks with --debug; a retry is said always, and so is the last failure."""
    caplog.set_level("DEBUG", "scheduler")
    crawl = Crawl(tmp_path, Options(inqueue_limit=1))
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t", schedule={"retries": 1}), new("u"))
    for _ in range(3):
        crawl.step(*map(fails, crawl.tasks()), after=31)
    crawl.submit(new("t"))
    crawl.submit(new("t", schedule={"force_update": True}))
    crawl.step(*map(done, crawl.tasks()))
    crawl.submit(new("late", schedule={"exetime": crawl.now + 9}))
    crawl.submit(new("late", schedule={"force_update": True, "cancel": True}))
    said = "".join(f"{record.levelname} {record.getMessage()}\n" for record in caplog.records)
    for words in (
        "DEBUG new task p:t http://x/t\n",
        "DEBUG overflow task p:u http://x/u",
        "DEBUG select p:t http://x/t\n",
        "INFO task retry 1/1 p:t http://x/t",
        "WARNING task failed p:t http://x/t",
        "DEBUG ignore newtask p:t http://x/t: seen",
        "DEBUG restart task p:t http://x/t\n",
        "DEBUG task done p:t http://x/t\n",
        "DEBUG cancel task p:late\n",
    ):
        assert words in said, (words, said)
    crawl.close()


@pytest.mark.behaviour("H60")
def test_on_start_keeps_its_save(crawl: Crawl) -> None:
    seen: list[Any] = []

    def on_start(task: Dispatch) -> Report:
        seen.append(task.track.get("save"))
        return replace(done(task), track={"fetch": {}, "process": {"ok": True}, "save": {"runs": len(seen)}})

    crawl.project()
    crawl.pages["on_start"] = on_start
    for run in ("1", "2", "3"):
        crawl.start(run=run)
        crawl.crawl(3.0)
    assert seen == [None, {"runs": 1}, {"runs": 2}]


@pytest.mark.behaviour("S38", "X-S12")
@pytest.mark.parametrize(
    "damage",
    [
        "delete from taskdb_p where taskid = 'odd'",
        "update taskdb_p set status = 3 where taskid = 'odd'",
        "update taskdb_p set fetch = '{broken' where taskid = 'odd'",
        "update taskdb_p set track = x'ff00fe' where taskid = 'odd'",
    ],
)
def test_a_row_that_is_gone_or_cannot_be_read_is_left_out_once(
    played: Crawl, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    played.project(rate=0)
    played.ready("p")
    played.submit(new("odd"), new("even"))
    with closing(sqlite3.connect(tmp_path / "task.db")) as other:
        other.execute(damage)
        other.commit()
    played.change("p", rate=1.0)
    for _ in range(25):
        played.step(after=30)
    assert [(task.taskid, task.fetch) for task in played.tasks() if task.taskid != "odd"] == [("even", {})]
    said = [record.getMessage() for record in caplog.records if "odd" in record.getMessage()]
    assert len(said) <= 1, said


@pytest.mark.behaviour("X-S17")
def test_tasks_are_not_counted_while_a_crawl_goes_on(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept in the transactions is compared with the rows at the end, as in all these tests."""
    crawl.project()
    with monkeypatch.context() as patch:
        patch.setattr(crawl.taskdb, "status_count", None)
        crawl.start()
        crawl.pages = {"on_start": links("a", "b"), "http://x/a": fails}
        crawl.crawl(5)
        crawl.change("p", comments="edited")
        crawl.crawl(1)
    assert crawl.taskdb.status_count("p") == {TaskStatus.ACTIVE: 1, TaskStatus.SUCCESS: 2}
