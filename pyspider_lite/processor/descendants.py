"""The processes that scripts start beside the child: how many, how large, and their end. Read from /proc; used by `child_process`
and `zygote`."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
#: niceness of those that are to let others go first
_NICE = 5
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


def cpu(path: str) -> float:
    """Seconds of CPU that a process (/proc/PID) or a thread (/proc/PID/task/TID) has used; 0 when unknown."""
    try:
        with open(f"{path}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, IndexError, ValueError):
        return 0.0


def yield_cpu(pids: list[int]) -> None:
    """Let all others go first; the threads that these processes start later inherit it."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, int(thread), _NICE)


class Strays:
    """The CPU time of what callbacks leave behind, from looks at it between two pages: threads of the child, and processes."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        self._used = 0.0

    def used(self, child: int, started: list[int]) -> float:
        """Seconds that those used that were there at the look before; 0 again whenever they used nothing since."""
        seen = {path: cpu(path) for path in _strays(child, started)}
        gained = sum(seconds - self._seen[path] for path, seconds in seen.items() if path in self._seen)
        self._used = self._used + gained if gained else 0.0
        self._seen = seen
        return self._used


def _strays(child: int, started: list[int]) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{child}/task"):
            if int(thread) != child:
                yield f"/proc/{child}/task/{thread}"
    for pid in started:
        yield f"/proc/{pid}"


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
