"""A script that cannot be loaded: why is kept for `project` and `doctor`, until it changes or can be loaded after all."""

from typing import Any

from played_crawl import INFO, Crawl, done, new

from pyspider_lite.cli.unloadable import unloadable
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import Report

REASON = "ModuleNotFoundError: No module named 'nowhere'"
PROCESS = {"ok": False, "error": "ModuleNotFoundError", "exception": "first\nNo module named 'nowhere'\n"}


def broken(task: Dispatch, process: dict[str, Any] = PROCESS) -> Report:
    return done(task, ok=False, track={"process": process})


def seen(crawl: Crawl) -> dict[str, str]:
    return unloadable(crawl.projectdb, {name: state.info for name, state in crawl.taskdb.project_states().items()})


def asked(crawl: Crawl) -> Dispatch:
    (task,) = [task for task in crawl.controls() if task.taskid == "_on_get_info"]
    return task


def test_why_a_script_could_not_be_loaded_is_kept_until_it_changes(crawl: Crawl) -> None:
    crawl.project()
    crawl.step()
    crawl.step(broken(asked(crawl)))
    assert seen(crawl) == {"p": REASON}
    # who leads next asks again
    crawl.lead()
    crawl.step()
    crawl.step(after=1.1)
    task = asked(crawl)
    assert seen(crawl) == {"p": REASON}
    crawl.change("p", script="v2")
    assert seen(crawl) == {}, "this script was not tried yet"
    crawl.step(broken(task), after=1.1)
    crawl.step(done(asked(crawl), info=INFO), after=1.1)
    assert seen(crawl) == {}
    crawl.change("p", script="v1")
    assert seen(crawl) == {}
    crawl.check()


def test_no_reason_is_said_too(crawl: Crawl) -> None:
    crawl.project()
    crawl.step()
    crawl.step(broken(asked(crawl), {}))
    assert seen(crawl) == {"p": "no reason known"}


def test_a_script_that_can_be_loaded_after_all_is_asked_again(crawl: Crawl) -> None:
    """What it imports was installed."""
    crawl.project()
    crawl.step()
    crawl.step(broken(asked(crawl)))
    crawl.submit(new("a"), new("b"))
    a, b = crawl.tasks()
    crawl.step(done(a, ok=False))
    assert not crawl.controls(), "nothing says that it can be loaded"
    crawl.step(done(b))
    again = asked(crawl)
    # on one machine it can be loaded, and on another it cannot: it is not asked for each page
    crawl.step(broken(again))
    crawl.submit(new("c"), new("d"))
    c, d = crawl.tasks()
    crawl.step(done(c))
    assert not crawl.controls()
    assert seen(crawl) == {"p": REASON}
    crawl.step(after=60)
    crawl.step(done(d))
    crawl.step(done(asked(crawl), info={**INFO, "jobs": [{"name": "hourly", "every": 3600}]}))
    assert seen(crawl) == {}
    info = crawl.scheduler.projects["p"].info
    assert info is not None and info.answered and [job.name for job in info.jobs] == ["hourly"]
    crawl.check()
