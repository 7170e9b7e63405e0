"""What ``crawl(data=..., files=...)`` was given arrives at the server byte for byte."""

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

#: every byte value; no UTF-8
BINARY = bytes(range(256)) * 3

SCRIPT = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        binary = bytes(range(256)) * 3
        self.crawl("URL#files", files={"upload": ("a.bin", binary, "application/octet-stream")}, data={"name": "x"}, callback=self.page)
        self.crawl("URL#bytes", data=binary, callback=self.page)
        self.crawl("URL#text", data="Grüße", callback=self.page)

    def page(self, response):
        return {"length": response.json}
"""


class _Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append((self.headers["Content-Type"], body))  # type: ignore[attr-defined]
        answer = str(len(body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    server.bodies = []  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.behaviour("F2", "H47", "X-P1")
def test_bodies_arrive_byte_for_byte(tmp_path: Any, command: Callable[..., Any], server: Any) -> None:
    script = tmp_path / "upload.py"
    script.write_text(SCRIPT.replace("URL", f"http://127.0.0.1:{server.server_port}/"))
    done = command("one", str(script))
    assert (done.code, done.err) == (0, "")
    bodies = {len(body): (kind, body) for kind, body in server.bodies}
    assert len(server.bodies) == 3
    assert bodies[len(BINARY)][1] == BINARY
    assert bodies[len("Grüße".encode())][1] == "Grüße".encode()
    kind, body = bodies[max(bodies)]
    assert kind.startswith("multipart/form-data; boundary=")
    boundary = kind.partition("boundary=")[2].encode()
    assert boundary in body and b'filename="a.bin"' in body
    assert b"\r\n\r\n" + BINARY + b"\r\n--" + boundary in body
