"""One fetch over all its hops: redirects are followed here, not by libcurl, so that cookies, credentials, limits and checks hold at
each of them (behaviour F19 to F21, X-X10, demand UA10). Called by `fetch`.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from pyspider_lite.fetcher.cookies import CookieJar
from pyspider_lite.fetcher.exchange import Answer, Exchange
from pyspider_lite.fetcher.failure import FetchFailed
from pyspider_lite.fetcher.http import HttpEngine
from pyspider_lite.fetcher.request import Request
from pyspider_lite.fetcher.urls import InvalidURL, resolve, same_site, without_password

_FOLLOWED = frozenset({301, 302, 303, 307, 308})
#: these turn any method but HEAD into GET
_TO_GET = frozenset({302, 303})
_CREDENTIALS = frozenset({"Authorization", "Proxy-Authorization"})
_OF_THE_BODY = frozenset(
    {"Content-Type", "Content-Length", "Content-Encoding", "Content-Language", "Transfer-Encoding"}
)


class Chain:
    """The hops of one fetch. What it has seen stays readable when `run` fails."""

    def __init__(self, request: Request, engine: HttpEngine) -> None:
        self._request = request
        self._engine = engine
        self._method = request.method
        self._body = request.body
        self._headers = request.headers
        self._deadline = time.monotonic() + request.timeout
        self._jar: CookieJar | None = CookieJar(request.url, request.cookies) if request.cookies else None
        self.url = request.url
        #: each hop that was followed: status, url, cookies set by it
        self.redirects: list[dict[str, Any]] = []

    async def run(self, check: Callable[[str, float], Awaitable[None]] | None = None) -> Answer:
        """Follow to the last answer. ``check(url, seconds left)`` is asked before each hop. Raises FetchFailed."""
        while True:
            if check is not None:
                await check(self.url, self._left())
            answer = await self._engine.exchange(self._exchange())
            cookies = self._take_cookies(answer)
            location = self._location(answer)
            if not location:
                return answer
            if len(self.redirects) >= self._request.max_redirects:
                raise FetchFailed("redirects", f"Maximum ({self._request.max_redirects}) redirects followed")
            self.redirects.append({"status": answer.status, "url": self.url, "cookies": cookies})
            self._go_to(location, answer.status)

    def cookies(self) -> dict[str, str]:
        """Those sent and those set, over all hops (behaviour R1)."""
        return self._jar.shown() if self._jar is not None else {}

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise FetchFailed(
                "timeout", f"Operation timed out after {self._request.timeout:g} s and {len(self.redirects)} redirects"
            )
        return left

    def _exchange(self) -> Exchange:
        request = self._request
        headers = [f"{name}: {value}" if value else f"{name};" for name, value in self._headers.items()]
        if self._jar is not None:
            cookie = self._jar.header(self.url)
            if cookie:
                headers.append(f"Cookie: {cookie}")
        if self._method != "GET" or self._body is not None:
            # libcurl would wait for "100 Continue", and call any body a form
            if "Expect" not in self._headers:
                headers.append("Expect:")
            if (self._method != "POST" or self._body is None) and "Content-Type" not in self._headers:
                headers.append("Content-Type:")
        return Exchange(
            method=self._method,
            url=self.url,
            headers=headers,
            body=self._body,
            proxy=request.proxy,
            timeout=self._left(),
            connect_timeout=request.connect_timeout,
            validate_cert=request.validate_cert,
        )

    def _take_cookies(self, answer: Answer) -> dict[str, str]:
        lines = [value for name, value in answer.headers if len(name) == 10 and name.lower() == "set-cookie"]
        if not lines:
            return {}
        if self._jar is None:
            self._jar = CookieJar(self._request.url, {})
        return self._jar.store(self.url, lines, time.time())

    def _location(self, answer: Answer) -> str:
        if answer.status not in _FOLLOWED or not self._request.allow_redirects:
            return ""
        return next((value for name, value in answer.headers if name.lower() == "location"), "")

    def _go_to(self, location: str, status: int) -> None:
        try:
            self.url = resolve(self.url, location)
        except InvalidURL as error:
            # the server may mend it: unlike a task whose own URL is none, it is tried again
            raise FetchFailed(
                "redirects", f"{without_password(self.url)} redirects to a bad address: {error}"
            ) from error
        if status in _TO_GET and self._method != "HEAD":
            self._method, self._body = "GET", None
            self._drop(_OF_THE_BODY)
        if not same_site(self._request.url, self.url):
            self._drop(_CREDENTIALS)

    def _drop(self, names: frozenset[str]) -> None:
        if not names.isdisjoint(self._headers):
            self._headers = {name: value for name, value in self._headers.items() if name not in names}
