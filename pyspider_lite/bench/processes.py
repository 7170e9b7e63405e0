"""CPU time, memory and open files of the processes of a tree of processes, read from /proc."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pyspider_lite.models.names import Role

_TICK = os.sysconf("SC_CLK_TCK")
_ROLES = ("all", *(str(role) for role in Role))
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    return list(_walk(pid, children))


def _walk(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    yield pid
    for child in children.get(pid, ()):
        yield from _walk(child, children)


def group(leader: int) -> list[int]:
    """The processes of a process group."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if (fields := _stat(pid)) and int(fields[2]) == leader]


def over(pid: int) -> bool:
    """The process is gone, or only its parent has not heard of it."""
    fields = _stat(pid)
    return not fields or fields[0] in "ZX"


def cpu(pid: int) -> float:
    """Seconds of CPU a process has used, without its children; 0 if it is gone."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICK if fields else 0.0


def used(pid: int) -> float:
    """Seconds of CPU of a process and of those children that ended and that it waited for."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / _TICK if fields else 0.0


def machine_used() -> float:
    """Seconds of CPU that the whole machine has worked, all cores together."""
    numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = numbers[3:5]
    return (sum(numbers) - idle - waiting) / _TICK


def rss(pid: int) -> int:
    """Resident bytes of a process; 0 if it is gone."""
    fields = _stat(pid)
    return int(fields[21]) * _PAGE if fields else 0


def peak(pid: int) -> int:
    """Most resident bytes that a process ever had; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def files(pid: int) -> int:
    """How many files, sockets and pipes a process has open. Raises OSError if it is gone."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def role(pid: int) -> str:
    """What a process of ours is, by the name that it gives itself; "" if it is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return next((word for word in reversed(words) if word in _ROLES), "script")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent ..."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return []
    return text[text.rindex(")") + 2 :].split()
