"""on_start and on_finished that fail are tried again, by fetcher and processor as any task is."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

SCRIPT = """
from pathlib import Path
from pyspider.libs.base_handler import *

def fail_once(name):
    if not Path(name).exists():
        Path(name).touch()
        raise ValueError(name + ": not yet")

class Handler(BaseHandler):
    retry_delay = 0

    def on_start(self, response, task):
        fail_once("start")
        self.crawl("data:,page", callback=self.page)

    def page(self, response):
        return response.text

    def on_finished(self, response, task):
        fail_once("finished")
        return "the end"
"""


@pytest.mark.behaviour("X-S10")
def test_a_second_try_ends_well(tmp_path: Path) -> None:
    """In `one`, which counted each of them twice in pyspider."""
    (tmp_path / "flaky.py").write_text(SCRIPT)
    words = [sys.executable, "-m", "pyspider_lite", "--taskdb", "sqlite+taskdb:///tasks.db", "one", "flaky.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["result"] for line in done.stdout.splitlines()] == ["page", "the end"]
    assert done.stderr.count("not yet") == 2
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as tasks:
        rows = tasks.execute("select taskid, status, schedule from taskdb_flaky").fetchall()
    ends = {taskid: (status, json.loads(schedule or "{}").get("retried")) for taskid, status, schedule in rows}
    assert len(ends) == 3
    assert ends["on_start"] == ends["on_finished"] == (2, 1)
