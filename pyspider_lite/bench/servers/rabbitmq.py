"""A real RabbitMQ."""

import glob
import os
import shutil
import subprocess

from pyspider_lite.bench.servers.ports import free_port
from pyspider_lite.bench.servers.server import PASSWORD, START, STOP, USER, Server


class RabbitMq(Server):
    """rabbitmq-server with an epmd of its own."""

    name = "rabbitmq"
    _epmd: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """Of its default virtual host."""
        return f"amqp://{USER}:{PASSWORD}@{self.host}:{self.port}//"

    def _install(self) -> None:
        self._distribution, self._epmd_port = free_port(), free_port()
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {self.host}:{self.port}\nloopback_users = none\n"
            f"default_user = {USER}\ndefault_pass = {PASSWORD}\ndisk_free_limit.absolute = 10MB\n"
        )
        (self.folder / "plugins").write_text("[].\n")

    def start(self) -> None:
        epmd = shutil.which("epmd") or glob.glob("/usr/lib/erlang/erts-*/bin/epmd")[0]
        if self._epmd is None:
            self._epmd = subprocess.Popen([*self._wrap, epmd], env={**os.environ, **self._environment()})
        super().start()

    def close(self) -> None:
        super().close()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait(STOP)

    def _command(self) -> list[str]:
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            "HOME": folder,
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_MNESIA_BASE": folder,
            "RABBITMQ_LOG_BASE": folder,
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def ping(self) -> None:
        import kombu

        with kombu.Connection(self.url, connect_timeout=5) as connection:
            connection.connect()

    def control(self, *words: str) -> None:
        """`rabbitmqctl WORDS`; takes seconds."""
        # which ends the whole group: the shell, and what that started
        limit = ["timeout", "--signal=KILL", str(START)]
        command = [*limit, *self._wrap, "/usr/lib/rabbitmq/bin/rabbitmqctl", *words]
        environment = {**os.environ, **self._environment(), "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ""}
        subprocess.run(command, env=environment, check=True, capture_output=True)

    def cut(self) -> None:
        self.control("close_all_connections", "test")
