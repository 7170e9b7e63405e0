"""The web site that the scripts of `scripts/` crawl: each project sees it at an address of its own, so its requests are counted apart."""

import email.parser
import email.policy
import json
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ITEMS_A_LIST = 3
LISTS = 4
_TREE = 3
GB = {1: "北京", 2: "上海", 3: "广州", 4: "深圳", 5: "天津", 6: "重庆", 7: "成都", 8: "武汉", 9: "西安", 10: "南京"}
#: name -> (text, codec, charset in the header, charset in the page)
ENCODED = {
    "utf-8-header": ("größer 中", "utf-8", "utf-8", ""),
    "utf-8-meta": ("größer 中", "utf-8", "", "utf-8"),
    "bom": ("größer 中", "utf-8-sig", "gbk", ""),
    "gbk-meta": ("中文網頁", "gbk", "", "gbk"),
    "big5-header": ("繁體中文", "big5", "big5", ""),
    "shift_jis-meta": ("日本語", "shift_jis", "", "Shift_JIS"),
    "euc-kr-header": ("한국어", "euc-kr", "euc-kr", ""),
    "cp1251-meta": ("Привет, мир", "cp1251", "", "windows-1251"),
    "latin1-header": ("naïve café", "latin-1", "iso-8859-1", ""),
    "wrong-header": ("错误的声明", "gbk", "utf-8", ""),
}


def page(title: str, body: str, head: str = "") -> bytes:
    return (
        f"<!doctype html><html><head>{head}<title>{title}</title></head><body><h1>{title}</h1>{body}</body></html>"
    ).encode()


