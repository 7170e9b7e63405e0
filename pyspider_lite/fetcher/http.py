"""The HTTP engine: one request, one answer, over libcurl. The only importer of pycurl (design, section 11).

libcurl's multi handle runs inside the asyncio loop: it names its sockets, they wait in one selector, and only that selector is
known to the loop (a registration there costs a tenth of one in the loop). Redirects, cookies and content codings are not libcurl's
business here: see `redirects`, `cookies`, `decoding`.
"""

import asyncio
import contextlib
import os
import selectors
import socket
import ssl
from collections.abc import Sequence
from http.client import responses
from typing import Any
from urllib.parse import urlsplit

import certifi
import pycurl
from msgspec import Struct

from pyspider_lite.fetcher.addresses import is_refused, literal
from pyspider_lite.fetcher.failure import FetchFailed
from pyspider_lite.fetcher.request import Proxy

_KINDS = {
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_RESOLVE_PROXY: "proxy",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_SEND_ERROR: "connect",
    pycurl.E_RECV_ERROR: "connect",
    pycurl.E_GOT_NOTHING: "connect",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_PARTIAL_FILE: "truncated",
    pycurl.E_URL_MALFORMAT: "invalid-url",
    97: "proxy",  # E_PROXY
    100: "too-large",  # E_TOO_LARGE: one header line over libcurl's own limit
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls",
    pycurl.E_SSL_CERTPROBLEM: "tls",
    pycurl.E_SSL_CIPHER: "tls",
    pycurl.E_SSL_ENGINE_NOTFOUND: "tls",
    pycurl.E_SSL_ENGINE_SETFAILED: "tls",
    pycurl.E_USE_SSL_FAILED: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "tls",
    pycurl.E_SSL_SHUTDOWN_FAILED: "tls",
    pycurl.E_SSL_CRL_BADFILE: "tls",
    pycurl.E_SSL_ISSUER_ERROR: "tls",
    pycurl.E_SSL_PINNEDPUBKEYNOTMATCH: "tls",
    pycurl.E_SSL_INVALIDCERTSTATUS: "tls",
}
#: for what libcurl says nothing about
_TEXTS = {100: "a header line is longer than libcurl allows (100 KiB)"}
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_WANTED = {pycurl.POLL_IN: _READ, pycurl.POLL_OUT: _WRITE, pycurl.POLL_INOUT: _READ | _WRITE}
_READY = {_READ: pycurl.CSELECT_IN, _WRITE: pycurl.CSELECT_OUT, _READ | _WRITE: pycurl.CSELECT_IN | pycurl.CSELECT_OUT}
#: idle connections kept open
_MAX_CONNECTS = 500
#: handles kept for reuse
_MAX_SPARE = 200


class EngineOptions(Struct, frozen=True, kw_only=True):
    """Limits and trust of one engine."""

    body_limit: int = 8 * 1024 * 1024
    header_limit: int = 256 * 1024
    #: PEM file of the authorities to trust; "" for the system's, else certifi's
    ca_file: str = ""
    allow_link_local: bool = False


class Exchange(Struct, frozen=True, kw_only=True):
    """One request to send; no redirects."""

    method: str
    url: str
    headers: Sequence[str]
    body: bytes | None = None
    proxy: Proxy | None = None
    timeout: float = 120.0
    connect_timeout: float = 20.0
    validate_cert: bool = True


