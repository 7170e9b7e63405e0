"""Keeps the daemons of a crawl alive: each a command in a session of its own, started again as soon as it ends. Used by `run`."""

import contextlib
import os
import re
import secrets
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspider_lite.bench import processes

#: the environment variable that marks all processes of one run, also those whose parent is gone
MARK = "PYSPIDER_LITE_CHAOS"
#: seconds between the end of a process and its next start
_PAUSE = 0.1
_HEALTH = re.compile(r"metrics: (http://\S+?)/?\s")

#: writes an event down: what, and its fields
Note = Callable[..., None]


class Slot:
    """One daemon that should live, and the process that it is now."""

    def __init__(self, role: str, index: int, words: Sequence[str], log: Path) -> None:
        self.role = role
        self.index = index
        self.name = f"{role}[{index}]"
        self.words = list(words)
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        #: a signal of ours is meant to end this process
        self.doomed: set[int] = set()
        self._begin = 0

    @property
    def pid(self) -> int:
        """0 while there is none."""
        process = self.process
        return process.pid if process is not None and process.poll() is None else 0

    def spawn(self, environment: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
        """Start it."""
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        return self.process

    def send(self, number: int) -> bool:
        """A signal to the process, not to its children; False if there is none."""
        pid = self.pid
        if not pid:
            return False
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.doomed.add(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)  # not waited for yet, so the number is still its own
        return True

    def metrics(self) -> dict[str, float]:
        """The numbers of its health port; {} while it does not answer."""
        with open(self.log, "rb") as file:
            file.seek(self._begin)
            found = _HEALTH.search(file.read(20_000).decode(errors="replace"))
        if not found:
            return {}
        try:
            with urllib.request.urlopen(f"{found[1]}/metrics", timeout=1.0) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}
        numbers = (line.rpartition(" ") for line in lines if line and line[0] != "#")
        return {name.removeprefix("pyspider_lite_"): float(value) for name, _, value in numbers}


class Manager:
    """All daemons of a run."""

    def __init__(self, folder: Path, slots: Sequence[Slot], note: Note) -> None:
        self.slots = {slot.name: slot for slot in slots}
        self._folder = folder
        self._note = note
        self._mark = secrets.token_hex(8)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all, and start again what ends, until `stop`."""
        for slot in self.slots.values():
            thread = threading.Thread(target=self._keep, args=(slot,), name=slot.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, seconds: float) -> list[dict[str, Any]]:
        """SIGTERM to all; what is left of them after ``seconds``, which is killed then."""
        strays = self._strays()
        self._stopping.set()
        for slot in self.slots.values():
            slot.send(signal.SIGCONT)
            slot.send(signal.SIGTERM)
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._marked():
            time.sleep(0.1)
        left = {pid: _command(pid) for pid in self._marked()}
        self.kill()
        return [{"pid": pid, "command": command} for pid, command in (strays | left).items()]

    def kill(self) -> None:
        """End at once whatever is left of the run."""
        self._stopping.set()
        for pid in self._marked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for thread in self._threads:
            thread.join(10)

    def _keep(self, slot: Slot) -> None:
        while not self._stopping.is_set():
            process = slot.spawn({MARK: self._mark}, self._folder)
            self._note("start", pid=process.pid, role=slot.name)
            code = process.wait()
            wanted = process.pid in slot.doomed or self._stopping.is_set()
            self._note("exit", pid=process.pid, role=slot.name, code=code, wanted=wanted)
            self._stopping.wait(_PAUSE)

    def _strays(self) -> dict[int, str]:
        """Processes of this run whose daemon is gone."""
        known = {pid for slot in self.slots.values() if slot.pid for pid in processes.tree(slot.pid)}
        found = {pid: _command(pid) for pid in self._marked() if pid not in known}
        if found:
            time.sleep(2.0)  # one may have been on its way out, or just started
            known = {pid for slot in self.slots.values() if slot.pid for pid in processes.tree(slot.pid)}
        return {pid: command for pid, command in found.items() if pid not in known and pid in self._marked()}

    def _marked(self) -> list[int]:
        """Every process that carries the mark of this run."""
        wanted = f"{MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
