"""The processes that scripts start beside the child: how many, how large, and their end. Read from /proc; used by `child_process`,
`zygote` and `child`, and by `process_manager` when all is over."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterator

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
#: niceness of those that are to let others go first
_NICE = 5
#: a limit that no kernel since Linux 2.4.25 knows any more, and that every process inherits, whatever it does to its environment, its
#: session and its files: the mark of zygotes, and of all that scripts start
_RLIMIT_LOCKS = 10
ZYGOTE, SCRIPT = 0x7079_7370_6964_6572, 0x7079_7370_6964_6571
#: seconds between two looks whether those that were killed are gone
_PAUSE = 0.01


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


def share(pid: int) -> int:
    """The same, but of pages that it shares with others only its part; costs a walk through its memory."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except (OSError, StopIteration, IndexError, ValueError):
        return resident(pid)


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


def mark(value: int) -> None:
    """This process, and all that it starts from now on, is known by `ZYGOTE` or `SCRIPT`. The mark can only be lowered."""
    # who may not raise a limit, and where there is none: what is left behind then is not found
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_RLIMIT_LOCKS, (value, value))


def end_orphans(patience: float) -> None:
    """Kill what scripts have left behind whose zygotes are gone, of whichever processor of this machine, until nothing is left of it,
    for ``patience`` seconds at most."""
    deadline = time.monotonic() + patience
    while found := orphans():
        for pid in found:
            end(pid)
        if time.monotonic() > deadline:
            return
        time.sleep(_PAUSE)


def orphans() -> list[int]:
    """Processes that scripts have started and that no zygote is above any more."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if _mark_of(pid) == SCRIPT and _is_orphan(pid)]


def _is_orphan(pid: int) -> bool:
    state, parent = _state(pid)
    if state in ("", "Z") and parent != os.getpid():
        return False  # gone, or nobody's work but its parent's
    while (mark := _mark_of(parent)) == SCRIPT:
        _, parent = _state(parent)
    # who is gone at this moment has left its children to another: the next look sees them there
    return mark not in (ZYGOTE, None)


def _mark_of(pid: int) -> int | None:
    """None if it is gone."""
    try:
        return resource.prlimit(pid, _RLIMIT_LOCKS)[1] if pid else None
    except ProcessLookupError:
        return None
    except (OSError, ValueError):
        return 0  # another user's


def is_stopped(pid: int) -> bool:
    """By a signal, and not from a terminal (Ctrl-Z), whose user knows of it; a debugger's stop is another state."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] == b"T" and fields[4] == b"0"


def _state(pid: int) -> tuple[str, int]:
    """The letter of its state and its parent; ("", 0) if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
        return state.decode(), int(parent)
    except (OSError, ValueError):
        return "", 0


def end(pid: int) -> None:
    """Kill a process, and reap it if it is a child of ours."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
