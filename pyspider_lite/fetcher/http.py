"""The HTTP engine: one request, one answer, over libcurl. Only it, `transfer` and `curl_errors` import pycurl (design, section 11).

libcurl's multi handle runs inside the asyncio loop: it names its sockets, they wait in one selector, and only that selector is
known to the loop (a registration there costs a tenth of one in the loop). Redirects, cookies and content codings are not libcurl's
business here: see `redirects`, `cookies`, `decoding`.
"""

import asyncio
import contextlib
import selectors
from typing import Any
from urllib.parse import urlsplit

import pycurl

from pyspider_lite.fetcher import addresses
from pyspider_lite.fetcher.authorities import system_ca_file
from pyspider_lite.fetcher.exchange import Answer, Exchange
from pyspider_lite.fetcher.failure import FetchFailed
from pyspider_lite.fetcher.transfer import EngineOptions, Transfer

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_WANTED = {pycurl.POLL_IN: _READ, pycurl.POLL_OUT: _WRITE, pycurl.POLL_INOUT: _READ | _WRITE}
_READY = {_READ: pycurl.CSELECT_IN, _WRITE: pycurl.CSELECT_OUT, _READ | _WRITE: pycurl.CSELECT_IN | pycurl.CSELECT_OUT}
#: idle connections kept open
_MAX_CONNECTS = 500
#: handles kept for reuse
_MAX_SPARE = 200


class HttpEngine:
    """All transfers of one event loop. Binds to the loop that runs when it is first used; `close` when that loop ends."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._ca_file = options.ca_file or system_ca_file()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._multi: Any = None
        self._selector: Any = None
        self._spare: list[Transfer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._kicked = False

    async def exchange(self, exchange: Exchange) -> Answer:
        """Send one request and wait for its whole answer. Raises FetchFailed."""
        if self._loop is None:
            self._open()
        if exchange.proxy is not None and not self._options.allow_link_local:
            _check_literal(exchange.url)
        transfer = self._spare.pop() if self._spare else Transfer(self._options, self._ca_file)
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

    def _resolve(self, transfer: Transfer, code: int, text: str) -> None:
        future = transfer.future
        if future is not None and not future.done():
            self._multi.remove_handle(transfer.curl)
            future.set_result((code, text))

    def _put_back(self, transfer: Transfer) -> None:
        if len(self._spare) < _MAX_SPARE and self._loop is not None:
            transfer.clear()
            self._spare.append(transfer)
        else:
            transfer.close()


def _check_literal(url: str) -> None:
    """A proxy would connect for us, so that only addresses spelt out in the URL can be seen here."""
    address = addresses.literal(urlsplit(url).hostname or "")
    if address is not None and addresses.is_refused(address):
        raise FetchFailed("refused-address", addresses.refusal(address))
