"""The server: a bound port, and a thread a connection that answers one call and ends.

The standard library's HTTP server with bounds: so many connections, so many bytes, so many seconds for a request. A connection that
sends no request is the first to go when others come, so silent ones shut nobody out.
"""

import base64
import binascii
import errno
import hmac
import inspect
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xmlrpc.client import Fault

from pyspider_lite.errors import ConfigError, RefusedToStart
from pyspider_lite.rpc import address, calls

logger = logging.getLogger(__name__)

#: the largest request, bytes
REQUEST_LIMIT = 4 * 1024 * 1024
#: seconds in which a whole request has to be here; likewise for the answer to be taken
REQUEST_DEADLINE = 10.0
#: seconds between two looks at the deadlines, and in which `stop` is noticed
LOOK_EACH = 0.5
#: connections at the same time
CONNECTIONS = 32
#: how many ports after one that is in use are tried
NEXT_PORTS = 100
#: what changes nothing: may be asked from this machine without the secret. Any other name needs it.
READING = frozenset(
    {
        "size",
        "counter",
        "status",
        "get_active_tasks",
        "get_projects_pause_status",
        "webui_update",
        "explain",
        "checkup",
        "strangers",
        "system.listMethods",
        "system.methodHelp",
        "system.methodSignature",
    }
)
#: bytes of a refused request that are still read, and seconds without any after which that ends
_LINGER_BYTES, _LINGER = 2 * REQUEST_LIMIT, 1.0
#: seconds between two lines about wrong secrets
_WARN_EACH = 60.0

Functions = Mapping[str, Callable[..., Any]]


