"""scripts/: what they are told on the command line is meant from where the user stands, wherever the checkout is."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: stands for Python and pip of a checkout: says where it was started, and how
TELL = """#!/bin/sh
printf '%s|' "$PWD" "$@"
echo
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One whose environment and servers are there."""
    made = tmp_path / "checkout"
    shutil.copytree(ROOT / "scripts", made / "scripts")
    (made / ".venv/bin").mkdir(parents=True)
    for program in (".venv/bin/python", ".venv/bin/pip", "scripts/servers", "scripts/check"):
        (made / program).write_text(TELL)
        (made / program).chmod(0o755)
    return made


def run(checkout: Path, folder: Path, script: str, *words: str, **more: str) -> list[list[str]]:
    """What was started: folder and arguments of each program."""
    folder.mkdir(exist_ok=True)
    path = os.path.relpath(checkout / "scripts" / script, folder)
    environment = {name: value for name, value in os.environ.items() if name not in ("VENV", "PYTHON")} | more
    done = subprocess.run([path, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return [line.split("|")[:-1] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("script", ["bench", "chaos", "recovery", "simulate", "soak"])
def test_what_measures_runs_where_the_user_stands(checkout: Path, tmp_path: Path, script: str) -> None:
    folder = tmp_path / "elsewhere"
    where, *words = run(checkout, folder, script, "--json", "b.json")[-1]
    assert where == str(folder)
    # what lies there is not imported
    assert words[:2] == ["-P", "-m"] and words[-2:] == ["--json", "b.json"]


def test_install_installs_the_checkout(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    assert run(checkout, folder, "install", "dev")[-1][-1] == f"{checkout}[dev]"
    assert run(checkout, folder, "install")[-1][-1] == str(checkout)
    shutil.copytree(checkout / ".venv", folder / "mine")
    shutil.rmtree(checkout / ".venv")
    assert run(checkout, folder, "install", VENV="mine")[-1][-1] == str(checkout)


def test_tests_are_named_from_where_the_user_stands(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "test_a.py").touch()
    (folder / "word").touch()
    words = ("-k", "word", "test_a.py::test_b", "--junit-xml=x.xml", "tests", "-x", f"{folder}/test_a.py")
    where, *told = run(checkout, folder, "test", *words)[-1]
    assert where == str(checkout)
    mine = ["-k", "word", f"{folder}/test_a.py::test_b", f"--junit-xml={folder}/x.xml", "tests", "-x"]
    assert told[-7:] == [*mine, f"{folder}/test_a.py"]