class Answer(Struct, frozen=True):
    """What came back: header lines as they came (Latin-1), the body as it came."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    timings: dict[str, float]


class HttpEngine:
    """All transfers of one event loop. Binds to the loop that runs when it is first used; `close` when that loop ends."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._ca_file = options.ca_file or system_ca_file()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._multi: Any = None
        self._selector: Any = None
        self._spare: list[_Transfer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._kicked = False

    async def exchange(self, exchange: Exchange) -> Answer:
        """Send one request and wait for its whole answer. Raises FetchFailed."""
        if self._loop is None:
            self._open()
        if exchange.proxy is not None and not self._options.allow_link_local:
            _check_literal(exchange.url)
        transfer = self._spare.pop() if self._spare else _Transfer(self._options, self._ca_file)
        assert self._loop is not None
        future = transfer.future = self._loop.create_future()
        try:
            transfer.prepare(exchange)
        except (pycurl.error, UnicodeError, ValueError) as error:
            transfer.close()
            raise FetchFailed("invalid-request", f"the request cannot be made: {error}") from error
        self._multi.add_handle(transfer.curl)
        try:
            code, text = await future
        except asyncio.CancelledError:
            self._multi.remove_handle(transfer.curl)
            transfer.close()
            raise
        try:
            return transfer.answer() if code == 0 else transfer.fail(code, text)
        finally:
            self._put_back(transfer)

    def close(self) -> None:
        """End all transfers and connections; the engine may be used again, in another loop too."""
        if self._loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for transfer in self._spare:
            transfer.close()
        self._spare.clear()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._selector.fileno())
        self._multi.close()
        self._selector.close()
        self._loop = None

    # --- libcurl and the loop ---

    def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._selector = selectors.DefaultSelector()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, _MAX_CONNECTS)
        self._loop.add_reader(self._selector.fileno(), self._on_ready)

    def _on_socket(self, event: int, fd: int, multi: Any, data: Any) -> None:
        """libcurl says what it waits for on a socket."""
        if event == pycurl.POLL_REMOVE:
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(fd)
            return
        try:
            self._selector.register(fd, _WANTED[event])
        except KeyError:
            self._selector.modify(fd, _WANTED[event])

    def _on_timer(self, milliseconds: int) -> None:
        """libcurl says when it wants to be called next. Later deadlines only move the mark: an early call finds nothing to do."""
        assert self._loop is not None
        if milliseconds < 0:
            self._deadline = 0.0
        elif milliseconds == 0:
            self._kick()
        else:
            self._deadline = self._loop.time() + milliseconds / 1000
            if self._timer is None or self._timer.when() > self._deadline:
                self._set_timer()

    def _kick(self) -> None:
        if not self._kicked and self._loop is not None:
            self._kicked = True
            self._loop.call_soon(self._on_kick)

    def _on_kick(self) -> None:
        self._kicked = False
        if self._loop is not None:
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            self._finish()

    def _set_timer(self) -> None:
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._on_time)

    def _on_time(self) -> None:
        assert self._loop is not None
        self._timer = None
        if not self._deadline:
            return
        if self._loop.time() + 0.001 < self._deadline:
            self._set_timer()
            return
        self._deadline = 0.0
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._finish()

    def _on_ready(self) -> None:
        socket_action = self._multi.socket_action
        for key, events in self._selector.select(0):
            socket_action(key.fd, _READY[events])
        self._finish()

    def _finish(self) -> None:
        """Hand out what libcurl is done with."""
        more = 1
        while more:
            more, done, failed = self._multi.info_read()
            for curl in done:
                self._resolve(curl.transfer, 0, "")
            for curl, code, text in failed:
                self._resolve(curl.transfer, code, text)

    def _resolve(self, transfer: "_Transfer", code: int, text: str) -> None:
        future = transfer.future
        if future is not None and not future.done():
            self._multi.remove_handle(transfer.curl)
            future.set_result((code, text))

    def _put_back(self, transfer: "_Transfer") -> None:
        if len(self._spare) < _MAX_SPARE and self._loop is not None:
            transfer.clear()
            self._spare.append(transfer)
        else:
            transfer.close()


