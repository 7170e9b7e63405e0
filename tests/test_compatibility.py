"""The list of behaviours is whole: each has a row, each promise a test, and docs/compatibility.md says what both say."""

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT: dict[str, Any] = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "compatibility"))


def test_the_page_is_whole_and_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    code = SCRIPT["main"](["--check"])
    assert capsys.readouterr().err == ""
    assert code == 0


@pytest.mark.parametrize(
    ("row", "proofs", "problem"),
    [
        (["kept", "what"], {}, "H1 is kept, but no test is marked with it"),
        (["improved", "what", "how"], {}, "H1 is improved, but no test is marked with it"),
        (["improved", "what"], {"H1": ["t"]}, "H1 is improved and does not say how"),
        (["left out", "what"], {}, "H1 is left out and does not say why"),
        (["gone", "what"], {}, "H1: a row is"),
        (["later", "what", "why"], {"H2": ["tests/t.py::t"]}, "H2 has no row; it is claimed by tests/t.py::t"),
    ],
)
def test_what_is_wrong_is_said(row: list[str], proofs: dict[str, list[str]], problem: str) -> None:
    problems = list(SCRIPT["check"]({"a section": {"H1": row}}, proofs))
    assert len(problems) == 1 and problems[0].startswith(problem)


def test_ids_are_used_once() -> None:
    ids = [id_ for section in SCRIPT["rows"]().values() for id_ in section]
    assert len(ids) == len(set(ids)) > 400
