"""Each role is killed at each step of a task's way, by itself and exactly there, while it crawls: nothing is lost, nothing doubled.

Each row of the table has a small crawl of its own. By default nearly all crawl at the same time, and all deaths fall into them; among the
slow tests each row is alone, and dies twice. The steps are planted by `crash_points.py`.
"""

import contextlib
import hashlib
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pyspider_lite import assembly, bootstrap
from pyspider_lite.bench.chaos.manager import Manager, Slot
from pyspider_lite.bench.chaos.stack import STACKS, Stack
from pyspider_lite.models.project import Project
from pyspider_lite.models.task import TaskStatus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


class Row(NamedTuple):
    """Who dies, and where; ``step`` is a name in `crash_points.py`."""

    role: str
    step: str
    #: what is done already, and what is not
    done: str
    open: str

    def __str__(self) -> str:
        return f"{self.role}-{self.step}"


MATRIX = [
    Row("scheduler", "received", "reports are taken off status_queue", "their transaction"),
    Row("scheduler", "written", "reports and links are written in a transaction", "its commit"),
    Row("scheduler", "committed", "the transaction is committed", "what memory takes over from it"),
    Row("scheduler", "leased", "tasks are leased", "putting them on scheduler2fetcher"),
    Row("scheduler", "published", "tasks are on scheduler2fetcher", "noting that they are"),
    Row("fetcher", "taken", "tasks are taken off scheduler2fetcher", "the claim"),
    Row("fetcher", "claimed", "the claim is on status_queue", "the fetch"),
    Row("fetcher", "fetched", "a page is fetched", "putting it on fetcher2processor"),
    Row("fetcher", "published", "pages are on fetcher2processor", "the handover"),
    Row("processor", "taken", "pages are taken off fetcher2processor", "the claim"),
    Row("processor", "claimed", "the claim is on status_queue", "the callback"),
    Row("child", "callback", "a callback has begun", "its end"),
    Row("processor", "called", "a callback is over", "putting its results on processor2result"),
    Row("processor", "published", "results are on processor2result", "the handover"),
    Row("processor", "reporting", "a callback without results is over", "its report"),
    Row("processor", "reported", "the report is on status_queue", "whatever comes next"),
    Row("result_worker", "taken", "results are taken off processor2result", "the claim"),
    Row("result_worker", "claimed", "the claim is on status_queue", "storing them"),
    Row("result_worker", "stored", "results are committed", "forwarding the reports"),
    Row("result_worker", "reported", "the reports are on status_queue", "whatever comes next"),
    Row("broker", "tasks-put", "tasks are on scheduler2fetcher", "taking them"),
    Row("broker", "pages-putting", "pages are to be put", "putting them on fetcher2processor"),
    Row("broker", "pages-put", "pages are on fetcher2processor", "taking them"),
    Row("broker", "results-put", "results are on processor2result", "taking them"),
]
#: a new leader takes eight seconds each time, and after a broker's death nobody is taken for dead for six; these differ little from others
LATER = {f"scheduler-{step}" for step in ("received", "leased", "published")}
LATER |= {f"broker-{step}" for step in ("tasks-put", "pages-putting", "results-put")}
TOGETHER = [row for row in MATRIX if str(row) not in LATER]
PAGES = 40
#: pages of a row that are asked for before it dies
UNHARMED = 3
DAEMONS = {"scheduler": 1, "fetcher": 2, "processor": 2, "result_worker": 2}
LAUNCHER = str(Path(__file__).with_name("crash_points.py"))
SCRIPT = """
import json
import os
import signal

from pyspider_lite import BaseHandler


class Handler(BaseHandler):
    retry_delay = {{"": 1}}

    def on_start(self):
        self.crawl("{url}/0", callback=self.page)

    def page(self, response):
        self.die(response.url)
        for each in response.doc("a").items():
            self.crawl(each.attr.href, callback=self.page)
        number = int(response.url.rpartition("/")[2])
        if number % 4 != 3:
            return {{"page": number}}

    def die(self, url):
        try:
            os.rename("{folder}/armed/child-callback", "{folder}/fired/child-callback")
        except OSError:
            return
        with open("{folder}/fired/child-callback", "w") as file:
            json.dump([["{project}", self.task["taskid"]]], file)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def project_of(row: Row) -> str:
    return str(row).replace("-", "_")


class Site(ThreadingHTTPServer):
    """A tree of pages for each project: /PROJECT/0 links to /PROJECT/1 to 3, and so on; no page is linked to by two."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        super().__init__(("127.0.0.1", 0), _Page)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        _, project, number = self.path.split("/")
        self.server.requests[project, int(number)] += 1
        children = [child for child in range(3 * int(number) + 1, 3 * int(number) + 4) if child < PAGES]
        body = "".join(f'<a href="/{project}/{child}">{child}</a>' for child in children).encode() or b"<p>a leaf</p>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Crashes:
    """Daemons that are started again as soon as they end, and the crawls that they do."""

    def __init__(self, folder: Path, stack: Stack, site: Site) -> None:
        self.folder = folder
        self.stack = stack
        self.site = site
        self.exits: list[dict[str, Any]] = []
        #: who died, and with which tasks in hand
        self.fired: list[tuple[Row, set[tuple[str, str]]]] = []
        for name in ("armed", "fired"):
            (folder / name).mkdir()
        self._name_broker()
        words = [sys.executable, LAUNCHER, str(folder), "-c", str(stack.config)]
        slots = [
            Slot(role, index, [*words, role], folder / f"{role}-{index}.log")
            for role, number in DAEMONS.items()
            for index in range(number)
        ]
        self.manager = Manager(folder, slots, self._note)

    def _note(self, event: str, **fields: Any) -> None:
        if event == "exit" and not fields["wanted"]:
            self.exits.append(fields)

    def crawl(self, rows: Sequence[Row], times: int) -> None:
        """Until the crawl of each row is over; each dies ``times`` times."""
        with (
            bootstrap.open_projectdb(self.stack.settings, create=True) as projectdb,
            bootstrap.open_taskdb(self.stack.settings, create=True) as taskdb,
        ):
            for row in rows:
                name = project_of(row)
                script = SCRIPT.format(url=f"{self.site.url}/{name}", folder=self.folder, project=name)
                projectdb.insert(Project(name=name, script=script, status="RUNNING", rate=6.0, burst=3.0))
                project = projectdb.get(name)
                assert project is not None
                bootstrap.enter_on_start(taskdb, project)
        left = dict.fromkeys(rows, times)
        armed: set[Row] = set()
        self._wait(lambda: self._all_died(left, armed) and all(map(self._finished, rows)), 90.0 + 30.0 * times)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"armed: {sorted(path.name for path in (self.folder / 'armed').iterdir())}"
            time.sleep(0.1)

    def _all_died(self, left: dict[Row, int], armed: set[Row]) -> bool:
        """Arms what is to die next, takes in who died, and starts a broker that did."""
        server: Any = self.stack.broker
        if server.process.poll() is not None:
            server.start()
            self._name_broker()
        for row in left:
            if row in armed and (in_hand := self._fired(row)):
                self.fired.append((row, in_hand))
                armed.remove(row)
                left[row] -= 1
            asked = sum(1 for project, _ in list(self.site.requests) if project == project_of(row))
            if left[row] and row not in armed and asked >= UNHARMED:
                armed.add(row)
                _write(self.folder / "armed" / str(row), project_of(row))
        return not any(left.values())

    def _fired(self, row: Row) -> set[tuple[str, str]]:
        """What a row that died since had in hand."""
        file = self.folder / "fired" / str(row)
        if not file.exists() or not (text := file.read_text()).endswith("]"):
            return set()  # moved there, and not written yet
        file.unlink()
        return {(project, taskid) for project, taskid in json.loads(text)}

    def _name_broker(self) -> None:
        _write(self.folder / "broker", str(self.stack.broker.process.pid))

    def _finished(self, row: Row) -> bool:
        with contextlib.closing(assembly.connect_taskdb(self.stack.settings)) as taskdb:
            tasks = taskdb.get(project_of(row), ["on_finished"])
        return any(task.status == TaskStatus.SUCCESS for task in tasks)

    # --- what must hold -------------------------------------------------------------------------------------------------

    def problems(self, row: Row) -> list[str]:
        """What is wrong with the crawl of a row."""
        return [*self._requests(row), *self._results(row), *self._tasks(row)]

    def _requests(self, row: Row) -> Iterator[str]:
        """Each page was asked for, and once more at most for each death at which it was in hand."""
        name = project_of(row)
        in_hand = Counter(run for _, runs in self.fired for run in runs)
        broken = sum(fired.role == "broker" for fired, _ in self.fired)
        for number in range(PAGES):
            taskid = hashlib.md5(f"{self.site.url}/{name}/{number}".encode()).hexdigest()
            count = self.site.requests[name, number]
            if not count:
                yield f"page {number} was never asked for"
            # all that waits is in the hands of a broker
            if count > 1 + broken + in_hand[name, taskid]:
                yield f"page {number} was asked for {count} times, it was in hand {in_hand[name, taskid]} times"

    def _results(self, row: Row) -> Iterator[str]:
        with contextlib.closing(assembly.connect_resultdb(self.stack.settings)) as resultdb:
            found = sorted(json.loads(result.result)["page"] for result in resultdb.select(project_of(row)))
        if found != [number for number in range(PAGES) if number % 4 != 3]:
            yield f"results are of the pages {found}"

    def _tasks(self, row: Row) -> Iterator[str]:
        name = project_of(row)
        with contextlib.closing(assembly.connect_taskdb(self.stack.settings)) as taskdb:
            tasks = taskdb.select(name, limit=10 * PAGES)
            state = taskdb.project_states()[name]
            controls = [control.id for control in taskdb.controls(0, 1000) if control.project == name]
            letters = [f"{letter.kind}: {letter.reason}" for letter in taskdb.dead_letters(project=name)]
        for task in tasks:
            if task.status != TaskStatus.SUCCESS:
                yield f"{task.url} has status {task.status}"
        if len(tasks) != PAGES + 2:
            yield f"there are {len(tasks)} tasks, not {PAGES} pages, on_start and on_finished"
        counts = {status: getattr(state, status.name.lower()) for status in TaskStatus}
        rows = Counter(TaskStatus(task.status) for task in tasks)
        if any(counts[status] != rows[status] for status in TaskStatus):
            yield f"counted are {counts}, there are {rows}"
        for left in (*controls, *letters):
            yield f"left over: {left}"

    def ends(self) -> list[str]:
        """What is wrong with the processes, which are stopped for that."""
        left = self.manager.stop(20.0)
        died = sum(fired.role in DAEMONS for fired, _ in self.fired)
        strange = [str(end) for end in self.exits if end["code"] != -9]
        strange += [] if len(self.exits) == died else [f"{len(self.exits)} daemons ended, {died} were meant to"]
        return strange + [f"left over: {one}" for one in left]


