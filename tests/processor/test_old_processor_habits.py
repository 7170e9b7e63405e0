"""What pyspider's users rely on and no other test of the processor is about."""

import logging

import pytest

from pyspider_lite.models import Project
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
