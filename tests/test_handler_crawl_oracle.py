"""``self.crawl`` against what pyspider did: each vector of data/oracle/crawl.json, or the reason why ours differs."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import BaseHandler, Response, config

DATA = json.loads((Path(__file__).parent / "data/oracle/crawl.json").read_text())
#: id -> what ours does where it differs, one entry a call, in the notation of the vectors
DECIDED = json.loads((Path(__file__).parent / "data/oracle/crawl_decided.json").read_text())

_DROPPED = "what is no URL is dropped, recorded, and the callback goes on"
_CURL = "curl commands as browsers copy them today"
#: id -> why ours is another
DIFFERS = {
    **dict.fromkeys(("url-label-empty", "url-label-long", "url-bad-ipv6", "url-surrogate", "url-nul"), _DROPPED),
    **dict.fromkeys(("url-len-1024", "url-len-spaces", "list-bad-second"), _DROPPED),
    "list-none": "None in a list is ignored, as it is alone (H40)",
    **dict.fromkeys(("curl-location", "curl-insecure", "curl-user", "curl-data-urlencode", "curl-A"), _CURL),
    "url-idn-userinfo": "user:password stay in front of the encoded host",
    "data-bytes-binary": "binary bodies travel as BASE64 (X-P1)",
    "data-empty-dict": "an empty body is no body (X-F9)",
    "data-empty-str": "an empty body is no body (X-F9)",
    "data-none-value": "a form whose only value is None is an empty body: no body (X-F9)",
    "data-true": "refused at the call: no body can be made of True",
    "files-bytes": "binary bodies travel as BASE64 (X-P1)",
    "files-documented-shape": "the shape of the documentation works (H47)",
    "files-empty": "no files is not an error",
    "ua-headers-lower": "user_agent replaces the header in any spelling, there are never two (UA12)",
    "kw-taskid-_": "an empty taskid would be refused by the scheduler (S5): the default one",
    "kw-taskid-null": "an empty taskid would be refused by the scheduler (S5): the default one",
    "kw-taskid-12": "a taskid is text",
    "prec-cc-debugger": "user_agent of crawl_config is sent (X-F7)",
    "prec-cc-debugger-call": "user_agent of crawl_config is sent (X-F7)",
    "prec-config-call-dict": "the call wins (X-P10)",
    "prec-all-three": "the call wins (X-P10)",
    "prec-all-three-debugger": "the call wins (X-P10)",
    "prec-config-params-merge": "the call wins (X-P10)",
    "list-config-headers": "the call wins (X-P10)",
    "curl-config": "the call wins (X-P10)",
    "seq-dup": "a GET and a POST of one URL are two tasks (UA18)",
    "seq-ua-leak": "a user_agent stays in its call (X-P10)",
    "bytes": "a URL in bytes is a URL",
    "curl-data-binary-dollar": "$'...' is decoded as bash does (X-C2)",
    "curl-data-binary-empty": "an empty body is no error",
    "curl-X-glued": "-XPUT is understood",
    "curl-cookie": "-b is a Cookie header (X-C2)",
    "curl-data-raw": "--data-raw is understood (X-C2)",
}
#: the texts of pyspider's own exceptions, which users' scripts and eyes know
OWN_TEXTS = (
    "URL length error",
    "not implemented!",
    "Unknow curl option",
    "no URL specified",
    "unexpected keyword argument",
)


def build(vector: dict[str, Any]) -> Any:
    """An instance of the Handler that the vector describes."""

    def method(options: dict[str, Any] | None) -> Any:
        def callback(self: Any, response: Any) -> None: ...

        return callback if options is None else config(**options)(callback)

    parents = set(vector.get("parent", ()))
    members: dict[bool, dict[str, Any]] = {True: {}, False: {"cb": method(None)}}
    for name, options in vector.get("configs", {}).items():
        members[name in parents][name] = method(options)
    for name, options in vector.get("override", {}).items():
        members[False][name] = method(options)
    for attributes in members.values():
        for name, function in attributes.items():
            function.__name__ = name
    members[False]["crawl_config"] = vector.get("crawl_config", {})
    if vector.get("get_taskid"):
        members[False]["get_taskid"] = lambda self, task: hashlib.md5(
            (task["url"] + json.dumps(task["fetch"].get("data", ""))).encode()
        ).hexdigest()
    base = type("Base", (BaseHandler,), members[True])
    handler = type("Handler", (base,), members[False])()
    handler.project_name = "p"
    if vector.get("debugger"):
        handler.__env__ = {"debugger": True}
    return handler


def argument(value: Any, handler: Any) -> Any:
    """The value behind a $-tag of the vectors' README."""
    if isinstance(value, list):
        return [argument(part, handler) for part in value]
    if not isinstance(value, dict):
        return value
    tag, content = next(iter(value.items()), ("", None))
    tags: dict[str, Any] = {
        "$bytes": lambda: base64.b64decode(content),
        "$tuple": lambda: tuple(argument(part, handler) for part in content),
        "$generator": lambda: (part for part in content),
        "$method": lambda: getattr(handler, content),
        "$super": lambda: getattr(super(type(handler), handler), content),
        "$other_method": lambda: getattr(type(handler)(), content),
        "$function": lambda: vars(type(handler))[content],
        "$lambda": lambda: lambda response: None,
        "$object": object,
    }
    if tag in tags:
        return tags[tag]()
    return {key: argument(part, handler) for key, part in value.items()}


