"""A child process of `all`, seen from within: what it is told, and whose it is. `process_manager` is the other side; called by the
command line."""

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable

import msgspec
from msgspec import Struct

from pyspider_lite import exit_codes
from pyspider_lite.errors import ConfigError
from pyspider_lite.models.names import Role
from pyspider_lite.settings import Settings

_PR_SET_PDEATHSIG = 1
#: what a child says to its parent
READY, TOLD = b"r", b"t"


class ChildStart(Struct, frozen=True, kw_only=True):
    """What a child is told, as one line of JSON on its standard input."""

    role: Role
    #: which of its role it is, from 0
    index: int
    settings: Settings
    #: file descriptor on which it says `READY` and `TOLD`
    ready: int
    parent: int


def begin() -> tuple[ChildStart, "Parent"]:
    """In the child: what to run, and for whom. From here on it dies with its parent, and nothing else reads the pipe."""
    pipe = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(pipe, 65536)
        if not part:
            raise ConfigError("child is started by `pyspider_lite all` only")
        line += part
    try:
        start = msgspec.json.decode(line, type=ChildStart)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"child is started by `pyspider_lite all` only: {error}") from error
    os.set_inheritable(start.ready, False)
    _die_with_parent(start.parent)
    parent = Parent(pipe, start.ready)
    parent.start()
    return start, parent


class Parent(threading.Thread):
    """In the child: the process that started it. It holds the other end of the pipe, so the end of it is its end; a byte says that
    all is about to stop."""

    def __init__(self, pipe: int, ready: int) -> None:
        super().__init__(name="parent-watch", daemon=True)
        self._pipe = pipe
        self._ready = ready
        self._hold: Callable[[], None] | None = None

    def say_ready(self, hold: Callable[[], None] | None = None) -> None:
        """From here on the child's death is no failure to start; ``hold`` is called when all is about to stop."""
        self._hold = hold
        self._say(READY)

    def say_told(self) -> None:
        """An order told the child to stop, so it is not to be started again. Its exit code says nothing: code of users may end a process
        with any."""
        self._say(TOLD)

    def _say(self, what: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._ready, what)

    def run(self) -> None:
        while os.read(self._pipe, 1):
            if self._hold is not None:
                self._hold()
        os._exit(exit_codes.REFUSED)


def _die_with_parent(parent: int) -> None:
    """Linux kills us then even if no thread of ours can run; elsewhere the pipe has to do."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that
        os._exit(exit_codes.REFUSED)
