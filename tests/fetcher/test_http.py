"""The fetch of one page against real servers: methods, bodies, codings, and the engine that does it."""

import asyncio
import gzip
import threading
import time
import zlib
from contextlib import closing

import brotli
import pytest
import zstandard

from pyspider_lite.fetcher.decoding import ACCEPT_ENCODING
from pyspider_lite.fetcher.fetch import Fetch
from pyspider_lite.fetcher.http import HttpEngine
from pyspider_lite.fetcher.transfer import EngineOptions
from pyspider_lite.models.page import Dispatch

BOMB = b"\0" * (40 * 1024 * 1024)


# --- requests and answers ---


@pytest.mark.behaviour("F10")
def test_a_page_and_all_that_is_known_of_it(serve, get, reply):
    server = serve(reply(b"<p>x", "200 OK", "Content-Type: text/html", "X-A: 1", "x-a: 2", "Set-Cookie: s=1; Path=/"))
    response = get(f"{server.url}/path?q=1", save={"n": [1]}, cookies={"c": "2"})
    assert (response.status_code, response.content, response.error, response.error_kind) == (200, b"<p>x", None, None)
    assert response.url == response.orig_url == f"{server.url}/path?q=1"
    assert response.headers["X-A"] == "1,2"
    assert response.headers["Content-Type"] == "text/html"
    assert response.cookies == {"c": "2", "s": "1"}
    assert response.save == {"n": [1]}
    assert response.redirects == []
    assert 0 < response.timings["first_byte"] <= response.timings["total"] <= response.time < 5


@pytest.mark.behaviour("F15")
def test_default_request(serve, get):
    server = serve()
    get(server.url)
    seen = server.seen[0]
    assert (seen.method, seen.target) == ("GET", "/")
    assert seen.headers["accept"] == "*/*"
    assert seen.headers["accept-encoding"] == ACCEPT_ENCODING == "gzip, deflate, br, zstd"
    assert seen.headers["user-agent"].startswith("pyspider_lite/")
    assert "expect" not in seen.headers and "cookie" not in seen.headers


@pytest.mark.behaviour("F23")
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT"])
@pytest.mark.parametrize("data", [None, "naïve", b"\x00\xff" * 2000], ids=["none", "text", "bytes"])
def test_methods_with_and_without_body(serve, get, method, data):
    """Behaviour F23 is mended: any method, with or without a body."""
    server = serve()
    response = get(server.url, method=method, data=data)
    seen = server.seen[0]
    assert response.status_code == 200
    assert seen.method == method
    assert seen.body == (data.encode() if isinstance(data, str) else data or b"")
    assert ("content-length" in seen.headers) == (data is not None or method in ("POST", "PUT", "PATCH"))
    assert "expect" not in seen.headers
    assert ("content-type" in seen.headers) == (method == "POST" and data is not None)


def test_form_type_is_added_for_post_only_and_the_users_own_wins(serve, get):
    server = serve()
    get(server.url, method="POST", data="a=1")
    get(server.url, method="POST", data="{}", headers={"content-type": "application/json"})
    types = [seen.headers["content-type"] for seen in server.seen]
    assert types == ["application/x-www-form-urlencoded", "application/json"]


def test_head_has_no_body_and_may_be_of_something_large(serve, get):
    server = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
    response = get(server.url, method="HEAD")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["Content-Length"] == "99999999999"


def test_handles_are_clean_after_special_requests(serve):
    """A handle that sent a POST through a proxy without checking certificates sends a plain GET next."""
    server = serve()

    async def run():
        with closing(Fetch(HttpEngine(EngineOptions()))) as fetch:
            for options in ({"method": "POST", "data": "x", "proxy": server.url, "validate_cert": False}, {}):
                await fetch(Dispatch(taskid="t", project="p", url=f"{server.url}/p", fetch=options))

    asyncio.run(run())
    assert [(seen.method, seen.target, seen.body) for seen in server.seen] == [
        ("POST", f"{server.url}/p", b"x"),
        ("GET", "/p", b""),
    ]


def test_connections_are_kept(serve):
    server = serve()

    async def run():
        with closing(Fetch(HttpEngine(EngineOptions()))) as fetch:
            for _ in range(10):
                response = await fetch(Dispatch(taskid="t", project="p", url=server.url))
                assert response.status_code == 200

    asyncio.run(run())
    assert (len(server.seen), server.connections) == (10, 1)


def test_header_values_in_utf8_and_empty_ones(serve, get):
    server = serve()
    get(server.url, headers={"x-name": "né", "X-Empty": "", "X-Number": 7, "X-None": None})
    lines = server.seen[0].lines
    assert "X-Name: né".encode().decode("latin-1") in lines
    assert any(line.rstrip() == "X-Empty:" for line in lines)
    assert "X-Number: 7" in lines
    assert not any(line.startswith("X-None") for line in lines)


@pytest.mark.behaviour("F23")
def test_space_and_other_raw_bytes_in_a_url(serve, get):
    server = serve()
    response = get(f'{server.url}/a b/ü"?q=<中>&x=%20y#frag ment')
    assert response.status_code == 200
    assert server.seen[0].target == "/a%20b/%C3%BC%22?q=%3C%E4%B8%AD%3E&x=%20y"


