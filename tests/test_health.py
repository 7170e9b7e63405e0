"""The health port on real sockets."""

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import pyspider_lite
from pyspider_lite import bounded_server, health, outages
from pyspider_lite.errors import QueueError
from pyspider_lite.health import HealthServer, Subject, open_port
from pyspider_lite.readings import Reading

BROKER = "redis://:***@127.0.0.1:6379/0"


class Role:
    """Turns when it is told to."""

    def __init__(self) -> None:
        self.stepped = time.monotonic()
        self.broken = False

    def readings(self) -> list[Reading]:
        if self.broken:
            raise ValueError("a mistake")
        return [
            Reading("pages", "Pages by status", {"200": 3, "404": 1}, "status", counter=True),
            Reading("waiting", "Tasks", {"": 7}),
        ]


class Port:
    """A served port, and what its subject says."""

    def __init__(self) -> None:
        self.role = Role()
        self.received: list[int] = []
        self.more: dict[str, Any] = {}
        found = open_port("127.0.0.1", 0)
        assert found is not None
        self.server: HealthServer = found
        self.server.serve(Subject("fetcher", "host:1:x", self.role, lambda: bool(self.received), lambda: self.more))

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int(self.server.url.rstrip("/").rpartition(":")[2])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.server.url.rstrip("/") + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def raw(self, request: bytes) -> bytes:
        with socket.create_connection(self.address, 10) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.server.stop()


def test_healthy_while_the_loop_turns(port: Port) -> None:
    status, text = port.get("/healthz")
    assert status == 200
    assert json.loads(text)["healthy"] is True
    port.role.stepped -= health.STALE + 1
    status, text = port.get("/healthz")
    assert status == 503
    assert json.loads(text)["last_turn_seconds_ago"] > health.STALE


def test_ready_when_all_can_be_reached(port: Port) -> None:
    status, text = port.get("/readyz?verbose")
    assert status == 200
    assert json.loads(text) == {"ready": True, "role": "fetcher", "worker": "host:1:x", "waiting": {}}
    waiter = outages.Waiter()
    waiter.away(QueueError(f"{BROKER}: refused"), BROKER)
    assert outages.reasons() == {BROKER: "refused"}, "beats say it as well"
    status, text = port.get("/readyz")
    assert status == 503
    answer = json.loads(text)
    assert answer["ready"] is False
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer["waiting"][BROKER])
    # it still turns: a restart would not help
    assert port.get("/healthz")[0] == 200
    waiter.back()
    assert port.get("/readyz")[0] == 200 and outages.reasons() == {}


def test_who_takes_no_work_is_not_ready(port: Port) -> None:
    port.more["state"] = "draining"
    assert port.get("/readyz")[0] == 503
    port.more.clear()
    port.received.append(15)
    status, text = port.get("/readyz")
    assert status == 503
    assert json.loads(text)["state"] == "stopping"


def test_a_stand_by_is_ready(port: Port) -> None:
    port.more |= {"leading": False, "leader": "other:2:y", "leader_rpc": "http://10.0.0.1:23333/"}
    status, text = port.get("/readyz")
    assert status == 200
    assert json.loads(text)["leader_rpc"] == "http://10.0.0.1:23333/"


def test_metrics(port: Port) -> None:
    waiter = outages.Waiter()
    waiter.away(QueueError("refused"), BROKER)
    status, text = port.get("/metrics")
    waiter.back()
    assert status == 200
    assert 'pyspider_lite_pages_total{status="404"} 1.0' in text
    assert "\npyspider_lite_waiting 7.0\n" in text
    assert f'pyspider_lite_info{{role="fetcher",version="{pyspider_lite.__version__}"}} 1.0' in text
    assert f'pyspider_lite_waiting_seconds{{where="{BROKER}"}} 0.' in text
    assert re.search(r"^process_resident_memory_bytes \S+$", text, re.MULTILINE)
    # live: nothing is kept from an answer to the next
    assert "waiting_seconds{" not in port.get("/metrics")[1]


def test_a_mistake_is_an_answer(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    port.role.broken = True
    assert port.get("/metrics")[0] == 500
    assert "a mistake" in caplog.text
    assert port.get("/healthz")[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (b"what is this\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /healthz\xff\xfe HTTP/1.1\r\n\r\n", 404),
    ],
)
def test_odd_requests(port: Port, request_bytes: bytes, status: int) -> None:
    assert port.raw(request_bytes).split()[1] == str(status).encode()


def test_head_has_no_body(port: Port) -> None:
    head, _, body = port.raw(b"HEAD /healthz HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert b" 200 " in head
    assert body == b""


def test_slow_and_endless_clients_end(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "DEADLINE", 0.5)
    slow = [socket.create_connection(port.address, 10) for _ in range(health.CONNECTIONS)]
    try:
        for connection in slow:
            connection.sendall(b"GET /healthz")
        began = time.monotonic()
        assert port.get("/healthz")[0] == 200  # once a slow one was turned away
        assert time.monotonic() - began < 5
    finally:
        for connection in slow:
            connection.close()
    with socket.create_connection(port.address, 10) as endless, pytest.raises(OSError):
        for _ in range(1000):
            endless.sendall(b"x" * 8192)
    assert port.get("/healthz")[0] == 200


def test_silent_connections_shut_nobody_out(port: Port) -> None:
    silent = [socket.create_connection(port.address, 10) for _ in range(20)]
    try:
        began = time.monotonic()
        assert port.get("/healthz")[0] == 200
        assert time.monotonic() - began < 4, "the oldest are cut, not waited for"
    finally:
        for connection in silent:
            connection.close()


def test_many_at_once(port: Port) -> None:
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(port.get("/metrics")[0])) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [200] * 40


def test_a_taken_port_gives_the_next(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    taken = port.address[1]
    found = open_port("127.0.0.1", taken)
    assert found is not None
    number = int(found.url.rstrip("/").rpartition(":")[2])
    assert taken < number <= taken + bounded_server.NEXT_PORTS
    assert f"health-port {taken} is in use: listening on {number}" in caplog.text
    found.stop()


def test_no_port_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert open_port("::2", 0) is None  # no address of this machine
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "health-host ::2" in caplog.text
