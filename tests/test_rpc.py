"""The XML-RPC server on real sockets: who may call, what a call may be, and what those get who mean it no good."""

import base64
import datetime
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import xmlrpc.client
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote
from xmlrpc.client import Fault, ProtocolError, ServerProxy

import pytest

from pyspider_lite import rpc
from pyspider_lite.errors import ConfigError, RefusedToStart
from pyspider_lite.rpc import address, client, server

LOCAL = "127.0.0.1"
CALL = xmlrpc.client.dumps(("x",), "echo").encode()
SECRET = "s3cret"


def size() -> int:
    """Reads."""
    return 7


def functions() -> dict[str, Callable[..., Any]]:
    return {"echo": lambda value: value, "size": size, "counter": lambda time, type: [time, type]}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., rpc.RpcServer]]:
    """Starts servers and stops them."""
    monkeypatch.setattr(server, "LOOK_EACH", 0.02)
    started = []

    def start(mine: Any = None, host: str = LOCAL, **options: Any) -> rpc.RpcServer:
        one = rpc.RpcServer(host, 0, **options)
        started.append(one)
        one.serve(mine or functions())
        return one

    yield start
    for one in started:
        one.stop()


def port_of(one: rpc.RpcServer) -> int:
    return int(one.url.rstrip("/").rpartition(":")[2])


def raw(port: int, data: bytes, host: str = LOCAL, end: bool = False) -> bytes:
    """All that comes back for these bytes."""
    with socket.create_connection((host, port), timeout=15) as connection:
        connection.sendall(data)
        if end:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def request(body: bytes = CALL, path: str = "/", host: str = LOCAL, to: int = 0, **headers: str) -> bytes:
    """The status line's number and the answer to a request with these headers."""
    given = {"Host": host, "Content-Type": "text/xml", "Content-Length": str(len(body))}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value != "-")]
    return raw(to, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def status(*arguments: Any, **options: Any) -> int:
    return int(request(*arguments, **options).split()[1])


def basic(secret: str, user: str = "") -> str:
    return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


def wait_until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


# --- calls --------------------------------------------------------------------------------------------------------------


def test_values_come_back_as_they_went(serve: Any) -> None:
    value = {"a": [1, None, "日本 🎉 <&>]]>", b"\0", 1.5, True, datetime.datetime(2020, 1, 2, 3, 4, 5)], "": {}}
    with ServerProxy(serve().url, allow_none=True, use_builtin_types=True) as proxy:
        assert proxy.echo(value) == value
        assert proxy.system.listMethods() == [
            *("counter", "echo", "size"),
            *("system.listMethods", "system.methodHelp", "system.methodSignature"),
        ]
        assert proxy.system.methodHelp("size") == "Reads."


def test_what_xml_rpc_cannot_say_is_made_fit(serve: Any) -> None:
    answers = {
        "big": lambda: [2**31 - 1, 2**31, -(2**63), 2**63 - 1],
        "bigger": lambda: 2**70,
        "text": lambda: {"a\0b": "\x1b[31m \ud800 \uffff ok\r\n"},
        "strange": lambda: object(),
        "loop": lambda: (lambda loop: loop.append(loop) or loop)([]),
    }
    with ServerProxy(serve(answers).url, allow_none=True) as proxy:
        assert proxy.big() == [2**31 - 1, 2**31, -(2**63), 2**63 - 1]
        assert proxy.bigger() == float(2**70)
        assert proxy.text() == {"a�b": "�[31m � � ok\n"}
        for wrong in (proxy.strange, proxy.loop):
            with pytest.raises(Fault, match="the answer cannot be sent: "):
                wrong()


@pytest.mark.parametrize(
    ("method", "arguments", "said"),
    [
        ("nothing", (), "there is no method nothing; system.listMethods names them"),
        ("size.__class__", (), "there is no method size.__class__"),
        ("system.multicall", ([],), "there is no method system.multicall"),
        ("counter", ("5m",), "counter: missing a required argument: 'type'"),
        ("size", (1,), "size: too many positional arguments"),
        ("broken", (), "broken: ValueError: no"),
    ],
)
def test_a_wrong_call_is_a_fault_and_the_server_goes_on(
    serve: Any, method: str, arguments: tuple[Any, ...], said: str
) -> None:
    def broken() -> None:
        raise ValueError("no")

    with ServerProxy(serve({**functions(), "broken": broken}).url) as proxy:
        with pytest.raises(Fault) as caught:
            xmlrpc.client._Method(proxy._ServerProxy__request, method)(*arguments)
        assert caught.value.faultString.startswith(said)
        assert "Traceback" not in caught.value.faultString
        assert proxy.size() == 7


def laughs(depth: int = 9) -> bytes:
    entities = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(depth))
    return (
        f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">{entities}]><methodCall><methodName>echo</methodName>'
        f"<params><param><value>&l{depth};</value></param></params></methodCall>"
    ).encode()


