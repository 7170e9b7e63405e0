"""robots.txt (RFC 9309; behaviour F30, demand UA17): may this URL be fetched? Asked by `fetch` for tasks with ``robots_txt=True``.

protego reads the rules, because the standard library's parser knows no wildcards and takes the first rule instead of the longest.
"""

import asyncio
import logging
import time
from collections import OrderedDict

from protego import Protego

from pyspider_lite.fetcher.decoding import ACCEPT_ENCODING, decode
from pyspider_lite.fetcher.failure import FetchFailed
from pyspider_lite.fetcher.http import HttpEngine
from pyspider_lite.fetcher.redirects import Chain
from pyspider_lite.fetcher.request import Proxy, Request
from pyspider_lite.fetcher.urls import origin

logger = logging.getLogger(__name__)

#: seconds that the rules of an origin are kept
_KEPT = 3600.0
#: origins kept; the one unused for longest goes first
_MAX_ORIGINS = 1000
_TIMEOUT, _CONNECT_TIMEOUT = 30.0, 10.0
#: RFC 9309 wants at least 500 KiB read; what comes behind is ignored
_MAX_BYTES = 512 * 1024


class Robots:
    """The rules of each origin, fetched once an hour, by one request however many tasks wait for it."""

    def __init__(self, engine: HttpEngine) -> None:
        self._engine = engine
        self._known: OrderedDict[tuple[str, str, int], tuple[float, asyncio.Task[Protego | None]]] = OrderedDict()

    async def check(self, url: str, user_agent: str, left: float, proxy: Proxy | None = None) -> None:
        """Raises FetchFailed ``robots`` (status 403) when the origin forbids this URL, ``timeout`` after ``left`` seconds.

        No robots.txt, or one that cannot be had, allows everything (F30, mended).
        """
        site = origin(url)
        now = time.monotonic()
        since, rules = self._known.get(site, (0.0, None))
        if rules is None or now - since > _KEPT or rules.cancelled():
            rules = asyncio.create_task(self._load(site, user_agent, proxy))
            self._known[site] = (now, rules)
            if len(self._known) > _MAX_ORIGINS:
                self._known.popitem(last=False)
        self._known.move_to_end(site)
        try:
            # the others who wait must not lose it when this fetch is given up
            known = await asyncio.wait_for(asyncio.shield(rules), left)
        except TimeoutError:
            raise FetchFailed("timeout", f"the robots.txt of {site[1]} did not come in time") from None
        if known is not None and not known.can_fetch(url, _product(user_agent)):
            raise FetchFailed("robots", "Disallowed by robots.txt", status=403)

    def close(self) -> None:
        """Forget everything."""
        self._known.clear()

    async def _load(self, site: tuple[str, str, int], user_agent: str, proxy: Proxy | None) -> Protego | None:
        scheme, host, port = site
        request = Request(
            method="GET",
            url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/robots.txt",
            headers={"User-Agent": user_agent, "Accept-Encoding": ACCEPT_ENCODING},
            body=None,
            cookies={},
            proxy=proxy,
            timeout=_TIMEOUT,
            connect_timeout=_CONNECT_TIMEOUT,
            allow_redirects=True,
            max_redirects=5,
            validate_cert=False,
            robots_txt=False,
        )
        try:
            answer = await Chain(request, self._engine).run()
            if answer.status != 200:
                return None
            coding = ",".join(value for name, value in answer.headers if name.lower() == "content-encoding")
            body = decode(coding, answer.body, 4 * _MAX_BYTES) if answer.body else b""
            return Protego.parse(body[:_MAX_BYTES].decode("utf-8-sig", "replace"))
        except FetchFailed as error:
            logger.info("%s: no robots.txt, so everything is allowed: %s", host, error)
        except Exception:
            logger.exception("%s: robots.txt cannot be read, so everything is allowed", host)
        return None


def _product(user_agent: str) -> str:
    """The product token by which a robots.txt names us: `name` of `name/1.0 (comment)`."""
    return user_agent.split("/")[0].split(" ")[0] or "*"
