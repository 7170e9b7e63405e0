"""A small site with what real ones have: links that are not ASCII, a redirect, pages that are missing, empty, packed, without a
title or no HTML, links that lead nowhere, and one of another base."""

import gzip
import re
from typing import NamedTuple

from pyspider_lite.bench.web_server import Answer, WebServer


class Page(NamedTuple):
    """What is answered."""

    body: bytes
    kind: str = "text/html; charset=utf-8"
    status: str = "200 OK"
    more: str = ""


def _to(place: str) -> Page:
    return Page(b"", status="302 Found", more=f"Location: {place}\r\n")


#: href in the first page -> what is answered; each is a page of its own
PAGES = {
    "a.html": Page(b"<title> a &amp;\n b</title>"),
    "a.html#part": Page(b"<title> a &amp;\n b</title>"),
    "b%20c.html": Page(b"<title>b</title>"),
    "c.html?x=\u00fc": Page(b"<title>c</title>"),
    "\u5c71.html": Page(b"<title>d</title>"),
    "moved.html": _to("target.html"),
    "picture.png": Page(b"\x89PNG\x00\x01\x02", "image/png"),
    "untitled.html": Page(b"<a href='a.html'>a</a>"),
    "empty.html": Page(b""),
    "undeclared.html": Page("<title>\u00fc\u5c71</title>".encode(), "text/html"),
    "packed.html": Page(gzip.compress(b"<title>packed</title>"), more="Content-Encoding: gzip\r\n"),
    "based.html": Page(b"<base href='/site/sub/'><title>based</title><a href='deep.html'>x</a>"),
    "latin.html": Page("<title>\u00fc</title>".encode("latin-1"), "text/html; charset=iso-8859-1"),
}
#: what others than the first page lead to
_DEEPER = {"sub/deep.html": Page(b"<title>deep</title>")}
#: pages of the site
COUNT = 1 + len(PAGES) + len(_DEEPER)
#: in the first page, but no pages: missing, too many redirects, one that leads to itself, and what is no answer
_NOWHERE = ("missing.html", "far0.html", "loop.html", "strange.html")
_NONE = Page(b"<title>404</title>", status="404 Not Found")
_REQUEST = re.compile(rb"GET /site/(\S*)")


class OddSite(WebServer):
    """Its first page links to all others and to one that is missing."""

    @property
    def url(self) -> str:
        """Of the first page."""
        return f"http://{self.host}:{self.port}/site/"

    def answer(self, head: bytes, client: str) -> Answer:
        match = _REQUEST.match(head)
        path = match[1].decode() if match else "missing"
        if path == "strange.html":
            return Answer(b"no HTTP\r\n\r\n")
        page = self._first() if not path else _ANSWERS.get(path, _NONE)
        lines = f"HTTP/1.1 {page.status}\r\nContent-Type: {page.kind}\r\nContent-Length: {len(page.body)}\r\n{page.more}\r\n"
        return Answer(lines.encode() + page.body)

    def _first(self) -> Page:
        links = "".join(f'<a href="{href}">x</a>' for href in (*PAGES, *_NOWHERE))
        return Page(f"<title>\u00cdndex\n of  all</title>{links}".encode())


#: as requests have them
_ANSWERS = {
    **PAGES,
    **_DEEPER,
    **{f"far{number}.html": _to(f"far{number + 1}.html") for number in range(6)},
    "far6.html": Page(b"<title>far</title>"),
    "loop.html": _to("loop.html"),
    "c.html?x=%C3%BC": PAGES["c.html?x=\u00fc"],
    "%E5%B1%B1.html": PAGES["\u5c71.html"],
    "target.html": Page(b"<title>target</title>"),
}
