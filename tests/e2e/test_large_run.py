"""One callback that yields and crawls more than fits into one report: all of it is stored, once."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

#: a report takes 1,000 follow-ups; with 20,000 this takes 14 s in `one` and `all` alike
MANY = 2_500

SCRIPT = f"""
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("data:,start", callback=self.page)

    def page(self, response):
        for number in range({MANY}):
            self.crawl(f"data:,{{number}}", callback=self.leaf)
            yield {{"number": number, "text": "x" * 500}}

    def leaf(self, response):
        pass
"""


def numbers(rows: list[tuple[str, Any]]) -> list[int]:
    assert {url for url, _ in rows} == {"data:,start"}
    return sorted(value["number"] for _, value in rows)


def test_in_one(tmp_path: Path, command: Callable[..., Any]) -> None:
    script = tmp_path / "big.py"
    script.write_text(SCRIPT)
    urls = {kind: f"sqlite+{kind}:///{tmp_path}/{kind}.db" for kind in ("taskdb", "resultdb")}
    done = command("--taskdb", urls["taskdb"], "--resultdb", urls["resultdb"], "one", str(script))
    assert (done.code, done.err) == (0, "")
    results = sqlite3.connect(tmp_path / "resultdb.db")
    assert results.execute("select count(*), count(distinct result) from resultdb_big").fetchall() == [(MANY, MANY)]
    results.close()
    tasks = sqlite3.connect(tmp_path / "taskdb.db")
    assert tasks.execute("select status, count(*) from taskdb_big group by status").fetchall() == [(2, MANY + 3)]
    tasks.close()


def test_in_all(make_suite: Callable[..., Any]) -> None:
    suite = make_suite(all={"result_worker_num": 2})
    suite.start()
    suite.push("big", SCRIPT)
    suite.wait(lambda: suite.finished("big"))
    assert numbers(suite.results("big")) == list(range(MANY))
    # the page, its links, on_start and on_finished
    assert suite.statuses("big") == {2: MANY + 3}
