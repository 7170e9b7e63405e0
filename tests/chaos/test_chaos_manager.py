"""Chaos' own manager: it starts again what ends, knows who meant it to end, and finds what is left over."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspider_lite.bench import processes
from pyspider_lite.bench.chaos.manager import Manager, Slot

#: starts a process that does not end with it
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
time.sleep(60)
"""


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_ends_is_started_again_and_what_is_left_over_is_found(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    slots = [
        Slot("fetcher", 0, [sys.executable, "-c", PARENT], tmp_path / "fetcher.log"),
        Slot(
            "scheduler", 0, [sys.executable, "-c", "import sys, time; time.sleep(0.2); sys.exit(4)"], tmp_path / "s.log"
        ),
    ]
    manager = Manager(tmp_path, slots, lambda event, **fields: events.append({"event": event, **fields}))
    manager.start()
    try:
        fetcher = slots[0]
        until(lambda: fetcher.pid and len(processes.tree(fetcher.pid)) == 2)
        first, orphan = processes.tree(fetcher.pid)
        fetcher.send(signal.SIGKILL)
        until(lambda: fetcher.pid not in (0, first) and len(processes.tree(fetcher.pid)) == 2)
        until(lambda: sum(event["event"] == "exit" and event["role"] == "scheduler[0]" for event in events) > 1)
        second = processes.tree(fetcher.pid)[1]
        left = {found["pid"] for found in manager.stop(0.5)}
    finally:
        manager.kill()
    assert left >= {orphan, second}
    until(lambda: not processes.rss(orphan) and not processes.rss(second))
    exits = [event for event in events if event["event"] == "exit"]
    assert {"event": "exit", "pid": first, "role": "fetcher[0]", "code": -9, "wanted": True} in exits
    assert next((exit["code"], exit["wanted"]) for exit in exits if exit["role"] == "scheduler[0]") == (4, False)
