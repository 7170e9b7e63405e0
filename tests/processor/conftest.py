"""A real processor with its real child, on memory queues, in a thread of the test. `callback_scripts` can be imported."""

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import codec
from pyspider_lite.flight_recorder import FlightRecorder
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.memory import MemoryQueue
from pyspider_lite.models.batch import PageBatch, ResultBatch, StatusBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Handover
from pyspider_lite.processor.processor import Options, Processor
from pyspider_lite.processor.scripts import script_md5

sys.path.insert(0, str(Path(__file__).parent))

HTML = b"<html><title>T</title><a href='/a'>a</a></html>"
_spaces = itertools.count()


class Projects:
    """A projectdb in memory; `away` makes it fail."""

    def __init__(self) -> None:
        self.rows: dict[str, Project] = {}
        self.away: Exception | None = None
        self.asked = 0

    def stamp(self) -> tuple[int, float]:
        if self.away is not None:
            raise self.away
        return len(self.rows), 0.0

    def get(self, name: str) -> Project | None:
        self.asked += 1
        if self.away is not None:
            raise self.away
        return self.rows.get(name)

    def save(self, name: str, script: str) -> str:
        self.rows[name] = Project(name=name, script=script, status="RUNNING")
        return script_md5(script)


class Rig:
    """What surrounds the processor under test."""

    def __init__(self) -> None:
        self.space = f"processor-{next(_spaces)}"
        self.projects = Projects()
        self.status: list[Any] = []
        self.results: list[Report] = []
        self.processor: Processor
        self.thread: threading.Thread
        self.heartbeat = Heartbeat(WorkerInfo.make("processor", 1), self.connect(QueueName.STATUS), 0.5)
        self._batches = itertools.count()
        self._tasks = itertools.count()

    def connect(self, name: str, **options: Any) -> Callable[[], MemoryQueue]:
        return lambda: MemoryQueue(self.space, name, **options)

    def start(self, results_size: int = 100, recorder: FlightRecorder | None = None, **options: Any) -> None:
        self.processor = Processor(
            heartbeat=self.heartbeat,
            projectdb=self.projects,  # type: ignore[arg-type]
            connect_pages=self.connect(QueueName.TO_PROCESSOR),
            connect_control=self.connect(QueueName.CONTROL),
            connect_results=self.connect(QueueName.RESULTS, maxsize=results_size),
            options=Options(**options),
            recorder=recorder,
        )
        self.heartbeat.start()
        self.thread = threading.Thread(target=self.processor.run)
        self.thread.start()

    def stop(self) -> None:
        self.processor.stop()
        self.thread.join(40)
        assert not self.thread.is_alive()
        assert self.heartbeat.stop(5)

    def page(self, script: str = "", callback: str = "cb", project: str = "p", **fields: Any) -> Page:
        """A page of a task whose project has this script now."""
        md5 = self.projects.save(project, script) if script else ""
        if not md5 and project in self.projects.rows:
            md5 = script_md5(self.projects.rows[project].script)
        url = f"http://site.test/{next(self._tasks)}"
        process = {"callback": callback, **fields.pop("process", {})}
        response = {"status_code": 200, "url": url, "orig_url": url, "content": HTML, "time": 0.25}
        response["headers"] = {"Content-Type": "text/html", "ETag": '"e1"', "X-Other": "o"}
        response.update(fields.pop("response", {}))
        task = {"taskid": url, "project": project, "url": url, "run": 3, "generation": "g1", "project_md5sum": md5}
        return Page(Dispatch(**{**task, "process": process, **fields}), FetchResponse(**response))

    def put(self, *pages: Page, queue: str = QueueName.TO_PROCESSOR) -> None:
        batch = PageBatch(batch=f"b{next(self._batches)}", pages=list(pages))
        self.connect(queue)().put(codec.encode(batch), 1)

    def pump(self) -> None:
        """Read what the processor has said so far."""
        for received in self.connect(QueueName.STATUS)().get(1000, 0):
            self.status += codec.decode(received.body, StatusBatch).items
        for received in self.connect(QueueName.RESULTS)().get(1000, 0):
            self.results += codec.decode(received.body, ResultBatch).reports

    def until(self, condition: Callable[[], Any], seconds: float = 15) -> Any:
        """What the condition gives, once it gives something."""
        deadline = time.monotonic() + seconds
        while True:
            self.pump()
            value = condition()
            if value:
                return value
            assert time.monotonic() < deadline, f"not within {seconds} s; status: {self.status[-5:]}"
            time.sleep(0.01)

    def reports(self) -> list[Report]:
        """All reports so far, those with items too."""
        return [item for item in self.status if isinstance(item, Report)] + self.results

    def report_of(self, page: Page, seconds: float = 15) -> Report:
        """The last part of the report on a page."""
        return self.until(
            lambda: next((one for one in self.reports() if one.key == page.task.key and one.parts), None), seconds
        )

    def run(self, page: Page, seconds: float = 15) -> Report:
        self.put(page)
        return self.report_of(page, seconds)

    def said(self, kind: type) -> list[Any]:
        return [item for item in self.status if isinstance(item, kind)]

    def handed_over(self, queue: str) -> list[Handover]:
        return [item for item in self.said(Handover) if item.queue == queue]


@pytest.fixture
def fresh_rig() -> Iterator[Rig]:
    """One that is still to be started, with options."""
    made = Rig()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def running_rig() -> Iterator[Rig]:
    made = Rig()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def rig(running_rig: Rig) -> Rig:
    """A processor with default options that others have used before."""
    running_rig.pump()
    running_rig.status.clear()
    running_rig.results.clear()
    running_rig.projects.rows.clear()
    return running_rig
