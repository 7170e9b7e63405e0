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

from pyspider_lite import stop_signals
from pyspider_lite.bench import processes
from pyspider_lite.exit_codes import of_signal

#: seconds for a command to end its own processes after SIGTERM
_PATIENCE = 10.0


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that is closed, leave the block as Ctrl-C does, so what was started in it by `with` is ended; the
    exit code is that of the signal. What is ignored (`nohup`) stays so."""
    numbers = stop_signals.heard()

    def leave(number: int, frame: FrameType | None) -> None:
        # people send several, and so does `timeout`, to us and to our process group: the second one must not interrupt what the first one began
        for each in numbers:
            signal.signal(each, lambda number, frame: None)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(of_signal(number))

    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
