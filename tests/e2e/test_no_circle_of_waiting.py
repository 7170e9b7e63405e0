"""Result worker, processor and fetcher stand still in turn under load: all others answer and do not grow, and all drains afterwards
(demand UA30)."""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from pyspider_lite.bench import processes, site

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

ROLES = ("result_worker", "processor", "fetcher")
#: seconds that each stands still, and bytes that the others may grow meanwhile
STILL = 20.0
GROWTH = 40e6
PAGES = 6_000
SCRIPT = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("START", callback=self.page)

    def page(self, response):
        for url in response.links():
            self.crawl(url, callback=self.page)
        return {"title": response.etree.findtext(".//title"), "text": "x" * 2000}
"""


def health_ports(suite: Any) -> dict[str, str]:
    """Role -> its health port."""
    rows = map(json.loads, suite.command("cluster", "list", "--format", "jsonl").splitlines())
    return {row["role"]: row["health"] for row in rows if row["type"] == "worker"}


def healthy(url: str) -> bool:
    with urllib.request.urlopen(f"{url}healthz", timeout=10) as answer:
        return bool(answer.status == 200)


def test_nobody_waits_for_one_that_stands_still(make_suite: Callable[..., Any]) -> None:
    with site.Site(PAGES, size=2_000) as served:
        suite = make_suite(health_port=0)
        suite.start()
        suite.push("pages", SCRIPT.replace("START", served.url))
        suite.wait(lambda: len(served.requests) > 50)
        ports = health_ports(suite)
        assert ports.keys() == {"scheduler", *ROLES}
        for role in ROLES:
            (stopped,) = suite.children(role)
            others = {other: suite.children(other)[0] for other in ports if other != role}
            others["all"] = suite.process.pid
            before = {other: processes.rss(pid) for other, pid in others.items()}
            os.kill(stopped, signal.SIGSTOP)
            try:
                until = time.monotonic() + STILL
                while time.monotonic() < until:
                    assert all(healthy(url) for other, url in ports.items() if other != role)
                    time.sleep(1.0)
                grown = {other: processes.rss(pid) - before[other] for other, pid in others.items()}
                assert max(grown.values()) < GROWTH, grown
            finally:
                os.kill(stopped, signal.SIGCONT)
        suite.wait(lambda: suite.finished("pages"), 300)
        assert len(suite.results("pages")) == PAGES
        assert "stood still:" not in suite.log.read_text()  # what the watchdog says of a standstill of its own
        assert suite.stop() == 143
