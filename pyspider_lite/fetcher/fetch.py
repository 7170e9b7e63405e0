"""fetch(task) -> response: an ordinary coroutine, called by the fetcher's loop, by `one` and by the debugger.

Decides by URL and ``fetch_type`` who fetches (behaviour F4), and turns every failure into a response (F40): it never raises but when
it is cancelled.
"""

import asyncio
import time
import traceback
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Any

from pyspider_lite.fetcher import data_url, request
from pyspider_lite.fetcher.decoding import decode
from pyspider_lite.fetcher.exchange import Answer
from pyspider_lite.fetcher.failure import FetchFailed
from pyspider_lite.fetcher.http import HttpEngine
from pyspider_lite.fetcher.redirects import Chain
from pyspider_lite.fetcher.request import Defaults, Request
from pyspider_lite.fetcher.robots import Robots
from pyspider_lite.fetcher.urls import InvalidURL
from pyspider_lite.models.page import Dispatch, FetchResponse

_BROWSERS = {"js": "phantomjs", "phantomjs": "phantomjs", "splash": "splash", "puppeteer": "puppeteer"}
#: larger bodies are decompressed in a thread, so that the others need not wait
_LARGE = 256 * 1024
#: a server that asks for a longer pause than this (seconds) is not believed
_MAX_RETRY_AFTER = 7 * 86400.0


def fetcher_of(task: Dispatch) -> str:
    """Who fetches this task: data, http, phantomjs, splash or puppeteer (behaviour F4)."""
    if task.url.startswith("data:"):
        return "data"
    wanted = task.fetch.get("fetch_type") if task.fetch else None
    return _BROWSERS.get(wanted, "http") if isinstance(wanted, str) else "http"


class Fetch:
    """``response = await fetch(task)``; one object serves any number of fetches in one event loop. `close` it when the loop ends."""

    def __init__(
        self, engine: HttpEngine, defaults: Defaults | None = None, *, decoded_limit: int = 32 * 1024 * 1024
    ) -> None:
        self._engine = engine
        self._defaults = defaults or Defaults()
        self._decoded_limit = decoded_limit
        self._robots = Robots(engine)

    async def __call__(self, task: Dispatch) -> FetchResponse:
        """Fetch the task; whatever goes wrong is a response with ``error`` and ``error_kind``."""
        started = time.monotonic()
        try:
            who = fetcher_of(task)
            if who == "http":
                return await self._http(task, started)
            if who == "data":
                return _response(task, started, status_code=200, content=data_url.decode(task.url), time=0.0)
            return _response(task, started, status_code=501, content=f"{who} is not enabled.", error_kind="browser")
        except InvalidURL as error:
            return _failed(task, started, FetchFailed("invalid-url", str(error)))
        except Exception as error:
            failure = FetchFailed("internal", f"{type(error).__name__}: {error}")
            return _failed(task, started, failure, traceback=traceback.format_exc())

    def close(self) -> None:
        """Close all connections."""
        self._robots.close()
        self._engine.close()

    async def _http(self, task: Dispatch, started: float) -> FetchResponse:
        try:
            wanted = request.build(task, self._defaults)
        except InvalidURL:
            raise
        except ValueError as error:
            return _failed(task, started, FetchFailed("invalid-request", str(error)))
        chain = Chain(wanted, self._engine)
        try:
            answer = await chain.run(partial(self._check_robots, wanted) if wanted.robots_txt else None)
            headers = _joined(answer.headers)
            content = answer.body
            if content and "Content-Encoding" in headers:
                content = await self._decoded(headers["Content-Encoding"], content)
        except FetchFailed as failure:
            return _failed(task, started, failure, **_seen(chain, wanted))
        return _response(
            task,
            started,
            status_code=answer.status,
            headers=headers,
            content=content,
            error=None if 200 <= answer.status < 300 else f"HTTP {answer.status}: {answer.reason}",
            timings=answer.timings,
            retry_after=_asked_to_wait(answer, headers),
            **_seen(chain, wanted),
        )

    async def _decoded(self, coding: str, body: bytes) -> bytes:
        # of two codings the first may make much of little
        if len(body) > _LARGE or "," in coding:
            return await asyncio.to_thread(decode, coding, body, self._decoded_limit)
        return decode(coding, body, self._decoded_limit)

    async def _check_robots(self, wanted: Request, url: str, left: float) -> None:
        await self._robots.check(url, wanted.headers["User-Agent"], left, wanted.proxy)


def retry_after(value: str, now: float) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110, 10.2.3); ``now`` is Unix time. None when it cannot be read."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:10]), _MAX_RETRY_AFTER)
    try:
        seconds = parsedate_to_datetime(value).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), _MAX_RETRY_AFTER)


def _asked_to_wait(answer: Answer, headers: dict[str, str]) -> float | None:
    if answer.status not in (429, 503) or "Retry-After" not in headers:
        return None
    return retry_after(headers["Retry-After"], time.time())


_canonical = lru_cache(maxsize=1024)(request.canonical)


def _joined(headers: list[tuple[str, str]]) -> dict[str, str]:
    """Canonical names; repeated headers are joined by a comma (behaviour R1)."""
    joined: dict[str, str] = {}
    for name, value in headers:
        name = _canonical(name) if len(name) < 64 else name
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _seen(chain: Chain, wanted: Request) -> dict[str, Any]:
    return {
        "url": chain.url,
        "cookies": chain.cookies(),
        "redirects": chain.redirects,
        "proxy": wanted.proxy.masked if wanted.proxy is not None else None,
    }


def _failed(task: Dispatch, started: float, failure: FetchFailed, **seen: Any) -> FetchResponse:
    return _response(
        task,
        started,
        status_code=failure.status,
        error=f"HTTP {failure.status}: {failure.message}",
        error_kind=failure.kind,
        timings=failure.timings,
        **seen,
    )


def _response(task: Dispatch, started: float, **fields: Any) -> FetchResponse:
    fields.setdefault("url", task.url)
    fields.setdefault("time", time.monotonic() - started)
    return FetchResponse(orig_url=task.url, save=task.fetch.get("save"), **fields)