def _write(file: Path, text: str) -> None:
    """At once, for those who read it."""
    aside = file.with_name(f".{file.name}")
    aside.write_text(text)
    aside.rename(file)


@contextlib.contextmanager
def crashing(folder: Path, stack: str) -> Iterator[Crashes]:
    with Stack(stack, folder) as servers, Site() as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        crashes = Crashes(folder, servers, site)
        crashes.manager.start()
        try:
            yield crashes
        finally:
            crashes.manager.kill()
            site.shutdown()
            thread.join(10)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashes]:
    """All rows at once."""
    with crashing(tmp_path_factory.mktemp("together"), "builtin-sqlite") as crashes:
        crashes.crawl(TOGETHER, 1)
        yield crashes


@pytest.mark.parametrize("row", TOGETHER, ids=str)
def test_all_rows_at_once(together: Crashes, row: Row) -> None:
    assert together.problems(row) == []


def test_no_process_ended_but_those_that_were_killed(together: Crashes) -> None:
    assert together.ends() == []


@pytest.fixture(scope="module", params=sorted(STACKS))
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashes]:
    """Daemons for one row after the other."""
    with crashing(tmp_path_factory.mktemp("alone"), request.param) as crashes:
        yield crashes
        assert crashes.ends() == []


@pytest.mark.slow
@pytest.mark.parametrize("row", MATRIX, ids=str)
def test_a_row_alone_that_dies_twice(alone: Crashes, row: Row) -> None:
    alone.crawl([row], 2)
    assert alone.problems(row) == []


def test_each_step_of_the_launcher_is_in_the_matrix() -> None:
    steps = set(re.findall(r'reach\(\s*"([a-z]+)"', Path(LAUNCHER).read_text()))
    assert steps <= {row.step for row in MATRIX}
