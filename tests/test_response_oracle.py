"""`Response` against what pyspider's showed: each vector of data/oracle/response.json, or the reason why ours differs."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite.response import Response, rebuild_response

DATA = json.loads((Path(__file__).parent / "data/oracle/response.json").read_text())
#: id -> look-up -> what it gives here, where it differs
DECIDED = json.loads((Path(__file__).parent / "data/oracle/response_decided.json").read_text())

_EMPTY = ("title body_text root_tag root_type links", "an empty document instead of ParserError (R6, UA9)")
_NO_P = ("root_tag", "today's libxml2 makes no <p> around bare text, so lxml's <span> is the root")
#: id -> look-ups that give another value, and why
DIFFERS = {
    **dict.fromkeys(("empty", "empty-str", "blank", "only-comment", "json-empty", "missing-all"), _EMPTY),
    **dict.fromkeys(("status-traceback",), _EMPTY),
    "status-traceback-bad": (
        f"raise_for_status raise_for_status_no_redirects {_EMPTY[0]}",
        "the error itself is raised",
    ),
    **dict.fromkeys(
        ("text-plain", "json-object", "json-number", "json-string", "json-null", "json-bad", "json-nan"), _NO_P
    ),
    **dict.fromkeys(("json-jsonp", "json-utf8-nocharset", "json-gbk", "doc-json", "headers-case"), _NO_P),
    "json-bom": ("encoding text json root_tag", "a byte order mark is no part of the text (UA8)"),
    "enc-bom-header": ("encoding text", "a byte order mark is no part of the text, and wins over the header (UA8)"),
    **dict.fromkeys(("enc-header-bogus", "enc-meta-bogus"), ("title body_text", "doc is read as text is, as UTF-8")),
    "enc-meta-trailing-space": ("encoding title body_text", "white space around a label is not part of it"),
    **dict.fromkeys(("enc-header-wrong", "enc-set-after-doc"), ("title body_text", "illegal bytes never raise (UA8)")),
    "enc-invalid-utf8": ("title", "illegal bytes never raise (UA8)"),
    "enc-nul": ("title", "controls are left out for parsing (UA9)"),
    "enc-none-gbk-short": ("encoding text", "one character: charset-normalizer guesses another than chardet"),
    "enc-binary-png": ("encoding text root_tag", "no text at all: UTF-8 instead of a guess"),
    "str-xml-decl": (
        "title body_text root_tag root_type links",
        "an encoding declaration in text does not matter (UA8)",
    ),
    "links-base-ignored": ("links", "<base href> counts (UB27)"),
    "links-bad-ipv6": ("title links", "one bad link stays as it is, the others are resolved (UA9)"),
    "doc-broken": ("title body_text links", "as in browsers: </title> is missing, so all that follows is title"),
    "status-999": ("ok bool isok raise_for_status raise_for_status_no_redirects", "600 and more are errors too (R8)"),
}


def fetch_result(vector: dict[str, Any]) -> dict[str, Any]:
    result = dict(vector["fetch_result"])
    if isinstance(result.get("content"), dict):
        result["content"] = base64.b64decode(result["content"]["$bytes"])
    return result


def links(response: Response) -> list[list[Any]]:
    names = {"a": "href", "link": "href", "script": "src", "img": "src", "iframe": "src", "form": "action"}
    names |= {"area": "href", "source": "src"}
    return [[tag, name, element.get(name)] for tag, name in names.items() for element in response.doc(tag)]


def text(response: Response) -> dict[str, Any]:
    value = response.text
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return {"first200": value[:200], "len": len(value), "sha256": digest, "type": "str"}


def without_nan(value: Any) -> Any:
    return {key: "$nan" if part != part else part for key, part in value.items()} if isinstance(value, dict) else value


LOOK_UPS = {
    "repr": repr,
    "status_code": lambda response: response.status_code,
    "url": lambda response: response.url,
    "orig_url": lambda response: response.orig_url,
    "encoding": lambda response: response.encoding,
    "text": text,
    "json": lambda response: without_nan(response.json),
    "title": lambda response: response.doc("title").text(),
    "body_text": lambda response: response.doc("body").text(),
    "root_tag": lambda response: response.etree.tag,
    "root_type": lambda response: type(response.etree).__name__,
    "links": links,
    "ok": lambda response: response.ok,
    "bool": bool,
    "isok": lambda response: response.isok(),
    "raise_for_status": lambda response: response.raise_for_status(),
    "raise_for_status_no_redirects": lambda response: response.raise_for_status(allow_redirects=False),
    "headers_lower": lambda response: {key.lower(): value for key, value in response.headers.items()},
    "cookies": lambda response: response.cookies,
    "save": lambda response: response.save,
    "error": lambda response: response.error,
    "time": lambda response: response.time,
    "js_script_result": lambda response: response.js_script_result,
    "content_type": lambda response: type(response.content).__name__,
}


def look_up(response: Response, name: str) -> dict[str, Any]:
    try:
        return {"value": LOOK_UPS[name](response)}
    except Exception as error:
        return {"raises": {"class": type(error).__name__, "message": str(error)}}


def same(expected: Any, seen: dict[str, Any]) -> bool:
    if not isinstance(expected, dict) or not expected.keys() & {"value", "raises"}:
        expected = {"value": expected}
    if "raises" in expected and "raises" in seen:
        return bool(expected["raises"]["class"] == seen["raises"]["class"])
    return bool(expected == seen)


def shown(seen: dict[str, Any]) -> dict[str, Any]:
    """A look-up as DECIDED has it: the words of libraries' exceptions are theirs."""
    return {"raises": seen["raises"]["class"]} if "raises" in seen else seen


#: the beginning of a vector's id -> what it is about; the longest counts
IDS = {
    "enc": ("R2", "R3"),
    "str": ("R1", "R2", "R3"),
    "json": ("R4",),
    "links": ("R5",),
    "doc": ("R5", "R6"),
    "status": ("R7", "R8", "R9", "R10"),
    "missing": ("R1", "R11"),
    "headers": ("R1",),
    "": ("R2", "R6"),
}
VECTORS = [
    pytest.param(
        vector,
        id=vector["id"],
        marks=pytest.mark.behaviour(*IDS[max((start for start in IDS if vector["id"].startswith(start)), key=len)]),
    )
    for vector in DATA["vectors"]
]


@pytest.mark.parametrize("vector", VECTORS)
def test_response(vector: dict[str, Any]) -> None:
    response = rebuild_response(fetch_result(vector))
    for operation in vector.get("ops", ()):
        if isinstance(operation, dict):
            response.encoding = operation["set_encoding"]
        else:
            look_up(response, {"doc": "links"}.get(operation, operation))
    wrong = {}
    for name, expected in vector["expect"].items():
        seen = look_up(response, name)
        if not same(expected, seen):
            wrong[name] = (expected, seen)
    expected_to_differ, _reason = DIFFERS.get(vector["id"], ("", ""))
    assert set(wrong) == set(expected_to_differ.split()), wrong
    assert {name: shown(seen) for name, (_, seen) in wrong.items()} == DECIDED.get(vector["id"], {})


def test_every_difference_is_a_vector() -> None:
    assert DECIDED.keys() == DIFFERS.keys() <= {vector["id"] for vector in DATA["vectors"]}
