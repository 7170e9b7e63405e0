"""Servers of the tests: each speaks raw bytes on a port of its own, so that it can answer as wrongly as a test wants."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any, NamedTuple

import pytest
import trustme

from pyspider_lite.fetcher.fetch import Fetch
from pyspider_lite.fetcher.http import HttpEngine
from pyspider_lite.fetcher.request import Defaults
from pyspider_lite.fetcher.transfer import EngineOptions
from pyspider_lite.models.page import Dispatch, FetchResponse


class Seen(NamedTuple):
    """A request as it came over the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    lines: list[str]


class Server:
    """Threads that answer with ``respond(seen, connection)``: bytes to send, or None when it did what it wanted itself."""

    def __init__(
        self, respond: Callable[[Seen, socket.socket], bytes | None], tls: ssl.SSLContext | None = None
    ) -> None:
        self._respond = respond
        self._tls = tls
        self.seen: list[Seen] = []
        self.connections = 0
        self.released = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.port = self._socket.getsockname()[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self.released.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        self._open.add(connection)
        try:
            if self._tls is not None:
                raw, connection = connection, self._tls.wrap_socket(connection, server_side=True)
                self._open.discard(raw)
                self._open.add(connection)
            stream = connection.makefile("rb")
            with stream:
                while (seen := read_request(stream)) is not None:
                    self.seen.append(seen)
                    answer = self._respond(seen, connection)
                    if answer is None:
                        return
                    connection.sendall(answer)
        except (OSError, ValueError):
            pass
        finally:
            self._open.discard(connection)
            connection.close()


def read_request(stream: Any) -> Seen | None:
    lines: list[str] = []
    while (line := stream.readline()) not in (b"\r\n", b""):
        lines.append(line.decode("latin-1").rstrip("\r\n"))
    if not lines:
        return None
    method, target, _ = lines[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in lines[1:])}
    body = stream.read(int(headers.get("content-length", 0)))
    return Seen(method, target, headers, body, lines)


def answer(body: bytes = b"", status: str = "200 OK", *headers: str) -> bytes:
    """An honest answer."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


@pytest.fixture
def reply() -> Callable[..., bytes]:
    return answer


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start a server; give it bytes or a function of (seen, connection)."""
    servers: list[Server] = []

    def start(respond: Any = None, tls: ssl.SSLContext | None = None) -> Server:
        if respond is None:
            respond = answer(b"hello")
        if isinstance(respond, bytes):
            fixed = respond
            respond = lambda seen, connection: fixed  # noqa: E731
        servers.append(Server(respond, tls))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


Get = Callable[..., FetchResponse]


@pytest.fixture
def get() -> Get:
    """Fetch one URL with the options of ``task.fetch`` as keywords; ``engine``, ``defaults`` and ``task`` for the rest."""

    def fetch_one(
        url: str,
        *,
        engine: dict[str, Any] | None = None,
        defaults: dict[str, Any] | None = None,
        task: dict[str, Any] | None = None,
        decoded_limit: int = 32 * 1024 * 1024,
        **options: Any,
    ) -> FetchResponse:
        async def run() -> FetchResponse:
            with closing(
                Fetch(
                    HttpEngine(EngineOptions(**(engine or {}))),
                    Defaults(**(defaults or {})),
                    decoded_limit=decoded_limit,
                )
            ) as fetch:
                return await fetch(Dispatch(taskid="t", project="p", url=url, fetch=options, **(task or {})))

        return asyncio.run(run())

    return fetch_one


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def tls_of(authority: trustme.CA) -> Callable[..., ssl.SSLContext]:
    """A server's TLS context with a certificate for these names."""

    def make(*names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(context)
        return context

    return make
