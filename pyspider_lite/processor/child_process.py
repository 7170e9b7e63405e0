"""The processor's side of its child: start, talk, watch, kill. Used by the processor's thread only.

Whatever ends a child (exit, signal, a broken pipe, the end of its zygote) becomes one exception, `ChildDied`, with the reason
in words; the next `start` brings another.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from msgspec import Struct, to_builtins

from pyspider_lite.errors import BrokenMessage, PyspiderLiteError
from pyspider_lite.processor import descendants
from pyspider_lite.processor.pipe import Channel, Done, Part, ToParent

#: seconds for a step that takes milliseconds when all is well; a script can hold two of them up
_PATIENCE = 4.0
#: seconds for the zygote to load its modules, on a busy machine
_START = 60.0
_PR_SET_CHILD_SUBREAPER = 36

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(3)); "
    "from pyspider_lite.processor.zygote import main; main()"
)


class ChildDied(PyspiderLiteError):
    """The child of the processor is gone."""

    #: it never read what was sent to it last
    unread: bool = False
    #: somebody else ended it (SIGKILL, or its zygote is gone): perhaps no fault of the page
    outside: bool = False


class ChildOptions(Struct, frozen=True):
    """What the child needs to know; fixed while the processor lives."""

    #: bytes; the child's data segment may be twice that, as a backstop for what grows faster than it is looked at
    memory_limit: int = 1 << 30
    #: prints go into the task's log, else to the real stdout (behaviour C95)
    capture_stdout: bool = True
    #: characters kept of what a callback prints and logs
    log_limit: int = 64 * 1024
    #: seconds: what `__env__` tells scripts (behaviour P14)
    process_time_limit: float = 30.0


class ChildProcess:
    """One child at a time, forked by a zygote."""

    def __init__(self, options: ChildOptions) -> None:
        self._options = options
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._control_lines = b""
        self._exit: int | None = None
        self._peak = 0
        self._channel: Channel | None = None
        #: the end of the pipe by which the child wakes us
        self._woken = -1
        #: its end of that is closed
        self._mute = False
        self.pid = 0

    @property
    def alive(self) -> bool:
        """A child is there, as far as we know."""
        return self._channel is not None

    def start(self) -> None:
        """Bring up a child (and the zygote, the first time and after its death). Raises ChildDied."""
        if self.alive:
            return
        self.prepare()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        ours.settimeout(_PATIENCE)
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            with theirs:
                socket.send_fds(self._control, [b"spawn\n"], [theirs.fileno(), wake])
            number = self._control_line(_START, "pid")
        except (OSError, EOFError) as error:
            ours.close()
            os.close(woken)
            self.close()
            raise ChildDied(f"no child could be started: {error}") from error
        finally:
            os.close(wake)
        # what was said before was about others
        self._exit = None
        self.pid = number
        self._channel, self._woken, self._mute = Channel(ours), woken, False

    def prepare(self) -> None:
        """Have a zygote, or one that is coming up: `start` waits for it."""
        if self._zygote is None or self._zygote.poll() is not None:
            self._start_zygote()

    def _start_zygote(self) -> None:
        self.close()
        # a processor before us, and its zygote, may have been killed
        descendants.end_orphans(_PATIENCE)
        # what a zygote leaves behind when somebody kills it comes to us, wherever it sits
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        ours, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), json.dumps(to_builtins(self._options)), json.dumps(_path())]
        capture = self._options.capture_stdout
        with theirs:
            self._zygote = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *arguments],
                pass_fds=[theirs.fileno()],
                # no signal of the terminal or of the process manager's group reaches it: the processor decides
                start_new_session=True,
                stdin=subprocess.DEVNULL if capture else None,
                stdout=2,  # stdout is for results
            )
        self._control = ours
        self._control_lines = b""

    def send(self, message: Struct) -> int:
        """Raises ChildDied."""
        assert self._channel is not None
        try:
            return self._channel.send(message)
        except OSError as error:
            died = self._died(str(error))
            died.unread = True
            raise died from error

    def receive(self, timeout: float) -> list[tuple[ToParent, int]]:
        """What the child says and how many bytes each of that was; nothing if it did not wake us within ``timeout`` seconds. Raises
        ChildDied once all that it said was told."""
        assert self._channel is not None
        ready = self._wait(timeout)
        try:
            said: list[tuple[ToParent, int]] = self._channel.arrived(ToParent)  # type: ignore[arg-type]
            if said:
                return said
        except (OSError, EOFError) as error:
            died = self._died(str(error))
            # a unix socket that is closed with bytes in it is reset
            died.unread = isinstance(error, ConnectionResetError)
            raise died from error
        except BrokenMessage as error:
            self.kill()
            raise ChildDied(f"process died: it wrote what cannot be read: {error}") from error
        if ready:
            raise self._died("its zygote says so")
        return []

    def _wait(self, timeout: float) -> bool:
        """For a sign of the child; whether there is one of its zygote."""
        assert self._channel is not None and self._control is not None
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        if not self._mute:
            poller.register(self._woken, select.POLLIN)
        if self._mute or self._channel.in_frame:
            poller.register(self._channel.sock, select.POLLIN)
        wait = 0 if self._control_lines else max(0, round(timeout * 1000))
        ready = {descriptor for descriptor, _ in poller.poll(wait)}
        if self._woken in ready:
            self._mute = not os.read(self._woken, 4096)
        return bool(self._control_lines) or self._control.fileno() in ready

    def resident(self) -> int:
        """Bytes of memory that the child and what it started occupy; 0 when unknown."""
        return sum(map(descendants.resident, [self.pid, *self.started()]))

    def exceeds(self, limit: int) -> bool:
        """The same is more than ``limit``, when memory that processes share is counted once."""
        if self.resident() <= limit:
            return False
        return sum(map(descendants.share, [self.pid, *self.started()])) > limit

    def processes(self) -> int:
        """How many processes the child has started that are still there, those that it left behind too."""
        return len(self.started())

    def started(self) -> list[int]:
        """Their pids."""
        zygote = self._zygote.pid if self._zygote is not None else self.pid
        return [pid for pid in descendants.below(zygote) if pid != self.pid]

    def kill(self) -> None:
        """End the child, its process group and its orphans; returns when they are gone."""
        self.end()

    def end(self) -> list[Part | Done]:
        """`kill`, and what the child had done by then and was not told yet."""
        if self._channel is None:
            return []
        assert self._control is not None
        try:
            self._control.sendall(b"kill\n")
            self._control_line(_PATIENCE, "exit")
        except (OSError, EOFError):
            self._end_zygote()
        last: list[Part | Done] = []
        with contextlib.suppress(OSError, EOFError, BrokenMessage):
            last = [message for message, _ in self._channel.arrived(Part | Done)]  # type: ignore[arg-type]
        self._hang_up()
        return last

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.sock.close()
            os.close(self._woken)
            self._channel = None

    def close(self) -> None:
        """End the child and the zygote."""
        if self._control is None:
            return
        self.kill()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._zygote is not None:
            try:
                self._zygote.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._end_zygote()
            self._end_orphans()

    def _end_zygote(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._zygote is not None:
            self._zygote.kill()
            self._zygote.wait(_PATIENCE)
            self._zygote = None
            self._end_orphans()

    def _end_orphans(self) -> None:
        """After the death of a zygote. Its child may be too young to have a mark."""
        if self.pid in descendants.children(os.getpid()):
            descendants.end(self.pid)
        descendants.end_orphans(_PATIENCE)

    def _died(self, detail: str) -> ChildDied:
        """The reason in words, once the zygote has told it; nothing of the child is left afterwards."""
        try:
            if self._exit is None:
                self._control_line(2.0, "exit")
        except (OSError, EOFError):
            self.kill()
        self._hang_up()
        if self._exit is None or self._exit == -signal.SIGKILL:
            died = ChildDied(f"process died: {detail if self._exit is None else 'signal 9 (SIGKILL)'}")
            died.outside = True
            return died
        if self._exit < 0:
            limit = self._options.memory_limit
            # C code that gets no memory may crash
            full = (
                f", with {self._peak >> 20} MiB of memory; the limit is {limit >> 20} MiB"
                if 0 < limit < 2 * self._peak
                else ""
            )
            return ChildDied(f"process died: signal {_signal_name(-self._exit)}{full}")
        return ChildDied(f"process died: exit code {self._exit}")

    def _control_line(self, timeout: float, wanted: str) -> int:
        """The number in the next line of the zygote that begins with ``wanted``."""
        assert self._control is not None
        deadline = time.monotonic() + timeout
        while True:
            while b"\n" in self._control_lines:
                line, _, self._control_lines = self._control_lines.partition(b"\n")
                word, _, number = line.decode().partition(" ")
                if word == "exit":
                    # with the most memory that it had
                    number, _, peak = number.partition(" ")
                    self._exit, self._peak = int(number), int(peak)
                if word == wanted:
                    return int(number)
            self._control.settimeout(max(0.01, deadline - time.monotonic()))
            data = self._control.recv(4096)
            if not data:
                raise EOFError("the zygote is gone")
            self._control_lines += data


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def _path() -> list[str]:
    """The module search path that scripts had if they ran in this process, with this package on it."""
    root = str(Path(__file__).resolve().parents[2])
    return [entry or os.getcwd() for entry in sys.path] + ([] if root in sys.path else [root])