def plain(value: Any) -> Any:
    """A return value in the notation of the vectors."""
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list) else value


def with_old_id(task: dict[str, Any], old_ids: dict[str, str]) -> dict[str, Any]:
    """The task with the id that pyspider made of its URL alone, if ours was made of method, URL and body (UA18)."""
    method, data = task["fetch"].get("method") or "GET", task["fetch"].get("data") or b""
    body = data if isinstance(data, bytes) else data.encode()
    if method != "GET" or body:
        own = hashlib.md5(f"{method} {task['url']}\n".encode() + body).hexdigest()
        old_ids[own] = hashlib.md5(task["url"].encode()).hexdigest()
    return {**task, "taskid": old_ids.get(task["taskid"], task["taskid"])}


def without_boundary(task: dict[str, Any]) -> dict[str, Any]:
    content_type = (task["fetch"].get("headers") or {}).get("Content-Type", "")
    found = re.search("boundary=(.+)", content_type)
    if found:
        task["fetch"]["headers"]["Content-Type"] = content_type.replace(found[1], "BOUNDARY")
        task["fetch"]["data"] = task["fetch"]["data"].replace(found[1].encode(), b"BOUNDARY")
    return task


def crawl_in_a_run(vector: dict[str, Any]) -> tuple[Any, list[dict[str, Any]], list[Any]]:
    """Do the calls of a vector inside one callback run: [outcome of each, ids of all links so far], the links."""
    handler = build(vector)
    seen: list[dict[str, Any]] = []
    old_ids: dict[str, str] = {}

    def callback(self: Any) -> None:
        for call in vector.get("calls", [vector]):
            try:
                kwargs = {key: argument(value, handler) for key, value in call["kwargs"].items()}
                result = handler.crawl(*argument(call["args"], handler), **kwargs)
                if isinstance(result, dict):
                    result = without_boundary(with_old_id(result, old_ids))
                elif isinstance(result, list):
                    result = [with_old_id(task, old_ids) for task in result]
                seen.append({"return": plain(result)})
            except Exception as error:
                seen.append({"raises": error})
            links = handler._run.outcome.follows
            seen[-1]["follows"] = [f"{task.project}:{old_ids.get(task.taskid, task.taskid)}" for task in links]

    type(handler).run_vector = callback
    outcome = handler._run_task({"process": {"callback": "run_vector"}}, Response(status_code=200))
    assert outcome.exception is None
    return handler, seen, outcome.follows


