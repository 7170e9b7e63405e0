"""The table of docs/architecture.md is true: one task is run through the real roles, and the functions are called in that order."""

import functools
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import configuration, one

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
ROW = re.compile(r"^\| \d+ \| ([a-z ]+) \| `([\w/]+)\.py` \| `([\w.]+)` \|", re.MULTILINE)

SCRIPT = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("data:,one", callback=self.page)

    def page(self, response):
        return {"text": response.text}
"""


def steps() -> list[tuple[str, type, str]]:
    """Role, class and name of each function of the table."""
    found = []
    for role, file, function in ROW.findall(DOCUMENT.read_text()):
        class_name, name = function.split(".")
        found.append((role, getattr(importlib.import_module(file.replace("/", ".")), class_name), name))
    return found


def test_the_table_names_functions_that_exist() -> None:
    rows = steps()
    assert len(rows) == 16
    for _, cls, name in rows:
        assert callable(getattr(cls, name))


@pytest.mark.behaviour("P30", "P32")
def test_one_task_takes_the_way_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []
    rows = [row for row in steps() if row[0] != "child"]
    for _, cls, name in rows:
        monkeypatch.setattr(cls, name, recorded(getattr(cls, name), f"{cls.__name__}.{name}", calls))
    script = tmp_path / "flow.py"
    script.write_text(SCRIPT)
    crawl(tmp_path, script)
    assert '"text": "one"' in capsys.readouterr().out.replace('":"', '": "')
    # from the follow-up on: the first call of each in its order
    calls = calls[calls.index("Plan.submit") - 2 :]
    wanted = [f"{cls.__name__}.{name}" for _, cls, name in rows]
    place = -1
    for function in wanted:
        assert function in calls[place + 1 :], f"{function} was not called after {wanted[: wanted.index(function)]}"
        place = calls.index(function, place + 1)


def recorded(function: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    """``function``, noted in ``calls`` whenever it is called."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        return function(*arguments, **options)

    return call


def crawl(folder: Path, script: Path) -> None:
    """All roles on threads until the script's project is finished."""
    settings = configuration.load(None, {"data_path": str(folder / "data")}, {}).settings
    assert one.run(settings, [str(script)]) == 0
