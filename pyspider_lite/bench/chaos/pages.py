"""The site that is crawled in chaos: a tree of pages, each linked to by one other only, and who asked for what.

So a follow-up that was forgotten is not found by another way. Each page also links back to its parents, which must not be fetched
again for that. Every seventh page is slow.
"""

import contextlib
import re
import time
from pathlib import Path
from typing import NamedTuple

from pyspider_lite.bench.web_server import Answer, WebServer, response

_FAN = 4
#: one of so many pages is slow
SLOW = 7
_REQUEST = re.compile(rb"GET (/\S*) HTTP/1\.1\r\n")
_AGENT = re.compile(rb"(?i)\r\nuser-agent: *([^\r\n ]+)")
#: seconds from a request to its answer
_DELAY = 0.15


class Request(NamedTuple):
    """A line of the access log: Unix time, which fetcher, which page."""

    time: float
    agent: str
    path: str


def path_of(number: int) -> str:
    """The path of a page."""
    return f"/{number}.html"


def title(number: int) -> str:
    """Its title, which its result must have."""
    return f"Page {number}"


def follow_ups(number: int, pages: int) -> list[int]:
    """The pages that only this one links to."""
    return [child for child in range(_FAN * number + 1, _FAN * number + _FAN + 1) if child < pages]


def parents(number: int) -> list[int]:
    """The pages between this one and page 0."""
    found = []
    while number > 0:
        number = (number - 1) // _FAN
        found.append(number)
    return found


def delay(number: int) -> float:
    """Seconds until a page is answered: slow ones take longer than a worker may be silent."""
    return 4.0 + number % 5 if number % SLOW == 3 else _DELAY


def body(number: int, pages: int) -> bytes:
    """The page."""
    links = [*follow_ups(number, pages), *(parents(number) or [number])]
    anchors = "\n".join(f'<li><a href="{path_of(link)}">to {link}</a></li>' for link in links)
    head = f"<html><head><title>{title(number)}</title></head>"
    return f"{head}<body><ul>\n{anchors}\n</ul><p>{'words ' * 200}</p></body></html>\n".encode()


def parse(line: str) -> Request:
    """A line of the access log."""
    moment, agent, path = line.split()
    return Request(float(moment), agent, path)


class Pages(WebServer):
    """Serves the pages and writes the access log as requests come."""

    def __init__(self, pages: int, log: Path) -> None:
        super().__init__()
        self.pages = pages
        self.requests: list[Request] = []
        self._log = open(log, "w", buffering=1)  # noqa: SIM115 - closed at the end

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._log.close()

    def url(self, number: int) -> str:
        """Where a page is."""
        return f"http://{self.host}:{self.port}{path_of(number)}"

    def answer(self, head: bytes, client: str) -> Answer:
        """Note a request."""
        match, agent = _REQUEST.match(head), _AGENT.search(head)
        path = match[1].decode("latin-1") if match else "?"
        request = Request(time.time(), agent[1].decode("latin-1") if agent else "?", path)
        self.requests.append(request)
        print(f"{request.time:.4f} {request.agent} {request.path}", file=self._log)
        with contextlib.suppress(ValueError):
            number = int(path.removeprefix("/").removesuffix(".html"))
            if 0 <= number < self.pages:
                return Answer(response(body(number, self.pages)), delay(number))
        return Answer(response(b"", "404 Not Found"))
