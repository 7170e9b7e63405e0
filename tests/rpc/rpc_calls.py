"""Calls of the XML-RPC server, byte by byte."""

import base64
import socket
import time
import xmlrpc.client
from collections.abc import Callable
from typing import Any

from pyspider_lite import rpc

LOCAL = "127.0.0.1"
CALL = xmlrpc.client.dumps(("x",), "echo").encode()
SECRET = "s3cret"


def size() -> int:
    """Reads."""
    return 7


def functions() -> dict[str, Callable[..., Any]]:
    return {"echo": lambda value: value, "size": size, "counter": lambda time, type: [time, type]}


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
