"""Result workers of a user whose `on_result` ends its process, or never returns, from end to end: that task alone fails."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

WORKER = """
import os
from pyspider.result import ResultWorker


class Killer(ResultWorker):
    def on_result(self, task, result):
        if task["url"].endswith("kill"):
            os._exit(7)
        return super().on_result(task, result)
"""
HANGING = """
import time
from pyspider.result import ResultWorker


class Hanging(ResultWorker):
    def on_result(self, task, result):
        if task["url"].endswith("kill"):
            time.sleep(1000)
        return super().on_result(task, result)
"""
LEAVING = """
import os, signal, threading, time
from pyspider.result import ResultWorker


class Leaving(ResultWorker):
    def on_result(self, task, result):
        if task["url"].endswith("kill"):
            threading.Thread(target=time.sleep, args=(1000,)).start()
            os.kill(os.getpid(), signal.SIGTERM)
        child = os.fork()
        if not child:
            return  # into the worker's own code
        with open("children", "a") as file:
            print(child, os.waitpid(child, 0)[1], file=file)
        return super().on_result(task, result)
"""
SCRIPT = """
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        for name in ("a", "b", "kill", "c", "d"):
            self.crawl("data:," + name, callback=self.page)

    def page(self, response):
        return {"text": response.text}
"""


@pytest.mark.slow
def test_what_kills_result_workers_is_given_up(make_suite: Callable[..., Any], command: Callable[..., Any]) -> None:
    suite = make_suite(result_worker={"result_cls": "killer.Killer"}, add_sys_path=True)
    (suite.folder / "killer.py").write_text(WORKER)
    suite.start()
    suite.push("shop", SCRIPT)
    suite.wait(lambda: suite.finished("shop"), 100)
    assert suite.statuses("shop") == {2: 6, 3: 1}
    assert len(suite.results("shop")) == 4
    listed = command("-c", str(suite.config), "dead-letter", "list", "--format", "jsonl").out
    (letter,) = [json.loads(line) for line in listed.splitlines()]
    assert (letter["kind"], letter["reason"]) == ("task", "3 workers died over it")


def test_what_never_returns_fails_and_its_worker_is_started_again(
    make_suite: Callable[..., Any], command: Callable[..., Any]
) -> None:
    suite = make_suite(result_worker={"result_cls": "hanging.Hanging", "on_result_limit": 1.0}, add_sys_path=True)
    (suite.folder / "hanging.py").write_text(HANGING)
    suite.start()
    suite.push("shop", SCRIPT.replace("callback=self.page", "callback=self.page, retries=0"))
    suite.wait(lambda: suite.finished("shop"), 60)
    assert suite.statuses("shop") == {2: 6, 3: 1}
    assert len(suite.results("shop")) == 4
    listed = command("-c", str(suite.config), "dead-letter", "list", "--format", "jsonl").out
    (letter,) = [json.loads(line) for line in listed.splitlines()]
    assert (letter["kind"], letter["reason"]) == ("result", "on_result: did not return within 1 s")


def test_threads_and_children_that_it_starts_keep_no_process(make_suite: Callable[..., Any]) -> None:
    suite = make_suite(result_worker={"result_cls": "leaving.Leaving"}, add_sys_path=True, drain_timeout=5.0)
    (suite.folder / "leaving.py").write_text(LEAVING)
    suite.start()
    suite.push("shop", SCRIPT)
    suite.wait(lambda: suite.finished("shop"), 60)
    assert suite.statuses("shop") == {2: 7}
    assert len(suite.results("shop")) == 5
    ended = [line.split() for line in (suite.folder / "children").read_text().splitlines()]
    assert len(ended) >= 5 and {status for _, status in ended} == {"0"}
    suite.wait(lambda: "threads that are none of ours do not end" in suite.log.read_text())
    suite.wait(lambda: len(suite.children("result_worker")) == 1)
