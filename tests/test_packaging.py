"""What is shipped: the files around the code, and the wheel."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

import pyspider_lite
from pyspider_lite import cli

ROOT = Path(__file__).parent.parent
#: imported only by what is an extra of setup.py
OPTIONAL = {"psycopg", "kazoo"}


def test_all_names_of_the_package_are_there():
    for name in pyspider_lite.__all__:
        assert getattr(pyspider_lite, name) is not None
    with pytest.raises(AttributeError):
        getattr(pyspider_lite, "no_such_name")  # noqa: B009


def test_every_command_of_the_table_is_a_command():
    context = click.Context(cli.commands)
    for name in cli.COMMANDS:
        command = cli.commands.get_command(context, name)
        assert command is not None and (command.name or "").replace("-", "_") == name
        assert command.get_short_help_str()


def test_the_changelog_has_this_version():
    assert f"## [{pyspider_lite.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_readme_names_commands_that_exist():
    text = (ROOT / "README.md").read_text("utf-8")
    context = click.Context(cli.commands)
    for line in re.findall(r"^pyspider_lite (\w+)(?: (\w+))?", text, re.MULTILINE):
        command = cli.commands.get_command(context, line[0])
        if isinstance(command, click.Group):
            assert command.get_command(context, line[1]) is not None, line
    for script in re.findall(r"scripts/(\w+)", text):
        assert os.access(ROOT / "scripts" / script, os.X_OK), script
    (row,) = re.findall(r"^\| `scripts/` \| (.*) \|$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == {file.name for file in (ROOT / "scripts").iterdir() if file.is_file()}


def test_the_readme_exit_codes_are_the_ones_we_have():
    from pyspider_lite import exit_codes

    rows = re.findall(r"^\| ([\d, ]+) \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    documented = {int(code) for row in rows for code in row.split(",")}
    assert documented == {value for name, value in vars(exit_codes).items() if name.isupper()}


def plain(package: str) -> str:
    return package.lower().replace("_", "-")


def test_every_import_is_a_stated_dependency():
    stated = re.findall(
        r'^        "([\w-]+)>=', (ROOT / "setup.py").read_text("utf-8").partition("install_requires")[2], re.MULTILINE
    )
    owners = importlib.metadata.packages_distributions()
    # programs for the environments of other crawlers, which none of our modules imports
    spiders = set((ROOT / "pyspider_lite/bench/peers").glob("*_spider.py"))
    for file in set((ROOT / "pyspider_lite").rglob("*.py")) - spiders:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in (
                {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"pyspider_lite", *OPTIONAL}
            ):
                assert {plain(owner) for owner in owners[name]} & {plain(one) for one in stated}, (file.name, name)


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--sdist", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=100,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert list(tmp_path.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    tops = {name.split("/")[0] for name in names}
    assert tops == {"pyspider_lite", f"pyspider_lite-{pyspider_lite.__version__}.dist-info"}
    assert "pyspider_lite/py.typed" in names
    assert not [name for name in names if name.endswith((".pem", ".pyc"))]
    assert "pyspider_lite = pyspider_lite.cli:main" in entry_points
    assert "pyspider-lite = pyspider_lite.cli:main" in entry_points


@pytest.mark.behaviour("X-X4")
def test_nothing_is_unpickled() -> None:
    for path in Path(pyspider_lite.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"pickle", "marshal", "shelve", "dill"} & {name.partition(".")[0] for name in names}, path
