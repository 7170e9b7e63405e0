"""docs/migrating.md: its commands and links exist, and an old database is opened as it says."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from pyspider_lite import cli, settings

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "migrating.md").read_text("utf-8")
OLD = ROOT / "tests" / "database" / "data"


def test_its_commands_exist() -> None:
    context = click.Context(cli.commands)
    lines = re.findall(r"(?m)(?:^|`)pyspider_lite(?: -c config\.json)? ([a-z][\w-]+)(?: ([a-z]+))?", TEXT)
    (table,) = re.findall(r"\| in the web UI \|.*?\n\n", TEXT, re.DOTALL)
    lines += re.findall(r"`(project|task|result|explain|one) ?([a-z]+)?", table)
    assert len(lines) > 12
    for name, word in lines:
        command = cli.commands.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            assert command.get_command(context, word) is not None, (name, word)


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#(\w+))?\)", TEXT)
    assert len(links) > 2
    for file, anchor in links:
        page = (ROOT / "docs" / file).read_text("utf-8")
        assert not anchor or f"\n## {anchor.capitalize()}\n" in page


def test_its_options_are_those_of_the_settings() -> None:
    names = {option.name for section in ("", "scheduler", "fetcher", "all") for option in settings.options(section)}
    for name in ("body-limit", "queue-prefix", "rpc-secret"):
        assert f"`{name}`" in TEXT
        assert name.replace("-", "_") in names


def test_a_database_of_pyspider_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any]
) -> None:
    """Its rows are read as they are, retries and itag with them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("task.db", "project.db", "result.db"):
        shutil.copy(OLD / name, tmp_path / "data" / name)
    for project, page, text in (
        ("shop", "http://127.0.0.1:18080/shop/", "(HTTP 200, 11 links); it rests: the same submission again is dropped (same itag)"),
        ("shop", "http://127.0.0.1:18080/shop/stock", "and is again each 1h (auto_recrawl); its next run is due since"),
        ("news_cn", "http://127.0.0.1:18080/news/none.html", "after 0 of 0 retries (HTTP 404: Not Found)"),
    ):  # fmt: skip
        outcome = command("explain", project, page)
        assert outcome.code == 0
        assert text in outcome.out