class _Transfer:
    """One easy handle, used again and again, with what its present exchange has received."""

    def __init__(self, options: EngineOptions, ca_file: str) -> None:
        self._options = options
        self._ca_file = ca_file
        self.curl: Any = pycurl.Curl()
        self.curl.transfer = self
        self.future: asyncio.Future[tuple[int, str]] | None = None
        self._exchange: Exchange | None = None
        #: only what every request sets itself is set
        self._plain = True
        self._set_up()
        self.clear()

    def clear(self) -> None:
        """Forget the exchange; keep the handle."""
        self._lines: list[bytes] = []
        self._chunks: list[bytes] = []
        self._header_bytes = 0
        self._body_bytes = 0
        self._refused = ""
        self._failure: FetchFailed | None = None
        self._exchange = None
        self.future = None
        if not self._plain:
            self.curl.reset()
            self._set_up()
            self._plain = True

    def close(self) -> None:
        """Give the handle back to libcurl."""
        self.curl.transfer = None
        self.curl.close()

    def _set_up(self) -> None:
        """What holds for every request."""
        setopt = self.curl.setopt
        setopt(pycurl.NOSIGNAL, 1)
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.REDIR_PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.FOLLOWLOCATION, 0)
        # "" hides the environment's proxies and its no_proxy
        setopt(pycurl.PROXY, "")
        setopt(pycurl.NOPROXY, "")
        setopt(pycurl.TCP_KEEPALIVE, 1)
        setopt(pycurl.BUFFERSIZE, 64 * 1024)
        setopt(pycurl.HEADERFUNCTION, self._on_header)
        setopt(pycurl.WRITEFUNCTION, self._on_body)
        if not self._options.allow_link_local:
            setopt(pycurl.OPENSOCKETFUNCTION, self._on_open)
        if self._ca_file:
            setopt(pycurl.CAINFO, self._ca_file)
            setopt(pycurl.PROXY_CAINFO, self._ca_file)

    def prepare(self, exchange: Exchange) -> None:
        """Set the handle up for this exchange."""
        self._exchange = exchange
        setopt = self.curl.setopt
        setopt(pycurl.URL, exchange.url)
        setopt(pycurl.HTTPHEADER, [line.encode() for line in exchange.headers])
        # 0 would mean libcurl's default
        setopt(pycurl.TIMEOUT_MS, max(1, int(exchange.timeout * 1000)))
        setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(min(exchange.connect_timeout, exchange.timeout) * 1000)))
        if exchange.method != "GET" or exchange.body is not None:
            self._plain = False
            self._set_method(exchange.method, exchange.body)
        if exchange.proxy is not None:
            self._plain = False
            self._set_proxy(exchange.proxy)
        if not exchange.validate_cert:
            self._plain = False
            for option in (pycurl.SSL_VERIFYPEER, pycurl.SSL_VERIFYHOST):
                setopt(option, 0)

    def _set_method(self, method: str, body: bytes | None) -> None:
        setopt = self.curl.setopt
        if method == "HEAD":
            setopt(pycurl.NOBODY, 1)
            return
        if body is not None or method in ("POST", "PUT", "PATCH"):
            # POST without a body says Content-Length: 0
            setopt(pycurl.POST, 1)
            setopt(pycurl.POSTFIELDS, body or b"")
        setopt(pycurl.CUSTOMREQUEST, method)

    def _set_proxy(self, proxy: Proxy) -> None:
        self.curl.setopt(pycurl.PROXY, proxy.url)
        if proxy.user or proxy.password:
            self.curl.setopt(pycurl.PROXYUSERNAME, proxy.user)
            self.curl.setopt(pycurl.PROXYPASSWORD, proxy.password)

    # --- called by libcurl: -1 ends the transfer ---

    def _on_header(self, line: bytes) -> int | None:
        self._header_bytes += len(line)
        if self._header_bytes > self._options.header_limit:
            self._failure = FetchFailed("too-large", f"the headers are larger than {self._options.header_limit} bytes")
            return -1
        if line[:5] == b"HTTP/":
            self._lines = [line]  # an interim answer (1xx) or a proxy's to CONNECT came before
        elif not self._chunks:
            self._lines.append(line)
        return None

    def _on_body(self, chunk: bytes) -> int | None:
        if not self._chunks and self._announced() > self._options.body_limit:
            self._body_bytes = self._options.body_limit
        self._body_bytes += len(chunk)
        if self._body_bytes > self._options.body_limit:
            self._failure = FetchFailed("too-large", f"the body is larger than {self._options.body_limit} bytes")
            return -1
        self._chunks.append(chunk)
        return None

    def _announced(self) -> int:
        """The Content-Length, 0 when there is none."""
        for line in self._lines:
            if line[:15].lower() == b"content-length:":
                value = line[15:].strip()
                return int(value) if value.isdigit() and len(value) < 20 else 0
        return 0

    def _on_open(self, purpose: int, address: Any) -> Any:
        family, kind, protocol, where = address
        if family in (socket.AF_INET, socket.AF_INET6) and is_refused(where[0]):
            self._refused = where[0]
            return pycurl.SOCKET_BAD
        return _LentSocket(family, kind, protocol)

    # --- the outcome ---

    def answer(self) -> Answer:
        """What a transfer that went well has received."""
        status = self.curl.getinfo(pycurl.RESPONSE_CODE)
        reason = ""
        headers: list[tuple[str, str]] = []
        for line in self._lines:
            text = line.decode("latin-1")
            name, colon, value = text.partition(":")
            if colon and name[:5] != "HTTP/":
                headers.append((name, value.strip()))
            elif name[:5] == "HTTP/":
                reason = text[12:].strip()
            elif text[:1] in (" ", "\t") and headers:
                headers[-1] = (headers[-1][0], f"{headers[-1][1]} {text.strip()}")
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        return Answer(status, reason or responses.get(status, "Unknown"), headers, body, self._timings())

    def fail(self, code: int, text: str) -> Answer:
        """Raise what a transfer that failed means."""
        if self._failure is not None:
            raise self._failure
        exchange = self._exchange
        assert exchange is not None
        text = text or self.curl.errstr() or _TEXTS.get(code) or f"libcurl error {code}"
        kind = _KINDS.get(code, "protocol")
        if kind == "connect" and self._refused:
            kind, text = "refused-address", _refusal(self._refused)
        elif exchange.proxy is not None and self._is_proxys(code):
            kind = "proxy"
        elif code == pycurl.E_RECV_ERROR:
            kind = self._receive_kind(text)
        if kind == "tls":
            text = f"{text} ({exchange.url.split('/')[2].rpartition('@')[2]})"
        raise FetchFailed(kind, text, timings=self._timings())

    def _is_proxys(self, code: int) -> bool:
        if code == pycurl.E_COULDNT_CONNECT:
            return True
        return code == pycurl.E_RECV_ERROR and int(self.curl.getinfo(pycurl.HTTP_CONNECTCODE)) >= 300

    def _receive_kind(self, text: str) -> str:
        lower = text.lower()
        if "chunk" in lower:
            return "protocol"
        if "too large response header" in lower:
            return "too-large"
        return "truncated" if self._lines else "connect"

    def _timings(self) -> dict[str, float]:
        getinfo = self.curl.getinfo
        return {
            "dns": getinfo(pycurl.NAMELOOKUP_TIME),
            "connect": getinfo(pycurl.CONNECT_TIME),
            "tls": getinfo(pycurl.APPCONNECT_TIME),
            "first_byte": getinfo(pycurl.STARTTRANSFER_TIME),
            "total": getinfo(pycurl.TOTAL_TIME),
        }


class _LentSocket(socket.socket):
    """pycurl takes a duplicate and drops this one, which is closed then, quietly."""

    def __del__(self) -> None:
        self.close()


def _check_literal(url: str) -> None:
    """A proxy would connect for us, so that only addresses spelt out in the URL can be seen here."""
    address = literal(urlsplit(url).hostname or "")
    if address is not None and is_refused(address):
        raise FetchFailed("refused-address", _refusal(address))


def _refusal(address: str) -> str:
    return f"{address} is a link-local or cloud metadata address, which is not fetched unless allow-link-local is set"


def system_ca_file() -> str:
    """The system's file of trusted authorities, else certifi's (demand UA7)."""
    candidates = (
        ssl.get_default_verify_paths().cafile,
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    )
    return next((path for path in candidates if path and os.path.isfile(path)), certifi.where())
