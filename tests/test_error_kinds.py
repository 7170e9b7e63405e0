"""The kinds of errors, from tracks as the daemons and pyspider write them."""

import re
from pathlib import Path
from typing import Any

import click
import pytest

from pyspider_lite import cli, error_kinds

TEXT = (Path(__file__).parent.parent / "docs" / "tasks.md").read_text("utf-8")


def track(exception: str | None = "x", fetch: dict[str, Any] | None = None, **process: Any) -> dict[str, Any]:
    return {
        "fetch": {"ok": True, "status_code": 200} | (fetch or {}),
        "process": {"ok": exception is None, "exception": exception, **process},
    }


def refused(status: int, kind: str | None = None) -> dict[str, Any]:
    return {"ok": False, "status_code": status} | ({"error_kind": kind} if kind else {})


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        (track(None), ""),
        ({}, ""),
        ({"process": None, "fetch": []}, ""),
        (track("404 Client Error", refused(404), error="HTTPError"), "HTTPError 404 4xx http"),
        (track("503 Server Error", refused(503)), "503 5xx http"),
        (track("timed out", refused(599, "timeout"), error="HTTPError"), "HTTPError timeout fetch"),
        (track("HTTP 599: Connection refused", refused(599)), "fetch"),
        (track("robots", refused(403, "robots")), "robots fetch 403 4xx http"),
        (track("'none'", error="KeyError"), "KeyError script"),
        (track("'none'", logs="[E 1]\n  Traceback\n    KeyError: 'none'\n"), "KeyError script"),
        (track("no", logs="x\nrequests.exceptions.HTTPError: 404\n", fetch=refused(404)), "HTTPError 404 4xx http"),
        (track("odd"), "script"),
        (track("30 s", error="ProcessTimeout"), "time-limit limit"),
        (track("out of memory", error="MemoryError"), "memory-limit limit"),
        (track("process killed: 30 s limit"), "time-limit limit"),
        (track("process killed: 0.5 s limit", refused(404)), "time-limit limit"),
        (track("process killed: 1024 MiB memory limit"), "memory-limit limit"),
        (track("process killed: limit of 64 processes"), "process-limit limit"),
        (track("process died: signal 11 (SIGSEGV)"), "died"),
        (track("3 workers died over it"), "worker-deaths"),
        (track("result could not be stored: too large"), "result"),
        (track("on_result: ValueError: no"), "result"),
        (track("could not be stored: $.a"), "unstorable"),
        (track("cannot be given out: too large"), "unsendable"),
        # a script may say what it likes
        (track("3 workers died over it", error="RuntimeError"), "RuntimeError script"),
    ],
)  # fmt: skip
def test_kinds(found: dict[str, Any], kinds: str) -> None:
    assert error_kinds.of_track(found) == set(kinds.split())


def test_what_can_be_asked_for() -> None:
    for word in ("timeout", "404", "5xx", "ValueError", "HTTPError", "script", "worker-deaths"):
        assert error_kinds.is_kind(word)
    for word in ("tiemout", "99", "9999", "value error", "", "404x", "valueerror"):
        assert not error_kinds.is_kind(word)


def test_the_page_about_tasks_has_all_kinds_and_its_commands_exist() -> None:
    assert [kind for kind in error_kinds.KINDS if f"`{kind}`" not in TEXT] == []
    context = click.Context(cli.commands)
    lines = re.findall(r"(?m)^pyspider_lite ([a-z-]+) ([a-z]+)(.*)", TEXT)
    assert len(lines) > 10
    for name, word, rest in lines:
        group = cli.commands.get_command(context, name)
        assert isinstance(group, click.Group)
        command = group.get_command(context, word)
        assert command is not None, (name, word)
        known = {flag for option in command.params for flag in option.opts}
        assert set(re.findall(r"--[a-z-]+", rest.partition("#")[0])) <= known, (name, word)


@pytest.mark.behaviour("P22")
@pytest.mark.parametrize(
    ("process", "words"),
    [
        ({"exception": "no price", "error": "ValueError"}, "no price"),
        ({"exception": "", "error": "AssertionError"}, "AssertionError"),
        ({"exception": None}, ""),
        ("odd", ""),
    ],
)
def test_an_exception_without_a_text_is_named_by_its_class(process: Any, words: str) -> None:
    assert error_kinds.said(process) == words
