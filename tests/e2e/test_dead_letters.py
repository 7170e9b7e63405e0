"""Dead letters from end to end: results that a user's result worker refuses, a message that nobody can read, and their second way."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from pyspider_lite import assembly, bootstrap, codec, configuration
from pyspider_lite.models.batch import NewTaskBatch
from pyspider_lite.models.letter import DeadLetter
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.task import NewTask

pytestmark = pytest.mark.e2e

WORKER = """
import os
from pyspider.result import ResultWorker


class Picky(ResultWorker):
    def on_result(self, task, result):
        if task["url"].endswith("odd") and os.path.exists(os.path.join(os.path.dirname(__file__), "picky")):
            raise ValueError("the other side is away")
        return super().on_result(task, result)
"""
SCRIPT = """
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        self.crawl("data:,even", callback=self.page, retries=0)
        self.crawl("data:,odd", callback=self.page, retries=0)

    def page(self, response):
        return {"text": response.text}
"""


def test_dead_letters_are_kept_shown_retried_and_purged(
    make_suite: Callable[..., Any], command: Callable[..., Any]
) -> None:
    suite = make_suite(result_worker={"result_cls": "picky_worker.Picky"}, add_sys_path=True)
    (suite.folder / "picky_worker.py").write_text(WORKER)
    (suite.folder / "picky").touch()
    suite.start()
    suite.push("shop", SCRIPT)
    suite.wait(lambda: suite.finished("shop"))

    def said(*words: str, code: int = 0) -> str:
        outcome = command("-c", str(suite.config), *words)
        assert outcome.code == code, outcome.err
        return str(outcome.out).strip()

    def letters(*words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in said("dead-letter", "list", "--format", "jsonl", *words).splitlines()]

    settings = configuration.load(str(suite.config), {}, {}).settings
    queue = assembly.connector(settings, QueueName.NEW_TASKS)()
    queue.put(b"pickle?", 5)
    queue.put(codec.encode(NewTaskBatch(tasks=[Raw(codec.pack(NewTask("", "shop", "data:,even")))])), 5)
    queue.close()
    suite.wait(lambda: len(letters()) == 3)

    # the results, with what is known of them
    (kept,) = letters("--kind", "result")
    assert (kept["project"], kept["reason"]) == ("shop", "on_result: ValueError: the other side is away")
    shown = json.loads(said("dead-letter", "show", str(kept["id"])))
    assert shown["payload"]["items"][0]["result"] == '{"text":"odd"}'
    assert shown["retry"] == "goes to processor2result"
    assert suite.statuses("shop") == {2: 3, 3: 1}
    assert "shop" in said("project", "list")
    assert json.loads(said("project", "list", "--format", "jsonl"))["dead_letters"] == 1
    suite.wait(lambda: "result_worker" in str(command("-c", str(suite.config), "cluster", "list").out))
    assert "dead letters: message 2, result 1" in said("cluster", "list")

    # still refused: there is a new letter for the old one
    assert said("dead-letter", "retry", str(kept["id"])) == "1 tried again, 0 cannot be"
    suite.wait(lambda: [one["id"] != kept["id"] for one in letters("--kind", "result")] == [True])
    (suite.folder / "picky").unlink()
    assert said("dead-letter", "retry", "--project", "shop", "--dry-run") == "1 would be tried again, 0 cannot be"
    assert said("dead-letter", "retry", "--project", "shop") == "1 tried again, 0 cannot be"
    suite.wait(lambda: len(suite.results("shop")) == 2)
    assert letters("--project", "shop") == []

    # a task that was given up runs again
    ((failed,),) = suite.query("task", "select taskid from taskdb_shop where status = 3")
    with bootstrap.open_taskdb(settings) as taskdb, taskdb.begin(None) as tx:
        given_up = DeadLetter(kind="task", project="shop", reason="r", payload=b"", time=time.time(), taskid="")
        tx.add_dead_letters([replace(given_up, taskid=taskid) for taskid in (failed, "gone")])
    assert said("dead-letter", "retry", "--kind", "task", code=1) == "1 tried again, 1 cannot be"
    suite.wait(lambda: suite.statuses("shop") == {2: 4})
    assert [one["taskid"] for one in letters("--kind", "task")] == ["gone"]
    assert (
        json.loads(said("dead-letter", "show", str(letters("--kind", "task")[0]["id"])))["retry"] == "the task is gone"
    )
    assert said("dead-letter", "purge", "--project", "shop") == "1 removed"

    # what cannot be read cannot be tried again
    assert said("dead-letter", "retry", "--all", code=1) == "0 tried again, 2 cannot be"
    (unread, no_id) = sorted(letters(), key=lambda one: str(one["reason"]))
    assert json.loads(said("dead-letter", "show", str(unread["id"])))["payload"] == "pickle?"
    assert "taskid is missing" in json.loads(said("dead-letter", "show", str(no_id["id"])))["retry"]
    assert said("dead-letter", "purge", "--older-than", "1h") == "0 removed"
    assert said("dead-letter", "purge", str(unread["id"])) == "1 removed"
    assert said("dead-letter", "purge", "--kind", "message", "--dry-run") == "1 would be removed"
    assert said("dead-letter", "purge", "--all") == "1 removed"
    assert said("dead-letter", "list") == ""
    said("dead-letter", "purge", code=2)
    said("dead-letter", "show", "99", code=2)
