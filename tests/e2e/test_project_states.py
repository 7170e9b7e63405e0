"""Finished, paused, stopped, deleted (behaviour S50, S55; UA22, UA23, UA46): by real daemons, all of which are stopped and started in
the middle of each. The tables are in `scheduler/test_finished.py`, `test_pause.py` and `test_deletion.py`."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyspider_lite import assembly, bootstrap, configuration
from pyspider_lite.bench import processes
from pyspider_lite.models.project import Project, ProjectState
from pyspider_lite.models.task import Task, TaskStatus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

#: a page that fails once and has a link, and one that comes later
ENDS = """
import os, time
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    retry_delay = {"": 8}

    def on_start(self):
        self.crawl("data:,flaky", callback=self.flaky)
        self.crawl("data:,late", callback=self.page, exetime=time.time() + 8)

    def flaky(self, response):
        if not os.path.exists("tried"):
            open("tried", "w").close()
            raise ValueError("not yet")
        self.crawl("data:,child", callback=self.page)

    def page(self, response):
        return {"text": response.text}

    def on_finished(self, response, task):
        return {"save": response.save}
"""
FAILS = """
import os
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range(40):
            self.crawl("data:,%d" % number, callback=self.page, retries=0)

    def page(self, response):
        if not os.path.exists("mended"):
            raise ValueError("no good")
"""
MANY = FAILS.replace("40", "100").replace("mended", "/")
#: what it finds tells which of the projects of that name it was
AGAIN = """
import time
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("data:,same", callback=self.page)

    def page(self, response):
        open("running-N", "w").close()
        time.sleep(PAUSE)
        self.crawl("data:,only-N", callback=self.last)
        return {"version": N}

    def last(self, response):
        return {"version": N}
