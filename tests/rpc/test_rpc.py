"""The XML-RPC server on real sockets: what a call may be, and what our client says."""

import datetime
import os
import socket
import subprocess
import sys
import xmlrpc.client
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import pytest
from rpc_calls import LOCAL, SECRET, functions, port_of, request, status

from pyspider_lite.errors import ConfigError, RefusedToStart
from pyspider_lite.rpc import client

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