@pytest.mark.behaviour("F22")
@pytest.mark.parametrize("status", ["404 Not Found", "500 Internal Server Error", "304 Not Modified", "299 Odd", "418"])
def test_status_and_error_text(serve, get, reply, status):
    code, _, reason = status.partition(" ")
    server = serve(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    response = get(server.url)
    assert response.status_code == int(code)
    assert response.error == (None if code == "299" else f"HTTP {code}: {reason or chr(73) + chr(39) + 'm a Teapot'}")
    assert response.error_kind is None


def test_the_body_of_an_error_page_is_kept(serve, get, reply):
    response = get(serve(reply(b"sorry", "503 Service Unavailable", "Retry-After: 17")).url)
    assert (response.content, response.error, response.retry_after) == (b"sorry", "HTTP 503: Service Unavailable", 17.0)


def test_retry_after_counts_only_where_it_means_waiting(serve, get, reply):
    assert get(serve(reply(b"", "429 Too Many Requests", "Retry-After: 5")).url).retry_after == 5.0
    assert get(serve(reply(b"", "200 OK", "Retry-After: 5")).url).retry_after is None


def test_interim_answers_and_binary_bodies(serve, get, reply):
    body = bytes(range(256)) * 40
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    response = get(serve(interim + reply(body)).url)
    assert (response.status_code, response.content) == (200, body)
    assert "Link" not in response.headers


def test_empty_bodies(serve, get, reply):
    response = get(serve(reply(b"", "200 OK", "Content-Encoding: gzip")).url)
    assert (response.status_code, response.content, response.error) == (200, b"", None)
    assert get(serve(b"HTTP/1.1 204 No Content\r\n\r\n").url).content == b""


# --- content codings ---

ENCODERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "x-gzip": gzip.compress,
    "raw": lambda data: zlib.compress(data)[2:-4],
}


@pytest.mark.parametrize("coding", ENCODERS)
def test_codings(serve, get, reply, coding):
    plain = bytes(range(256)) * 3000
    packed = ENCODERS[coding](plain)
    name = "deflate" if coding == "raw" else coding
    response = get(serve(reply(packed, "200 OK", f"Content-Encoding: {name}")).url)
    assert (response.error, response.content) == (None, plain)


@pytest.mark.behaviour("F25")
@pytest.mark.parametrize("coding", ENCODERS)
def test_bombs(serve, get, reply, coding):
    name = "deflate" if coding == "raw" else coding
    response = get(serve(reply(ENCODERS[coding](BOMB), "200 OK", f"Content-Encoding: {name}")).url)
    assert (response.status_code, response.error_kind, response.content) == (599, "too-large", b"")
    assert response.error == f"HTTP 599: the decoded body is larger than {32 * 1024 * 1024} bytes"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_broken_and_truncated_codings(serve, get, reply, coding):
    header = f"Content-Encoding: {coding}"
    packed = ENCODERS[coding](bytes(range(256)) * 100)
    assert get(serve(reply(packed[:-5], "200 OK", header)).url).error_kind == "truncated"
    assert get(serve(reply(b"<html>plain after all", "200 OK", header)).url).error_kind == "protocol"


def test_several_codings_and_unknown_ones(serve, get, reply):
    packed = brotli.compress(gzip.compress(b"twice"))
    assert get(serve(reply(packed, "200 OK", "Content-Encoding: gzip, br")).url).content == b"twice"
    response = get(serve(reply(b"x", "200 OK", "Content-Encoding: compress")).url)
    assert (response.error_kind, "'compress'" in response.error) == ("protocol", True)


# --- the engine ---


def test_many_at_once_and_cancellation(serve, reply):
    gate = threading.Event()

    def respond(seen, connection):
        if seen.target == "/slow":
            gate.wait(10)
        return reply(seen.target.encode())

    server = serve(respond)

    async def run():
        with closing(Fetch(HttpEngine(EngineOptions()))) as fetch:

            def start(path):
                return asyncio.create_task(fetch(Dispatch(taskid="t", project="p", url=server.url + path)))

            slow = [start("/slow") for _ in range(5)]
            fast = await asyncio.gather(*[start(f"/{number}") for number in range(60)])
            for task in slow:
                task.cancel()
            ended = await asyncio.gather(*slow, return_exceptions=True)
            again = await start("/again")
            return fast, ended, again

    fast, ended, again = asyncio.run(run())
    gate.set()
    assert [response.content for response in fast] == [b"/%d" % number for number in range(60)]
    assert all(isinstance(error, asyncio.CancelledError) for error in ended)
    assert again.content == b"/again"


def test_one_engine_may_serve_one_loop_after_another(serve):
    fetch, server = Fetch(HttpEngine(EngineOptions())), serve()
    for _ in range(2):

        async def run():
            with closing(fetch):
                return await fetch(Dispatch(taskid="t", project="p", url=server.url))

        assert asyncio.run(run()).status_code == 200


def test_a_body_of_countless_gzip_members_is_refused_at_once(serve, get, reply):
    """zlib copies all that a member leaves over: one after the other would take minutes for these 70 KB."""
    member = gzip.compress(b"", 9, mtime=0)
    bomb = gzip.compress(member * 1_500_000, 6)
    began = time.process_time()
    response = get(serve(reply(bomb, "200 OK", "Content-Encoding: gzip, gzip")).url)
    assert (response.status_code, response.error_kind) == (599, "protocol")
    assert "members" in response.error
    assert time.process_time() - began < 5


def test_a_body_of_several_gzip_members_is_one(serve, get, reply):
    packed = b"".join(gzip.compress(bytes([65 + n]) * 40_000) for n in range(20)) + b"padding"
    content = get(serve(reply(packed, "200 OK", "Content-Encoding: gzip")).url).content
    assert content == b"".join(bytes([65 + n]) * 40_000 for n in range(20))