def differences(expected: dict[str, Any], seen: dict[str, Any]) -> str:
    """What is wrong with ``seen``, or ""."""
    if expected["follows"] != seen["follows"]:
        return f"links {seen['follows']}"
    if "raises" in expected:
        error = seen.get("raises")
        if expected["raises"]["class"] not in [kind.__name__ for kind in type(error).__mro__]:
            return f"not raised but {seen}"
        for text in OWN_TEXTS:
            if text in expected["raises"]["message"] and text not in str(error):
                return f"text {error}"
        return ""
    return "" if expected["return"] == seen.get("return") else f"returned {seen.get('return', seen.get('raises'))!r}"


def decided(seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was seen, as DECIDED has it."""
    shown = []
    for call in seen:
        error = call.get("raises")
        texts = {"raises": {"class": type(error).__name__, "message": str(error)}} if error is not None else {}
        shown.append({**call, **texts})
    return shown


#: the beginning of a vector's id -> what it is about; the longest counts
IDS = {
    "url-": ("H42",),
    "url-kw": ("H40",),
    "url-len": ("H41",),
    "params": ("H42", "H53"),
    "data": ("H46", "H53"),
    "method": ("H55",),
    "files": ("H47", "H53"),
    "headers": ("H51", "H55"),
    "ua": ("H48",),
    "cookies": ("H51", "H55"),
    **dict.fromkeys(("kw-priority", "kw-retries", "kw-exetime", "kw-age", "kw-itag"), ("H50", "H54")),
    **dict.fromkeys(("kw-force_update", "kw-auto_recrawl", "kw-cancel"), ("H50", "H54")),
    **dict.fromkeys(("kw-js", "kw-load_images", "kw-fetch_type"), ("H51", "H56")),
    "kw-": ("H51", "H55"),
    "kw-taskid": ("H43", "H53"),
    "cb": ("H44", "H52"),
    "prec": ("H57", "H58", "H59", "X-P10"),
    "curl": ("H70", "H71", "H72", "X-C2"),
    "bad-kw": ("H45",),
    "get_taskid": ("H43",),
    "": ("H40",),
}


def about(vectors: list[dict[str, Any]]) -> list[Any]:
    """The vectors as parameters, marked with the ids that each of them proves."""

    def ids(name: str) -> tuple[str, ...]:
        return IDS[max((start for start in IDS if name.startswith(start)), key=len)]

    return [pytest.param(one, id=one["id"], marks=pytest.mark.behaviour(*ids(one["id"]))) for one in vectors]


@pytest.mark.parametrize("vector", about(DATA["vectors"]))
def test_call(vector: dict[str, Any]) -> None:
    _, seen, _ = crawl_in_a_run(vector)
    wrong = differences(vector["expect"], seen[0])
    if vector["id"] in DIFFERS and not wrong:
        # these differ only in what is sent, where the expectation has a fix
        assert vector["fix"] == "X-P1"
        return
    assert bool(wrong) == (vector["id"] in DIFFERS), wrong
    if wrong:
        assert decided(seen) == DECIDED[vector["id"]]


@pytest.mark.behaviour("H49")
@pytest.mark.parametrize("vector", DATA["sequences"], ids=lambda vector: vector["id"])
def test_sequence(vector: dict[str, Any]) -> None:
    _, seen, follows = crawl_in_a_run(vector)
    wrong = [differences(call["expect"], got) for call, got in zip(vector["calls"], seen, strict=True)]
    assert any(wrong) == (vector["id"] in DIFFERS), wrong
    if any(wrong):
        assert decided(seen) == DECIDED[vector["id"]]
    else:
        fields = ("schedule", "fetch", "process", "project", "url", "taskid")
        tasks = [with_old_id({name: getattr(task, name) for name in fields}, {}) for task in follows]
        assert tasks == vector["follows_tasks"]


def test_every_difference_is_a_vector() -> None:
    assert set(DECIDED) <= set(DIFFERS) <= {vector["id"] for vector in DATA["vectors"] + DATA["sequences"]}
