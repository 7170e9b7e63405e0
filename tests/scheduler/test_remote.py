"""What the port says when the loop cannot answer, and what it does to the loop; the rest is tested on a real `all`."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from xmlrpc.client import Fault

import pytest
from played_crawl import Crawl, done, new

from pyspider_lite import outages
from pyspider_lite.database import connect_taskdb
from pyspider_lite.database.base import TaskDB
from pyspider_lite.scheduler.inbox import Inbox
from pyspider_lite.scheduler.remote import Remote

T = TypeVar("T")


class Process:
    """A scheduler's process whose loop the test turns by hand."""

    def __init__(self, inbox: Inbox | None) -> None:
        self.inbox = inbox

    def stop(self) -> None: ...


def nowhere() -> TaskDB:
    raise AssertionError("not asked for")


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Crawl]:
    crawl = Crawl(tmp_path)
    yield crawl
    crawl.close()


def test_a_stand_by_says_who_leads(tmp_path: Path) -> None:
    """Of every call but _quit, which is for this process."""
    url = f"sqlite+taskdb:///{tmp_path}/task.db"
    remote = Remote(Process(None), lambda: connect_taskdb(url))
    task = {"taskid": "a", "project": "p", "url": "data:,a"}
    calls: dict[str, Callable[[], object]] = {
        "size": remote.size,
        "counter": lambda: remote.counter("5m", "sum"),
        "newtask": lambda: remote.newtask(task),
        "send_task": lambda: remote.send_task(task),
        "update_project": remote.update_project,
        "get_active_tasks": remote.get_active_tasks,
        "get_projects_pause_status": remote.get_projects_pause_status,
        "webui_update": remote.webui_update,
        "explain": lambda: remote.explain("p", "a"),
        "order_tasks": lambda: remote.order_tasks("p", "retry", "{}"),
        "checkup": remote.checkup,
        "strangers": lambda: remote.strangers("p", ["a"]),
        "look_again": lambda: remote.look_again("p"),
    }
    assert remote.functions()["waiting"]() == outages.waiting()  # of any scheduler
    assert calls.keys() | {"_quit", "waiting"} == remote.functions().keys()

    def said(text: str) -> None:
        for call in calls.values():
            with pytest.raises(Fault, match=f"this scheduler does not lead now; {text}"):
                call()

    with closing(connect_taskdb(url)) as taskdb:
        said("none does, try again")
        epoch = taskdb.lead("master:7:abc", 60.0, "http://192.168.1.3:23333/")
        said(r"the one that does is at http://192\.168\.1\.3:23333/ \(master:7:abc\)")
        assert epoch is not None
        taskdb.resign(epoch)
        said("none does, try again")
        epoch = taskdb.lead("master:7:abc", 60.0, "")
        said("the one that does runs without XML-RPC")
        assert epoch is not None
        taskdb.resign(epoch)
        taskdb.lead("master:7:abc", 60.0, "http://127.0.0.1:23333/")
        said("the one that does listens on its own machine, master, only")


