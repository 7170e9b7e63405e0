"""What a script may do to the process that runs it: its task fails and names the limit, nothing of it is left, and another project
goes on meanwhile at more than half of its pace (demand UA39). Two real processors, everything at once.
"""

import json
import os
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyspider_lite.processor import descendants

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

#: seconds: the soft limit of the hostile callbacks; the hard one comes five later
LIMIT = 1.0
#: seconds within which a task that passes its limit has failed, and nothing of it is left
SOON = 10.0
#: results a second of the other project while all is quiet
RATE = 40

#: callback -> what it does, and how its failure reads ("" where it does not fail)
CASES = {
    "loop": ("while True: pass", "process timeout"),
    "loop_again": ("while True: pass", "process timeout"),
    "sleep": ("time.sleep(1000)", "process timeout"),
    "regex": ("re.match(r'(a*)*b', 'a' * 40)", "process timeout"),
    "c_call": ("while True:\n    try: ctypes.PyDLL(None).sleep(1000)\n    except Exception: pass", "process killed: 1 s limit"),
    "deaf": ("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\nwhile True: pass", "process killed: 1 s limit"),
    "ignoring": (
        "for number in (1, 2, 3, 10, 12, 13, 14, 15):\n    signal.signal(number, signal.SIG_IGN)\nwhile True: pass",
        "process killed: 1 s limit",
    ),
    "stubborn": ("while True:\n    try: time.sleep(1)\n    except BaseException: pass", "process killed: 1 s limit"),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP)", "process killed: 1 s limit"),
    "parent_stopped": (
        "os.kill(os.getppid(), signal.SIGSTOP)\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ntime.sleep(1000)",
        "process killed: 1 s limit",
    ),
    "exits": ("sys.exit(3)", "3"),
    "exits_hard": ("os._exit(4)", "process died: exit code 4"),
    "aborts": ("os.abort()", "process died: signal 6 (SIGABRT)"),
    "parent_killed": ("os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1000)", "process died: "),
    "group_killed": ("os.killpg(0, signal.SIGKILL)", "process died: signal 9 (SIGKILL)"),
    "allocates": ("bytearray(8 << 30)", "out of memory"),
    "deep": ("def down(n): return down(n + 1)\ndown(0)", "maximum recursion depth exceeded"),
    "deep_in_c": (
        "sys.setrecursionlimit(10**9)\nclass Deep:\n    def __getattr__(self, name): return getattr(self, name)\nDeep().x",
        "process died: signal 11 (SIGSEGV)",
    ),
    "threads": (
        "for _ in range(3): threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()\nself.hang()",
        "process killed: 1 s limit",
    ),
    "busy_thread_left": ("threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()", ""),
    "forks": ("for _ in range(5): os.fork()\nself.hang()", "process killed: "),
    "daemon": (
        "if not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n    signal.signal(15, signal.SIG_IGN)\n"
        "    time.sleep(1000)\nself.hang()",
        "process killed: 1 s limit",
    ),
    "busy_daemon_left": ("if not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n    while True: pass", ""),
    "becomes_another": ("os.execv('/bin/sleep', ['sleep', '1000'])", "process died: signal 14 (SIGALRM)"),
    "prints": ("for _ in range(1024): print('x' * (1 << 20))", ""),
    "large_result": ("return 'x' * (1 << 30)", "process "),
    "large_items": ("while True: yield {'text': 'x' * 1000}", "process "),
    "closes": ("os.closerange(0, 1000)", "process died: exit code 1"),
    "opens": ("held = []\nwhile True: held.append(os.open('/dev/null', 0))", "[Errno 24] Too many open files"),
    "babbles": (
        "for number in range(3, 50):\n    try: os.write(number, b'\\xff\\xff\\xff\\0babble')\n    except OSError: pass\nself.hang()",
        "process ",
    ),
    "moves": ("folder = tempfile.mkdtemp()\nos.chdir(folder)\nos.rmdir(folder)", ""),
    "patches": ("builtins.len = None", "process died: exit code 1"),
    "patches_time": ("time.time = time.monotonic = time.perf_counter = None", "process died: exit code 1"),
    "traces": ("sys.settrace(lambda *args: time.sleep(0.01))", ""),
    "timers": ("signal.setitimer(signal.ITIMER_PROF, 1.0)", ""),
    "unprintable": ("class Odd(Exception):\n    def __str__(self): os._exit(1)\nraise Odd", "process died: exit code 1"),
}  # fmt: skip

