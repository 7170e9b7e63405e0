"""A real PostgreSQL."""

import contextlib
import glob
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from pyspider_lite.bench import ending
from pyspider_lite.bench.servers.server import PASSWORD, STANDS, START, STOP, USER, Server, stands_still

#: seconds for PostgreSQL, which kills its processes itself after 5 s
_QUIT = 20.0
#: what it keeps of its tables in memory itself
SHARED_BUFFERS = "256MB"


class PostgreSql(Server):
    """postgres with a user who may create databases, and databases taskdb, projectdb and resultdb."""

    name = "postgresql"
    signal = signal.SIGINT
    user = "postgres"

    def url(self, kind: str, database: str = "") -> str:
        """Of a taskdb, projectdb or resultdb, in pyspider's form."""
        return f"sqlalchemy+postgresql+{kind}://{USER}:{PASSWORD}@{self.host}:{self.port}/{database or kind}"

    def _install(self) -> None:
        password = self.folder / "password"
        password.write_text(PASSWORD)
        command = [self._program("initdb"), "-D", f"{self.folder}/data", "-U", USER, "-A", "scram-sha-256"]
        command += ["-E", "UTF8", "--locale=C.UTF-8", f"--pwfile={password}"]
        null = subprocess.DEVNULL
        ending.run(command, stdout=null, cwd=self.folder, timeout=START, **self._identity()).check_returncode()
        with open(self.folder / "data" / "pg_hba.conf", "a") as file:
            file.write("host all all all scram-sha-256\n")

    def _program(self, name: str) -> str:
        found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: int(path.split("/")[4]))
        if not found:
            raise FileNotFoundError(f"{name} of PostgreSQL is not installed; run scripts/servers")
        return found[-1]

    def _command(self) -> list[str]:
        return [
            self._program("postgres"), "-D", f"{self.folder}/data", "-p", str(self.port), "-h", self.host,
            "-k", str(self.folder), "-c", f"shared_buffers={SHARED_BUFFERS}", "-c", "fsync=off",
            "-c", "max_connections=200",
        ]  # fmt: skip

    def ping(self) -> None:
        with self.connect():
            pass

    def connect(self, database: str = "postgres") -> Any:
        """A plain connection by the socket."""
        import psycopg

        return psycopg.connect(
            host=str(self.folder), port=self.port, user=USER, password=PASSWORD, dbname=database,
            connect_timeout=10, autocommit=True,
        )  # fmt: skip

    def execute(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Run statements as the superuser; the rows of the last one."""
        rows: list[Any] = []
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall()) if cursor.description else []
        return rows

    def drop(self, kind: str) -> None:
        """Drop a database, whoever uses it."""
        self.execute(f"drop database {kind} with (force)")

    def create(self, kind: str) -> None:
        """Create it again."""
        self.execute(f"create database {kind}")

    def _started(self) -> None:
        known = {row[0] for row in self.execute("select datname from pg_database")}
        for kind in ("taskdb", "projectdb", "resultdb"):
            if kind not in known:
                self.execute(f"create database {kind}")

    def _pids(self) -> list[int]:
        pids = super()._pids()
        for stat in glob.glob("/proc/[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(Path(stat).read_text().rpartition(")")[2].split()[1]) == pids[0]:
                    pids.append(int(stat.split("/")[2]))
        return pids

    def _signal(self, number: int) -> None:
        if number not in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL):
            super()._signal(number)
            return
        # its processes have groups of their own, and it is to start no more of them meanwhile
        assert self.process is not None
        if number != signal.SIGCONT:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGSTOP)
            end = time.monotonic() + STANDS
            while not stands_still(self.process.pid) and time.monotonic() < end:
                time.sleep(0.001)
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        """By SIGKILL it would leave its shared memory behind, which is not in its folder."""
        if self.process is not None:
            self.thaw()
            self._signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_QUIT)
            self.kill()
        if (self.folder / "data" / "postmaster.pid").exists():
            self._remove_shared_memory()
        super().close()

    def _remove_shared_memory(self) -> None:
        """Of the one that was killed: the next that starts in its folder does it."""
        command = [self._program("postgres"), "--single", "-D", f"{self.folder}/data", "postgres"]
        with open(self.log, "ab") as log, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                timeout=STOP,
                **self._identity(),
            )

    def cut(self) -> None:
        self.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
