"""`/healthz`, `/readyz` and `/metrics` of one process, on the port that `health-port` names. Run by `bootstrap`.

They only read, and tell no secrets and no page's URL, so they may be reached from other machines. Nothing here may stop or slow a
worker: a port that cannot be had is a line in the log, and whatever is shown is looked up when somebody asks.
"""

import errno
import json
import logging
import socket
import socketserver
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pyspider_lite import outages
from pyspider_lite.bounded_server import BoundedServer, bind
from pyspider_lite.readings import Reading, Watched

logger = logging.getLogger(__name__)

#: seconds without a turn of its loop after which a process is not healthy: a database that does not answer holds a turn up for 60 s
STALE = 120.0
#: seconds for a request to come in, and for its answer to go out
DEADLINE = 5.0
#: bytes that a request may have
REQUEST_LIMIT = 8 * 1024
#: requests at the same time
CONNECTIONS = 8

_PATHS = ("/healthz", "/readyz", "/metrics")
_JSON = "application/json"


class Subject(NamedTuple):
    """Whose health it is."""

    role: str
    #: id of the worker, as in its beats
    worker: str
    watched: Watched
    #: it was told to stop
    stopping: Callable[[], bool]
    #: more for /readyz; with a "state" (paused, draining, drained, stopping) it takes no work, so is not ready
    describe: Callable[[], Mapping[str, Any]] = dict
    #: numbers from elsewhere
    readings: Callable[[], Iterable[Reading]] = tuple


class Answer(NamedTuple):
    """What a client gets."""

    status: int
    body: bytes
    kind: str = _JSON


class Health:
    """The three answers."""

    def __init__(self, subject: Subject) -> None:
        from pyspider_lite import metrics  # its library is for those who ask only

        self._subject = subject
        self._metrics = metrics.text_of(subject.role, lambda: (*subject.watched.readings(), *subject.readings()))

    def answer(self, path: str) -> Answer:
        """Of a request for ``path``."""
        if path == "/healthz":
            return self._healthz()
        if path == "/readyz":
            return self._readyz()
        if path == "/metrics":
            return Answer(200, self._metrics(), "text/plain; version=0.0.4; charset=utf-8")
        return _json(404, {"error": f"there are {', '.join(_PATHS)}"})

    def _healthz(self) -> Answer:
        """Its loop turns. What it waits for is no matter: a restart would not help."""
        still = time.monotonic() - self._subject.watched.stepped
        healthy = still < STALE
        found = {"healthy": healthy, "role": self._subject.role, "last_turn_seconds_ago": round(still, 3)}
        return _json(200 if healthy else 503, found)

    def _readyz(self) -> Answer:
        """It can reach all that it needs, and takes work (or stands by)."""
        subject = self._subject
        waiting = {where: _stamp(since) for where, since in outages.waiting().items()}
        more = dict(subject.describe())
        if subject.stopping():
            more["state"] = "stopping"
        ready = not waiting and not more.get("state")
        found = {"ready": ready, "role": subject.role, "worker": subject.worker, "waiting": waiting, **more}
        return _json(200 if ready else 503, found)


def _stamp(since: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))


def _json(status: int, value: Mapping[str, Any]) -> Answer:
    return Answer(status, json.dumps(value).encode() + b"\n")


# --- the port -----------------------------------------------------------------------------------------------------------


class HealthServer:
    """A bound port, and a thread that answers on it once `serve` was called."""

    def __init__(self, server: "_Server") -> None:
        self._server = server

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        shown = str(host) if str(host) not in ("0.0.0.0", "::") else socket.gethostname()
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"

    def serve(self, subject: Subject) -> None:
        """Answer from now on."""
        self._server.health = Health(subject)
        self._server.start("health")

    def stop(self) -> None:
        """Answer no more and give the port back."""
        self._server.end()


def open_port(host: str, port: int) -> HealthServer | None:
    """Bind ``port`` (0: any), or the next free one of the workers of one machine, which have one config; None, and a warning,
    when there is none."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = bind(lambda candidate: _Server((str(address[0]), candidate), family, _Handler), port)
    except OSError as error:
        reason = "all are in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        logger.warning("health-port %d of health-host %s cannot be had: %s; going on without it", port, host, reason)
        return None
    if port and server.server_address[1] != port:
        logger.info("health-port %d is in use: listening on %d", port, server.server_address[1])
    return HealthServer(server)


class _Server(BoundedServer):
    """An answer takes milliseconds: who has not asked after a tenth of a second keeps others from asking."""

    request_queue_size = 32
    connections = CONNECTIONS
    patience = 0.1
    deadline = DEADLINE
    health: Health


class _Handler(socketserver.BaseRequestHandler):
    """One request, then the connection ends."""

    server: _Server

    def handle(self) -> None:
        words = self._head().split(b"\r\n", 1)[0].split()
        self.server.is_read(self.request)
        if len(words) != 3 or not words[2].startswith(b"HTTP/"):
            answer = _json(400, {"error": "this is no HTTP request"})
        elif words[0] not in (b"GET", b"HEAD"):
            answer = _json(405, {"error": "only GET and HEAD are answered"})
        else:
            answer = self._answer(words[1].partition(b"?")[0].decode("latin-1"))
        head = (
            f"HTTP/1.1 {answer.status} {'OK' if answer.status == 200 else 'Not OK'}\r\nContent-Type: {answer.kind}\r\n"
            f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self.request.settimeout(DEADLINE)
        self.request.sendall(head.encode() + (b"" if words[:1] == [b"HEAD"] else answer.body))

    def _answer(self, path: str) -> Answer:
        try:
            return self.server.health.answer(path)
        except Exception as error:
            logger.exception("health: an error while answering %s", path)
            return _json(500, {"error": f"{type(error).__name__}, see the log"})

    def _head(self) -> bytes:
        """The request without its body; what came of it within the deadline and the limit."""
        until = time.monotonic() + DEADLINE
        head = b""
        while b"\r\n\r\n" not in head and len(head) < REQUEST_LIMIT:
            self.request.settimeout(max(0.001, until - time.monotonic()))
            part = self.request.recv(REQUEST_LIMIT)
            if not part:
                break
            head += part
        return head
