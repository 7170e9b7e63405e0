"""A script that kills the processor itself, at once: it is given up, and whatever was in hand beside it ends well (demand UA39)."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

#: pages that travel with the one that kills
BESIDE = 20

SCRIPT = f"""
import os, signal
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("data:,killer", callback=self.kill)
        for number in range({BESIDE}):
            self.crawl(f"data:,{{number}}", callback=self.page)

    def kill(self, response):
        # the parent is the process that callbacks are forked from, and its parent the processor
        processor = int(open(f"/proc/{{os.getppid()}}/stat").read().rpartition(")")[2].split()[1])
        os.kill(processor, signal.SIGKILL)

    def page(self, response):
        return {{"url": response.url}}
"""


def test_a_script_that_kills_its_processor_at_once(make_suite: Callable[..., Any]) -> None:
    suite = make_suite()
    suite.start()
    suite.push("p", SCRIPT)
    suite.wait(lambda: suite.finished("p"), 120)
    assert len(suite.results("p")) == BESIDE
    ((status, track),) = suite.query("task", "select status, track from taskdb_p where url = 'data:,killer'")
    assert status == 3 and "3 workers died over it" in track
    assert suite.log.read_text().count("ended by SIGKILL") <= 4
    suite.stop()
