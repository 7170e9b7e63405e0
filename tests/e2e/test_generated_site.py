"""A generated site is crawled completely and exactly once, undisturbed and with processes killed on the way."""

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from places import SITE_SCRIPT

from pyspider_lite.bench import site

pytestmark = pytest.mark.e2e


def complete(suite: Any, served: site.Site, name: str = "gen") -> None:
    expected = {f"http://127.0.0.1:{served.port}/{index}.html": site.title(index) for index in range(served.pages)}
    rows = suite.results(name)
    assert {url: value["title"] for url, value in rows} == expected
    assert max(Counter(url for url, _ in rows).values()) == 1
    # the pages, on_start and on_finished; the counts kept are those counted
    assert suite.statuses(name) == {2: served.pages + 2}
    counted = suite.query(
        "task", f"select active, success, failed, bad from \"lite-project-state\" where project = '{name}'"
    )
    assert counted == [(0, served.pages + 2, 0, 0)]


@pytest.mark.behaviour("X-S17")
def test_undisturbed(make_suite: Callable[..., Any]) -> None:
    suite = make_suite(all={"processor_num": 2})
    with site.Site(800) as served:
        suite.start()
        suite.push("gen", SITE_SCRIPT.replace("START", served.url))
        suite.wait(lambda: suite.finished("gen"))
        complete(suite, served)
        assert sum(served.requests.values()) == served.pages
    assert suite.stop() == 143


@pytest.mark.timeout(240)
def test_every_role_killed_on_the_way(make_suite: Callable[..., Any]) -> None:
    suite = make_suite(all={"processor_num": 2})
    with site.Site(1500) as served:
        suite.start()
        suite.push("gen", SITE_SCRIPT.replace("START", served.url))
        done = 100
        for role in ("processor", "fetcher", "result_worker", "scheduler"):
            suite.wait(lambda done=done: len(suite.results("gen")) >= done or suite.finished("gen"), 90)
            for pid in suite.children(role):
                with contextlib.suppress(ProcessLookupError):  # it may have gone with its parent
                    os.kill(pid, signal.SIGKILL)
            done += 250
        suite.wait(lambda: suite.finished("gen"), 120)
        complete(suite, served)