"""


class Projects:
    """Four projects on a running suite."""

    def __init__(self, suite: Any, command: Callable[..., Any]) -> None:
        self.suite = suite
        self._command = command
        self.settings = configuration.load(str(suite.config), {}, {}).settings

    def command(self, *words: str, code: int = 0) -> str:
        """A command, inside this process: there are many."""
        outcome = self._command("-c", str(self.suite.config), "project", *words)
        assert outcome.code == code, outcome
        return str(outcome.out)

    def push(self, name: str, script: str, rate: str = "unlimited", burst: str = "3") -> None:
        file = self.suite.folder / f"{name}.py"
        file.write_text(script)
        self.command("push", str(file), "--rate", rate, "--burst", burst)
        self.command("run", name)

    def state(self, name: str) -> ProjectState:
        with contextlib.closing(assembly.connect_taskdb(self.settings)) as taskdb:
            return taskdb.project_states().get(name) or ProjectState(project=name)

    def tasks(self, name: str) -> dict[str, Task]:
        with contextlib.closing(assembly.connect_taskdb(self.settings)) as taskdb:
            return {row.url: row for row in taskdb.select(name, limit=1000)}

    def results(self, name: str) -> list[str]:
        with contextlib.closing(assembly.connect_resultdb(self.settings)) as resultdb:
            return sorted(row.result for row in resultdb.select(name))

    def row(self, name: str) -> Project | None:
        with contextlib.closing(assembly.connect_projectdb(self.settings)) as projectdb:
            return projectdb.get(name)

    def push_again(self, version: int, pause: float = 0.0) -> None:
        self.push("again", AGAIN.replace("N", str(version)).replace("PAUSE", str(pause)))

    def is_version(self, version: int) -> bool:
        """Nothing but what this one crawled is there, and it is finished."""
        wanted = {"data:,on_start", "data:,same", f"data:,only-{version}", "data:,on_finished"}
        result = f'{{"version":{version}}}'
        tasks = self.tasks("again")
        return (
            tasks.keys() == wanted
            and all(task.status == TaskStatus.SUCCESS for task in tasks.values())
            and [found.replace(" ", "") for found in self.results("again")] == [result] * 2
        )


@pytest.fixture
def projects(make_suite: Callable[..., Any], stack: dict[str, Any], command: Callable[..., Any]) -> Projects:
    return Projects(make_suite(**stack), command)


def signal_processor(suite: Any, number: int) -> None:
    for pid in suite.children("processor"):
        for each in processes.tree(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)


@pytest.mark.behaviour("S13", "S50", "S55", "X-S15")
def test_all_daemons_restart_in_the_middle_of_everything(projects: Projects) -> None:
    suite = projects.suite
    suite.start()
    projects.push("fails", FAILS, "10", "5")
    projects.push("many", MANY, "10", "3")

    # stopped: nothing more is given out
    suite.wait(lambda: projects.state("many").success > 5)
    projects.command("stop", "many")
    suite.wait(lambda: "project many: STOP, nothing more is given out" in suite.log.read_text(), 10)
    at_stop = projects.state("many")

    # paused, with a reason
    suite.wait(lambda: projects.state("fails").paused_until)
    assert "the last 10 tasks all failed" in projects.command("show", "fails")

    # deleted and made anew, while a worker has a page of the old one and is frozen
    projects.push_again(1, pause=2.0)
    suite.wait((suite.folder / "running-1").exists)
    signal_processor(suite, signal.SIGSTOP)
    try:
        projects.command("delete", "again", "--yes")
        assert (projects.row("again"), projects.tasks("again"), projects.results("again")) == (None, {}, [])
        projects.push_again(2)
    finally:
        signal_processor(suite, signal.SIGCONT)
    suite.wait(lambda: projects.is_version(2))

    # not finished: one page waits for a retry, one for its time
    projects.push("ends", ENDS)
    suite.wait(
        lambda: "data:,flaky" in (tasks := projects.tasks("ends")) and tasks["data:,flaky"].schedule.get("retried")
    )
    assert "data:,on_finished" not in projects.tasks("ends")
    before = {name: projects.state(name) for name in ("fails", "many")}
    suite.stop()

    # to be deleted, while no scheduler runs
    row = projects.row("again")
    assert row is not None
    with contextlib.closing(assembly.connect_taskdb(projects.settings)) as taskdb:
        bootstrap.enter_delete(taskdb, row)
    projects.command("push", str(suite.folder / "again.py"), code=3)
    restarted = time.time()
    suite.start()
    suite.wait(lambda: projects.row("again") is None)
    projects.push_again(3)
    suite.wait(lambda: projects.is_version(3))

    # finished once, and not before all was
    suite.wait(lambda: "data:,on_finished" in projects.tasks("ends"))
    assert projects.state("ends").crawl == 1 and not projects.state("ends").active
    tasks = projects.tasks("ends")
    finished = tasks.pop("data:,on_finished")
    assert tasks.keys() == {"data:,on_start", "data:,flaky", "data:,late", "data:,child"}
    assert all((task.lastcrawltime or 0) <= (finished.lastcrawltime or 0) for task in tasks.values())
    assert finished.fetch["save"] == {"crawl": 1, "success": 4, "failed": 0, "bad": 0}
    assert suite.log.read_text().count("project ends: crawl 1 is finished") == 1

    # the restart, some seconds ago, started nothing that was stopped and ended no pause
    assert time.time() - restarted > 2
    assert projects.state("many") == before["many"]
    assert 0 <= at_stop.active - projects.state("many").active <= 10 < projects.state("many").active
    assert projects.state("fails") == before["fails"]
    (suite.folder / "mended").touch()
    projects.command("resume", "fails")
    projects.command("run", "many")
    projects.command("set", "many", "--rate", "unlimited")
    suite.wait(lambda: not projects.state("fails").active and not projects.state("many").active)
    assert projects.state("fails").failed == before["fails"].failed
    assert projects.state("many").success == 102
    assert projects.state("fails").paused_until == 0
