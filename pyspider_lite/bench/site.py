"""A generated site, served from memory: page i is reachable from page 0, its links are random but the same for the same seed.

Each page links to four children of a tree (so that all pages are reachable), to one of twenty hubs and to random pages, two of them
twice: about nine of ten links met in a crawl are repeats, as on real sites.
"""

import asyncio
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator

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


class Site:
    """Serves the pages on a loopback port, from a thread; counts the requests."""

    def __init__(self, pages: int, size: int = 5_000, seed: int = 1, delay: float = 0.0) -> None:
        self.pages = pages
        self.requests: Counter[int] = Counter()
        self.delay = delay
        #: open connections
        self.connections: set[asyncio.Transport] = set()
        self._bodies = [_answer(page(index, pages, size, seed)) for index in range(pages)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="site", daemon=True)
        self._ready = threading.Event()
        self.port = 0

    @property
    def url(self) -> str:
        """Where the crawl begins."""
        return f"http://127.0.0.1:{self.port}/0.html"

    def __enter__(self) -> "Site":
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=512)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for connection in list(self.connections):
            connection.abort()
        # one more round, in which the transports are closed
        self._loop.run_until_complete(asyncio.sleep(0))

    def answers(self, request: bytes) -> Iterator[bytes]:
        """What to send for the requests in these bytes (whole ones: crawlers do not pipeline)."""
        match = _REQUEST.match(request)
        index = int(match[1]) if match else -1
        if 0 <= index < self.pages:
            self.requests[index] += 1
            yield self._bodies[index]
        else:
            self.requests[-1] += 1
            yield b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def _answer(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Connection(asyncio.Protocol):
    def __init__(self, site: Site) -> None:
        self._site = site
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._site.connections.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._site.connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            request, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            for answer in self._site.answers(request + b"\r\n\r\n"):
                if self._site.delay:
                    asyncio.get_running_loop().call_later(self._site.delay, self._transport.write, answer)
                else:
                    self._transport.write(answer)
