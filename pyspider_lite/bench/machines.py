"""Machines for the tests of a cluster: network namespaces of Linux with addresses of their own, a switch between them.

Nothing of it touches the network of this machine: the switch is in a namespace, too. A machine has a folder, a host name, and can
run a real supervisord with our files, or any program. Needs root. Used by the tests and by `scripts/bench --cluster`.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from xmlrpc.client import ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from pyspider_lite.bench import processes

_CLONE_NEWNET = 0x40000000
_PREFIX = "pyspider_lite-"
#: seconds for a command of `ip`
_PATIENCE = 20.0
#: seconds for supervisord to stop all it has started: above stopwaitsecs
_SHUTDOWN = 60.0
#: sets the host name in a name space of its own, then becomes the program, which is told when we die
_AS_HOST = ("setpriv", "--pdeathsig", "TERM", "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=_PATIENCE)
    except FileNotFoundError as error:
        raise RuntimeError("`ip` is not installed; run scripts/servers") from error
    if done.returncode:
        raise RuntimeError(
            f"ip {' '.join(words)}: {done.stderr.strip()}; machines are network namespaces, which only root can make "
            "(in a container: with CAP_SYS_ADMIN and CAP_NET_ADMIN)"
        )


class Network:
    """A switch and the machines on it: 10.77.0.1, 10.77.0.2 and so on, in the order of `add`."""

    def __init__(self) -> None:
        _remove_left_behind()
        self._switch = f"{_PREFIX}{os.getpid()}-switch"
        self.machines: list[Machine] = []

    def __enter__(self) -> "Network":
        _ip("netns", "add", self._switch)
        try:
            _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "br0", "up")
        except BaseException:
            _delete(self._switch)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # all together: one may take half a minute
        threads = [threading.Thread(target=machine.close) for machine in self.machines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for machine in self.machines:
            _delete(machine.namespace)
        _delete(self._switch)

    def add(self, name: str) -> "Machine":
        """Another machine, up and connected."""
        number = len(self.machines) + 1
        machine = Machine(name, f"10.77.0.{number}", f"{_PREFIX}{os.getpid()}-{name}", f"port{number}")
        _ip("netns", "add", machine.namespace)
        self.machines.append(machine)
        port = machine.port
        _ip("-n", machine.namespace, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self._switch)
        _ip("-n", machine.namespace, "addr", "add", f"{machine.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", machine.namespace, "link", "set", link, "up")
        _ip("-n", self._switch, "link", "set", port, "master", "br0", "up")
        return machine

    def unplug(self, machine: "Machine") -> None:
        """Whatever is sent to it or by it vanishes, and neither side is told: connections to it are half open from now on."""
        _ip("-n", self._switch, "link", "set", machine.port, "nomaster")

    def plug(self, machine: "Machine") -> None:
        """Connect it again."""
        _ip("-n", self._switch, "link", "set", machine.port, "master", "br0")


class Machine:
    """One host: its programs are started with `start` or `supervise`, its network is used within `inside`."""

    def __init__(self, name: str, address: str, namespace: str, port: str) -> None:
        self.name = name
        self.address = address
        self.namespace = namespace
        #: of the switch, where it is connected
        self.port = port
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{name}-"))
        self._started: list[subprocess.Popen[bytes]] = []
        #: master or slave, once supervisord runs
        self.supervised = ""

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets, processes and threads that this thread makes in the block are on this machine, and stay there."""
        # a thread has a network namespace of its own; Python 3.11 has no os.setns
        with open(f"/proc/self/task/{threading.get_native_id()}/ns/net") as before:
            with open(f"/run/netns/{self.namespace}") as namespace:
                _enter(namespace.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def configure(self, config: Mapping[str, Any], supervisor: Path) -> None:
        """Lay config.json and our files for supervisord (from ``supervisor``) into the folder."""
        (self.folder / "config.json").write_text(json.dumps(config, indent=4))
        shutil.copytree(
            supervisor, self.folder / "supervisor", ignore=shutil.ignore_patterns("*.log*", "*.sock", "*.pid")
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a program in the folder; what it prints goes into output.log there. It does not outlive the machine."""
        with self.inside(), open(self.folder / "output.log", "ab") as log:
            process = subprocess.Popen(
                [*_AS_HOST, self.name, *words],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # not a session of its own: Linux shares the CPU among sessions (autogroup), and machines with few and with
                # many programs would be unequal
                process_group=0,
            )
        self._started.append(process)
        return process

    def supervise(self, kind: str) -> None:
        """Start supervisord with supervisor/KIND.conf and wait until it listens."""
        self.supervised = kind
        words = ("-m", "supervisor.supervisord", "--nodaemon", "-c", f"supervisor/{kind}.conf")
        process = self.start(sys.executable, *words)
        end = time.monotonic() + _PATIENCE
        while not (self.folder / "supervisor" / f"{kind}.sock").exists():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"supervisord did not start on {self.name}:\n{self.tail()}")
            time.sleep(0.05)

    def supervisorctl(self, *words: str) -> str:
        """What `supervisorctl WORDS` prints."""
        command = [sys.executable, "-m", "supervisor.supervisorctl", "-c", f"supervisor/{self.supervised}.conf"]
        done = subprocess.run(
            [*command, *words], cwd=self.folder, env=self._environment(), capture_output=True, text=True, timeout=180
        )
        return done.stdout + done.stderr

    def programs(self) -> dict[str, tuple[str, int]]:
        """State and process id (0 if it has none) of each program of supervisord."""
        transport = SupervisorTransport(None, None, f"unix://{self.folder}/supervisor/{self.supervised}.sock")
        with ServerProxy("http://localhost", transport=transport) as proxy:
            answer: Any = proxy.supervisor.getAllProcessInfo()
        transport.close()
        return {f"{one['group']}:{one['name']}": (one["statename"], one["pid"]) for one in answer}

    def command(self, *words: str) -> str:
        """Run `pyspider_lite -c config.json WORDS` here; its standard output. Raises RuntimeError if it fails."""
        with self.inside():
            done = subprocess.run(
                [sys.executable, "-m", "pyspider_lite", "-c", "config.json", *words],
                cwd=self.folder,
                env=self._environment(),
                capture_output=True,
                text=True,
                timeout=120,
            )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def tail(self, lines: int = 15) -> str:
        """The ends of all logs."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("supervisor/*.log")]
        return "\n".join(
            "\n".join([f"--- {self.name} {file.name}", *file.read_text(errors="replace").splitlines()[-lines:]])
            for file in sorted(files)
        )

    def close(self) -> None:
        """End all that was started here, by SIGTERM and at last by SIGKILL, and remove the folder."""
        trees = [processes.tree(process.pid) for process in self._started]
        for process in self._started:
            process.terminate()
        end = time.monotonic() + _SHUTDOWN
        for process, tree in zip(self._started, trees, strict=True):
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                for pid in tree:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.wait(_PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _environment(self) -> dict[str, str]:
        """The one of somebody who has activated the environment that runs us."""
        return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "setns")


def _delete(namespace: str) -> None:
    with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
        _ip("netns", "delete", namespace)


def _remove_left_behind() -> None:
    """Namespaces of a process of ours that was killed."""
    folder = Path("/run/netns")
    for path in folder.glob(f"{_PREFIX}*") if folder.exists() else ():
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _delete(path.name)