def call_of(value: str) -> bytes:
    return f"<methodCall><methodName>echo</methodName><params><param>{value}</param></params></methodCall>".encode()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no element found"),
        (b"\xff\xfe\0", "this is no XML-RPC call"),
        (b"<a/>", "this is no XML-RPC call"),
        (b"<methodCall></methodCall>", "this is no XML-RPC call"),
        (b"<methodCall><methodName>echo</methodName>", "no element found"),
        (laughs(), "a document type is not allowed"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "a document type is not allowed"),
        (call_of("<value><int>x</int></value>"), "invalid literal for int"),
        (call_of(f"<value><int>{'9' * 5000}</int></value>"), "this is no XML-RPC call"),
        (call_of("<value><dateTime.iso8601>soon</dateTime.iso8601></value>"), "this is no XML-RPC call"),
        (call_of("<value><base64>*</base64></value></array>"), "mismatched tag"),
        (call_of("<value><what>1</what></value>"), "this is no XML-RPC call"),
        (xmlrpc.client.dumps(Fault(1, "x"), methodresponse=True).encode(), "this is no XML-RPC call"),
        (xmlrpc.client.dumps((1,), methodresponse=True).encode(), "it names no method"),
        (call_of("<value><array><data>" * 50_000 + "</data></array></value>" * 50_000), "it is nested too deeply"),
    ],
)
def test_what_is_no_call(serve: Any, body: bytes, said: str) -> None:
    port = port_of(serve())
    answer = request(body, to=port)
    with pytest.raises(Fault) as caught:
        xmlrpc.client.loads(answer.partition(b"\r\n\r\n")[2])
    assert said in caught.value.faultString
    assert len(caught.value.faultString) < 300
    assert status(to=port) == 200


# --- requests -----------------------------------------------------------------------------------------------------------


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


# --- the secret ---------------------------------------------------------------------------------------------------------


def test_from_this_machine_the_secret_is_needed_for_what_changes_something(serve: Any) -> None:
    one = serve(secret=SECRET)
    with ServerProxy(one.url) as proxy:
        assert proxy.size() == 7
        assert "echo" in proxy.system.listMethods()
        with pytest.raises(ProtocolError, match="echo changes something, so it needs the secret") as caught:
            proxy.echo(1)
        assert caught.value.errcode == 401
    with ServerProxy(one.url.replace("//", f"//:{SECRET}@")) as proxy:
        assert (proxy.size(), proxy.echo(3)) == (7, 3)
    # by a rebound name nothing can be read
    assert status(xmlrpc.client.dumps((), "size").encode(), to=port_of(one), Host="evil.example") == 401
    assert status(to=port_of(one), Host="evil.example", Authorization=basic(SECRET)) == 200


@pytest.mark.parametrize("secret", ["a:b@c/d?e#f%20 +", "пароль🎉", "x" * 1000])
def test_secrets_are_percent_encoded_in_the_url(serve: Any, secret: str) -> None:
    one = serve(secret=secret)
    with ServerProxy(one.url.replace("//", f"//:{quote(secret, safe='')}@")) as proxy:
        assert proxy.echo(3) == 3
    assert client.call(one.url, secret, "echo", 4) == 4


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic",
        "Basic ",
        "Basic ***",
        basic(""),
        basic("s3cre"),
        basic("s3cret "),
        basic("", SECRET),
        "Bearer s3cret",
    ],
)
def test_a_wrong_secret(serve: Any, caplog: pytest.LogCaptureFixture, header: str) -> None:
    port = port_of(serve(secret=SECRET))
    assert status(to=port, Authorization=header) == 401
    # it gives no less than none
    assert status(xmlrpc.client.dumps((), "size").encode(), to=port, Authorization=header) == (401 if header else 200)
    assert status(to=port, Authorization=basic(SECRET, "any user")) == 200
    assert SECRET not in caplog.text


def test_many_wrong_secrets_are_one_line(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    port = port_of(serve(secret=SECRET))
    assert {status(to=port, Authorization=basic(str(number))) for number in range(200)} == {401}
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "XML-RPC: a call from 127.0.0.1 with a wrong secret was refused"
    ]
    assert status(to=port, Authorization=basic(SECRET)) == 200


