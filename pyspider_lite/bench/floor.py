"""What a crawl of the site costs at least in Python: one process, pycurl and lxml, a set of seen links, nothing stored but a line a
page. Run as a process of its own, so that its CPU time can be told; the peer that every figure of ours stands beside.

``python -m pyspider_lite.bench.floor URL [FILE]``: crawls what is below the folder of URL; the lines go into FILE."""

import json
import os
import sys
import time
from io import BytesIO
from urllib.parse import urljoin

import lxml.html
import pycurl

CONNECTIONS = 64


def crawl(start: str, file: str = os.devnull) -> int:
    """Crawl everything below the folder of ``start`` that is reachable from it; the number of pages."""
    todo, seen = [start], {start}
    root = start.rpartition("/")[0]
    multi = pycurl.CurlMulti()
    multi.setopt(pycurl.M_MAXCONNECTS, CONNECTIONS)
    free = [pycurl.Curl() for _ in range(CONNECTIONS)]
    busy: dict[pycurl.Curl, tuple[str, BytesIO]] = {}
    pages = 0
    with open(file, "w") as out:
        while todo or busy:
            while todo and free:
                curl, url, body = free.pop(), todo.pop(), BytesIO()
                curl.setopt(pycurl.URL, url)
                curl.setopt(pycurl.WRITEDATA, body)
                busy[curl] = (url, body)
                multi.add_handle(curl)
            multi.perform()
            _, done, failed = multi.info_read()
            if failed:
                raise OSError(f"a page cannot be fetched: {failed[0][2]}")
            for curl in done:
                multi.remove_handle(curl)
                free.append(curl)
                url, body = busy.pop(curl)
                pages += 1
                tree = lxml.html.document_fromstring(body.getvalue())
                out.write(json.dumps({"url": url, "title": tree.findtext(".//title")}) + "\n")
                for element in tree.iterfind(".//a[@href]"):
                    link = urljoin(url, element.get("href", ""))
                    if link not in seen and link.startswith(root):
                        seen.add(link)
                        todo.append(link)
            if busy and not (todo and free):
                multi.select(0.05)
    return pages


if __name__ == "__main__":
    began, used = time.monotonic(), time.process_time()
    count = crawl(*sys.argv[1:3])
    seconds, cpu = time.monotonic() - began, time.process_time() - used
    print(
        json.dumps(
            {"pages": count, "pages_per_s": round(count / seconds, 1), "cpu_ms_page": round(1000 * cpu / count, 3)}
        )
    )
