"""How programs of the bench end when they are interrupted: with all that they started."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from pyspider_lite.bench import processes
from pyspider_lite.exit_codes import TERMINATED

#: seconds for a command to end its own processes after SIGTERM
_PATIENCE = 10.0


@contextlib.contextmanager
def on_sigterm() -> Iterator[None]:
    """SIGTERM leaves the block as Ctrl-C does, so what was started in it by `with` is ended; the exit code is ``TERMINATED``."""

    def leave(number: int, frame: FrameType | None) -> None:
        # `timeout` sends two: to us, and to our process group; the second one must not interrupt what the first one began
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        sys.exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(
    words: Sequence[str], *, timeout: float | None = None, patience: float = _PATIENCE, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run` with ``text``; but what interrupts it ends also what the command has started: SIGTERM to the command, and
    ``patience`` seconds later SIGKILL to those that are left in its process group."""
    with subprocess.Popen(words, start_new_session=True, text=True, errors="replace", **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            _end_group(process, patience)
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _end_group(leader: "subprocess.Popen[str]", patience: float) -> None:
    leader.terminate()
    end = time.monotonic() + patience
    # initdb is gone before its server, which removes its shared memory
    while not all(map(processes.over, processes.group(leader.pid))) and time.monotonic() < end:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
