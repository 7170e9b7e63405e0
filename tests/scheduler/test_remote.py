"""What the port says when the loop cannot answer, and what it does to the loop; the rest is tested on a real `all`."""

from collections.abc import Iterator
from pathlib import Path
from xmlrpc.client import Fault

import pytest
from played_crawl import Crawl, new

from pyspider_lite.scheduler.inbox import Inbox
from pyspider_lite.scheduler.remote import Remote


class Process:
    """A scheduler's process whose loop the test turns by hand."""

    def __init__(self, inbox: Inbox | None) -> None:
        self.inbox = inbox

    def stop(self) -> None: ...


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Crawl]:
    crawl = Crawl(tmp_path)
    yield crawl
    crawl.close()


def test_a_stand_by_says_so() -> None:
    remote = Remote(Process(None))
    for call in (remote.size, remote.update_project, remote.webui_update):
        with pytest.raises(Fault, match="this scheduler does not lead now"):
            call()


def test_a_loop_that_hangs_is_not_waited_for() -> None:
    with pytest.raises(Fault, match=r"did not answer within 0\.05 s; it may still do it"):
        Remote(Process(Inbox()), deadline=0.05).size()


def test_a_late_answer_and_a_wrong_question_do_not_disturb_the_loop(played: Crawl) -> None:
    inbox = Inbox()
    remote = Remote(Process(inbox), deadline=0.05)
    for late in (remote.size, lambda: remote.counter("2m", "sum")):
        with pytest.raises(Fault, match="did not answer"):
            late()
    heard = inbox.collect(0.0)
    assert len(heard.commands) == 2
    played.step(commands=heard.commands)


def test_a_task_sent_at_once_does_not_wait_for_its_time(played: Crawl) -> None:
    """S89: and what is under way is not given out a second time."""
    played.project(rate=0.0)
    played.ready("p")
    answers: list[bool] = []
    played.step(commands=[lambda scheduler: answers.append(scheduler.send_now(new("a")))] * 2)
    assert answers == [True, True]
    assert [task.taskid for task in played.tasks()] == ["a"]
