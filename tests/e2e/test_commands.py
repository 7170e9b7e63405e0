"""`one` and `all` as processes: what they print, and the exit codes, which are compared exactly."""

import json
import os
import signal
import time

import pytest
from places import HEAD, START, ended, start

pytestmark = pytest.mark.e2e


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


@pytest.mark.parametrize("encoding", ["gbk", "utf-8-sig"])
def test_one_reads_the_encoding_of_the_script(tmp_path, encoding):
    cookie = "# coding: gbk\n" if encoding == "gbk" else ""
    script = cookie + HEAD + START + "    def page(self, response):\n        return '价格'\n"
    (tmp_path / "shop.py").write_bytes(script.encode(encoding))
    code, out, err = ended(start(tmp_path, "one", "shop.py"))
    assert (code, err, json.loads(out)["result"]) == (0, "", "价格")


@pytest.mark.behaviour("C2", "C91")
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
    assert sorted(os.listdir(tmp_path / "data")) == [".lock", "begun", "project.db", "result.db", "task.db"]
