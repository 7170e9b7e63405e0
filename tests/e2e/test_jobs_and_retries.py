"""Jobs and retries over a restart of all daemons, on SQLite and on MariaDB. The whole tables, by a counted clock, are in
`scheduler/test_job_table.py` and `scheduler/test_retry_table.py`."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from pyspider_lite import bootstrap, configuration
from pyspider_lite.database.base import ProjectDB, TaskDB
from pyspider_lite.models.project import JobState, Project

pytestmark = pytest.mark.e2e

#: seconds before the second retry: it becomes due while nothing runs, or after the restart
DELAY = 12
#: an interval of as many seconds as there are since 1970 has one tick, now
SCRIPT = """
import time
from pyspider.libs.base_handler import *

def note(name, value):
    with open(name, "a") as file:
        file.write(f"{{value}}\\n")

class Handler(BaseHandler):
    retry_delay = [1, {delay}, 1, 3600]

    def on_start(self):
        self.crawl("data:,flaky", callback=self.broken, retries=5, age=2, taskid="flaky")
        self.crawl("http://127.0.0.1:1/", callback=self.page, retry_status={{599: 1}}, taskid="refused")

    @every(seconds={due})
    def fails(self):
        raise ValueError("this one always does")

    @every(seconds={due})
    def look(self, response):
        note("looks", response.save["tick"])

    @every(seconds={due}, misfire_grace=0)
    def punctual(self, response):
        note("punctual", response.save["tick"])

    @every(seconds=2)
    def often(self, response):
        note("often", response.save["tick"])

    def broken(self, response):
        note("tries", time.time())
        raise ValueError("not yet")

    def page(self, response):
        return response.text
"""


class Clock:
    """The project on a suite."""

    def __init__(self, suite: Any, taskdb: TaskDB, projectdb: ProjectDB) -> None:
        self.suite = suite
        self.taskdb = taskdb
        self.projectdb = projectdb

    def leads(self) -> bool:
        return self.taskdb.leader() is not None

    def push(self, due: int) -> None:
        script = SCRIPT.format(delay=DELAY, due=due)
        self.projectdb.insert(Project(name="clock", script=script, status="RUNNING", rate=1e6, burst=1e6))

    def run(self) -> None:
        project = self.projectdb.get("clock")
        assert project is not None
        bootstrap.enter_on_start(self.taskdb, project)

    def states(self) -> dict[str, JobState]:
        """The jobs that the scheduler knows."""
        state = self.taskdb.project_states().get("clock")
        return {job.job.name: job for job in state.jobs} if state else {}

    def retried(self, taskid: str) -> int:
        found = self.taskdb.get("clock", [taskid])
        return found[0].schedule.get("retried", 0) if found else 0

    def show(self, taskid: str) -> tuple[int, str | None, str | None]:
        """Status, retries used, and the next attempt."""
        task = json.loads(self.suite.command("task", "show", "clock", taskid))
        return task["status"], task.get("retry"), task.get("next attempt at")

    def jobs(self) -> dict[str, dict[str, Any]]:
        lines = self.suite.command("project", "jobs", "clock", "--format", "jsonl").splitlines()
        return {record["job"]: record for record in map(json.loads, lines)}

    def noted(self, name: str) -> list[float]:
        file = self.suite.folder / name
        return [float(line) for line in file.read_text().split()] if file.exists() else []

    def waits_for_the_third_try(self) -> bool:
        return self.retried("flaky") == 2 and self.retried("refused") == 1 and self.states()["often"].tick > 0

    def as_it_was_left(self, due: int) -> int:
        """What is shown while nothing runs; how many ticks of the quick job there were."""
        tries = self.noted("tries")
        assert len(tries) == 2
        assert self.show("flaky") in [(1, "2 of 5", shown(tries[1] + DELAY + late)) for late in range(3)]
        assert self.retried("refused") == 1
        jobs = self.jobs()
        assert jobs["look"]["next run"].startswith(shown(due))
        assert [jobs["look"]["last run"], jobs["often"]["result"]] == [None, "ok"]
        return len(self.noted("often"))

    def has_caught_up(self, ticks: int) -> bool:
        states = self.states()
        ended = [states["look"].tick, states["fails"].tick, states["punctual"].missed, self.noted("often")[ticks + 1 :]]
        return all(ended) and self.retried("flaky") == 4

    def retries_went_on(self) -> None:
        """With their number, and the third try at its time."""
        tries = self.noted("tries")
        waits = [later - earlier for earlier, later in pairwise(tries)]
        assert [wait >= wanted - 0.1 for wait, wanted in zip(waits, (1, DELAY, 1), strict=True)] == [True] * 3
        assert self.show("flaky") in [(1, "4 of 5", shown(tries[3] + 3600 + late)) for late in range(3)]

    def jobs_were_made_up_for(self, due: int) -> None:
        """Once, beside a job that fails; later than its grace not at all; of many ticks the newest."""
        jobs = self.jobs()
        assert self.noted("looks") == [due]
        assert [jobs["look"][what] for what in ("last run", "result", "missed")] == [shown(due), "ok", 0]
        assert [jobs["fails"][what] for what in ("last run", "result")] == [
            shown(due),
            "failed: this one always does",
        ]
        assert self.noted("punctual") == []
        assert [jobs["punctual"][what] for what in ("missed", "last missed")] == [1, shown(due)]
        assert "misfire_grace" in jobs["punctual"]["why missed"]
        often = self.noted("often")
        assert often == sorted(set(often))
        assert 0 < jobs["often"]["missed"] <= sum((later - earlier) // 2 - 1 for earlier, later in pairwise(often))


@pytest.fixture
def clocks(make_suite: Callable[..., Any], on_servers: Callable[[], dict[str, Any]]) -> Iterator[list[Clock]]:
    """On SQLite with the built-in queues, and on MariaDB with Redis: both at the same time, because most of it is waiting."""
    suites = [make_suite(), make_suite(**on_servers())]
    with contextlib.ExitStack() as stack:
        clocks = []
        for suite in suites:
            settings = configuration.load(str(suite.config), {}, {}).settings
            taskdb = stack.enter_context(bootstrap.open_taskdb(settings, create=True))
            projectdb = stack.enter_context(bootstrap.open_projectdb(settings, create=True))
            clocks.append(Clock(suite, taskdb, projectdb))
        yield clocks


@pytest.mark.behaviour("S42", "S43", "S60", "S61")
def test_a_restart_between_two_tries_and_over_a_tick(clocks: list[Clock]) -> None:
    begun = time.time()
    for clock in clocks:
        clock.suite.start()
    for clock in clocks:
        clock.suite.wait(clock.leads)
    due = int(time.time() + 6 + 2 * (time.time() - begun))
    for clock in clocks:
        clock.push(due)
    for clock in clocks:
        clock.suite.wait(clock.states)
        clock.run()
    for clock in clocks:
        clock.suite.wait(clock.waits_for_the_third_try)
        clock.suite.process.terminate()
    for clock in clocks:
        clock.suite.stop()
    assert time.time() < due, "the machine is too busy for this test"
    before = [clock.as_it_was_left(due) for clock in clocks]
    # until the tick was missed, by more than a grace of nothing allows
    time.sleep(max(0.0, due + 2.5 - time.time()))
    for clock in clocks:
        clock.suite.start()
    for clock, ticks in zip(clocks, before, strict=True):
        clock.suite.wait(lambda clock=clock, ticks=ticks: clock.has_caught_up(ticks))
        clock.retries_went_on()
        clock.jobs_were_made_up_for(due)


def shown(unix: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(unix))
