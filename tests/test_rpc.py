import http.client
import logging
import socket
import xmlrpc.client
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from pyspider_lite import rpc
from pyspider_lite.errors import ConfigError, RefusedToStart


@pytest.fixture
def serve() -> Iterator[Callable[..., rpc.RpcServer]]:
    """Starts servers and stops them."""
    started = []

    def start(functions: Any = None, **options: Any) -> rpc.RpcServer:
        server = rpc.RpcServer("127.0.0.1", 0, explicit=True, **options)
        started.append(server)
        server.serve(functions or {"echo": lambda value: value})
        return server

    yield start
    for server in started:
        server.stop()


def post(url: str, body: bytes, **headers: str) -> int:
    """The status of a bare request."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    names = {"Content-Type": "text/xml", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request("POST", "/", body, names)
    with connection.getresponse() as response:
        response.read()
    connection.close()
    return response.status


CALL = xmlrpc.client.dumps(("x",), "echo").encode()


def test_values_come_back_as_they_went(serve):
    value = {"a": [1, None, "日本", b"\0", 1.5, True]}
    with xmlrpc.client.ServerProxy(serve().url, allow_none=True, use_builtin_types=True) as proxy:
        assert proxy.echo(value) == value
        assert "echo" in proxy.system.listMethods()


def test_an_error_is_a_fault_and_the_server_goes_on(serve):
    def broken() -> None:
        raise ValueError("no")

    with xmlrpc.client.ServerProxy(serve({"broken": broken, "one": lambda: 1}).url) as proxy:
        with pytest.raises(xmlrpc.client.Fault, match=r"ValueError.*no"):
            proxy.broken()
        assert proxy.one() == 1


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {}),
        (415, {"Content_Type": "text/plain"}),
        (415, {"Content_Encoding": "gzip"}),
        (413, {"Content_Length": str(rpc.REQUEST_LIMIT + 1)}),
        (411, {"Content_Length": "x"}),
        (403, {"Host": "evil.example"}),
        (200, {"Host": "localhost:1"}),
        (200, {"Host": "[::1]:1"}),
    ],
)
def test_what_is_refused(serve, status, headers):
    assert post(serve().url, CALL, **headers) == status


def test_a_password_is_asked_for(serve):
    server = serve(username="me", password="secret")
    assert post(server.url, CALL) == 401
    assert post(server.url, CALL, Authorization="Basic bWU6d3Jvbmc=") == 401
    with xmlrpc.client.ServerProxy(server.url.replace("//", "//me:secret@")) as proxy:
        assert proxy.echo(3) == 3


def test_other_machines_need_a_password():
    with pytest.raises(ConfigError, match="set rpc-username and rpc-password"):
        rpc.RpcServer("0.0.0.0", 0, explicit=True)
    rpc.RpcServer("0.0.0.0", 0, explicit=True, username="me", password="secret").stop()


def test_a_port_in_use(caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RefusedToStart, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            rpc.RpcServer("127.0.0.1", port, explicit=True)
        caplog.set_level(logging.INFO)
        server = rpc.RpcServer("127.0.0.1", port, explicit=False)
        server.stop()
    assert server.url != f"http://127.0.0.1:{port}/"
    assert f"port {port} is in use" in caplog.text


def test_an_address_that_is_none():
    with pytest.raises(ConfigError, match="not an address of this machine"):
        rpc.RpcServer("no.such.host.invalid", 0, explicit=True, username="a", password="b")
