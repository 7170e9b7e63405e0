"""`doctor` on real daemons: nothing wrong while a crawl goes on; a finding for each thing that is broken by hand; what it repairs."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from pyspider_lite import bootstrap, message_queue, settings
from pyspider_lite.database import connect_projectdb, connect_taskdb
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.project import Project, ProjectStatus

pytestmark = pytest.mark.e2e

SCRIPT = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range({pages}):
            self.crawl(f"data:,{{number}}", callback=self.page)

    def page(self, response):
        return {{"text": response.text}}
"""
#: a fetcher of an older version on a machine whose clock is an hour ahead
ODD_FETCHER = """
import sys, time
import pyspider_lite
pyspider_lite.__version__ = "0.0.9"
right = time.time
time.time = lambda: right() + 3600
from pyspider_lite.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Cluster:
    """A suite, and what may be done to it behind its back."""

    def __init__(self, suite: Any, command: Callable[..., Any]) -> None:
        self.suite = suite
        self._command = command
        self.data = suite.folder / "data"
        self.odd: subprocess.Popen[bytes] | None = None

    def doctor(self, *words: str) -> tuple[int, list[str]]:
        """Its exit code and lines."""
        outcome = self._command("-c", str(self.suite.config), "doctor", *words)
        assert outcome.err == ""
        return outcome.code, outcome.out.splitlines()

    def add(self, name: str, pages: int, *, run: bool = True) -> None:
        with closing(connect_projectdb(f"sqlite+projectdb:///{self.data}/project.db")) as projectdb:
            status = ProjectStatus.RUNNING
            rate = float("inf")
            projectdb.insert(
                Project(name=name, script=SCRIPT.format(pages=pages), status=status, rate=rate, burst=rate)
            )
            project = projectdb.get(name)
        if run and project is not None:
            with closing(connect_taskdb(f"sqlite+taskdb:///{self.data}/task.db")) as taskdb:
                bootstrap.enter_on_start(taskdb, project)

    def sql(self, kind: str, *statements: str) -> None:
        with closing(sqlite3.connect(self.data / f"{kind}.db", timeout=10)) as database:
            for statement in statements:
                database.execute(statement)
            database.commit()

    def start_odd_fetcher(self) -> None:
        words = [sys.executable, "-c", ODD_FETCHER, "-c", str(self.suite.config), "fetcher"]
        with open(self.suite.folder / "odd.log", "ab") as log:
            self.odd = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.suite.folder)
        seen = "select 1 from \"lite-worker\" where beat like '%0.0.9%'"
        self.suite.wait(lambda: self.suite.query("task", seen), 60)

    def stop_odd_fetcher(self) -> None:
        if self.odd is not None:
            self.odd.terminate()
            self.odd.wait(20)
            self.odd = None

    def make_mute(self) -> None:
        """A project whose script is never asked about itself: the row that asks is gone when the answer comes."""
        info = "from \"lite-control\" where project = 'mute' and kind = 'info'"
        processors = self.suite.children("processor")
        for pid in processors:
            os.kill(pid, signal.SIGSTOP)
        self.add("mute", 3, run=False)
        self.suite.wait(lambda: self.suite.query("task", f"select 1 {info}"), 5)
        self.sql("task", f"delete {info}")
        for pid in processors:
            os.kill(pid, signal.SIGCONT)

    def send_garbage(self) -> None:
        url = f"builtin://{settings.queue_socket(str(self.data))}"
        queue = message_queue.connect(url, QueueName.NEW_TASKS)
        queue.put(b"garbage", 5.0)
        queue.close()
        self.suite.wait(lambda: self.suite.query("task", 'select 1 from "lite-dead-letter"'), 10)


@pytest.fixture
def cluster(make_suite: Callable[..., Any], command: Callable[..., Any]) -> Iterator[Cluster]:
    suite = make_suite()
    suite.start()
    cluster = Cluster(suite, command)
    suite.wait(lambda: len(suite.query("task", 'select 1 from "lite-worker"')) == 4, 60)
    yield cluster
    cluster.stop_odd_fetcher()


ONE = "(select min(taskid) from taskdb_{0} where status = 2 and taskid not like 'on_%')"
REOPENED = "update \"lite-project-state\" set active = active + 1, success = success - 1 where project = '{0}'"

#: problem -> how it is made, and how it is mended by hand ("" where `--repair` does it)
BREAKAGES: dict[str, tuple[Callable[[Cluster], Any], Callable[[Cluster], Any] | None]] = {
    "counts: books is kept as success 12, but its table has success 5": (
        lambda it: it.sql("task", "update \"lite-project-state\" set success = success + 7 where project = 'books'"),
        None,
    ),
    "tasks: 1 task of lease (": (
        lambda it: it.sql(
            "task",
            f"update taskdb_lease set status = 1, due = 1.5 where taskid = {ONE.format('lease')}",
            REOPENED.format("lease"),
        ),
        None,
    ),
    "tasks: 1 task of undue (": (
        lambda it: it.sql(
            "task",
            f"update taskdb_undue set status = 1, due = null where taskid = {ONE.format('undue')}",
            REOPENED.format("undue"),
        ),
        None,
    ),
    "project: mute is without info": (lambda it: it.make_mute(), None),
    "tasks: of json these columns hold no JSON": (
        lambda it: it.sql("task", f"update taskdb_json set fetch = '{{' where taskid = {ONE.format('json')}"),
        lambda it: it.sql("task", "update taskdb_json set fetch = '{}' where fetch = '{'"),
    ),
    "tables: the taskdb has 5 tasks of ghost": (
        lambda it: it.sql("task", "create table taskdb_ghost as select * from taskdb_json"),
        lambda it: it.sql("task", "drop table taskdb_ghost"),
    ),
    "tables: the resultdb has 3 results of gone": (
        lambda it: it.sql("result", "create table resultdb_gone as select * from resultdb_json"),
        lambda it: it.sql("result", "drop table resultdb_gone"),
    ),
    "cluster: all result_workers are paused": (
        lambda it: it.suite.command("cluster", "pause", "result_worker"),
        lambda it: it.suite.command("cluster", "resume", "result_worker"),
    ),
    "clock: the clock of": (lambda it: it.start_odd_fetcher(), lambda it: it.stop_odd_fetcher()),
    "version: fetcher": (lambda it: None, lambda it: None),  # the same one
    "dead-letters: 1 dead letter": (
        lambda it: it.send_garbage(),
        lambda it: it.sql("task", 'delete from "lite-dead-letter"'),
    ),
}


def problems(lines: list[str]) -> list[str]:
    return [line.removeprefix("problem: ") for line in lines if line.startswith("problem: ")]


def test_nothing_is_wrong_while_a_crawl_goes_on(cluster: Cluster) -> None:
    cluster.add("large", 2000)
    state = "select active, success from \"lite-project-state\" where project = 'large'"
    cluster.suite.wait(lambda: cluster.suite.query("task", f"{state} and success > 20"), 30)
    looks = 0
    while looks < 2 or not cluster.suite.finished("large"):
        code, lines = cluster.doctor()
        assert (code, lines[-1]) == (0, "nothing wrong"), lines
        looks += 1


def test_a_finding_for_each_breakage_and_what_is_repaired(cluster: Cluster) -> None:
    names = ("books", "lease", "undue", "json")
    for name in names:
        cluster.add(name, 3)
    cluster.suite.wait(lambda: all(cluster.suite.finished(name) for name in names), 30)
    assert cluster.doctor() == (0, ["nothing wrong"])
    for make, _ in BREAKAGES.values():
        make(cluster)

    code, lines = cluster.doctor()
    found = problems(lines)
    for beginning in BREAKAGES:
        assert [line for line in found if line.startswith(beginning)], f"{beginning} is not in {found}"
    assert (code, len(found)) == (1, len(BREAKAGES)), "\n".join(found)

    code, lines = cluster.doctor("--repair")
    repaired = [line for line in lines if line.startswith("repaired: ")]
    assert (code, len(problems(lines)), len(repaired)) == (1, len(BREAKAGES), 4), "\n".join(lines)
    assert "repaired: counts: counts of books: success 12 -> 5" in repaired
    for _, mend in BREAKAGES.values():
        if mend is not None:
            mend(cluster)
    for name in ("lease", "undue"):
        cluster.suite.wait(lambda name=name: cluster.suite.statuses(name) == {2: 5}, 20)
    answered = "select 1 from \"lite-control\" where project = 'mute'"
    cluster.suite.wait(lambda: not cluster.suite.query("task", answered), 10)
    assert cluster.doctor() == (0, ["nothing wrong"])
