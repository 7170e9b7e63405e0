"""The fetch of one page against real servers: methods, bodies, limits, every kind of error with its real cause."""

import asyncio
import gzip
import socket
import threading
import time
import zlib
from contextlib import closing

import brotli
import pytest
import zstandard

from pyspider_lite.fetcher.decoding import ACCEPT_ENCODING
from pyspider_lite.fetcher.fetch import Fetch
from pyspider_lite.fetcher.http import EngineOptions, HttpEngine, system_ca_file
from pyspider_lite.fetcher.redirects import Chain
from pyspider_lite.models import Dispatch

BOMB = b"\0" * (40 * 1024 * 1024)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + end


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


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


# --- TLS ---


def test_https(serve, get, tls_of, ca_file):
    server = serve(tls=tls_of("localhost"))
    url = f"https://localhost:{server.port}/"
    response = get(url, engine={"ca_file": ca_file})
    assert (response.status_code, response.content) == (200, b"hello")
    assert response.timings["tls"] > 0


@pytest.mark.behaviour("F24")
def test_certificates_are_checked_and_the_error_names_the_host(serve, get, tls_of, ca_file):
    server = serve(tls=tls_of("other.example"))
    url = f"https://localhost:{server.port}/"
    for engine in ({}, {"ca_file": ca_file}):
        response = get(url, engine=engine)
        assert (response.status_code, response.error_kind) == (599, "tls")
        assert f"(localhost:{server.port})" in response.error
    assert get(url, validate_cert=False).status_code == 200


def test_no_tls_at_all(get):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak_plainly():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=speak_plainly, daemon=True)
        thread.start()
        response = get(f"https://127.0.0.1:{listener.getsockname()[1]}/", timeout=10)
        thread.join(5)
    assert (response.status_code, response.error_kind) == (599, "tls")


def test_there_is_a_ca_file():
    with open(system_ca_file()) as file:
        assert "BEGIN CERTIFICATE" in file.read()


# --- proxies ---


@pytest.fixture
def proxy(serve, reply):
    """Forwards nothing: answers plain requests itself, and tunnels CONNECT to the port named."""

    def respond(seen, connection):
        if seen.method != "CONNECT":
            return reply(f"proxied {seen.target}".encode())
        if seen.target.startswith("forbidden."):
            return reply(b"", "403 Forbidden")
        with socket.create_connection(("127.0.0.1", int(seen.target.rpartition(":")[2]))) as upstream:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\nX-Proxy: 1\r\n\r\n")
            pump = threading.Thread(target=_pump, args=(upstream, connection), daemon=True)
            pump.start()
            _pump(connection, upstream)
            pump.join(5)
        return None

    return serve(respond)


def _pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_proxy_with_credentials(proxy, get):
    response = get("http://example.test/x", proxy=f"us%40er:pa:ss@127.0.0.1:{proxy.port}")
    assert response.content == b"proxied http://example.test/x"
    assert proxy.seen[0].headers["proxy-authorization"] == "Basic dXNAZXI6cGE6c3M="
    assert response.proxy == f"http://us@er:***@127.0.0.1:{proxy.port}"


def test_the_fetchers_proxy_and_false(proxy, serve, get):
    defaults = {"proxy": f"127.0.0.1:{proxy.port}"}
    direct = serve()
    assert get("http://example.test/", defaults=defaults).content == b"proxied http://example.test/"
    response = get(direct.url, defaults=defaults, proxy=False)
    assert (response.content, response.proxy) == (b"hello", None)


def test_https_through_a_proxy(proxy, serve, get, tls_of, ca_file):
    server = serve(tls=tls_of("site.test"))
    response = get(f"https://site.test:{server.port}/", proxy=f"127.0.0.1:{proxy.port}", engine={"ca_file": ca_file})
    assert (response.status_code, response.content) == (200, b"hello")
    assert "X-Proxy" not in response.headers


def test_what_goes_wrong_at_the_proxy(proxy, get):
    for url, where in (
        ("https://forbidden.test/", f"127.0.0.1:{proxy.port}"),
        ("http://a.test/", f"127.0.0.1:{free_port()}"),
        ("http://a.test/", "no-such-proxy.invalid:1"),
    ):
        response = get(url, proxy=where, timeout=10)
        assert (response.status_code, response.error_kind) == (599, "proxy"), (where, response.error)


def test_the_environments_proxies_are_ignored(serve, get, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "")
    assert get(serve().url).status_code == 200


# --- addresses that are refused: none of these tests may reach a real metadata service, so they use loopback or silent addresses ---


@pytest.mark.parametrize(
    "host", ["169.254.77.77", str(0xA9FE4D4D), "0xa9.254.19789", "[fe80::1]", "[::ffff:169.254.77.77]"]
)
def test_link_local_addresses_are_refused(get, host, serve):
    response = get(f"http://{host}/", timeout=5)
    assert (response.status_code, response.error_kind) == (599, "refused-address")
    proxy = serve()
    assert get(f"http://{host}/", timeout=5, proxy=proxy.url).error_kind == "refused-address"
    assert proxy.seen == []


def test_the_check_sees_what_a_name_resolves_to_and_can_be_turned_off(serve, get, monkeypatch):
    """Loopback stands in for the refused addresses, because no test may depend on what answers at the real ones."""
    server = serve()
    url = f"http://localhost:{server.port}/"
    monkeypatch.setattr("pyspider_lite.fetcher.http.is_refused", lambda address: address in ("127.0.0.1", "::1"))
    response = get(url)
    assert (response.status_code, response.error_kind) == (599, "refused-address")
    assert server.connections == 0
    assert get(url, engine={"allow_link_local": True}).status_code == 200


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