#: these take long, too
LATE = (
    "opens",
    "large_result",
    "large_items",
    "babbles",
    "loop_again",
    "sleep",
    "regex",
    "becomes_another",
)

HEAD = f"""
import builtins, ctypes, itertools, os, re, signal, sys, tempfile, threading, time
from pyspider_lite import BaseHandler


class Handler(BaseHandler):
    crawl_config = {{"process_time_limit": {LIMIT}, "retries": 0}}

    def on_start(self):
        for name in NAMES:
            self.crawl(f"data:,{{name}}", callback=getattr(self, name), retries=0)

    def hang(self):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        while True: time.sleep(1000)
"""

STEADY = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range(5000):
            self.crawl(f"data:,{number}", callback=self.page)

    def page(self, response):
        return {"url": response.url}
"""


#: what ends at once, and some of what takes its time; the rest is slow
FEW = [name for name, (_, failure) in CASES.items() if not failure.startswith("process killed") and name not in LATE]
FEW += ["c_call", "ignoring", "daemon", "allocates"]


def hostile(names: list[str]) -> str:
    """The script."""
    methods = [
        f"    def {name}(self, response):\n{textwrap.indent(body, ' ' * 8)}\n" for name, (body, _) in CASES.items()
    ]
    return HEAD.replace("NAMES", repr(names)) + "\n" + "\n".join(methods)


def ended(suite: Any) -> dict[str, dict[str, Any]]:
    """callback -> track.process of its task, which is over."""
    rows = suite.query("task", "select url, track from taskdb_hostile where status in (2, 3) and url like 'data:,%'")
    return {url.removeprefix("data:,"): json.loads(track)["process"] for url, track in rows}


def count(suite: Any) -> int:
    """Results of the steady project."""
    rows = suite.query("result", "select count(*) from resultdb_steady")
    return rows[0][0] if rows else 0


def pace(suite: Any, until: Callable[[], Any], timeout: float) -> float:
    """Results a second of the steady project until a condition holds."""
    began, before = time.monotonic(), count(suite)
    suite.wait(until, timeout)
    return (count(suite) - before) / (time.monotonic() - began)


def below_processors(suite: Any) -> set[int]:
    """The processes in which scripts run, and what these start."""
    return {pid for processor in suite.children("processor") for pid in descendants.below(processor)}


@pytest.mark.parametrize(
    "names", [pytest.param(FEW, id="few"), pytest.param(list(CASES), id="all", marks=pytest.mark.slow)]
)
def test_all_of_them_beside_a_crawl(make_suite: Callable[..., Any], names: list[str]) -> None:
    suite = make_suite(all={"processor_num": 2})
    suite.start()
    suite.push("steady", STEADY, "--rate", str(RATE), "--burst", "10")
    suite.wait(lambda: count(suite) > RATE)
    began = time.monotonic()
    quiet = pace(suite, lambda: time.monotonic() > began + 2, 10)
    suite.push("hostile", hostile(names))
    seen: set[int] = set()

    def over() -> bool:
        time.sleep(0.3)
        seen.update(below_processors(suite))
        return ended(suite).keys() >= set(names)

    assert pace(suite, over, 240) > quiet / 2

    tracks = ended(suite)
    wrong = {name: tracks[name]["exception"] for name in names if not reads(tracks[name]["exception"], CASES[name][1])}
    assert not wrong
    assert max(track["time"] for track in tracks.values()) < LIMIT + SOON
    # a zygote and its child, and the zygotes of the two lanes that were set aside
    suite.wait(lambda: all(len(list(descendants.below(pid))) <= 4 for pid in suite.children("processor")), SOON)
    seen.update(below_processors(suite))
    assert suite.stop() == 143
    assert not [pid for pid in seen if os.path.exists(f"/proc/{pid}")] and not descendants.orphans()


def reads(exception: str | None, expected: str) -> bool:
    """Whether a failure reads as expected."""
    return (exception or "").startswith(expected) and bool(exception) == bool(expected)
