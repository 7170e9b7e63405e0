"""What pyspider's users rely on and no other test of the processor is about."""

import logging
from typing import Any

import pytest

from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.processor import processor
from pyspider_lite.processor.pipe import Script
from pyspider_lite.processor.project_loader import ProjectLoader

SCRIPT = "from pyspider.libs.base_handler import *\n\nclass Handler(BaseHandler):\n    pass\n"


@pytest.mark.behaviour("P13")
@pytest.mark.parametrize("status", ["TODO", "STOP", "CHECKING", "DEBUG", "RUNNING"])
def test_the_status_of_a_project_does_not_matter(status: str) -> None:
    def ask(name: str, md5: str, known: str) -> Script:
        return Script(md5="1", project=Project(name=name, script=SCRIPT, status=status))

    loaded = ProjectLoader(ask, logging.NullHandler()).get("p")
    assert (loaded.handler.project_name, loaded.handler.project["status"]) == ("p", status)


@pytest.mark.behaviour("P31")
def test_one_line_for_each_page(caplog: pytest.LogCaptureFixture) -> None:
    page = Page(Dispatch(taskid="t", project="p", url="http://a/"), FetchResponse(status_code=200, content=b"12345"))
    follows = [NewTask("u", "p", "http://b/")]

    def said(result: Any, exception: Any) -> str:
        track = {"process": {"result": result, "exception": exception}}
        reports = [
            Report(project="p", taskid="t", url="http://a/", run=0, follows=follows, parts=0),
            Report(project="p", taskid="t", url="http://a/", run=0, follows=follows, track=track, part=1, parts=2),
        ]
        with caplog.at_level("INFO", processor.logger.name):
            processor._log(page, reports)
        return caplog.records[-1].getMessage()

    assert said("{'a': 1}", None) == "process p:t http://a/ -> [200] len:5 -> result:{'a': 1} fol:2 msg:0 err:None"
    assert said(None, "no good").endswith(" -> result:None fol:2 msg:0 err:'no good'")