def test_a_secret_given_where_none_is_asked_for_does_no_harm(serve: Any) -> None:
    with ServerProxy(serve().url.replace("//", "//:any@")) as proxy:
        assert proxy.echo(3) == 3


# --- addresses ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("X-X2")
def test_other_machines_need_a_secret() -> None:
    for host in ("0.0.0.0", "", "::"):
        with pytest.raises(ConfigError, match="can be reached from other machines: set rpc-secret"):
            rpc.RpcServer(host, 0)
        one = rpc.RpcServer(host, 0, secret=SECRET)
        one.stop()
        assert "0.0.0.0" not in one.url and "[::]" not in one.url


def test_on_all_addresses_the_secret_is_asked_of_others_only(serve: Any) -> None:
    """Another loopback address stands for another machine's: what counts is where the call comes from and how it names us."""
    port = port_of(serve(host="::", secret=SECRET))
    read = xmlrpc.client.dumps((), "size").encode()
    assert status(read, to=port) == 200, "an IPv4 client of an IPv6 socket"
    assert status(read, to=port, host="192.0.2.7") == 401
    assert status(read, to=port, host="192.0.2.7", Authorization=basic(SECRET)) == 200


@pytest.mark.parametrize("host", ["::1", "[::1]", "127.0.0.2", "localhost"])
def test_other_loopback_addresses(serve: Any, host: str) -> None:
    one = serve(host=host)
    with ServerProxy(one.url) as proxy:
        assert proxy.echo(3) == 3
    assert ("[::1]" in one.url) == (":" in host) or host == "localhost"


def test_a_port_in_use(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        one = rpc.RpcServer(LOCAL, port)
        one.stop()
    assert port_of(one) > port
    assert [record.getMessage() for record in caplog.records] == [
        f"port {port} is in use: XML-RPC listens on {port_of(one)}"
    ]


def test_no_port_is_left() -> None:
    with socket.socket() as taken:
        try:
            taken.bind((LOCAL, 65535))
            taken.listen()
        except OSError:
            pass  # then somebody else has it
        with pytest.raises(RefusedToStart, match=r"the ports from 65535 of 127\.0\.0\.1 are all in use"):
            rpc.RpcServer(LOCAL, 65535)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1", "a b", "x" * 300, "ü\0"])
def test_an_address_that_is_none(host: str) -> None:
    with pytest.raises(ConfigError, match="is not an address of this machine"):
        rpc.RpcServer(host, 0, secret=SECRET)


def test_what_is_a_loopback_address() -> None:
    for host in ("localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert address.is_loopback(host)
    for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "::ffff:10.0.0.1"):
        assert not address.is_loopback(host)


# --- the client ---------------------------------------------------------------------------------------------------------


def test_the_client_says_what_went_wrong(serve: Any) -> None:
    one = serve(secret=SECRET)
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:\d+/ answers: there is no method no"):
        client.call(one.url, SECRET, "no")
    with pytest.raises(ConfigError, match="answers: 401 the secret is wrong"):
        client.call(one.url, "other", "echo", 1)
    with pytest.raises(ConfigError, match=r"http://:\*\*\*@127\.0\.0\.1:\d+/ answers: 401 the secret is wrong"):
        client.call(one.url.replace("//", "//:t0ps@"), SECRET, "echo", 1)
    silent = socket.create_server((LOCAL, 0))
    where = f"http://{LOCAL}:{silent.getsockname()[1]}"
    with silent, pytest.raises(RefusedToStart, match="does not answer: timed out"):
        client.call(where, "", "size", timeout=0.2)
    with pytest.raises(RefusedToStart, match="does not answer: Connection refused"):
        client.call(where, "", "size")
    for wrong in ("127.0.0.1:23333", "https://127.0.0.1/", "http://", "http://[::1", "http://127.0.0.1:x/"):
        with pytest.raises(ConfigError, match=r"is not the URL of an XML-RPC server: expected http://HOST:PORT/"):
            client.call(wrong, "", "size")


def test_what_a_large_call_costs() -> None:
    """A request of the largest size, made to unpack to as much as it can, leaves the process alive and answering."""
    script = """
import re
from pyspider_lite.rpc import calls, server
body = b"<methodCall><methodName>x</methodName><params><param><value><array><data>"
body += b"<value><struct></struct></value>" * ((server.REQUEST_LIMIT - 200) // 32)
calls.read(body + b"</data></array></value></param></params></methodCall>")
# not getrusage: that counts the process which started this one, too
print(int(re.search("VmHWM:[^0-9]*([0-9]+)", open("/proc/self/status").read())[1]) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=os.environ)
    assert int(done.stdout) < 200, done.stderr
