"""Brokers behind TLS, a unix socket and Sentinel."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import message_queue
from pyspider_lite.bench.servers.ports import free_port
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.servers.server import PASSWORD, USER
from pyspider_lite.errors import QueueError
from pyspider_lite.message_queue.description import describe


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )  # fmt: skip
    return certificate, key


class TlsRedis(Redis):
    def __init__(self, certificate: Path, key: Path) -> None:
        self.tls_port = free_port()
        self._options = ["--tls-port", str(self.tls_port), "--tls-cert-file", str(certificate)]
        self._options += ["--tls-key-file", str(key), "--tls-auth-clients", "no"]
        super().__init__()

    def _command(self) -> list[str]:
        return [*super()._command(), *self._options]


class TlsRabbitMq(RabbitMq):
    def __init__(self, certificate: Path, key: Path) -> None:
        self.tls_port = free_port()
        self._files = certificate, key
        super().__init__()

    def _install(self) -> None:
        super()._install()
        certificate, key = (self.folder / file.name for file in self._files)
        for file, copy in zip(self._files, (certificate, key), strict=True):
            copy.write_bytes(file.read_bytes())
        with open(self.folder / "rabbitmq.conf", "a") as file:
            file.write(
                f"listeners.ssl.1 = {self.host}:{self.tls_port}\nssl_options.cacertfile = {certificate}\n"
                f"ssl_options.certfile = {certificate}\nssl_options.keyfile = {key}\nssl_options.verify = verify_none\n"
            )


@pytest.fixture(params=[TlsRedis, TlsRabbitMq])
def tls(request: pytest.FixtureRequest, certificate: tuple[Path, Path]) -> Iterator[str]:
    server: Any = request.param(*certificate)
    try:
        server.start()
        place = f"127.0.0.1:{server.tls_port}"
        yield f"rediss://{place}/0" if server.name == "redis" else f"amqps://{USER}:{PASSWORD}@{place}//"
    finally:
        server.close()


def test_certificates_are_checked(tls: str, certificate: tuple[Path, Path]) -> None:
    with (
        closing(message_queue.connect(tls, "q")) as queue,
        pytest.raises(QueueError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        queue.put(b"x", 1)
    for query in ("ssl_cert_reqs=none", f"ssl_ca_certs={certificate[0]}"):
        with closing(message_queue.connect(f"{tls}?{query}", "q")) as queue:
            queue.put(b"x" * 1_000_000, 5)
            assert [len(one.body) for one in queue.get(1, 5)] == [1_000_000]
            assert queue.get(1, 0.2) == []


class SocketRedis(Redis):
    def _command(self) -> list[str]:
        return [*super()._command(), "--unixsocket", f"{self.folder}/a socket"]


def test_a_unix_socket_with_a_password() -> None:
    with SocketRedis() as server:
        assert isinstance(server, SocketRedis)
        with server.client() as client:
            client.config_set("requirepass", "p@ss/w")
        place = f"redis+socket://{server.folder}/a%20socket?virtual_host=2&password="
        assert "p%40ss" not in describe(f"{place}p%40ss%2Fw")[0]
        with closing(message_queue.connect(f"{place}p%40ss%2Fw", "q", prefix="")) as queue:
            queue.put(b"x", 1)
            assert queue.qsize() == 1
        with closing(message_queue.connect(f"{place.replace('=2', '=0')}p%40ss%2Fw", "q", prefix="")) as other:
            assert other.qsize() == 0
        for wrong in ("", "p"):
            with (
                closing(message_queue.connect(f"{place}{wrong}", "q")) as queue,
                pytest.raises(QueueError, match=r"refuses the user or the password|wants a password"),
            ):
                queue.qsize()


class Sentinel(Redis):
    def __init__(self, master: Redis) -> None:
        self._master = master
        super().__init__()

    def _command(self) -> list[str]:
        file = self.folder / "sentinel.conf"
        file.write_text(
            f"port {self.port}\nbind {self.host}\nsentinel monitor main {self.host} {self._master.port} 1\n"
        )
        return ["redis-server", str(file), "--sentinel"]


def test_sentinel(redis: Redis) -> None:
    with Sentinel(redis) as server:
        url = f"sentinel://127.0.0.1:1;sentinel://127.0.0.1:{server.port}/0?master_name=main"
        with closing(message_queue.connect(url, "q", prefix="sentinel.", late_ack=True)) as queue:
            deadline = time.monotonic() + 10
            while True:
                try:
                    queue.put(b"x", 1)
                    break
                except QueueError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            queue.ack(queue.get(1, 1))
            assert queue.qsize() == 0
        assert "Redis" in describe(url)[0]
        with (
            closing(message_queue.connect(url.replace("=main", "=other"), "q")) as queue,
            pytest.raises(QueueError, match="No master found for 'other'"),
        ):
            queue.qsize()
