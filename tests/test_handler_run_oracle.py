"""One run of a callback against pyspider's: the ``direct`` part of data/oracle/run_task.json, or the reason why ours differs.

Loading scripts, logs and time limits are the processor's, and are tested there.
"""

import base64
import json
import linecache
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pyspider_lite import BaseHandler, compat
from pyspider_lite.handler import Outcome
from pyspider_lite.response import rebuild_response

DATA = json.loads((Path(__file__).parent / "data/oracle/run_task.json").read_text())
#: id -> run -> part -> what it is here, where it differs
DECIDED = json.loads((Path(__file__).parent / "data/oracle/run_decided.json").read_text())

#: id -> what of the outcome is another, and why
DIFFERS: dict[str, tuple[str, str]] = {
    "return-response": ("exception items", "what is no JSON fails the run instead of being lost later (X-R1)"),
    "return-set": ("items", "a set is stored as a list (UA37)"),
    "return-datetime": ("items", "a date is stored in ISO 8601 (UA37)"),
    "get_info-inherited-cron": ("save", "cron jobs are inherited (X-S18)"),
    "save-null": ("exception save", "a null save reads as {} (X-P6)"),
    "save-nonjson": ("save", "a set is kept as a list"),
    "crawl-binary-body": ("follows", "binary bodies travel as BASE64 (X-P1)"),
}


@pytest.fixture(autouse=True, scope="module")
def old_names() -> Iterator[None]:
    compat.install()
    yield
    compat.uninstall()


def load(script: str, project: dict[str, Any], env: dict[str, Any]) -> Any:
    """The handler of a script, without what the processor does around it."""
    module = ModuleType("proj")
    module.__dict__.update(__file__="<proj>", __package__="", __project__=project)
    linecache.cache["<proj>"] = (len(script), None, script.splitlines(keepends=True), "<proj>")
    exec(compile(script, "<proj>", "exec", dont_inherit=True), module.__dict__)
    names = vars(module)
    handlers = [
        v for v in names.values() if isinstance(v, type) and issubclass(v, BaseHandler) and v is not BaseHandler
    ]
    handler = handlers[-1]()
    handler.project_name, handler.project, handler.__env__ = "proj", project, env
    return handler


def binary(value: Any) -> Any:
    """The value with its $-tags resolved."""
    if isinstance(value, list):
        return [binary(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if "$tuple" in value:
        return tuple(binary(part) for part in value["$tuple"])
    return {key.removeprefix("$key:"): binary(part) for key, part in value.items()}


def as_json(value: Any) -> Any:
    """The value as our documented encodings store it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: as_json(part) for key, part in value.items()}
    return [as_json(part) for part in value] if isinstance(value, list | tuple) else value


def outcome_differences(expected: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    error = outcome.exception
    seen = {
        "exception": [kind.__name__ for kind in type(error).__mro__] if error else None,
        "items": [json.loads(item.result) for item in outcome.items],
        "follows": [
            {name: getattr(task, name) for name in ("schedule", "fetch", "process", "project", "url", "taskid")}
            for task in outcome.follows
        ],
        "messages": [[message.project, message.message, message.url] for message in outcome.messages],
        "no_status": outcome.no_status,
        "save": outcome.save if outcome.info is None else outcome.info,
    }
    wanted = {
        "exception": expected["exception"] and expected["exception"]["class"],
        "items": as_json(binary(expected["results_queued"])),
        "follows": as_json(binary(expected["follows"])),
        "messages": as_json(binary(expected["messages"])),
        "no_status": expected["extinfo"].get("not_send_status", False),
        "save": as_json(binary(expected["save"])),
    }
    wrong = {}
    for name, value in wanted.items():
        got = seen[name]
        if name == "exception" and value and got and value in got:
            message = expected["exception"]["message"]
            if "not implemented!" not in message or message == str(error):
                continue
        if name == "save" and outcome.info is not None:
            got = {key: got[key] for key in value}  # only what was asked for
        if got != value:
            wrong[name] = (value, got if name != "exception" else error)
    return wrong


def shown(got: Any) -> Any:
    """A part of an outcome as DECIDED has it."""
    return f"{type(got).__name__}: {got}" if isinstance(got, BaseException) else got


#: what the processor's loader, log and time limit do
PROCESSORS = ("log-", "time-limit", "handler-module-names")
VECTORS = [
    vector
    for vector in DATA["vectors"]
    if "load_raises" not in vector["expect"] and not vector["id"].startswith(PROCESSORS)
]


#: the beginning of a vector's id -> what it is about; the longest counts
IDS = json.loads((Path(__file__).parent / "data/oracle/run_behaviours.json").read_text())


def ids(name: str) -> tuple[str, ...]:
    return IDS[max((start for start in IDS if name.startswith(start)), key=len)]


@pytest.mark.parametrize(
    "vector", [pytest.param(one, id=one["id"], marks=pytest.mark.behaviour(*ids(one["id"]))) for one in VECTORS]
)
def test_run(vector: dict[str, Any]) -> None:
    names = ["burst", "comments", "group", "name", "rate", "script", "status", "updatetime"]
    handler = load(vector["script"], dict.fromkeys(names, ""), vector.get("env", {}))
    for number, expected in enumerate(vector["expect"]["direct"]):
        task = binary(vector["task"])
        outcome = handler._run_task(task, rebuild_response(binary(vector["fetch_result"])))
        assert handler.task is handler.response is handler.save is None
        if "escapes" in expected:
            assert type(outcome.exception).__name__ == expected["escapes"]["class"]
            continue
        wrong = outcome_differences(expected, outcome)
        assert set(wrong) == set(DIFFERS.get(vector["id"], ("", ""))[0].split()), (wrong, outcome.traceback)
        if wrong:
            assert {part: shown(got) for part, (_, got) in wrong.items()} == DECIDED[vector["id"]][number]


def test_every_difference_is_a_vector() -> None:
    assert DECIDED.keys() == DIFFERS.keys() <= {vector["id"] for vector in VECTORS}