def test_a_stand_by_whose_database_is_away_says_that(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    remote = Remote(Process(None), lambda: connect_taskdb(f"sqlite+taskdb:///{tmp_path}/file/task.db"))
    with pytest.raises(Fault, match=r"who does cannot be asked: .*file/task\.db"):
        remote.size()


def test_wrong_arguments() -> None:
    remote = Remote(Process(Inbox()), nowhere, deadline=0.05)
    for call, said in (
        (lambda: remote.counter(["5m"], "sum"), "counter: time must be 5m_time, 5m, 1h, 1d or all, not"),  # type: ignore[arg-type]
        (lambda: remote.counter("x" * 10_000, "sum"), "counter: time must be"),
        (lambda: remote.counter("5m", {}), "counter: type must be sum or avg"),  # type: ignore[arg-type]
        (lambda: remote.get_active_tasks(5), "get_active_tasks: expected the name of a project"),  # type: ignore[arg-type]
        (lambda: remote.get_active_tasks(None, "many"), "get_active_tasks: expected"),  # type: ignore[arg-type]
        (lambda: remote.explain("p", 5), "explain: expected the names of a project and of a task"),  # type: ignore[arg-type]
        (lambda: remote.send_task({}), "send_task: a task has taskid, project and url"),
    ):
        with pytest.raises(Fault) as caught:
            call()
        assert caught.value.faultString.startswith(said)
        assert len(caught.value.faultString) < 200
    assert remote.newtask({"taskid": "a", "project": 5, "url": "data:,a"}) is False


@pytest.mark.parametrize("call", ["newtask", "send_task"])
def test_what_no_message_can_carry_is_refused(call: str) -> None:
    """A client in another language sends what ours cannot."""
    task = {"taskid": "a", "project": "p", "url": "data:,a", "fetch": {"save": ["x", 2**70]}}
    with pytest.raises(Fault, match="the task cannot be taken: it has an integer of more than 64 bits"):
        Remote(Process(Inbox()), nowhere).functions()[call](task)


@pytest.mark.behaviour("X-M4")
def test_a_loop_that_hangs_is_not_waited_for() -> None:
    with pytest.raises(Fault, match=r"did not answer within 0\.05 s; it may still do it"):
        Remote(Process(Inbox()), nowhere, deadline=0.05).size()


def test_a_late_answer_and_a_wrong_question_do_not_disturb_the_loop(played: Crawl) -> None:
    inbox = Inbox()
    remote = Remote(Process(inbox), nowhere, deadline=0.05)
    for late in (remote.size, lambda: remote.newtask({"taskid": "a", "project": "p", "url": "data:,a"})):
        with pytest.raises(Fault, match="did not answer"):
            late()
    heard = inbox.collect(0.0)
    assert len(heard.commands) == 2
    played.step(commands=heard.commands)


def asked(played: Crawl, question: Callable[[Remote], T], between: Callable[[], object] = lambda: None) -> T:
    """The answer, with ``between`` done after each step of the loop."""
    inbox = Inbox()
    remote = Remote(Process(inbox), nowhere, deadline=10.0)
    with ThreadPoolExecutor(1) as asker:
        answer = asker.submit(question, remote)
        while not answer.done():
            commands = inbox.collect(0.05).commands
            played.step(after=0.0, commands=commands)
            if commands:
                between()
        return answer.result()


@pytest.mark.parametrize("callback", ["_on_message", "index_page"])
def test_a_project_that_is_gone_when_the_task_is_sent(played: Crawl, callback: str) -> None:
    """It was there when the call looked; the asker hears it, and the loop goes on."""
    played.project()
    played.ready("p")
    task = {"taskid": "a", "project": "p", "url": "data:,a", "process": {"callback": callback}}

    def delete() -> None:
        played.projectdb.drop("p")
        played.scheduler.update_projects()
        played.step()

    with pytest.raises(Fault, match="send_task: the project p is unknown or not started"):
        asked(played, lambda remote: remote.send_task(task), between=delete)


def test_a_new_task_is_given_out_by_the_first_step_that_hears_of_it(played: Crawl) -> None:
    """Each step that it takes beside costs 20 ms."""
    played.project()
    played.ready("p")
    given: list[list[str]] = []
    task = {"taskid": "a", "project": "p", "url": "data:,a", "process": {"callback": "index_page"}}

    def look() -> None:
        given.append([one.taskid for one in played.tasks()])

    assert asked(played, lambda remote: remote.newtask(task), between=look) is True
    assert given[0] == ["a"]


def test_a_new_task_of_a_project_that_nobody_works_on_is_refused(played: Crawl) -> None:
    task = {"taskid": "a", "project": "gone", "url": "data:,a"}
    assert asked(played, lambda remote: remote.newtask(task)) is False


@pytest.mark.behaviour("S33")
def test_a_task_sent_at_once_does_not_wait_for_its_time(played: Crawl) -> None:
    """S89: and what is under way is not given out a second time."""
    played.project(rate=0.0)
    played.ready("p")
    answers: list[bool] = []
    played.step(commands=[lambda scheduler: answers.append(scheduler.send_now(new("a")))] * 2)
    assert answers == [True, True]
    assert [task.taskid for task in played.tasks()] == ["a"]


def test_what_it_knows_of_a_task(played: Crawl) -> None:
    """For the command `explain`: in flight, why the last submission was dropped, what holds the project up."""

    def explained(project: str = "p", taskid: str = "a") -> dict[str, Any]:
        return asked(played, lambda remote: remote.explain(project, taskid))

    played.project()
    played.submit(new("a"))
    assert explained() == {
        "known": True, "asked": False, "in_flight": False, "drop": None, "dropped": {}, "alone": None, "held_until": None,
    }  # fmt: skip
    played.ready("p")
    (run,) = played.tasks()
    assert explained()["in_flight"]
    played.step(done(run))
    played.submit(new("a", schedule={"age": 3600}))
    answer = explained()
    assert answer["drop"] == {
        "time": played.now, "taskid": "a", "url": "http://x/a", "reason": "fresh",
        "until": played.task("a").lastcrawltime + 3600, "times": 1,
    }  # fmt: skip
    assert (answer["in_flight"], answer["asked"], answer["dropped"]) == (False, True, {"fresh": 1})
    assert explained("p", "b")["drop"] is None
    assert explained("nobody", "a") == {"known": False}
