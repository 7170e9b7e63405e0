"""Who may call the XML-RPC server: secrets and addresses."""

import logging
import socket
import xmlrpc.client
from typing import Any
from urllib.parse import quote
from xmlrpc.client import ProtocolError, ServerProxy

import pytest
from rpc_calls import LOCAL, SECRET, basic, port_of, status

from pyspider_lite import rpc
from pyspider_lite.errors import ConfigError, RefusedToStart
from pyspider_lite.rpc import address, client

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
