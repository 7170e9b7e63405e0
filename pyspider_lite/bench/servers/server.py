"""What all servers have in common: a folder, a port, a process that is started, ended, killed and frozen. Each kind is a subclass."""

import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pyspider_lite.bench import processes
from pyspider_lite.bench.closing import Closing
from pyspider_lite.bench.servers.ports import free_port

#: whom all of them know
USER = "pyspider"
PASSWORD = "pyspider-pass"
#: seconds that a server may take to answer, on a busy machine, and to end
START = 90.0
STOP = 60.0
#: seconds within which a server that was frozen stands still
STANDS = 5.0


def stands_still(pid: int) -> bool:
    """Every thread is stopped, or the process is gone: a signal is sent before all of them have heard of it."""
    for stat in glob.glob(f"/proc/{pid}/task/*/stat"):
        with contextlib.suppress(OSError):
            if Path(stat).read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return False
    return True


class Server(Closing):
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
        try:
            self._install()
        except BaseException:
            self.close()
            raise

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
            self._wait_for_end()

    def kill(self) -> None:
        """End it as a power cut does: nothing of it runs when this returns."""
        if self.process is not None:
            running = processes.tree(self.process.pid)
            # at once, also what is forked meanwhile; others have a group of their own
            self._signal(signal.SIGKILL)
            for pid in running[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait_for_end(running)

    def freeze(self) -> None:
        """Stop it from running, with its connections open; it stands still when this returns."""
        self._signal(signal.SIGSTOP)
        end = time.monotonic() + STANDS
        while not all(map(stands_still, self._pids())) and time.monotonic() < end:
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

    def _wait_for_end(self, others: Iterable[int] = ()) -> None:
        """Of the process, its group, and ``others``; a large one takes longer to end than who started it."""
        assert self.process is not None
        self.process.wait(STOP)
        end = time.monotonic() + STOP
        while left := [pid for pid in {*others, *processes.group(self.process.pid)} if not processes.over(pid)]:
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name} ended, but not its processes {left}")
            time.sleep(0.005)
        self.process = None

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
