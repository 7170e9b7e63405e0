"""`result export` against the files that pyspider's web UI gave for the same database: data/oracle/export/.

Its answers for one task and for the counters are another page's, and come with that (behaviour W4, W13)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data/oracle/export"
#: what the results were read from
RESULTS = Path(__file__).parent / "database/data/result.db"
FORMATS = {"json": "jsonl", "full.json": "json", "csv": "csv", "txt": "txt"}
FILES = sorted(DATA.iterdir())


def same(form: str, ours: str, theirs: str) -> bool:
    """The JSON inside may be written in another way."""
    if form == "csv":
        return ours == theirs
    if form == "json":
        return bool(json.loads(ours) == json.loads(theirs))
    pairs = [
        tuple(line.rpartition("\t") for line in (a, b))
        for a, b in zip(ours.splitlines(), theirs.splitlines(), strict=True)
    ]
    return all(one[0] == other[0] and json.loads(one[2]) == json.loads(other[2]) for one, other in pairs)


@pytest.mark.behaviour("W50", "W51", "W52", "W53")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_export(file: Path, tmp_path: Path, command: Callable[..., Any]) -> None:
    shutil.copy(RESULTS, tmp_path / "result.db")
    project, _, suffix = file.name.partition(".")
    part = ("--offset", "2", "--limit", "3") if "offset2.limit3" in suffix else ()
    form = FORMATS[suffix.removeprefix("offset2.limit3.")]
    out = tmp_path / "out"
    done = command(
        *("--resultdb", f"sqlite+resultdb:///{tmp_path}/result.db"),
        *("result", "export", project, "--format", form, "--output", str(out), *part),
    )
    assert (done.code, done.err) == (0, "")
    assert same(form, out.read_bytes().decode(), file.read_bytes().decode())
