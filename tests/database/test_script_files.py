"""Projects in script files (behaviour D55)."""

import math
import os
from pathlib import Path

import pytest

from pyspider_lite.database.script_files import ScriptFiles
from pyspider_lite.errors import ConfigError, DatabaseError
from pyspider_lite.models.project import Project

pytestmark = pytest.mark.behaviour("D55")


def test_a_file_is_a_running_project(tmp_path: Path) -> None:
    script = tmp_path / "my-site.v2.py"
    script.write_text("# -*- coding: utf-8 -*-\n# 标\n", "utf-8")
    os.utime(script, (1000.0, 2000.5))
    files = ScriptFiles([str(script)])
    assert [head.name for head in files.heads()] == ["my_site_v2"]
    project = files.get("my_site_v2")
    assert project == Project(
        name="my_site_v2",
        status="RUNNING",
        script="# -*- coding: utf-8 -*-\n# 标\n",
        rate=math.inf,
        burst=math.inf,
        updatetime=2000.5,
    )
    assert files.get("other") is None


@pytest.mark.parametrize(
    ("text", "rate", "burst"),
    [
        ("# rate: 1.5\n# burst: 4\n", 1.5, 4.0),
        ("x = 1\n  #rate 2\n", 2.0, math.inf),
        ("# rate:\n# 7\n", math.inf, math.inf),
        ("# rates: 3\nrate = 3\n# my rate: 3\n", math.inf, math.inf),
        ("# Burst = 10 pages\n", math.inf, 10.0),
        ("# rate: 0\n", 0.0, math.inf),
    ],
)
def test_comment_lines_give_rate_and_burst(tmp_path: Path, text: str, rate: float, burst: float) -> None:
    (tmp_path / "a.py").write_text(text)
    project = ScriptFiles([f"{tmp_path}/*.py"]).get("a")
    assert project is not None
    assert (project.rate, project.burst) == (rate, burst)


def test_the_stamp_sees_edits_new_and_removed_files(tmp_path: Path) -> None:
    files = ScriptFiles([f"{tmp_path}/*.py"]).copy()
    stamps = [files.stamp()]
    for name, mtime in (("a", 5000.0), ("b", 100.0), ("b", 200.0)):
        (tmp_path / f"{name}.py").write_text("pass")
        os.utime(tmp_path / f"{name}.py", (1.0, mtime))
        stamps.append(files.stamp())
    (tmp_path / "b.py").unlink()
    assert [head.name for head in files.heads()] == ["a"]
    (tmp_path / "c.py").write_text("pass")
    stamps.append(files.stamp())
    assert len(set(stamps)) == len(stamps)
    files.close()


def test_files_are_never_written(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("pass")
    files = ScriptFiles([f"{tmp_path}/a.py"])
    for change in (
        lambda: files.insert(Project(name="b")),
        lambda: files.update("a", status="STOP"),
        lambda: files.drop("a"),
    ):
        with pytest.raises(DatabaseError, match="read-only"):
            change()


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.py: no such script"):
        ScriptFiles([f"{tmp_path}/no.py"])


@pytest.mark.parametrize(
    "content",
    [
        "# coding: gbk\r\nx = '价格'\r\n".encode("gbk"),
        b"\xef\xbb\xbf" + "# coding: utf-8\nx = '价格'\n".encode(),
        b"\xef\xbb\xbf" + "x = '价格'\n".encode(),
        "#!/usr/bin/env python\n# -*- coding: gb18030 -*-\nx = '价格'\n".encode("gb18030"),
    ],
)
def test_the_encoding_is_the_one_that_the_file_names(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.py").write_bytes(content)
    project = ScriptFiles([f"{tmp_path}/a.py"]).get("a")
    assert project is not None
    assert project.script.endswith("x = '价格'\n") and not project.script.startswith("\ufeff")


@pytest.mark.parametrize("content", ["x = '价格'\n".encode("gbk"), b"# coding: no_such\n", b"# coding: hex\n"])
def test_a_file_that_cannot_be_decoded_fails_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.py").write_bytes(content)
    (tmp_path / "b.py").write_text("pass")
    files = ScriptFiles([f"{tmp_path}/*.py"])
    assert [head.name for head in files.heads()] == ["a", "b"]
    project = files.get("a")
    assert project is not None
    with pytest.raises(SyntaxError, match=r"a\.py: cannot be decoded: save it as UTF-8"):
        exec(project.script, {})
