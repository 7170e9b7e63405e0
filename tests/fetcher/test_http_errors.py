"""What may go wrong with a fetch, each with a real cause: limits, broken answers, servers that are silent or not there."""

import socket
import time

import pytest

from pyspider_lite.bench.servers.ports import free_port
from pyspider_lite.fetcher.redirects import Chain


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + end


# --- limits ---


@pytest.mark.behaviour("F25", "X-M3")
@pytest.mark.parametrize("announced", [True, False])
def test_body_limit(serve, get, reply, announced):
    body = b"x" * 200_000
    server = serve(reply(body) if announced else chunked(body[:100_000], body[100_000:]))
    response = get(server.url, engine={"body_limit": 150_000})
    assert (response.status_code, response.error_kind) == (599, "too-large")
    assert "larger than 150000 bytes" in response.error
    assert get(server.url, engine={"body_limit": 200_000}).content == body


def test_a_large_announced_body_is_not_read(serve, get):
    def respond(seen, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\n\r\nx")
        server.released.wait(10)

    server = serve(respond)
    started = time.monotonic()
    assert get(server.url, timeout=8).error_kind == "too-large"
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("lines", [[b"X-%d: %s" % (i, b"y" * 1000) for i in range(270)], [b"X: " + b"y" * 120_000]])
def test_header_limit(serve, get, lines):
    response = get(serve(b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(lines) + b"\r\nContent-Length: 0\r\n\r\n").url)
    assert (response.status_code, response.error_kind) == (599, "too-large")


def test_large_headers_below_the_limit(serve, get):
    lines = b"".join(b"X-%d: %s\r\n" % (i, b"y" * 1000) for i in range(200))
    response = get(serve(b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 0\r\n\r\n").url)
    assert (response.status_code, len(response.headers)) == (200, 201)


# --- every kind of error ---


@pytest.mark.behaviour("F41", "F40")
def test_refused(get):
    response = get(f"http://127.0.0.1:{free_port()}/")
    assert (response.status_code, response.error_kind, response.content) == (599, "connect", b"")
    assert response.error.startswith("HTTP 599: ")
    assert response.traceback is None
    assert response.url == response.orig_url and response.time > 0


@pytest.mark.behaviour("F41")
def test_name_that_does_not_exist(get):
    response = get("http://no-such-host.invalid/")
    assert (response.error_kind, response.status_code) == ("dns", 599)
    assert "resolve" in response.error


@pytest.mark.behaviour("F41")
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"], ids=["nothing", "a part"])
def test_total_timeout(serve, get, sent):
    def respond(seen, connection):
        connection.sendall(sent)
        server.released.wait(10)

    server = serve(respond)
    response = get(server.url, timeout=0.3)
    assert (response.status_code, response.error_kind) == (599, "timeout")
    assert 0.25 < response.time < 3
    assert response.timings["connect"] > 0


def test_connect_timeout(get):
    """A listener whose backlog is full answers no SYN."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        response = get(f"http://127.0.0.1:{listener.getsockname()[1]}/", connect_timeout=0.3, timeout=20)
    assert response.error_kind == "timeout"
    assert response.time < 5


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
    ],
)
def test_truncated(serve, get, sent):
    response = get(serve(lambda seen, connection: connection.sendall(sent)).url)
    assert (response.status_code, response.error_kind, response.content) == (599, "truncated", b"")


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"", "connect"),
        (b"SSH-2.0-OpenSSH\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc", "protocol"),
    ],
)
def test_no_http(serve, get, sent, kind):
    response = get(serve(lambda seen, connection: connection.sendall(sent)).url)
    assert (response.status_code, response.error_kind) == (599, kind)


def test_rubbish_behind_the_end_is_ignored(serve, get, reply):
    def respond(seen, connection):
        end = b"0\r\nX-Trailer: t\r\n\r\nrubbish" if seen.target == "/chunked" else b""
        connection.sendall(chunked(b"ab", b"c", end=end) if end else reply(b"abc") + b"rubbish")

    server = serve(respond)
    for path in ("/chunked", "/counted"):
        response = get(server.url + path)
        assert (response.status_code, response.content) == (200, b"abc")
        assert "X-Trailer" not in response.headers


@pytest.mark.parametrize(
    "url", ["ftp://a/", "file:///etc/passwd", "http://", "http://a:99999/", "http://a b/", "x", ""]
)
def test_invalid_urls(get, url):
    response = get(url)
    assert (response.status_code, response.error_kind) == (599, "invalid-url")
    assert response.error.startswith("HTTP 599: ")
    assert response.orig_url == url


def test_options_of_the_wrong_type_say_what_is_wrong(get):
    response = get("http://127.0.0.1:9/", timeout="10")
    assert response.error_kind == "invalid-request"
    assert response.error == "HTTP 599: timeout must be a positive number of seconds, not '10'"


@pytest.mark.behaviour("F4", "F40")
def test_a_mistake_of_ours_is_a_page_with_its_traceback(get, monkeypatch):
    def broken(self, check=None):
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(Chain, "run", broken)
    response = get("http://a.test/x", save={"kept": 1})
    assert (response.status_code, response.error_kind, response.content) == (599, "internal", b"")
    assert response.error == "HTTP 599: ZeroDivisionError: of all things"
    assert "in broken" in response.traceback and response.traceback.rstrip().endswith("of all things")
    assert (response.url, response.orig_url, response.save) == ("http://a.test/x", "http://a.test/x", {"kept": 1})
