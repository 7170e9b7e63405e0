"""The web server of the cluster's tests: /NUMBER.html answers after a while with a title, and who asked for what is noted."""

import asyncio
import re
import threading
import time
from collections import Counter
from typing import NamedTuple

_REQUEST = re.compile(rb"GET (\S+) HTTP/1\.1\r\n")


class Request(NamedTuple):
    """A line of the access log; ``time`` is monotonic."""

    time: float
    client: str
    path: str


def title(path: str) -> str:
    """The title of a page."""
    return f"Page {path.removesuffix('.html').lstrip('/')}"


class TutorialSite:
    """Listens from a thread, in the network of the thread that enters it."""

    def __init__(self, host: str, port: int, delay: float = 0.1) -> None:
        self.host = host
        self.port = port
        #: seconds from a request to its answer
        self.delay = delay
        #: the access log, in the order of arrival
        self.requests: list[Request] = []
        #: open connections
        self.connections: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="tutorial-site", daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> "TutorialSite":
        self._thread.start()
        if not self._ready.wait(10):
            raise OSError(f"{self.host}:{self.port} cannot be listened on")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def shares(self, since: int = 0, until: int | None = None) -> Counter[str]:
        """Requests by client in a part of the log."""
        return Counter(request.client for request in self.requests[since:until])

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        making = self._loop.create_server(lambda: _Connection(self), self.host, self.port, backlog=1024)
        server = self._loop.run_until_complete(making)
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for connection in list(self.connections):
            connection.abort()
        # one more round, in which the transports are closed
        self._loop.run_until_complete(asyncio.sleep(0))


class _Connection(asyncio.Protocol):
    def __init__(self, site: TutorialSite) -> None:
        self._site = site
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._client = str(transport.get_extra_info("peername")[0])
        self._site.connections.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._site.connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            match = _REQUEST.match(head)
            path = match[1].decode("latin-1") if match else "?"
            self._site.requests.append(Request(time.monotonic(), self._client, path))
            asyncio.get_running_loop().call_later(self._site.delay, self._transport.write, _answer(path))


def _answer(path: str) -> bytes:
    body = f"<html><head><title>{title(path)}</title></head><body><p>{title(path)}</p></body></html>".encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
