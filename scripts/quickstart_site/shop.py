"""A small shop on 127.0.0.1 for the quickstart to crawl: lists, details, JSON, a page in gb18030, one over https.

It notes each URL that it is asked for. Called by run.py.
"""

import json
import ssl
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

#: certificate of localhost with its key, signed by tls/ca.pem, which nothing trusts but this quickstart
CERTIFICATE = Path(__file__).parent / "tls" / "server.pem"
ITEMS, PER_LIST = 12, 4
Body = tuple[str, bytes]


class Shop:
    """The two servers, http and https, for the length of a `with` block."""

    def __init__(self) -> None:
        self._requested: list[str] = []
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._https = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        self._https.socket = context.wrap_socket(self._https.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"http://127.0.0.1:{self._http.server_port}/"
        self.secure_url = f"https://localhost:{self._https.server_port}/"

    def __enter__(self) -> "Shop":
        for server in (self._http, self._https):
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        for server in (self._http, self._https):
            server.shutdown()
            server.server_close()

    @property
    def requested(self) -> list[str]:
        """The URLs asked for so far, in order."""
        with self._lock:
            return list(self._requested)

    def page(self, path: str, secure: bool) -> Body | None:
        """What is at a path: content type and body."""
        with self._lock:
            self._requested.append((self.secure_url if secure else self.url) + path[1:])
        name, _, number = path.strip("/").rpartition("/")
        if path == "/":
            return self._front()
        if path == "/terms.html" and secure:
            return _html("Terms", "<p>Nothing here is for sale.</p>")
        if path == "/news.html":
            text = "<html><head><title>新闻：商店开业</title></head><body><h1>新闻：商店开业</h1><p>今天价格€更低。</p></body></html>"
            return "text/html; charset=gb18030", text.encode("gb18030")
        known = {"list": _list, "item": _item, "api/stock": _stock}.get(name)
        return known(int(number)) if known and number.isdigit() and 1 <= int(number) <= ITEMS else None

    def _front(self) -> Body:
        lists = "".join(
            f'<li><a class="list" href="/list/{n}">Page {n}</a></li>' for n in range(1, ITEMS // PER_LIST + 1)
        )
        others = (
            f'<a class="info" href="/news.html">News</a> <a class="info" href="{self.secure_url}terms.html">Terms</a>'
        )
        return _html("A small shop", f"<ul>{lists}</ul><p>{others}</p>")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def __init__(self, shop: Shop, *arguments: object) -> None:
        self._shop = shop
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        page = self._shop.page(self.path, isinstance(self.connection, ssl.SSLSocket))
        content_type, body = page or ("text/plain", b"not found")
        self.send_response(200 if page else 404)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def _html(title: str, body: str) -> Body:
    text = f"<!doctype html><html><head><title>{title}</title></head><body><h1>{title}</h1>{body}</body></html>"
    return "text/html; charset=utf-8", text.encode()


def _list(number: int) -> Body | None:
    first = (number - 1) * PER_LIST + 1
    items = "".join(f'<li><a class="item" href="../item/{n}">Item {n}</a></li>' for n in range(first, first + PER_LIST))
    return _html(f"Page {number}", f"<ul>{items}</ul>") if first <= ITEMS else None


def _item(number: int) -> Body:
    return _html(f"Item {number}", f'<p class="price">{number * 1.25:.2f}</p><p>Stock: /api/stock/{number}</p>')


def _stock(number: int) -> Body:
    return "application/json", json.dumps({"item": number, "stock": number * 7 % 10}).encode()
