"""What a script sees of itself, its project and its task; and the projects it imports."""

import json
from typing import Any

import pytest

from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.project import Project
from pyspider_lite.processor.pipe import Script
from pyspider_lite.processor.runner import Runner
from pyspider_lite.processor.scripts import script_md5

HEAD = "from pyspider.libs.base_handler import *\n"
ENV = {"result_queue": None, "enable_stdout_capture": True, "process_time_limit": 30, "debug": False}


def run(scripts: dict[str, str], callback: str = "cb", debug: bool = False, **fetch: Any) -> Any:
    """The report on one page of project ``p``."""
    projects = {name: Project(name=name, script=script, status="RUNNING") for name, script in scripts.items()}

    def ask(name: str, wanted: str, known: str) -> Script:
        project = projects.get(name)
        return Script(script_md5(project.script), project) if project else Script()

    task = Dispatch(
        taskid="t",
        project="p",
        url="http://site.test/",
        process={"callback": callback},
        fetch=fetch,
        track={"save": {"n": 1}},
        debug=debug,
        project_md5sum=script_md5(scripts["p"]),
    )
    page = FetchResponse(status_code=200, url="http://site.test/", save=fetch.get("save"), content=b"<a href=/x>x</a>")
    return Runner(ask, log_limit=65536, env=dict(ENV)).run(Page(task, page), 5)[-1]


def result(report: Any) -> Any:
    assert report.ok, report.track["process"]["logs"]
    return json.loads(report.items[0].result)


@pytest.mark.behaviour("H10", "H11", "H12", "H13", "H14")
def test_what_a_callback_sees_of_itself() -> None:
    script = (
        HEAD
        + """class Handler(BaseHandler):
    def __init__(self):
        self.outside = [self.task, self.response, self.save, self.crawl_config, self.retry_delay]
    def cb(self, response, task):
        assert self.task is task and self.response is response
        self.logger.info("said")
        logger.info("likewise")
        return {"name": self.project_name, "project": [self.project[key] for key in ("name", "status")],
                "md5": self.project["md5sum"] == __project__["md5sum"], "save": self.save, "taskid": self.task["taskid"],
                "env": [self.__env__[key] for key in ("debug", "process_time_limit", "enable_stdout_capture")],
                "debugger": bool(self.is_debugger()), "outside": self.outside}
"""
    )
    report = run({"p": script}, debug=True)
    assert result(report) == {
        "name": "p",
        "project": ["p", "RUNNING"],
        "md5": True,
        "save": {"n": 1},
        "taskid": "t",
        "env": [True, 30, True],
        "debugger": False,
        "outside": [None, None, None, {}, {}],
    }
    assert [line.rpartition(" ")[2] for line in report.track["process"]["logs"].splitlines()] == ["said", "likewise"]


@pytest.mark.behaviour("H2")
@pytest.mark.parametrize(("extra", "expected"), [("", "last"), ("__handler_cls__ = First\n", "first")])
def test_the_handler_is_the_last_class_or_the_one_that_is_named(extra: str, expected: str) -> None:
    script = (
        HEAD
        + "class First(BaseHandler):\n    def cb(self):\n        return 'first'\n"
        + "class Last(BaseHandler):\n    def cb(self):\n        return 'last'\nclass Other(object):\n    pass\n"
        + extra
    )
    assert result(run({"p": script})) == expected


@pytest.mark.behaviour("H4")
def test_logging_in_a_script_is_logger_and_module() -> None:
    script = (
        HEAD
        + "import logging\nclass Handler(BaseHandler):\n    def cb(self):\n"
        + "        logging.info('one')\n        logging.getLogger('x').setLevel(logging.ERROR)\n        return logging.INFO\n"
    )
    report = run({"p": script})
    assert result(report) == 20
    assert report.track["process"]["logs"].rstrip().endswith("one")


@pytest.mark.behaviour("H7")
def test_projects_can_be_imported_in_three_ways() -> None:
    script = (
        HEAD
        + "from projects import shared\nfrom projects.shared import Base, VALUE\nimport projects.shared\n"
        + "class Handler(Base):\n    def cb(self):\n        return [VALUE, shared.VALUE, projects.shared.VALUE, self.inherited()]\n"
    )
    shared = HEAD + "VALUE = 1\nclass Base(BaseHandler):\n    def inherited(self):\n        return self.project_name\n"
    assert result(run({"p": script, "shared": shared})) == [1, 1, 1, "p"]


@pytest.mark.behaviour("H8")
def test_a_console_can_be_had_from_a_script() -> None:
    script = (
        HEAD
        + "from pyspider.libs.utils import get_python_console, python_console\nclass Handler(BaseHandler):\n"
        + "    def cb(self):\n        return [callable(python_console), hasattr(get_python_console({}), 'push')]\n"
    )
    assert result(run({"p": script})) == [True, True]


@pytest.mark.behaviour("H15", "H62")
def test_on_finished_gets_response_and_task() -> None:
    script = (
        HEAD
        + "class Handler(BaseHandler):\n    def on_finished(self, response, task):\n"
        + "        self.send_message('other', {'done': task['taskid']})\n        self.crawl('http://site.test/again', age=0)\n"
    )
    report = run({"p": script}, "on_finished")
    assert report.ok
    assert [(one.project, one.message) for one in report.messages] == [("other", {"done": "t"})]
    assert [one.url for one in report.follows] == ["http://site.test/again"]


@pytest.mark.behaviour("H61")
def test_a_message_is_answered_by_on_message() -> None:
    script = (
        HEAD + "class Handler(BaseHandler):\n    def on_message(self, project, msg):\n        return [project, msg]\n"
    )
    report = run({"p": script}, "_on_message", save=["sender", {"a": 1}])
    assert result(report) == ["sender", {"a": 1}]
    assert report.no_status


def test_dropped_links_are_in_the_track() -> None:
    script = (
        HEAD
        + "class Handler(BaseHandler):\n    def cb(self):\n"
        + "        for link in ('http://a.test/', 'http://a.test/', 'http://[', 'http://b..c/'):\n            self.crawl(link)\n"
    )
    track = run({"p": script}).track["process"]
    assert (track["follows"], track["dropped"]) == (1, {"duplicate": 1, "bad-url": 2})
    assert "crawl('http://['): dropped: not a URL" in track["logs"]