class Page(BaseHTTPRequestHandler):
    """Answers one request; which function does is found by the first part of the path."""

    protocol_version = "HTTP/1.1"
    server: "SiteServer"

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        self.query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        name, _, self.rest = parts.path[1:].partition("/")
        with self.server.lock:
            self.server.requests[self.path] += 1
        answer = getattr(self, f"on_{name.replace('.', '_')}", None)
        if answer is None:
            self._send(page("no such page", ""), 404)
        else:
            answer()

    def _send(self, body: bytes, status: int = 200, kind: str = "text/html; charset=utf-8", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if status != 204:
            self.wfile.write(body)

    def _json(self, value: Any, **headers: str) -> None:
        self._send(json.dumps(value).encode(), 200, "application/json", **headers)

    def _number(self) -> int:
        return int(self.rest)

    # --- pages ----------------------------------------------------------------------------------------------------------

    def on_list(self) -> None:
        number = self._number()
        first = (number - 1) * ITEMS_A_LIST + 1
        items = "".join(
            f'<li><a class="item" href="/item/{i}">Item {i}</a></li>' for i in range(first, first + ITEMS_A_LIST)
        )
        following = f'<a class="next" href="{number + 1}">next</a>' if number < LISTS else ""
        self._send(page(f"List {number}", f"<ul>{items}</ul>{following}"))

    def on_item(self) -> None:
        number = self._number()
        tags = "".join(f"<li>tag{tag}</li>" for tag in range(number % 3 + 1))
        body = f'<span class="price">${number * 1.5:.2f}</span><ul class="tags">{tags}</ul>'
        self._send(page(f"Item {number}", body))

    def on_table(self) -> None:
        rows = "".join(f"<tr><td> r{i} </td><td><b>{i * i}</b></td></tr>" for i in range(1, 4))
        self._send(page("Table", f'<table id="data"><tr><th>name</th><th>square</th></tr>{rows}</table>'))

    def on_gallery(self) -> None:
        images = "".join(f'<img src="img/{i}.png" alt="picture {i}">' for i in range(1, 11))
        self._send(page("Gallery", images))

    def on_img(self) -> None:
        number = int(self.rest.partition(".")[0])
        self._send(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * number, 200, "image/png")

    def on_tree(self) -> None:
        depth = self.rest.count("-") + 1 if self.rest else 0
        below = range(_TREE) if depth < _TREE - 1 else ()
        links = "".join(f'<a href="/tree/{self.rest}{"-" if self.rest else ""}{i}">{i}</a>' for i in below)
        self._send(page(f"Tree {self.rest}", f'{links}<a href="/tree/">up</a>'))

    def on_sitemap_xml(self) -> None:
        host = self.headers["Host"]
        urls = "".join(
            f"<url><loc>http://{host}/item/{i}</loc><lastmod>2026-01-{i:02}</lastmod></url>" for i in range(1, 11)
        )
        text = f'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'
        self._send(text.encode(), 200, "application/xml")

    def on_gb(self) -> None:
        head = '<meta http-equiv="Content-Type" content="text/html; charset=gb2312">'
        if not self.rest:
            body = "".join(f'<a href="/gb/{i}.html">{name}</a>' for i, name in GB.items())
            self._send(page("城市", body, head).decode().encode("gb2312"), kind="text/html")
            return
        name = GB[int(self.rest.partition(".")[0])]
        self._send(page(name, f"<p>{name}市欢迎您</p>", head).decode().encode("gb2312"), kind="text/html")

    def on_encoded(self) -> None:
        text, codec, header, meta = ENCODED[self.rest]
        head = f'<meta charset="{meta}">' if meta else ""
        body = f"<html><head>{head}</head><body><p>{text}</p></body></html>".encode(codec)
        self._send(body, kind=f"text/html; charset={header}" if header else "text/html")

    def on_robots_txt(self) -> None:
        self._send(b"User-agent: *\nDisallow: /hidden/\n", kind="text/plain")

    def on_hidden(self) -> None:
        self._send(page("hidden", ""))

    # --- logins, forms, interfaces --------------------------------------------------------------------------------------

    def on_login(self) -> None:
        form = parse_qs(self.body.decode())
        if self.command == "POST" and form == {"user": ["alice"], "password": ["wonder&land"]}:
            self._send(b"", 302, Location="/private/1", Set_Cookie="session=s3cr3t; Path=/; HttpOnly")
        else:
            self._send(page("wrong password", ""), 403)

    def on_private(self) -> None:
        if "session=s3cr3t" not in (self.headers.get("Cookie") or ""):
            self._send(page("log in first", ""), 403)
        else:
            self._send(page("private", '<p id="hello">Hello, alice</p>'))

    def on_search(self) -> None:
        form = {key: values[-1] for key, values in parse_qs(self.body.decode()).items()}
        number = int(form["page"])
        hits = [f"{form['q']}-{number * 10 + i}" for i in range(2)]
        self._json({"q": form["q"], "hits": hits, "more": number < 5})

    def on_api(self) -> None:
        if self.rest == "items":
            number, size = int(self.query["page"]), int(self.query["size"])
            first = (number - 1) * size + 1
            ids = range(first, min(first + size, 11))
            self._json({"items": [{"id": i} for i in ids], "next": number + 1 if first + size < 11 else None})
            return
        number = int(self.rest.partition("/")[2])
        item = {"id": number, "name": f"Item {number}", "price": number * 1.5, "stock": [1, None, True]}
        self._json(item if self.headers.get("X-Requested-With") == "XMLHttpRequest" else {"error": "no XMLHttpRequest"})

    def on_jsonp(self) -> None:
        number = self._number()
        value = {"id": number, "comments": [{"text": f"comment {number}.{i}"} for i in range(number % 3)]}
        self._send(f"{self.query['callback']}({json.dumps(value)});".encode(), kind="application/javascript")

    def on_upload(self) -> None:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + self.body)
        parts = {}
        for part in message.iter_parts():  # type: ignore[attr-defined]
            content = part.get_payload(decode=True)
            name = part.get_param("name", header="content-disposition")
            parts[name] = {"filename": part.get_filename(), "bytes": len(content), "sum": sum(content)}
        self._json({"method": self.command, "parts": parts})

    def on_echo(self) -> None:
        path, _, query = self.path.partition("?")
        shown = {"method": self.command, "path": unquote(path), "query": query, "body": self.body.decode()}
        self._json({**shown, "headers": dict(self.headers.items())})

    # --- odd answers ----------------------------------------------------------------------------------------------------

    def on_status(self) -> None:
        self._send(page(f"status {self.rest}", ""), self._number())

    def on_flaky(self) -> None:
        with self.server.lock:
            times = self.server.requests[self.path]
        fails = int(self.query["fails"])
        if times <= fails:
            self._send(page("not now", ""), 500)
        else:
            self._json({"page": self.rest, "at": times})

    def on_visits(self) -> None:
        with self.server.lock:
            self._json({"page": self.rest, "visits": self.server.requests[self.path]})

    def on_redirect(self) -> None:
        left = self._number()
        query = f"?{urlsplit(self.path).query}" if "?" in self.path else ""
        self._send(b"", 302, Location=f"/redirect/{left - 1}{query}" if left > 1 else "/item/1")

    def on_etag(self) -> None:
        tag = f'"{self.rest}"'
        if self.headers.get("If-None-Match") == tag:
            self._send(b"", 304, ETag=tag)
        else:
            self._send(page(f"Tag {self.rest}", ""), ETag=tag)


class SiteServer(ThreadingHTTPServer):
    """One project's view of the site."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str) -> None:
        super().__init__((host, 0), Page)
        self.host = host
        self.lock = threading.Lock()
        #: number of requests by path and query
        self.requests: Counter[str] = Counter()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def place(self, text: str) -> str:
        """The text with this server where ``127.0.0.1:18080`` is written."""
        return text.replace("127.0.0.1:18080", f"{self.host}:{self.server_port}").replace(
            "18080", str(self.server_port)
        )

    def displace(self, text: str) -> str:
        """The opposite."""
        return re.sub(rf"{re.escape(self.host)}:{self.server_port}", "127.0.0.1:18080", text)
