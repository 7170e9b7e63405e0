"""A thousand projects of ten pages each, all running at once: each page of each project exactly once, and quiet afterwards."""

import time
from collections.abc import Callable

import pytest

from pyspider_lite.bench import many, processes, site

pytestmark = pytest.mark.e2e

SCRIPT = """from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("START", callback=self.page)

    def page(self, response):
        for url in response.links():
            self.crawl(url, callback=self.page)
        return {"title": response.etree.findtext(".//title")}
"""
PROJECTS = 1_000
#: how much the scheduler may take of memory, and of a core when nothing is left to do
MAX_RSS = 150e6
MAX_IDLE = 0.02


@pytest.mark.slow
def test_a_thousand_projects_at_once(make_suite: Callable) -> None:
    with site.Site(many.PAGES, size=1_000) as served:
        suite = make_suite()
        data = suite.folder / "data"
        many.enter(data, PROJECTS, SCRIPT.replace("START", served.url))
        suite.start()
        suite.wait(lambda: served.requests, timeout=20)
        suite.wait(lambda: many.finished(data) == PROJECTS, timeout=180)
        (scheduler,) = suite.children("scheduler")
        assert processes.rss(scheduler) < MAX_RSS
        time.sleep(2.0)  # the last beats and looks of the crawl are no idling
        before = processes.cpu(scheduler)
        time.sleep(5.0)
        assert processes.cpu(scheduler) - before < MAX_IDLE * 5.0
        assert suite.stop() == 143
        assert many.problems(data, PROJECTS, served) == ""
        assert served.requests == dict.fromkeys(range(many.PAGES), PROJECTS)
