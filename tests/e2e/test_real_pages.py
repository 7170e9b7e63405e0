"""Debian's python3-doc over http and https: the pages found are those that an independent little crawler finds."""

import functools
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import lxml.html
import pytest
import requests
import trustme

pytestmark = pytest.mark.e2e

SCRIPT = """
from urllib.parse import urldefrag

from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    crawl_config = {"retries": 0}  # a dead link is known to be dead at once

    def on_start(self):
        self.crawl("START", callback=self.page)

    def page(self, response):
        if "html" not in response.headers.get("Content-Type", ""):
            return {"title": None, "links": 0}
        links = {urldefrag(a.get("href"))[0] for a in response.doc("a[href]")}
        inside = [link for link in links if link.startswith("ROOT")]
        for link in inside:
            self.crawl(link, callback=self.page)
        return {"title": response.doc("title").text(), "links": len(inside)}
"""


def documentation() -> Path:
    """The folder of the package; scripts/test installs it."""
    found = sorted(Path("/usr/share/doc").glob("python3.*/html/index.html"))
    assert found, "Debian's python3-doc is missing: apt-get install python3-doc"
    return found[-1].parent


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that goes away is no news


@contextmanager
def serve(folder: Path, context: ssl.SSLContext | None) -> Iterator[str]:
    """The folder on a loopback port; the URL of its root."""
    server = _Server(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    scheme = "https" if context else "http"
    yield f"{scheme}://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def independent(root: str, ca: str) -> tuple[dict[str, tuple[str | None, int]], set[str]]:
    """Pages with title and number of links, and the dead links: by requests and lxml alone."""
    pages: dict[str, tuple[str | None, int]] = {}
    dead: set[str] = set()
    todo, seen = [root + "index.html"], {root + "index.html"}
    with requests.Session() as session:
        while todo:
            url = todo.pop()
            response = session.get(url, verify=ca)
            if response.status_code == 404:
                dead.add(url)
                continue
            response.raise_for_status()
            if "html" not in response.headers["Content-Type"]:
                pages[url] = (None, 0)
                continue
            tree = lxml.html.document_fromstring(response.content, parser=lxml.html.HTMLParser(encoding="utf-8"))
            links = {urldefrag(urljoin(response.url, a.get("href").strip()))[0] for a in tree.iterfind(".//a[@href]")}
            inside = {link for link in links if link.startswith(root)}
            pages[url] = (" ".join(tree.findtext(".//title", "").split()), len(inside))
            todo += inside - seen
            seen |= inside
    return pages, dead


@pytest.mark.timeout(300)
def test_python_documentation_over_http_and_https(make_suite: Callable[..., Any], tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    suite = make_suite(fetcher={"ca_file": str(tmp_path / "ca.pem")}, all={"processor_num": 2})
    suite.start()
    folder = documentation()
    with serve(folder, None) as plain, serve(folder, context) as secure:
        for name, root in (("plain", plain), ("secure", secure)):
            suite.push(name, SCRIPT.replace("START", root + "index.html").replace("ROOT", root))
        pages, dead = independent(plain, str(tmp_path / "ca.pem"))
        assert len([title for title, _ in pages.values() if title]) >= 400
        for name, root in (("plain", plain), ("secure", secure)):
            suite.wait(lambda name=name: suite.finished(name), 60)
            found = {
                url.replace(root, plain, 1): (_spaces(value["title"]), value["links"])
                for url, value in suite.results(name)
            }
            assert found == pages
            failed = suite.query("task", f"select url, track from taskdb_{name} where status != 2")
            assert {url.replace(root, plain, 1) for url, _ in failed} == dead
            assert all("404" in track for _, track in failed)


def _spaces(title: str | None) -> str | None:
    return title if title is None else " ".join(title.split())
