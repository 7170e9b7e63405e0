"""The web server of the cluster's tests: /NUMBER.html answers after a while with a title, and who asked for what is noted."""

import re
import time
from collections import Counter
from typing import NamedTuple

from pyspider_lite.bench.web_server import Answer, WebServer, response

_REQUEST = re.compile(rb"GET (\S+) HTTP/1\.1\r\n")


class Request(NamedTuple):
    """A line of the access log; ``time`` is monotonic."""

    time: float
    client: str
    path: str


def title(path: str) -> str:
    """The title of a page."""
    return f"Page {path.removesuffix('.html').lstrip('/')}"


class TutorialSite(WebServer):
    """Any page, after ``delay`` seconds."""

    def __init__(self, host: str, port: int, delay: float = 0.1) -> None:
        super().__init__(host, port)
        self.delay = delay
        #: the access log, in the order of arrival
        self.requests: list[Request] = []

    def shares(self, since: int = 0, until: int | None = None) -> Counter[str]:
        """Requests by client in a part of the log."""
        return Counter(request.client for request in self.requests[since:until])

    def unanswered(self, client: str) -> int:
        """How many requests of a client wait for their answer: those of the last ``delay`` seconds."""
        since = time.monotonic() - self.delay
        return sum(request.client == client and request.time > since for request in self.requests[-5000:])

    def answer(self, head: bytes, client: str) -> Answer:
        """Note the request."""
        match = _REQUEST.match(head)
        path = match[1].decode("latin-1") if match else "?"
        self.requests.append(Request(time.monotonic(), client, path))
        text = title(path)
        body = f"<html><head><title>{text}</title></head><body><p>{text}</p></body></html>"
        return Answer(response(body.encode()), self.delay)
