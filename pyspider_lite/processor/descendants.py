"""The processes that scripts start beside the child: how many, how large, and their end. Read from /proc; used by `child_process`
and `zygote`."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
#: environment variable by which a process tells under which zygote it was started
MARK = "PYSPIDER_LITE_ZYGOTE"


def children(pid: int) -> list[int]:
    """The children of all threads of a process; [] if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            # a thread may end between the two looks
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def below(pid: int) -> Iterator[int]:
    """All descendants of a process."""
    for child in children(pid):
        yield child
        yield from below(child)


def resident(pid: int) -> int:
    """Bytes of memory that a process occupies; 0 when unknown."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_SIZE
    except (OSError, IndexError, ValueError):
        return 0


def end_orphans(child: int, mark: str, patience: float) -> None:
    """After the death of a zygote: kill its ``child`` and all others that carry ``mark``, which were handed to us as their subreaper.
    A child of a child comes only when that is gone, so look until none is left, for ``patience`` seconds at most."""
    if child in children(os.getpid()):
        # one that is ending already shows its mark no more
        _end(child)
    deadline = time.monotonic() + patience
    while marked := [pid for pid in children(os.getpid()) if _carries(pid, mark)]:
        for pid in marked:
            _end(pid)
        if time.monotonic() > deadline:
            return


def _end(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _carries(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False
