"""A real MariaDB."""

import os
import pwd
import socket
import subprocess
from typing import Any

from pyspider_lite.bench import ending
from pyspider_lite.bench.servers.server import PASSWORD, START, USER, Server


class MariaDb(Server):
    """mariadbd with a user who may do everything."""

    name = "mariadb"
    #: as the option of that name; taken at each start
    buffer_pool = "256M"

    def url(self, kind: str, database: str = "") -> str:
        """Of a taskdb, projectdb or resultdb, in pyspider's form."""
        return f"mysql+{kind}://{USER}:{PASSWORD}@{self.host}:{self.port}/{database or kind}"

    def _install(self) -> None:
        command = ["mariadb-install-db", "--no-defaults", f"--datadir={self.folder}/data", "--skip-test-db"]
        command += ["--auth-root-authentication-method=normal", *([f"--user={_me()}"] if os.geteuid() == 0 else [])]
        # not /tmp: a server that starts removes the temporary tables that it finds, those of others, too
        environ = {**os.environ, "TMPDIR": str(self.folder)}
        pipe = subprocess.PIPE
        done = ending.run(command, stdout=pipe, stderr=pipe, timeout=START, env=environ)
        if done.returncode:
            raise RuntimeError(f"mariadb-install-db failed:\n{done.stdout[:2000]}\n{done.stderr[:2000]}")

    def _command(self) -> list[str]:
        return [
            "mariadbd", "--no-defaults", f"--user={_me()}", f"--datadir={self.folder}/data", f"--port={self.port}",
            f"--socket={self._socket}", f"--bind-address={self.host}", "--skip-name-resolve",
            f"--innodb-buffer-pool-size={self.buffer_pool}", "--innodb-log-file-size=128M", "--innodb-flush-log-at-trx-commit=2",
            f"--tmpdir={self.folder}",
        ]  # fmt: skip

    @property
    def _socket(self) -> str:
        return f"{self.folder}/socket"

    def ping(self) -> None:
        # PyMySQL leaves a socket open whose connection was refused
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(self._socket)
        with self.connect():
            pass

    def connect(self, patience: float = 60.0) -> Any:
        """A plain connection of root, by the socket: it works in another network namespace, too. ``patience``: seconds for a statement."""
        import pymysql

        return pymysql.connect(
            unix_socket=self._socket, user="root", connect_timeout=10, read_timeout=patience, autocommit=True
        )

    def execute(self, *statements: str, patience: float = 60.0) -> list[Any]:
        """Run statements as root; the rows of the last one."""
        rows: list[Any] = []
        with self.connect(patience) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def drop(self, kind: str) -> None:
        """Drop a database, whoever uses it."""
        self.execute(f"drop database {kind}")

    def _started(self) -> None:
        self.execute(
            f"create user if not exists '{USER}'@'%' identified by '{PASSWORD}'", f"grant all on *.* to '{USER}'@'%'"
        )

    def cut(self) -> None:
        self.execute(f"kill connection user '{USER}'")


def _me() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name
