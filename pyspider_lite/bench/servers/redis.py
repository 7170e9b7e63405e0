"""A real Redis."""

from typing import Any

from pyspider_lite.bench.servers.server import Server


class Redis(Server):
    """redis-server; what it holds survives `stop`, not `kill`."""

    name = "redis"

    @property
    def url(self) -> str:
        """Of database 0."""
        return f"redis://{self.host}:{self.port}/0"

    def _command(self) -> list[str]:
        return [
            "redis-server", "--port", str(self.port), "--bind", self.host, "--dir", str(self.folder),
            "--save", "3600 1", "--appendonly", "no", "--daemonize", "no", "--protected-mode", "no",
        ]  # fmt: skip

    def ping(self) -> None:
        with self.client() as client:
            client.ping()

    def client(self) -> Any:
        """A plain client."""
        import redis

        return redis.Redis(self.host, self.port, socket_timeout=10)

    def cut(self) -> None:
        with self.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
