"""Real brokers and databases on private ports and in temporary folders, for the tests and for `bench --cluster`.

Each server keeps its folder and its port over `stop` and `start`, as a server that is restarted does. `close` ends it and
removes the folder. The programs are Debian's (`scripts/servers` installs them); they are started as children of this process.
"""

import contextlib
import glob
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

USER = "pyspider"
PASSWORD = "pyspider-pass"
#: seconds that a server may take to answer, on a busy machine
START = 90.0
_STOP = 60.0
#: seconds within which a server that was frozen stands still
_STANDS = 5.0
#: seconds for PostgreSQL, which kills its processes itself after 5 s
_QUIT = 20.0


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now. Ports that the system gives to outgoing connections are left alone."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest = int(file.read().split()[0])
    for _ in range(1000):
        # by chance, so that test processes side by side do not ask for the same ones
        port = random.randrange(10_000, lowest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host if "." in host and host.startswith("127.") else "", port))
            if port not in _given:
                _given.add(port)
                return port
    raise OSError("no free port")


_given: set[int] = set()


def _stands_still(pid: int) -> bool:
    """Every thread is stopped, or the process is gone: a signal is sent before all of them have heard of it."""
    for stat in glob.glob(f"/proc/{pid}/task/*/stat"):
        with contextlib.suppress(OSError):
            if Path(stat).read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return False
    return True


class Server:
    """One server program. ``wrap`` comes before its command line (`ip netns exec NAME`). It listens on ``host`` and ``port``, 0 being
    any that is free."""

    #: of the temporary folder
    name: ClassVar[str]
    #: the signal that ends it in order
    signal: ClassVar[int] = signal.SIGTERM
    #: the system's user that it runs as when we are root
    user: ClassVar[str] = ""

    def __init__(self, host: str = "127.0.0.1", wrap: Sequence[str] = (), port: int = 0) -> None:
        self.host = host
        self.port = port or free_port(host)
        self._wrap = list(wrap)
        self.folder = Path(tempfile.mkdtemp(prefix=f"pyspider_lite-{self.name}-"))
        self.log = self.folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._install()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start it and wait until it answers."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self._wrap, *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                env={**os.environ, **self._environment()},
                **self._identity(),
            )
        self._wait(self.ping)
        self._started()

    def stop(self) -> None:
        """End it in order."""
        if self.process is not None:
            self._signal(self.signal)
            self.process.wait(_STOP)
            self.process = None

    def kill(self) -> None:
        """End it as a power cut does."""
        if self.process is not None:
            self._signal(signal.SIGKILL)
            self.process.wait(_STOP)
            self.process = None

    def freeze(self) -> None:
        """Stop it from running, with its connections open; it stands still when this returns."""
        self._signal(signal.SIGSTOP)
        end = time.monotonic() + _STANDS
        while not all(map(_stands_still, self._pids())) and time.monotonic() < end:
            time.sleep(0.005)

    def thaw(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it for good."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ping(self) -> None:
        """Raises any exception while it does not answer."""
        raise NotImplementedError

    def cut(self) -> None:
        """Close all connections of its clients, as a firewall or an administrator does."""
        raise NotImplementedError

    def _install(self) -> None:
        """What is done once in the new folder."""

    def _started(self) -> None:
        """What is done after each start."""

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return {}

    def _identity(self) -> dict[str, Any]:
        if not self.user or os.geteuid() != 0:
            return {}
        entry = pwd.getpwnam(self.user)
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, entry.pw_uid, entry.pw_gid)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def _pids(self) -> list[int]:
        """The processes that answer."""
        assert self.process is not None, f"{self.name} is not running"
        return [self.process.pid]

    def _signal(self, number: int) -> None:
        assert self.process is not None, f"{self.name} is not running"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _wait(self, answers: Callable[[], object]) -> None:
        end = time.monotonic() + START
        while True:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended at its start:\n{self.log.read_text(errors='replace')[-2000:]}")
            try:
                answers()
                return
            except Exception as error:
                if isinstance(error, ImportError) or time.monotonic() > end:
                    raise
            time.sleep(0.05)


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


class RabbitMq(Server):
    """rabbitmq-server with an epmd of its own."""

    name = "rabbitmq"

    @property
    def url(self) -> str:
        """Of its default virtual host."""
        return f"amqp://{USER}:{PASSWORD}@{self.host}:{self.port}//"

    def _install(self) -> None:
        self._distribution, self._epmd_port = free_port(), free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
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
            self._epmd.wait(_STOP)

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
        command = [*self._wrap, "/usr/lib/rabbitmq/bin/rabbitmqctl", *words]
        environment = {**os.environ, **self._environment(), "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ""}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=START)

    def cut(self) -> None:
        self.control("close_all_connections", "test")


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
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=START, env=environ)
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
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, timeout=START, **self._identity()
        )
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
            "-k", str(self.folder), "-c", "shared_buffers=256MB", "-c", "fsync=off",
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
        # its processes have groups of their own
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
                timeout=_STOP,
                **self._identity(),
            )

    def cut(self) -> None:
        self.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where pid <> pg_backend_pid() and backend_type = 'client backend'"
        )


def _me() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name
