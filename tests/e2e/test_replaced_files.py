"""Database files that are replaced or removed while `all` has them open: it says so and goes on with what is there."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

PAGES = 150

SCRIPT = f"""
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range({PAGES}):
            self.crawl(f"data:,{{number}}", callback=self.page)

    def page(self, response):
        return {{"url": response.url}}
"""


def backup(file: Path, copy: Path) -> None:
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def test_an_older_taskdb_is_put_back_and_results_are_removed(make_suite: Callable[..., Any]) -> None:
    suite = make_suite()
    suite.start()
    file = suite.folder / "data" / "task.db"
    suite.push("p", SCRIPT)
    suite.command("project", "set", "p", "--rate", "30")
    suite.wait(lambda: suite.statuses("p").get(2, 0) > 20)
    backup(file, file.with_suffix(".copy"))
    suite.wait(lambda: suite.statuses("p").get(2, 0) > 60)
    os.replace(file.with_suffix(".copy"), file)
    suite.wait(lambda: suite.finished("p"))
    # what was over in the old file only was done again; no result is missing or there twice
    assert suite.statuses("p") == {2: PAGES + 2}
    assert len(suite.results("p")) == PAGES
    log = suite.log.read_text()
    assert "task.db: another file was put in its place while it was open" in log and log.count("leading, epoch ") == 2

    for path in (suite.folder / "data").glob("result.db*"):
        path.unlink()
    suite.push("q", SCRIPT)
    suite.wait(lambda: suite.finished("q"))
    assert len(suite.results("q")) == PAGES and suite.results("p") == []
    suite.command("doctor")
    log = suite.log.read_text()
    assert "result.db: the file was removed while it was open" in log and "Traceback" not in log
    suite.stop()
