"""A job whose time passes while the suite is down runs once when it is up again."""

import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

EVERY = 12
SCRIPT = f"""
from pyspider.libs.base_handler import *

class Handler(BaseHandler):
    @every(seconds={EVERY})
    def fails(self):
        raise ValueError("this one always does")

    @every(seconds={EVERY})
    def look(self, response):
        self.crawl("data:,%d" % response.save["tick"], callback=self.page)

    @every(cron="* * * * *", tz="Asia/Shanghai")
    def each_minute(self, response):
        self.crawl("data:,minute", callback=self.page, age=60)

    def page(self, response):
        return response.text
"""


@pytest.mark.behaviour("S60", "S61")
def test_a_tick_missed_over_a_restart_is_made_up_once(make_suite: Callable[..., Any]) -> None:
    suite = make_suite()
    (suite.folder / "clock.py").write_text(SCRIPT)
    suite.start()
    suite.command("project", "push", str(suite.folder / "clock.py"), "--rate", "unlimited", "--status", "running")
    # the scheduler knows of the jobs, and has written from when on
    suite.wait(lambda: suite.query("task", 'select 1 from "lite-project-state" where last_tick > 0'))
    suite.stop()
    missed = (int(time.time()) // EVERY + 1) * EVERY
    time.sleep(missed + 0.5 - time.time())
    begun = time.time()
    suite.start()
    suite.wait(lambda: f"data:,{missed}" in dict(suite.results("clock")), timeout=EVERY)
    ticks = [int(url[6:]) for url, _ in suite.results("clock") if url != "data:,minute"]
    assert [tick for tick in ticks if tick <= begun].count(missed) == 1
    suite.wait(lambda: "this one always does" in suite.log.read_text(), timeout=EVERY)
