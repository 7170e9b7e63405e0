"""A real ZooKeeper."""

import socket
from pathlib import Path

from pyspider_lite.bench.servers.server import Server

_JAR = "/usr/share/java/zookeeper.jar"


class ZooKeeper(Server):
    """One server, an ensemble of its own, in a small JVM. It writes down what it holds: sessions survive `kill` and `stop`."""

    name = "zookeeper"

    @property
    def url(self) -> str:
        """For ``coordination``."""
        return f"zookeeper://{self.host}:{self.port}/test"

    def _install(self) -> None:
        if not Path(_JAR).exists():
            raise FileNotFoundError("ZooKeeper is not installed; run scripts/servers")
        (self.folder / "zoo.cfg").write_text(
            f"tickTime=2000\ndataDir={self.folder}/data\nclientPort={self.port}\nclientPortAddress={self.host}\n"
            "admin.enableServer=false\n4lw.commands.whitelist=ruok\n"
        )

    def _command(self) -> list[str]:
        # for a quick start: no optimising compiler, no collector's threads
        flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        return [
            "java",
            *flags,
            "-cp",
            _JAR,
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            f"{self.folder}/zoo.cfg",
        ]

    def ping(self) -> None:
        with socket.create_connection((self.host, self.port), 5) as connection:
            connection.sendall(b"ruok")
            if connection.recv(4) != b"imok":
                raise OSError("ZooKeeper is not ready")

    def cut(self) -> None:
        """As its restart does: sessions live on."""
        self.kill()
        self.start()
