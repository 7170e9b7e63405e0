"""XML-RPC over HTTP: a server thread for the roles that are controlled from outside (behaviour 4.14, 5.8), with bounds.

Loopback by default. Listening for other machines needs a user and a password, for whoever reaches the port controls the crawl.
bootstrap binds the port early, so that the beats can name it, and serves when the role exists.
"""

import base64
import errno
import hmac
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import ThreadingHTTPServer
from typing import Any
from xmlrpc.server import SimpleXMLRPCDispatcher, SimpleXMLRPCRequestHandler

from pyspider_lite.errors import ConfigError, RefusedToStart

logger = logging.getLogger(__name__)

#: the largest request, bytes
REQUEST_LIMIT = 8 * 1024 * 1024
#: seconds that a client may stay silent
SILENCE_LIMIT = 30.0
#: requests at the same time; more wait in the listen queue
THREADS = 16
#: how many ports after a default one are tried
NEXT_PORTS = 100


class RpcServer:
    """A bound port, and a thread that answers on it once `serve` was called."""

    def __init__(self, host: str, port: int, *, explicit: bool, username: str = "", password: str = "") -> None:
        """Bind. A port that the user named and that is in use raises RefusedToStart; after a default one the next free is
        taken, and logged. Raises ConfigError for an address of another machine's reach without user and password."""
        if not (username and password) and not _is_loopback(host):
            raise ConfigError(
                f"xmlrpc-host {host} can be reached from other machines: set rpc-username and rpc-password, "
                "or listen on 127.0.0.1, or set no-xmlrpc"
            )
        self._server = _bind(host, port, explicit)
        self._server.credentials = f"{username}:{password}" if username else ""
        self._server.loopback = _is_loopback(host)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it listens, for `xmlrpc.client.ServerProxy`; without credentials."""
        host, port = self._server.server_address[:2]
        shown = str(host) if str(host) not in ("0.0.0.0", "::") else socket.gethostname()
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"

    def serve(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Answer calls of ``functions`` by name from now on, each on a thread of its own."""
        for name, function in functions.items():
            self._server.register_function(function, name)
        self._server.register_introspection_functions()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.5,), name="rpc", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer no more and give the port back."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()


class _Handler(SimpleXMLRPCRequestHandler):
    """One connection."""

    rpc_paths = ("/", "/RPC2")
    timeout = SILENCE_LIMIT
    server: "_Server"

    def do_POST(self) -> None:
        if refusal := self._refusal():
            status, reason = refusal
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="pyspider_lite"')
            self.send_header("Content-Length", str(len(reason)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(reason.encode())
            self.close_connection = True
            return
        super().do_POST()

    def _refusal(self) -> tuple[int, str] | None:
        """Why this request is not answered. A browser can send neither this content type nor, after rebinding a name, a
        loopback Host, so no web page that the user looks at reaches the port."""
        if not self.headers.get("Content-Type", "").startswith("text/xml"):
            return 415, "expected Content-Type: text/xml"
        host = self.headers.get("Host", "").rpartition("]")[0].lstrip("[") or self.headers.get("Host", "").split(":")[0]
        if self.server.loopback and not _is_loopback(host):
            return 403, "this address is not for other hosts"
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            return 411, "expected Content-Length"
        if not 0 <= length <= REQUEST_LIMIT:
            return 413, f"a request may have {REQUEST_LIMIT} bytes"
        return None if self._is_allowed() else (401, "expected user and password")

    def _is_allowed(self) -> bool:
        if not self.server.credentials:
            return True
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        expected = base64.b64encode(self.server.credentials.encode()).decode()
        return scheme.lower() == "basic" and hmac.compare_digest(given.strip().encode(), expected.encode())

    def decode_request_content(self, data: bytes) -> bytes | None:
        if self.headers.get("Content-Encoding", "identity").lower() != "identity":
            # gzip may unpack to any size
            self.send_response(415)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        return data

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        logger.debug("rpc: %s -> %s", self.client_address, code)


class _Server(ThreadingHTTPServer, SimpleXMLRPCDispatcher):
    """The standard library's pieces, with as many threads as `THREADS` at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    credentials = ""
    loopback = True
    # read by SimpleXMLRPCRequestHandler
    _send_traceback_header = False

    def __init__(self, address: tuple[str, int], family: int) -> None:
        self.address_family = family
        self._slots = threading.Semaphore(THREADS)
        SimpleXMLRPCDispatcher.__init__(self, allow_none=True, encoding="utf-8", use_builtin_types=True)
        ThreadingHTTPServer.__init__(self, address, _Handler)

    def server_bind(self) -> None:
        """Without the reverse look-up that http.server does for its server_name."""
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._slots.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("rpc: connection of %s broke off", client_address, exc_info=True)


def _bind(host: str, port: int, explicit: bool) -> _Server:
    for candidate in range(port, port + (1 if explicit or port == 0 else NEXT_PORTS)):
        try:
            family, _, _, _, address = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)[0]
            server = _Server((str(address[0]), int(address[1])), family)
        except socket.gaierror as error:
            raise ConfigError(f"xmlrpc-host {host}: not an address of this machine: {error.strerror}") from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE or explicit:
                raise RefusedToStart(f"cannot listen on {host}:{candidate}: {error.strerror}") from error
            continue
        if candidate != port and port:
            logger.info("port %d is in use: XML-RPC listens on %d", port, candidate)
        return server
    raise RefusedToStart(f"the ports {port} to {port + NEXT_PORTS - 1} of {host} are all in use")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
