"""A script that kills `all` with every process of it, under a supervisor that starts it again: it is given up (demand UA39)."""

import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

#: pages of another project
OTHERS = 60

KILL = """
import os, signal

def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def kill_all():
    # callbacks run in a process forked from one that the processor started, and that was started by `all`
    processor = parent(os.getppid())
    everything = parent(processor)
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            if pid != processor and parent(pid) == everything:
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    os.kill(everything, signal.SIGKILL)
    os.kill(processor, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"""

KILLER = f"""{KILL}
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("data:,killer", callback=self.kill)

    def kill(self, response):
        kill_all()
"""

KILLS_IN_ON_START = f"""{KILL}
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        kill_all()
"""

OTHER = f"""
import time
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range({OTHERS}):
            self.crawl(f"data:,{{number}}", callback=self.page)

    def page(self, response):
        # some run whenever the other one kills
        time.sleep(0.5 if int(response.url[6:]) % 10 == 0 else 0.01)
        return {{"url": response.url}}
"""


def supervise(suite: Any, done: Callable[[], bool], within: float) -> int:
    """Start it whenever it is gone, until ``done()``: how often."""
    starts, end = 0, time.monotonic() + within
    while True:
        suite.start()
        starts += 1
        while suite.process.poll() is None:
            if done():
                return starts
            assert time.monotonic() < end, suite.tail()
            time.sleep(0.05)


def crawl(suite: Any, killer: str) -> int:
    """Both projects to their end; how often the suite was started."""
    suite.start()
    suite.push("other", OTHER)
    suite.push("killer", killer)
    assert suite.process.wait(60) == -9
    starts = 1 + supervise(suite, lambda: suite.finished("other") and suite.finished("killer"), 150)
    assert sorted(url for url, _ in suite.results("other")) == sorted(f"data:,{number}" for number in range(OTHERS))
    assert suite.statuses("other") == {2: OTHERS + 2}
    suite.stop()
    assert list((suite.folder / "data" / "begun").iterdir()) == []
    return starts


def test_a_page_that_kills_all(make_suite: Callable[..., Any]) -> None:
    suite = make_suite(all={"processor_num": 2})
    starts = crawl(suite, KILLER)
    ((status, track, schedule),) = suite.query(
        "task", "select status, track, schedule from taskdb_killer where url = 'data:,killer'"
    )
    assert status == 3 and "3 workers died over it" in track and "deaths" not in schedule and "kills" not in schedule
    # at the first two kills it is not alone, then three are counted, and then it is not run any more
    assert starts <= 6, suite.tail()


@pytest.mark.slow
def test_an_on_start_that_kills_all(make_suite: Callable[..., Any]) -> None:
    suite = make_suite()
    starts = crawl(suite, KILLS_IN_ON_START)
    ((status, track),) = suite.query("task", "select status, track from taskdb_killer where taskid = 'on_start'")
    assert status == 3 and "3 workers died over it" in track
    assert starts <= 5, suite.tail()
