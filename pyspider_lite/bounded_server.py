"""A TCP server with bounds: so many connections at a time, so many seconds for a request. Under the servers of `rpc` and of `health`.

The standard library's threading server has neither. A connection whose request is not here yet is the first to go when others come, so
silent ones shut nobody out.
"""

import errno
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound="BoundedServer")

logger = logging.getLogger(__name__)

#: how many ports after one that is in use are tried
NEXT_PORTS = 100
#: seconds between two looks at connections whose time is over, and in which `BoundedServer.end` is noticed
LOOK_EACH = 0.5


class BoundedServer(socketserver.ThreadingTCPServer):
    """A thread a connection. The handler calls `is_read` when it has the request."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    #: connections at the same time; as many again whose requests are here already
    connections: int
    #: seconds in which a whole request has to be here
    deadline: float
    #: seconds for which one more waits for a place, before the oldest has to go
    patience: float = 0.0

    def __init__(self, at: tuple[str, int], family: int, handler: type[socketserver.BaseRequestHandler]) -> None:
        self.address_family = family
        self._changed = threading.Condition()
        self._open = 0
        #: connections whose request is not here yet -> when it has to be; the oldest first
        self._reading: dict[Any, float] = {}
        self._thread: threading.Thread | None = None
        super().__init__(at, handler)

    def start(self, name: str) -> None:
        """Answer from now on, on a thread of this name."""
        self._thread = threading.Thread(target=self.serve_forever, args=(LOOK_EACH,), name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Answer no more and give the port back."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join(5)
        self.server_close()

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.1)  # no file descriptor is free: it would be tried again at once
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._open < self.connections, self.patience)
            full = self._open >= self.connections and not self._evict()
            if full or self._open >= 2 * self.connections:
                raise ConnectionAbortedError("too many connections")  # closed by our caller
            self._open += 1
            self._reading[request] = time.monotonic() + self.deadline
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._ended(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._ended(request)

    def service_actions(self) -> None:
        """Ends connections whose request took too long, however busily it came."""
        now = time.monotonic()
        with self._changed:
            for request in [request for request, until in self._reading.items() if until <= now]:
                self._cut(request)

    def is_read(self, request: Any) -> None:
        """The request is here: from now on its connection is not ended for others."""
        with self._changed:
            self._reading.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("connection of %s broke off", client_address, exc_info=True)

    def _evict(self) -> bool:
        oldest = next(iter(self._reading), None)
        if oldest is not None:
            self._cut(oldest)
        return oldest is not None

    def _cut(self, request: Any) -> None:
        """Its thread sees the end of the stream."""
        del self._reading[request]
        try:
            request.shutdown(socket.SHUT_RDWR)
        except OSError:
            logger.debug("the connection is closed already")

    def _ended(self, request: Any) -> None:
        with self._changed:
            self._open -= 1
            self._reading.pop(request, None)
            self._changed.notify_all()


def bind(make: Callable[[int], T], port: int) -> T:
    """What ``make`` gives for ``port`` (0: any), or for the next one that is not in use. Raises OSError; EADDRINUSE if all are."""
    in_use = OSError(errno.EADDRINUSE, f"the ports from {port} are all in use")
    for candidate in range(port, min(port + NEXT_PORTS, 65536)):
        try:
            return make(candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise in_use
