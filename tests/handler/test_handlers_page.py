"""docs/handlers.md is true: each example is run, by the processor's runner, on a small shop; the list below it is what it stores."""

import json
import re
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pyspider_lite import crawl_config
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.processor.pipe import Script
from pyspider_lite.processor.runner import Runner
from pyspider_lite.processor.scripts import script_md5

TEXT = (Path(__file__).parents[2] / "docs/handlers.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```json\n(.*?)```", TEXT, re.DOTALL)
ITEMS = {"1": ("Mouse", "10.50"), "2": ("Keyboard", "25.00")}
LIST = "".join(f'<li><a href="/item/{n}">{name}</a> <b>{price}</b></li>' for n, (name, price) in ITEMS.items())


def fetch(task: NewTask) -> FetchResponse:
    """The page of the shop."""
    parts = urlsplit(task.url)
    status, error, kind, body = 200, None, "text/html; charset=utf-8", ""
    if parts.scheme == "data":
        kind, body = "text/plain", parts.path.rpartition(",")[2]
    elif parts.path == "/":
        body = f"<title>Shop</title><ul>{LIST}</ul><a name=end>no link</a>"
    elif parts.path.startswith("/item/"):
        body = "<h1>{}</h1><b>{}</b>".format(*ITEMS[parts.path[6:]])
    elif parts.path == "/api":
        page = int(parse_qs(task.fetch["data"])["page"][0])
        kind, body = "application/json", json.dumps({"page": page, "items": [ITEMS[str(page)][0]]})
    else:
        status, error = 404, "HTTP 404: Not Found"
    return FetchResponse(
        status_code=status,
        url=task.url,
        orig_url=task.url,
        headers={"Content-Type": kind},
        content=body.encode(),
        error=error,
        save=task.fetch.get("save"),
    )


class Crawl:
    """A project that is worked off in order of arrival."""

    def __init__(self, script: str) -> None:
        project = Project(name="shop", script=script, status="RUNNING")
        self._md5 = script_md5(script)
        self._runner = Runner(lambda name, wanted, known: Script(self._md5, project), log_limit=65536)
        self._seen: set[str] = set()
        self.results: list[Any] = []

    def run(self, callback: str, save: Any = None) -> Report:
        """Run one callback that needs no page, and all that follows from it."""
        fields = {"taskid": callback, "project": "shop", "url": f"data:,{callback}"}
        return self._work_off(NewTask(**fields, fetch={"save": save}, process={"callback": callback}))

    def _work_off(self, first: NewTask) -> Report:
        waiting, report = deque([first]), None
        while waiting:
            task = waiting.popleft()
            last = self._once(task)
            report = report or last
            waiting += (one for one in last.follows if one.taskid not in self._seen)
            self._seen |= {one.taskid for one in last.follows}
            for message in last.messages:
                self.run("_on_message", ["shop", message.message])
        assert report is not None
        return report

    def _once(self, task: NewTask) -> Report:
        dispatch = Dispatch(
            taskid=task.taskid,
            project="shop",
            url=task.url,
            schedule=task.schedule,
            fetch=crawl_config.join_fetch(task.fetch, {}),
            process=task.process,
            project_md5sum=self._md5,
        )
        report = self._runner.run(Page(dispatch, fetch(task)), 10)[-1]
        assert report.ok, report.track["process"]["logs"]
        self.results += [json.loads(item.result) for item in report.items]
        return report


@pytest.mark.behaviour("H1", "H15", "H31", "H33", "H62")
@pytest.mark.parametrize(("script", "expected"), EXAMPLES, ids=range(1, len(EXAMPLES) + 1))
def test_example(script: str, expected: str) -> None:
    crawl = Crawl(script)
    info = crawl.run("_on_get_info").info
    assert info is not None
    if "def on_start" in script:
        crawl.run("on_start")
    if info["min_tick"]:
        crawl.run("_on_cronjob", {"tick": 86400})
    if "def on_finished" in script:
        crawl.run("on_finished")
    assert crawl.results == json.loads(expected)


def test_all_examples_say_what_they_store() -> None:
    assert len(EXAMPLES) == TEXT.count("```python") == TEXT.count("```json") > 10


def test_every_option_is_in_the_table() -> None:
    table = TEXT[TEXT.index("| option |") : TEXT.index("**Bad links.**")]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    options = {*crawl_config.SCHEDULE, *crawl_config.FETCH, *crawl_config.PROCESS, "params", "files", "taskid"}
    assert named == options - {"last_modifed"}
