"""Scripts that harm the processor itself and not only the process that runs them: each is given up, the processors come back, nothing
is left of them, and the pages of another project end well meanwhile (demand UA39). Real daemons, all of it at once."""

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyspider_lite.processor import descendants

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

#: pages of the other project a second, and how many there are
RATE, FEW, MANY = 10, 150, 400
#: `all` as it is, but for how long it bears with a child that a signal has stopped
IMPATIENT = """
import sys
from pyspider_lite import cli, process_manager
process_manager.STOPPED = 3.0
sys.exit(cli.main())
"""

HEAD = """
import os, signal, threading, time
from pyspider_lite import BaseHandler

def processor():
    # the parent is the process that callbacks are forked from, and its parent the processor
    return int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])

class Handler(BaseHandler):
    def on_start(self):
        for number in range(PAGES):
            self.crawl(f"data:,{number}", callback=self.page)

    def page(self, response):
"""

#: project -> number of pages and what each does
HOSTILE = {
    "stops": (1, "os.kill(processor(), signal.SIGSTOP)\ntime.sleep(1000)"),
    "ends": (
        1,
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\nos.kill(processor(), signal.SIGTERM)\ntime.sleep(1000)",
    ),
    "leaves": (
        1,
        "above, killed = os.getppid(), processor()\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.execve('/bin/sleep', ['sleep', '12321'], {})\n"
        "time.sleep(0.2)\n"
        "os.kill(killed, signal.SIGSTOP)\n"
        "os.kill(above, signal.SIGKILL)\n"
        "os.kill(killed, signal.SIGKILL)\n",
    ),
    "thread": (
        10,
        "def end():\n    time.sleep(0.2)\n    os._exit(7)\nthreading.Thread(target=end).start()\nreturn {'n': 1}",
    ),
}
GIVEN_UP = ("stops", "ends", "leaves")


def script(pages: int, body: str) -> str:
    """A project of these pages."""
    return HEAD.replace("PAGES", str(pages)) + "".join(f"        {line}\n" for line in body.splitlines())


@pytest.mark.parametrize(
    ("names", "good"), [(["ends", "thread"], FEW), pytest.param(list(HOSTILE), MANY, marks=pytest.mark.slow)]
)
def test_scripts_that_stop_end_or_kill_their_processor(
    make_suite: Callable[..., Any], names: list[str], good: int
) -> None:
    suite = make_suite(all={"processor_num": 2}, drain_timeout=8)
    words = suite.words
    suite.words = lambda *args: [sys.executable, "-c", IMPATIENT, *words(*args)[3:]]
    suite.start()
    suite.push("good", script(good, "time.sleep(0.01)\nreturn {'url': response.url}"), "--rate", str(RATE))
    suite.wait(lambda: suite.results("good"))
    began = time.monotonic()
    over: dict[str, float] = {}
    for name in names:
        suite.push(name, script(*HOSTILE[name]))

    def ended() -> bool:
        for name in ("good", *names):
            if name not in over and suite.finished(name):
                over[name] = round(time.monotonic() - began, 1)
        return len(over) == 1 + len(names)

    suite.wait(ended, 150)
    print(over)
    assert suite.statuses("good") == {2: good + 2} and len(suite.results("good")) == good
    assert len(suite.results("thread")) == HOSTILE["thread"][0]
    for name in set(GIVEN_UP).intersection(names):
        ((status, track),) = suite.query("task", f"select status, track from taskdb_{name} where url = 'data:,0'")
        assert status == 3 and "3 workers died over it" in track
    assert ("has been stopped by a signal for 3 s" in suite.log.read_text()) == ("stops" in names)
    suite.wait(lambda: len(suite.children("processor")) == 2, 10)
    assert suite.stop() == 143
    assert not descendants.orphans()
