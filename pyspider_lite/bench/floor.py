"""What a crawl of the site costs at least in Python: one process, pycurl and lxml, a set of seen links, nothing stored but a line a
page. Run as a process of its own, so that its CPU time can be told; the peer that every figure of ours stands beside.

``python -m pyspider_lite.bench.floor URL [FILE]``: crawls what is below the folder of URL; the lines go into FILE."""

import functools
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from urllib.parse import urljoin

import lxml.html
import pycurl
from lxml import etree

from pyspider_lite.fetcher.urls import sendable
from pyspider_lite.handler.url import BadUrl, build_url
from pyspider_lite.response import document

CONNECTIONS = 64
#: as many redirects are followed as our fetcher follows
_REDIRECTS = 5
_BASE = re.compile(rb"<base\b", re.IGNORECASE)
_CHARSET = re.compile(r"charset=[\"']?([\w.:-]+)", re.IGNORECASE)


def crawl(start: str, file: str = os.devnull) -> int:
    """Crawl everything below the folder of ``start`` that is reachable from it; the number of pages. A page that ends in an error is
    none, as for our handler. Raises OSError if the first one cannot be fetched."""
    todo, seen = [build_url(start)], {start}
    root = start.rpartition("/")[0]
    multi = pycurl.CurlMulti()
    multi.setopt(pycurl.M_MAXCONNECTS, CONNECTIONS)
    free = [_curl() for _ in range(CONNECTIONS)]
    busy: dict[pycurl.Curl, tuple[str, BytesIO]] = {}
    pages = 0
    with open(file, "w") as out:
        while todo or busy:
            while todo and free:
                curl, url, body = free.pop(), todo.pop(), BytesIO()
                curl.setopt(pycurl.URL, sendable(url))
                curl.setopt(pycurl.WRITEDATA, body)
                busy[curl] = (url, body)
                multi.add_handle(curl)
            multi.perform()
            _, done, failed = multi.info_read()
            if failed and not pages:
                raise OSError(f"{busy[failed[0][0]][0]} cannot be fetched: {failed[0][2]}")
            for curl in (*done, *(curl for curl, _, _ in failed)):
                multi.remove_handle(curl)
                free.append(curl)
                url, body = busy.pop(curl)
                if curl not in done or not 200 <= curl.getinfo(pycurl.RESPONSE_CODE) < 300:
                    continue
                pages += 1
                text = body.getvalue()
                tree = _tree(text, curl.getinfo(pycurl.CONTENT_TYPE) or "")
                out.write(json.dumps({"url": url, "title": tree.findtext(".//title")}) + "\n")
                address = curl.getinfo(pycurl.EFFECTIVE_URL)
                base = document.base_url(tree, address) if _BASE.search(text) else address
                todo += _new_links(tree, base, root, seen)
            if busy and not (todo and free):
                multi.select(0.05)
    return pages


def _curl() -> pycurl.Curl:
    curl = pycurl.Curl()
    curl.setopt(pycurl.FOLLOWLOCATION, True)
    curl.setopt(pycurl.MAXREDIRS, _REDIRECTS)
    # no more than our fetcher asks for; what is compressed unasked is read, too
    curl.setopt(pycurl.ACCEPT_ENCODING, "")
    return curl


def _new_links(tree: Any, base: str, root: str, seen: set[str]) -> Iterator[str]:
    """Below ``root``, as URLs of tasks, which are added to ``seen``."""
    for element in tree.iterfind(".//a[@href]"):
        try:
            link = urljoin(base, element.get("href", "").strip())
            if link in seen or not link.startswith(root):
                continue
            seen.add(link)
            url = build_url(link)
        except (BadUrl, ValueError):
            continue
        if url == link or url not in seen:
            seen.add(url)
            yield url


def _tree(body: bytes, content_type: str) -> Any:
    """Of an empty page, or of a picture, there may be none."""
    try:
        return lxml.html.document_fromstring(body, parser=_parser(_encoding(body, content_type)))
    except (etree.LxmlError, ValueError):
        return lxml.html.Element("html")


def _encoding(body: bytes, content_type: str) -> str | None:
    """That the header says, else UTF-8 if the bytes are that; None leaves it to lxml, which looks into the page."""
    said = _CHARSET.search(content_type)
    if said:
        return said[1]
    try:
        body.decode()
    except UnicodeDecodeError:
        return None
    return "utf-8"


@functools.cache
def _parser(encoding: str | None) -> lxml.html.HTMLParser:
    try:
        return lxml.html.HTMLParser(encoding=encoding)
    except LookupError:
        return lxml.html.HTMLParser()


if __name__ == "__main__":
    began, used = time.monotonic(), time.process_time()
    count = crawl(*sys.argv[1:3])
    seconds, cpu = time.monotonic() - began, time.process_time() - used
    print(
        json.dumps(
            {"pages": count, "pages_per_s": round(count / seconds, 1), "cpu_ms_page": round(1000 * cpu / count, 3)}
        )
    )