class RpcServer:
    """A bound port; it answers once `serve` was called."""

    def __init__(self, host: str, port: int, *, secret: str = "") -> None:
        """Bind; a port that is in use is said, and the next free one taken. Raises ConfigError for a host that is not of this
        machine, or that others can reach while there is no secret; RefusedToStart if no port can be had."""
        self._address = address.resolve(host)
        if not secret and not self._address.is_loopback:
            raise ConfigError(f"xmlrpc-host {host} can be reached from other machines: set rpc-secret")
        self._server = _bind(self._address, port, host)
        self._server.secret = secret
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where others find it, for `xmlrpc.client.ServerProxy`; without the secret."""
        return address.url(self._address.shown, self._server.server_address[1])

    def serve(self, functions: Functions) -> None:
        """Answer calls of ``functions`` by name from now on, each on a thread of its own."""
        self._server.functions = _with_introspection(functions)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(LOOK_EACH,), name="rpc", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer no more and give the port back."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()


def _bind(where: address.Address, port: int, host: str) -> "_Server":
    for candidate in range(port, min(port + NEXT_PORTS, 65536)):
        try:
            server = _Server((where.ip, candidate), where.family)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(f"xmlrpc-host {host} is not an address of this machine") from error
            if error.errno != errno.EADDRINUSE:
                raise RefusedToStart(f"cannot listen on {host}:{candidate}: {error.strerror}") from error
            continue
        if candidate != port and port:
            logger.warning("port %d is in use: XML-RPC listens on %d", port, candidate)
        return server
    raise RefusedToStart(f"the ports from {port} of {host} are all in use")


def _with_introspection(functions: Functions) -> Functions:
    """system.listMethods, methodHelp and methodSignature as pyspider has them (behaviour 4.14)."""
    every = dict(functions)
    every["system.listMethods"] = lambda: sorted(every)
    every["system.methodHelp"] = lambda name: inspect.getdoc(every[name]) or "" if name in every else ""
    every["system.methodSignature"] = lambda name: "signatures not supported"
    return every


class _Server(ThreadingHTTPServer):
    """Connections and who may go on with theirs."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, at: tuple[str, int], family: int) -> None:
        self.address_family = family
        self.secret = ""
        self.functions: Functions = {}
        self._lock = threading.Lock()
        self._open = 0
        #: connections whose request is not here yet -> when it has to be; the oldest first
        self._reading: dict[Any, float] = {}
        self._warned = float("-inf")
        super().__init__(at, _Handler)

    def server_bind(self) -> None:
        """Without the reverse look-up that http.server does for its server_name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.1)  # no file descriptor is free: it would be tried again at once
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = self._open >= CONNECTIONS and not self._evict()
            if full or self._open >= 2 * CONNECTIONS:
                raise ConnectionAbortedError("too many connections")  # closed by our caller
            self._open += 1
            self._reading[request] = time.monotonic() + REQUEST_DEADLINE
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
        with self._lock:
            for request in [request for request, until in self._reading.items() if until <= now]:
                self._cut(request)

    def is_read(self, request: Any) -> None:
        """The request is here: from now on its connection is not ended for others."""
        with self._lock:
            self._reading.pop(request, None)

    def warn_of_wrong_secret(self, client: str) -> None:
        """Say so, but not for each of a million tries."""
        now = time.monotonic()
        if now - self._warned >= _WARN_EACH:
            self._warned = now
            logger.warning("XML-RPC: a call from %s with a wrong secret was refused", client)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("rpc: connection of %s broke off", client_address, exc_info=True)

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
            logger.debug("rpc: the connection is closed already")

    def _ended(self, request: Any) -> None:
        with self._lock:
            self._open -= 1
            self._reading.pop(request, None)


class _Handler(BaseHTTPRequestHandler):
    """One connection: one call."""

    timeout = REQUEST_DEADLINE
    server_version, sys_version = "pyspider_lite", ""
    server: _Server

    def do_GET(self) -> None:
        self._refuse(400, "XML-RPC is called by POST")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path not in ("/", "/RPC2"):
            self._refuse(404, "XML-RPC is at /")
        elif not self.headers.get("Content-Type", "").startswith("text/xml"):
            # which a browser sends for no web page of others without asking first
            self._refuse(415, "expected Content-Type: text/xml")
        elif self.headers.get("Content-Encoding", "identity").lower() != "identity":
            self._refuse(415, "a compressed request could unpack to any size")
        elif "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdecimal()):
            self._refuse(411, "expected Content-Length")
        elif len(length) > 10 or int(length) > REQUEST_LIMIT:
            self._refuse(413, f"a request may have {REQUEST_LIMIT} bytes")
        elif (allowed := self._allowed()) is not None:
            self._answer(int(length), allowed)

    def _allowed(self) -> Callable[[str], bool] | None:
        """Which methods this client may call, by name; None after a refusal."""
        secret, given = self.server.secret, self._given_secret()
        if secret and given is not None:
            if hmac.compare_digest(given, secret.encode()):
                return lambda method: True
            self.server.warn_of_wrong_secret(self.client_address[0])
            self._refuse(401, "the secret is wrong")
        elif not self._is_local():
            # without the secret it would be for the programs of this machine
            if secret:
                self._refuse(401, "expected the secret: http://:SECRET@HOST:PORT/")
            else:
                self._refuse(403, "this address is not for other hosts")
        else:
            return READING.__contains__ if secret else lambda method: True
        return None

    def _is_local(self) -> bool:
        """A program of this machine asks, and not a web page whose host name was bound to a loopback address."""
        host = self.headers.get("Host", "")
        name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
        return address.is_loopback(self.client_address[0]) and address.is_loopback(name)

    def _given_secret(self) -> bytes | None:
        """The password of basic authentication; the user does not matter. None if there is none."""
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return None
        try:
            return (
                base64.b64decode(given.strip(), validate=True).partition(b":")[2] if scheme.lower() == "basic" else b""
            )
        except binascii.Error:
            return b""

    def _answer(self, length: int, allowed: Callable[[str], bool]) -> None:
        body = self.rfile.read(length)
        self.server.is_read(self.request)
        if len(body) < length:
            return
        try:
            call = calls.read(body)
            if not allowed(call.method):
                self._say(401, f"{call.method} changes something, so it needs the secret: http://:SECRET@HOST:PORT/")
                return
            answer = calls.answer(_call(self.server.functions, call))
        except Fault as fault:
            answer = calls.fault(fault)
        self._send(200, answer, "text/xml")

    def _refuse(self, status: int, reason: str) -> None:
        """Answer without having read the body; some of it is read afterwards, so that the client hears the answer and not a reset."""
        self._say(status, reason)
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(_LINGER)
        left = _LINGER_BYTES
        while left > 0 and (part := self.connection.recv(64 * 1024)):
            left -= len(part)

    def _say(self, status: int, reason: str) -> None:
        self._send(status, reason.encode(errors="replace"), "text/plain; charset=utf-8", reason)

    def _send(self, status: int, body: bytes, kind: str, reason: str = "OK") -> None:
        self.send_response(status, " ".join(reason.encode("ascii", "replace").decode().split()))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="pyspider_lite"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("rpc: %s: %s", self.client_address[0], format % args)


def _call(functions: Functions, call: calls.Call) -> Any:
    """What the function gives. Raises Fault with one sentence."""
    function = functions.get(call.method)
    if function is None:
        raise Fault(calls.FAULT, f"there is no method {call.method}; system.listMethods names them")
    try:
        inspect.signature(function).bind(*call.arguments)
    except TypeError as error:
        raise Fault(calls.FAULT, f"{call.method}: {error}") from None
    try:
        return partial(function, *call.arguments)()
    except Fault:
        raise
    except Exception as error:
        logger.exception("rpc: an error in %s", call.method)
        raise Fault(calls.FAULT, f"{call.method}: {type(error).__name__}: {error}") from error
