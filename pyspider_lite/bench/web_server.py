"""The web server under the generated sites of benches and tests: it reads requests in a thread of its own; what is answered, and when, is the
site's."""

import asyncio
import threading
from collections.abc import Callable
from typing import NamedTuple, Self


class Answer(NamedTuple):
    """Bytes to send, after so many seconds; ``sent`` is called then, unless the client is gone."""

    data: bytes
    seconds: float = 0.0
    sent: Callable[[], None] | None = None


def response(body: bytes, status: str = "200 OK") -> bytes:
    """A whole HTTP response with this HTML."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class WebServer:
    """Listens on ``host`` from a thread, in the network of the thread that enters it; port 0 is any that is free."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host = host
        self.port = port
        self._connections: set[asyncio.Transport] = set()
        self._thread = threading.Thread(target=self._serve, name="site", daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        if not self._ready.wait(10):
            raise OSError(f"{self.host}:{self.port} cannot be listened on")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def answer(self, head: bytes, client: str) -> Answer:
        """What becomes of a request, of which ``head`` is the first line and the headers; ``client`` is the address it came from."""
        raise NotImplementedError

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        making = self._loop.create_server(lambda: _Connection(self), self.host, self.port, backlog=1024)
        server = self._loop.run_until_complete(making)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for connection in list(self._connections):
            connection.abort()
        # one more round, in which the transports are closed
        self._loop.run_until_complete(asyncio.sleep(0))


class _Connection(asyncio.Protocol):
    def __init__(self, server: WebServer) -> None:
        self._server = server
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._client = str(transport.get_extra_info("peername")[0])
        self._server._connections.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._server._connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        # crawlers send no bodies here, and do not pipeline
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            answer = self._server.answer(head + b"\r\n", self._client)
            if answer.seconds:
                asyncio.get_running_loop().call_later(answer.seconds, self._send, answer)
            else:
                self._send(answer)

    def _send(self, answer: Answer) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(answer.data)
        if answer.sent is not None:
            answer.sent()
