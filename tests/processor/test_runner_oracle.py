"""One run of a callback against what pyspider's processor reported: each vector of data/oracle/run_task.json."""

import base64
import json
import re
import sys
from pathlib import Path

import pytest

from pyspider_lite import error_kinds
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.project import Project
from pyspider_lite.processor.pipe import Script
from pyspider_lite.processor.runner import Runner
from pyspider_lite.processor.scripts import script_md5

DATA = json.loads((Path(__file__).parents[1] / "data/oracle/run_task.json").read_text())
VECTORS = {vector["id"]: vector for vector in DATA["vectors"]}

#: id -> why our report is another
DIFFERS = {
    "arity-2": "the task has all its fields (S6): the golden task had none",
    "arity-3": "the text of Python 3.7's TypeError",
    "arity-static": "the text of Python 3.7's TypeError",
    "crawl-binary-body": "a body is part of the taskid (demand UA18)",
    "exc-syntax-in-eval": "the text of Python 3.7's SyntaxError",
    **dict.fromkeys(
        ("gen-crawl", "gen-falsy", "gen-list-comp", "gen-two"), "the number of items says more than <generator"
    ),
    **dict.fromkeys(("gen-raises", "on_result-raises"), "a result that was not stored is not shown"),
    **dict.fromkeys(
        ("get_info-every-forms", "get_info-number-delay", "get_info-plain"), "says the cron intervals, too"
    ),
    "get_info-inherited-cron": "inherited jobs count (X-S18)",
    "get_info-unknown": "the answer is always whole",
    **dict.fromkeys(
        ("load-empty", "load-import", "load-plain-class", "load-raises", "load-syntax"),
        "a script that does not load does not destroy self.save (X-P6)",
    ),
    "log-getlogger": "logging.getLogger works (H4)",
    "return-response": "what is not JSON is refused, with its place (X-R1)",
    "save-nonjson": "documented encodings (demand UA37)",
    "save-null": "null is read as no save (X-P6)",
    "status-599-traceback": "the traceback of the fetcher is a note",
    "time-limit-env": "the name of the exception's class",
    "time-limit-generator": "generators are within the limit (X-P5)",
    "time-limit-task": "the name of the exception's class",
}
ENV = {"result_queue": None, "enable_stdout_capture": True, "process_time_limit": 30, "debug": False}


@pytest.fixture(autouse=True)
def unchanged_imports(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


def revive(value):
    """A value of the golden data as it was."""
    if isinstance(value, dict):
        if set(value) == {"$bytes"}:
            return base64.b64decode(value["$bytes"])
        return {key: revive(part) for key, part in value.items()}
    return [revive(part) for part in value] if isinstance(value, list) else value


def run(vector):
    """The last parts of the reports on each run of the vector."""
    project = Project(name="proj", script=vector["script"])
    md5 = script_md5(project.script)
    env = vector.get("env") or {}
    runner = Runner(
        lambda name, wanted, known: Script(md5, project) if name == "proj" else Script(), log_limit=65536, env=ENV
    )
    fields = {key: revive(value) for key, value in vector["task"].items() if value is not None}
    fields["process"] = fields.get("process") or {}
    fields = {key: value for key, value in fields.items() if key in Dispatch.__struct_fields__}
    page = Page(Dispatch(**{**fields, "project_md5sum": md5}), FetchResponse(**revive(vector["fetch_result"])))
    limit = float(page.task.process.get("process_time_limit") or env.get("process_time_limit") or 0)
    return [runner.run(page, limit)[-1] for _ in range(vector.get("runs", 1))]


@pytest.mark.parametrize("place", ["module", "callback"])
def test_the_log_names_an_exception_without_a_text(place):
    script = "from pyspider_lite import *\nclass Handler(BaseHandler):\n    def cb(self, response):\n        assert response is None\n"
    vector = {
        "script": script + ("assert False\n" if place == "module" else ""),
        "task": {"taskid": "t", "project": "proj", "url": "http://site.test/p", "process": {"callback": "cb"}},
        "fetch_result": {"status_code": 200},
    }
    process = run(vector)[0].track["process"]
    assert error_kinds.said(process) == "AssertionError"
    assert "AssertionError" in process["logs"].splitlines()[0 if place == "callback" else -1]


def mask(logs):
    return re.sub(r"(?<=\[[DIWEC] )\d{6} [\d:]{8}(?= )", "TIME", re.sub(r"(?<=<proj>:)\d+", "LINE", logs))


def same(ours, theirs, problems, path):
    if theirs == "FLOAT":
        return
    if isinstance(theirs, dict) and "$tail_of" in theirs:
        if (
            ours.rstrip().rpartition("\n")[2].strip().rpartition(".")[2]
            != theirs["$tail_of"].strip().rpartition(".")[2]
        ):
            problems.append(f"{path}: {ours!r} != {theirs!r}")
    elif isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs.keys() | ours.keys():
            same(ours.get(key), theirs.get(key), problems, f"{path}.{key}")
    elif ours != theirs:
        problems.append(f"{path}: {ours!r} != {theirs!r}")


#: the beginning of a vector's id -> what it is about; the longest counts
IDS = json.loads((Path(__file__).parents[1] / "data/oracle/run_behaviours.json").read_text())


def ids(name):
    return IDS[max((start for start in IDS if name.startswith(start)), key=len)]


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.behaviour(*ids(one))) for one in sorted(VECTORS)])
def test_the_report_is_what_pyspider_reported(name):
    vector = VECTORS[name]
    problems = []
    for report, expected in zip(run(vector), vector["expect"]["processor"], strict=False):
        track = json.loads(json.dumps(report.track))
        track["process"]["logs"] = mask(track["process"]["logs"])
        for ours in ("dropped", "error"):
            track["process"].pop(ours, None)
        if report.info is not None:
            track["save"] = report.info
        if expected["status"]:
            same(track, expected["status"][0]["track"], problems, "track")
        results = [json.loads(item.result) for item in report.items]
        theirs = [value for _, value in expected["results"]]
        if "$" not in json.dumps(theirs) and results != theirs:
            problems.append(f"results {results} != {theirs}")
        follows = [(one.url, one.taskid, one.schedule, one.process) for one in report.follows]
        theirs = [
            (one["url"], one["taskid"], one["schedule"], one["process"])
            for batch in expected["newtasks"]
            for one in batch
            if one["project"] == "proj"
        ]
        if follows != theirs:
            problems.append(f"follows {follows} != {theirs}")
    assert bool(problems) == (name in DIFFERS), "\n".join(problems)


def test_the_list_of_differences_names_vectors():
    assert set(DIFFERS) <= set(VECTORS)
