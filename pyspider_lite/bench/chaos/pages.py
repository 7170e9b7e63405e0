"""The site that is crawled in chaos: a tree of pages, each linked to by one other only, and who asked for what.

So a follow-up that was forgotten is not found by another way. Each page also links back to its parents, which must not be fetched
again for that. Every seventh page is slow.
"""

import asyncio
import contextlib
import re
import threading
import time
from pathlib import Path
from typing import NamedTuple, TextIO

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


class Pages:
    """Serves the pages from a thread and writes the access log as requests come."""

    def __init__(self, pages: int, log: Path) -> None:
        self.pages = pages
        self.requests: list[Request] = []
        self._log = log
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="pages", daemon=True)
        self._ready = threading.Event()
        self.port = 0

    def __enter__(self) -> "Pages":
        self._thread.start()
        if not self._ready.wait(10):
            raise OSError("the site cannot listen")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def url(self, number: int) -> str:
        """Where a page is."""
        return f"http://127.0.0.1:{self.port}{path_of(number)}"

    def _serve(self) -> None:
        with open(self._log, "w", buffering=1) as file:
            asyncio.set_event_loop(self._loop)
            server = self._loop.run_until_complete(
                self._loop.create_server(lambda: _Connection(self, file), "127.0.0.1", 0, backlog=1024)
            )
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            self._loop.run_forever()
            server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def answer(self, head: bytes, file: TextIO) -> tuple[float, bytes]:
        """Note a request; seconds until it is to be answered, and the answer."""
        match, agent = _REQUEST.match(head), _AGENT.search(head)
        path = match[1].decode("latin-1") if match else "?"
        request = Request(time.time(), agent[1].decode("latin-1") if agent else "?", path)
        self.requests.append(request)
        print(f"{request.time:.4f} {request.agent} {request.path}", file=file)
        with contextlib.suppress(ValueError):
            number = int(path.removeprefix("/").removesuffix(".html"))
            if 0 <= number < self.pages:
                return delay(number), _answer("200 OK", body(number, self.pages))
        return 0.0, _answer("404 Not Found", b"")


def _answer(status: str, content: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


class _Connection(asyncio.Protocol):
    def __init__(self, site: Pages, file: TextIO) -> None:
        self._site = site
        self._file = file
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            seconds, answer = self._site.answer(head + b"\r\n", self._file)
            asyncio.get_running_loop().call_later(seconds, self._transport.write, answer)
