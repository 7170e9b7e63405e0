"""Requests that the XML-RPC server refuses, or that mean it no good."""

import socket
import threading
import time
from contextlib import ExitStack
from typing import Any
from xmlrpc.client import ProtocolError, ServerProxy

import pytest
from rpc_calls import CALL, LOCAL, port_of, raw, size, status

from pyspider_lite.rpc import server


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        (200, {}),
        (200, {"path": "/RPC2"}),
        (404, {"path": "/etc/passwd"}),
        (415, {"Content_Type": "text/plain"}),
        (415, {"Content_Type": "-"}),
        (415, {"Content_Encoding": "gzip"}),
        (413, {"Content_Length": str(server.REQUEST_LIMIT + 1)}),
        (413, {"Content_Length": "9" * 50}),
        (411, {"Content_Length": "x"}),
        (411, {"Content_Length": "-5"}),
        (411, {"Content_Length": "1_0"}),
        (411, {"Content_Length": "-"}),
        (411, {"Transfer_Encoding": "chunked"}),
        # a web page whose name was bound to the loopback
        (403, {"Host": "evil.example"}),
        (403, {"Host": "127.0.0.1.evil.example"}),
        (403, {"Host": "-"}),
        (200, {"Host": "localhost:1"}),
        (200, {"Host": "[::1]:1"}),
    ],
)
def test_what_is_refused(serve: Any, expected: int, options: dict[str, str]) -> None:
    assert status(to=port_of(serve()), **options) == expected


def test_other_methods_are_refused(serve: Any) -> None:
    port = port_of(serve())
    for line, code in (("GET /", b"400"), ("PUT /", b"501"), ("OPTIONS /", b"501")):
        answer = raw(port, f"{line} HTTP/1.1\r\nHost: {LOCAL}\r\n\r\n".encode())
        assert answer.split()[1] == code
        assert b"Python" not in answer
    assert b"Traceback" not in raw(port, b"\x16\x03\x01 no HTTP\r\n\r\n")
    assert raw(port, b"GET /" + b"x" * 100_000).split()[1:2] == [b"414"]


def test_a_large_refused_request_hears_why(serve: Any) -> None:
    with pytest.raises(ProtocolError, match="a request may have"), ServerProxy(serve().url) as proxy:
        proxy.echo("x" * (server.REQUEST_LIMIT + 1))
    with ServerProxy(serve().url) as proxy:
        assert len(proxy.echo("x" * (server.REQUEST_LIMIT - 1000))) == server.REQUEST_LIMIT - 1000


def test_half_a_request_is_no_call(serve: Any) -> None:
    called: list[str] = []
    port = port_of(serve({"echo": called.append}))
    head = f"POST / HTTP/1.1\r\nHost: {LOCAL}\r\nContent-Type: text/xml\r\nContent-Length: {len(CALL) + 1}\r\n\r\n"
    assert raw(port, head.encode() + CALL, end=True) == b""
    assert called == []


def test_a_request_has_a_deadline_however_busily_it_comes(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_DEADLINE", 1.0)
    port = port_of(serve())
    began = time.monotonic()
    with socket.create_connection((LOCAL, port), timeout=10) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nX: ")
        with pytest.raises(OSError):
            while time.monotonic() - began < 8:
                slow.sendall(b"x")
                time.sleep(0.05)
    assert 0.9 < time.monotonic() - began < 4


def test_a_thousand_silent_connections_shut_nobody_out(serve: Any) -> None:
    one = serve()
    with ExitStack() as stack:
        for number in range(1000):
            silent = stack.enter_context(socket.create_connection((LOCAL, port_of(one)), timeout=5))
            if number % 2:
                silent.sendall(b"POST / HTTP/1.1\r\n")
        assert sum(thread.name.startswith("Thread-") for thread in threading.enumerate()) <= 2 * server.CONNECTIONS
        began = time.monotonic()
        with ServerProxy(one.url) as proxy:
            assert [proxy.echo(number) for number in range(5)] == list(range(5))
        assert time.monotonic() - began < 3


def test_calls_that_run_are_not_ended_for_others(serve: Any) -> None:
    go, came = threading.Event(), threading.Semaphore(0)

    def wait() -> bool:
        came.release()
        return go.wait(10)

    one = serve({"wait": wait, "size": size})
    answers: list[Any] = []

    def ask() -> None:
        with ServerProxy(one.url) as proxy:
            answers.append(proxy.wait())

    threads = [threading.Thread(target=ask) for _ in range(server.CONNECTIONS)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert came.acquire(timeout=10)
    assert raw(port_of(one), b"") == b"", "no more than that at once"
    go.set()
    for thread in threads:
        thread.join(10)
    assert answers == [True] * server.CONNECTIONS
    with ServerProxy(one.url) as proxy:
        assert proxy.size() == 7
