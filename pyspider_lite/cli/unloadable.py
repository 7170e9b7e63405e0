"""Which projects have a script that processors could not load, for `project` and `doctor`: from what the scheduler keeps of its answer."""

from collections.abc import Mapping

from pyspider_lite.database.base import ProjectDB
from pyspider_lite.processor.scripts import script_md5
from pyspider_lite.scheduler import control


def unloadable(projectdb: ProjectDB, answers: Mapping[str, str]) -> dict[str, str]:
    """By name the exception in one line, from the kept ``answers`` (`ProjectState.info`). A script that was changed since is not among them: it was not tried yet."""
    found = {}
    for name, answer in answers.items():
        asked, reason = control.kept_failure(answer)
        # most have an answer: their scripts need not be read
        project = projectdb.get(name) if reason else None
        if project is not None and asked == control.info_id(name, project.generation, script_md5(project.script)):
            found[name] = reason
    return found
