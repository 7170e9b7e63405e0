"""`phantomjs` and `puppeteer` stay up without a browser, and tasks that want one fail with the reason."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

SCRIPT = """
from pyspider.libs.base_handler import *

class Handler(BaseHandler):
    retry_delay = {0: 0}

    def on_start(self):
        for kind in ("js", "phantomjs", "puppeteer", "splash"):
            self.crawl("http://127.0.0.1:1/#" + kind, fetch_type=kind, callback=self.page, retries=0)

    def page(self, response):
        return {"text": response.text}
"""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pyspider_lite", *words], cwd=folder, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.behaviour("C63", "C64", "C20", "C21", "X-F13")
@pytest.mark.parametrize(
    "words",
    [
        ("phantomjs",),
        ("phantomjs", "--phantomjs-path", "/opt/phantomjs", "--port", "25555", "--auto-restart", "true"),
        ("phantomjs", "--ignore-ssl-errors=true", "--proxy=127.0.0.1:1"),
        ("puppeteer", "--port", "22222", "--auto-restart", "true", "anything"),
        ("--phantomjs-proxy", "127.0.0.1:25555", "--puppeteer-proxy", "127.0.0.1:22222", "puppeteer"),
    ],
)
def test_they_stay_until_they_are_told_to_end(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "config.json").write_text('{"phantomjs-proxy": "127.0.0.1:25555", "phantomjs": {"port": 1}}')
    process = start(tmp_path, "-c", "config.json", *words)
    assert process.stderr is not None
    lines = [""]
    while "browser role" not in lines[-1]:
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=10)
    # by the signal, and not before
    assert process.returncode == 143
    # said once
    assert len(rest.splitlines()) == 1 and "exiting" in rest
    assert list(tmp_path.iterdir()) == [tmp_path / "config.json"]


@pytest.mark.parametrize("words", [("--port", "many"), ("--auto-restart",)])
def test_wrong_usage_is_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    process = start(tmp_path, "phantomjs", *words)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert words[0] in err


@pytest.mark.behaviour("F33")
def test_tasks_that_want_a_browser_fail_and_say_why(make_suite: Callable[..., Any]) -> None:
    suite = make_suite()
    suite.start()
    suite.push("browser", SCRIPT)
    suite.wait(lambda: suite.finished("browser"))
    assert suite.statuses("browser")[3] == 4
    failed = suite.command("task", "list", "browser", "--status", "failed")
    for kind, who in (
        ("js", "phantomjs"),
        ("phantomjs", "phantomjs"),
        ("puppeteer", "puppeteer"),
        ("splash", "splash"),
    ):
        ((taskid,),) = suite.query("task", f"select taskid from taskdb_browser where url like '%#{kind}'")
        assert taskid in failed
        shown = suite.command("task", "show", "browser", taskid)
        assert f"501 Server Error: {who} is not enabled. Pages are not rendered by a browser yet." in shown
        assert f'"content": "{who} is not enabled."' in shown
