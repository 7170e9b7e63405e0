"""on_start and on_finished that fail are tried again, by fetcher and processor as any task is."""

import json
import subprocess
import sys
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


def test_a_second_try_ends_well(tmp_path: Path) -> None:
    (tmp_path / "flaky.py").write_text(SCRIPT)
    words = [sys.executable, "-m", "pyspider_lite", "one", "flaky.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["result"] for line in done.stdout.splitlines()] == ["page", "the end"]
    assert done.stderr.count("not yet") == 2
