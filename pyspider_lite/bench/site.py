"""A generated site, served from memory: page i is reachable from page 0, its links are random but the same for the same seed.

Each page links to four children of a tree (so that all pages are reachable), to one of twenty hubs and to random pages, two of them
twice: about nine of ten links met in a crawl are repeats, as on real sites.
"""

import random
import re
from collections import Counter

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


def links(index: int, pages: int, seed: int) -> list[int]:
    """The pages that page ``index`` links to, without repeats."""
    chance = random.Random(seed * 7_919 + index)
    found = [child for child in range(4 * index + 1, 4 * index + 5) if child < pages]
    found.append(chance.randrange(min(20, pages)))
    while len(found) < 8:
        found.append(chance.randrange(pages))
    return list(dict.fromkeys(found))


def title(index: int) -> str:
    """The title of a page: unique."""
    return f"Page {index} of the bench"


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(words))


def page(index: int, pages: int, size: int, seed: int) -> bytes:
    """The HTML of page ``index``: about ``size`` bytes."""
    chance = random.Random(seed * 104_729 + index)
    targets = links(index, pages, seed)
    menu = "\n".join(f'<li class="entry"><a href="/{target}.html">{_text(chance, 2)}</a></li>' for target in targets)
    footer = " ".join(f'<a class="again" href="/{target}.html">again {target}</a>' for target in targets[:2])
    parts = [
        f"<!DOCTYPE html>\n<html><head><meta charset='utf-8'><title>{title(index)}</title>"
        f'<meta name="description" content="{_text(chance, 8)}"></head>\n<body><h1>{title(index)}</h1>\n'
        f'<ul class="menu">{menu}</ul>\n<main>'
    ]
    length = len(parts[0]) + len(footer)
    row = 0
    while length < size:
        row += 1
        part = (
            f'<section class="block"><h2>{_text(chance, 3)}</h2><p>{_text(chance, 20)} <em>{_text(chance, 2)}</em></p>'
            f'<table><tr><td class="n">{row}</td><td class="name">{_text(chance, 2)}</td>'
            f'<td class="price">{chance.random() * 100:.2f}</td></tr></table></section>\n'
        )
        parts.append(part)
        length += len(part.encode())
    parts.append(f"</main><footer>{footer}</footer></body></html>\n")
    return "".join(parts).encode()


class Site(WebServer):
    """Serves the pages; counts the requests, those for nothing that there is under -1."""

    def __init__(self, pages: int, size: int = 5_000, seed: int = 1, delay: float = 0.0) -> None:
        super().__init__()
        self.pages = pages
        self.requests: Counter[int] = Counter()
        self.delay = delay
        self._bodies = [response(page(index, pages, size, seed)) for index in range(pages)]

    @property
    def url(self) -> str:
        """Where the crawl begins."""
        return f"http://{self.host}:{self.port}/0.html"

    def answer(self, head: bytes, client: str) -> Answer:
        """A page after the site's delay."""
        match = _REQUEST.match(head)
        index = int(match[1]) if match else -1
        if not 0 <= index < self.pages:
            index = -1
        self.requests[index] += 1
        return Answer(response(b"", "404 Not Found") if index < 0 else self._bodies[index], self.delay)
