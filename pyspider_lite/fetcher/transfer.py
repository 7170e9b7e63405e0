"""One libcurl handle: how it is set up for a request, what it takes of the answer, and what its failure means. `http` runs it."""

import asyncio
import socket
from http.client import responses
from typing import Any

import pycurl
from msgspec import Struct

from pyspider_lite.fetcher import addresses, curl_errors
from pyspider_lite.fetcher.exchange import Answer, Exchange
from pyspider_lite.fetcher.failure import FetchFailed
from pyspider_lite.fetcher.request import Proxy


class EngineOptions(Struct, frozen=True, kw_only=True):
    """Limits and trust of one engine."""

    body_limit: int = 8 * 1024 * 1024
    header_limit: int = 256 * 1024
    #: PEM file of the authorities to trust; "" for the system's, else certifi's
    ca_file: str = ""
    allow_link_local: bool = False


class Transfer:
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
        if family in (socket.AF_INET, socket.AF_INET6) and addresses.is_refused(where[0]):
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
        text = text or self.curl.errstr() or curl_errors.text_of(code)
        kind = curl_errors.kind_of(
            code,
            text,
            refused=bool(self._refused),
            proxied=exchange.proxy is not None,
            connect_code=int(self.curl.getinfo(pycurl.HTTP_CONNECTCODE)),
            answered=bool(self._lines),
        )
        if kind == "refused-address":
            text = addresses.refusal(self._refused)
        if kind == "tls":
            text = f"{text} ({exchange.url.split('/')[2].rpartition('@')[2]})"
        raise FetchFailed(kind, text, timings=self._timings())

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
