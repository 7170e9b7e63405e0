"""What the daemons of `recovery` work on: a site, three kinds of slow work, and one file in which everybody notes what begins and ends."""

import os
import re
import time
from functools import partial
from pathlib import Path

from pyspider_lite.bench.web_server import Answer, WebServer, response

_REQUEST = re.compile(rb"GET /(\w+)/(\d+) ")

#: seconds that each kind of work takes
SLOW = {"fetch": 2.0, "process": 2.0, "result": 1.5}
#: tasks a second that come due of each project, and how many there are; none waits for its project's pace
RATES = {"fetch": 3.0, "process": 0.8, "result": 0.7, "tick": 10.0}
COUNTS = {"fetch": 3_000, "process": 1_500, "result": 1_500, "tick": 10_000}

SCRIPT = """import time
from pyspider_lite import BaseHandler
from recovery_notes import note

class Handler(BaseHandler):
    retry_delay = {{"": 1}}

    def on_start(self):
        begin = time.time()
        for number in range({count}):
            self.crawl("{url}/{kind}/%d" % number, callback=self.page, exetime=begin + number / {rate})

    def page(self, response):
        if "{kind}" == "process":
            note("began", "process", response.url)
            time.sleep({seconds})
            note("ended", "process", response.url)
        return {{"url": response.url}} if "{kind}" == "result" else None
"""

#: of all of them: one line at a time, which the kernel appends whole. It imports next to nothing, as each new process for callbacks does it again
NOTES = """import os, time

def note(what, kind, key):
    file = os.open({path!r}, os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{{what}} {{kind}} {{key}} {{time.monotonic()}} {{os.getpid()}}\\n".encode())
    os.close(file)
"""

RESULT_NOTES = """import time
from pyspider_lite.result_worker import ResultWorker
from recovery_notes import note

class SlowResultWorker(ResultWorker):
    def on_result(self, task, result):
        note("began", "result", task["url"])
        time.sleep({seconds})
        note("ended", "result", task["url"])
        super().on_result(task, result)
"""

FETCHER_NOTES = """from pyspider_lite.fetcher.fetcher import Fetcher
from recovery_notes import note

class NotingFetcher(Fetcher):
    def on_fetch(self, type, task):
        if "/fetch/" in task.url:
            note("began", "fetch", task.url)
"""


class Log:
    """What began and ended, by kind and page; ``time`` is monotonic, which all processes of a machine share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._read = path.open()
        self._began: dict[str, dict[str, list[float]]] = {}
        #: which process began it last
        self._by: dict[tuple[str, str], int] = {}
        self._ended: dict[str, dict[str, float]] = {}

    def close(self) -> None:
        """Read and write no more."""
        os.close(self._file)
        self._read.close()

    def note(self, what: str, kind: str, key: str) -> None:
        """Write it down."""
        os.write(self._file, f"{what} {kind} {key} {time.monotonic()} {os.getpid()}\n".encode())

    def in_hand(self, kind: str, now: float) -> list[int]:
        """Processes that began a page less than half of its time ago, and have not ended it: if one is killed now, that is broken off."""
        self._catch_up()
        return [
            self._by[kind, key]
            for key, times in self._began.get(kind, {}).items()
            if now - times[-1] < SLOW[kind] / 2 and self._is_open(kind, key, times[-1], now)
        ]

    def broken(self, kind: str, at: float) -> list[str]:
        """Pages whose try began before ``at`` and never ended."""
        self._catch_up()
        found = []
        for key, times in self._began.get(kind, {}).items():
            before = [began for began in times if began < at]
            if before and self._is_open(kind, key, before[-1], at):
                found.append(key)
        return found

    def began_after(self, kind: str, key: str, at: float) -> float:
        """When it began again; 0 if it did not."""
        self._catch_up()
        return next((began for began in self._began.get(kind, {}).get(key, ()) if began > at), 0.0)

    def latest(self, kind: str) -> float:
        """When the last page of a kind began; 0 if none did."""
        self._catch_up()
        return max((times[-1] for times in self._began.get(kind, {}).values()), default=0.0)

    def first(self, kind: str, at: float) -> float:
        """When the first page after ``at`` began."""
        return min(began for times in self._began[kind].values() for began in times if began > at)

    def _is_open(self, kind: str, key: str, began: float, at: float) -> bool:
        ended = self._ended.get(kind, {}).get(key, 0.0)
        return at - began < SLOW[kind] + 0.5 and not began <= ended <= began + SLOW[kind] + 0.5

    def _catch_up(self) -> None:
        while (line := self._read.readline()).endswith("\n"):
            what, kind, key, at, pid = line.split()
            if what == "began":
                self._by[kind, key] = int(pid)
                self._began.setdefault(kind, {}).setdefault(key, []).append(float(at))
            else:
                self._ended.setdefault(kind, {})[key] = float(at)


class Site(WebServer):
    """Answers /KIND/NUMBER, pages of the kind ``fetch`` slowly; notes requests and answers."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def answer(self, head: bytes, client: str) -> Answer:
        """A page of two letters."""
        match = _REQUEST.match(head)
        if match is None:
            return Answer(response(b"", "404 Not Found"))
        kind = match[1].decode()
        key = f"{self.url}/{kind}/{match[2].decode()}"
        if kind == "tick":
            self.log.note("began", kind, key)
        if kind == "result":
            self.log.note("began", "asked", key)
        if kind == "fetch":
            return Answer(response(b"ok"), SLOW["fetch"], partial(self.log.note, "ended", kind, key))
        return Answer(response(b"ok"))
