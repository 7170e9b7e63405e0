"""The server: a bound port, and a thread a connection that answers one call and ends.

The standard library's HTTP handler on our `bounded_server`: so many connections, so many bytes, so many seconds for a request.
"""

import base64
import binascii
import errno
import hmac
import inspect
import logging
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any
from xmlrpc.client import Fault

from pyspider_lite.bounded_server import BoundedServer, bind
from pyspider_lite.errors import ConfigError, RefusedToStart
from pyspider_lite.rpc import address, calls

logger = logging.getLogger(__name__)

#: the largest request, bytes
REQUEST_LIMIT = 4 * 1024 * 1024
#: seconds in which a whole request has to be here; likewise for the answer to be taken
REQUEST_DEADLINE = 10.0
#: connections at the same time
CONNECTIONS = 32
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
        "waiting",
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

    @property
    def url(self) -> str:
        """Where others find it, for `xmlrpc.client.ServerProxy`; without the secret."""
        return address.url(self._address.shown, self._server.server_address[1])

    def serve(self, functions: Functions) -> None:
        """Answer calls of ``functions`` by name from now on, each on a thread of its own."""
        self._server.functions = _with_introspection(functions)
        self._server.start("rpc")

    def stop(self) -> None:
        """Answer no more and give the port back."""
        self._server.end()


def _bind(where: address.Address, port: int, host: str) -> "_Server":
    try:
        server = bind(lambda candidate: _Server((where.ip, candidate), where.family), port)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"xmlrpc-host {host} is not an address of this machine") from error
        if error.errno == errno.EADDRINUSE:
            raise RefusedToStart(f"the ports from {port} of {host} are all in use") from error
        raise RefusedToStart(f"cannot listen on {host}:{port}: {error.strerror}") from error
    taken = server.server_address[1]
    if port and taken != port:
        logger.warning("port %d is in use: XML-RPC listens on %d", port, taken)
    return server


def _with_introspection(functions: Functions) -> Functions:
    """system.listMethods, methodHelp and methodSignature as pyspider has them (behaviour 4.14)."""
    every = dict(functions)
    every["system.listMethods"] = lambda: sorted(every)
    every["system.methodHelp"] = lambda name: inspect.getdoc(every[name]) or "" if name in every else ""
    every["system.methodSignature"] = lambda name: "signatures not supported"
    return every


class _Server(BoundedServer):
    """What its handlers need to know."""

    def __init__(self, at: tuple[str, int], family: int) -> None:
        self.connections = CONNECTIONS
        self.deadline = REQUEST_DEADLINE
        self.secret = ""
        self.functions: Functions = {}
        self._warned = float("-inf")
        super().__init__(at, family, _Handler)

    def warn_of_wrong_secret(self, client: str) -> None:
        """Say so, but not for each of a million tries."""
        now = time.monotonic()
        if now - self._warned >= _WARN_EACH:
            self._warned = now
            logger.warning("XML-RPC: a call from %s with a wrong secret was refused", client)


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
