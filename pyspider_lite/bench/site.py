"""A generated site, served from memory: page i is reachable from page 0, its links are random but the same for the same seed.

Each page links to four children of a tree (so that all pages are reachable), to one of twenty hubs and to random pages, two of them
twice: about nine of ten links met in a crawl are repeats, as on real sites. Pages of a large site are made when they are asked for.
"""

import functools
import random
import re
import time
from collections import Counter
from collections.abc import Sequence

from pyspider_lite.bench.web_server import Answer, WebServer, response

_WORDS = [
    "amber",
    "basin",
    "candle",
    "delta",
    "ember",
    "field",
    "grain",
    "harbor",
    "island",
    "jetty",
    "kettle",
    "ladder",
    "meadow",
    "needle",
    "orchard",
    "pebble",
    "quarry",
    "river",
    "saddle",
    "timber",
    "umber",
    "valley",
    "willow",
    "yonder",
    "zephyr",
    "山",
    "川",
    "花",
    "鸟",
    "灯",
    "桥",
    "路",
    "雨",
]
_REQUEST = re.compile(rb"(?:GET|HEAD) /(\d+)\.html HTTP/1\.[01]\r\n")
#: links of a page, those that it shows twice included
LINKS = 10
#: of the links, how many come again in the footer
_AGAIN = 2
#: bytes of pages that are made beforehand; those of a larger site are made when they are asked for
_IN_MEMORY = 512 * 1024 * 1024
#: different sections that pages are filled with: far more than one message of a queue has, so that it packs no better than real pages
_SECTIONS = 5_000


def links(index: int, pages: int, seed: int, count: int = LINKS) -> list[int]:
    """The pages that page ``index`` links to, without repeats."""
    chance = random.Random(seed * 7_919 + index)
    found = [child for child in range(4 * index + 1, 4 * index + 5) if child < pages]
    found.append(chance.randrange(min(20, pages)))
    while len(found) < count - _AGAIN:
        found.append(chance.randrange(pages))
    return list(dict.fromkeys(found))


def title(index: int) -> str:
    """The title of a page: unique."""
    return f"Page {index} of the bench"


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(words))


@functools.cache
def _sections(seed: int) -> Sequence[bytes]:
    chance = random.Random(seed)
    return [
        f'<section class="block"><h2>{_text(chance, 3)}</h2><p>{_text(chance, 20)} <em>{_text(chance, 2)}</em></p>'
        f'<table><tr><td class="n">{row}</td><td class="name">{_text(chance, 2)}</td>'
        f'<td class="price">{chance.random() * 100:.2f}</td></tr></table></section>\n'.encode()
        for row in range(_SECTIONS)
    ]


def page(index: int, pages: int, size: int, seed: int, count: int = LINKS) -> bytes:
    """The HTML of page ``index``: about ``size`` bytes, ``count`` links."""
    chance = random.Random(seed * 104_729 + index)
    targets = links(index, pages, seed, count)
    menu = "\n".join(f'<li class="entry"><a href="/{target}.html">{_text(chance, 2)}</a></li>' for target in targets)
    footer = " ".join(f'<a class="again" href="/{target}.html">again {target}</a>' for target in targets[:_AGAIN])
    head = (
        f"<!DOCTYPE html>\n<html><head><meta charset='utf-8'><title>{title(index)}</title>"
        f'<meta name="description" content="{_text(chance, 8)}"></head>\n<body><h1>{title(index)}</h1>\n'
        f'<ul class="menu">{menu}</ul>\n<main>'
    ).encode()
    parts = [head]
    length = len(head) + len(footer)
    sections = _sections(seed)
    while length < size:
        parts.append(chance.choice(sections))
        length += len(parts[-1])
    parts.append(f"</main><footer>{footer}</footer></body></html>\n".encode())
    return b"".join(parts)


class Site(WebServer):
    """Serves the pages, each after ``delay`` seconds; counts the requests, those for nothing that there is under -1. ``count``: links of a
    page; ``timed``: keep when each request came."""

    def __init__(
        self,
        pages: int,
        size: int = 5_000,
        seed: int = 1,
        delay: float = 0.0,
        *,
        count: int = LINKS,
        timed: bool = False,
    ) -> None:
        super().__init__()
        self.pages = pages
        self.requests: Counter[int] = Counter()
        self.delay = delay
        #: pages that were asked for, each time counted
        self.answered = 0
        #: time.monotonic() of the first request, None before it
        self.began: float | None = None
        #: page -> time.monotonic() of each request, if ``timed``
        self.times: dict[int, list[float]] = {}
        self._timed = timed
        self._links = functools.partial(links, pages=pages, seed=seed, count=count)
        self._make = functools.partial(page, pages=pages, size=size, seed=seed, count=count)
        in_memory = pages if pages * size <= _IN_MEMORY else 0
        self._bodies = [response(self._make(index)) for index in range(in_memory)]

    @property
    def url(self) -> str:
        """Where the crawl begins."""
        return self.address(0)

    def address(self, index: int) -> str:
        """URL of page ``index``."""
        return f"http://{self.host}:{self.port}/{index}.html"

    def body(self, index: int) -> bytes:
        """The HTML of page ``index``."""
        return self._make(index)

    def targets(self, index: int) -> list[str]:
        """URLs that page ``index`` links to, without repeats."""
        return [self.address(target) for target in self._links(index)]

    def expected(self) -> dict[str, str]:
        """What a complete crawl finds: URL -> title."""
        return {self.address(index): title(index) for index in range(self.pages)}

    def forget(self) -> None:
        """Count the requests anew."""
        self.requests.clear()
        self.times.clear()
        self.answered, self.began = 0, None

    def answer(self, head: bytes, client: str) -> Answer:
        """A page after the site's delay."""
        match = _REQUEST.match(head)
        index = int(match[1]) if match else -1
        if not 0 <= index < self.pages:
            self.requests[-1] += 1
            return Answer(response(b"", "404 Not Found"), self.delay)
        self._note(index)
        return Answer(self._bodies[index] if self._bodies else response(self._make(index)), self.delay)

    def _note(self, index: int) -> None:
        self.requests[index] += 1
        if self.began is None or self._timed:
            now = time.monotonic()
            self.began = self.began or now
            if self._timed:
                self.times.setdefault(index, []).append(now)
        self.answered += 1
