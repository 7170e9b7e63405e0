"""`one` and `all` as processes: what they print, and the exit codes, which are compared exactly."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.e2e

HEAD = "from pyspider_lite import BaseHandler\n\n\nclass Handler(BaseHandler):\n    retry_delay = {0: 0}\n\n"
START = "    def on_start(self):\n        self.crawl('data:,hello', callback=self.page, retries=0)\n\n"

BAD_SCRIPTS = [
    ("exception at import", "raise ValueError('not today')\n", "not today"),
    ("no handler", "x = 1\n", "data:,on_start"),
    ("callback that does not exist", HEAD + "    def on_start(self):\n        self.crawl('data:,x', callback='nope')\n", "nope"),
    ("callback that raises", HEAD + START + "    def page(self, response):\n        raise ValueError('no good')\n", "no good"),
    ("result that is not JSON", HEAD + START + "    def page(self, response):\n        return {'a': {'b': object()}}\n", "a.b"),
    ("URL that is none", HEAD + "    def on_start(self):\n        self.crawl('http://', callback=self.page, retries=0)\n\n"
     "    def page(self, response):\n        pass\n", "http:"),
]  # fmt: skip


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pyspider_lite", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], timeout: float = 30.0) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"it did not end\n{out}\n{err}")
    return process.returncode, out, err


@pytest.mark.behaviour("C95")
def test_one_prints_a_line_a_result_and_ends_by_itself(tmp_path):
    (tmp_path / "shop.py").write_text(
        HEAD + START + "    def page(self, response):\n        return {'text': response.text, '价': 1}\n"
    )
    code, out, err = ended(start(tmp_path, "one", "shop.py"))
    (line,) = (json.loads(line) for line in out.splitlines())
    assert (code, err) == (0, "")
    assert (line["project"], line["url"], line["result"]) == ("shop", "data:,hello", {"text": "hello", "价": 1})
    assert set(line) == {"taskid", "project", "url", "result", "updatetime"}
    assert os.listdir(tmp_path) == ["shop.py"]


@pytest.mark.parametrize(("script", "said"), [row[1:] for row in BAD_SCRIPTS], ids=[row[0] for row in BAD_SCRIPTS])
def test_one_tells_what_failed(tmp_path, script, said):
    (tmp_path / "broken.py").write_text(script)
    code, out, err = ended(start(tmp_path, "one", "broken.py"))
    assert (code, out) == (1, "")
    failures = [line for line in err.splitlines() if line.startswith("failed: broken: ")]
    assert any(said in line for line in failures), err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_ends_by_a_signal(tmp_path, number, code):
    slow = "    def page(self, response):\n        print('here', flush=True)\n        import time\n        time.sleep(20)\n"
    (tmp_path / "slow.py").write_text(HEAD + START + slow)
    process = start(tmp_path, "--drain-timeout", "1", "one", "slow.py")
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    process.send_signal(number)
    assert ended(process)[0] == code


def test_all_with_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "config.json").write_text(json.dumps({"fetcher": {"xmlrpc-port": port}}))
        code, _, err = ended(start(tmp_path, "-c", "config.json", "all"))
    assert code == 3
    assert f"pyspider_lite: cannot listen on 127.0.0.1:{port}: Address already in use\n" in err
    assert "Traceback" not in err


def test_all_starts_without_a_command_and_stops_at_sigterm(tmp_path):
    process = start(tmp_path, "--drain-timeout", "8")
    deadline = time.monotonic() + 20
    ready = 0
    assert process.stderr is not None
    while ready < 3 and time.monotonic() < deadline:
        ready += " is here " in process.stderr.readline()
    assert ready == 3
    process.send_signal(signal.SIGTERM)
    code, out, err = ended(process)
    assert (code, out) == (143, "")
    assert "Traceback" not in err
    assert sorted(os.listdir(tmp_path / "data")) == [".lock", "project.db", "result.db", "task.db"]
