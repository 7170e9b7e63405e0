"""docs/cluster.md: its commands exist, its config files are good, its rights are enough."""

import json
import re
import shlex
from pathlib import Path

import click
import pytest

from pyspider_lite import cli, configuration
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "cluster.md").read_text("utf-8")
HANDLER = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("data:,hello", callback=self.page)

    def page(self, response):
        return {"text": response.text}
"""


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_its_commands_exist() -> None:
    lines = re.findall(r"pyspider_lite -c config\.json ([\w-]+)(?: ([a-z]+))?", TEXT)
    context = click.Context(cli.commands)
    assert len(lines) > 5
    for name, word in lines:
        command = cli.commands.get_command(context, name)
        if isinstance(command, click.Group):
            assert command.get_command(context, word) is not None, (name, word)
    for script in re.findall(r"scripts/(\w+)", TEXT):
        assert (ROOT / "scripts" / script).exists()
    for conf in re.findall(r"supervisor/(\w+\.conf)", TEXT):
        assert (ROOT / "supervisor" / conf).exists()
    for block in blocks("sh"):
        for line in block.splitlines():
            shlex.split(line, comments=True)


@pytest.mark.parametrize("block", blocks("json"))
def test_its_config_files_are_good(tmp_path: Path, block: str) -> None:
    (tmp_path / "config.json").write_text(block)
    assert configuration.load(str(tmp_path / "config.json"), {}, {}).warnings == []


def statements(word: str) -> list[str]:
    """The SQL block that has this word."""
    (block,) = (block for block in blocks("sql") if word in block)
    # the test is a machine that connects from this one
    return [line.rstrip(";").replace("192.168.1.%", "127.0.0.%") for line in block.splitlines()]


@pytest.mark.e2e
def test_the_rights_in_mariadb_are_enough(tmp_path: Path, command) -> None:
    server = MariaDb()
    try:
        server._started = lambda: None  # no other user than those of the text
        server.start()
        server.execute(*statements("GRANT"))
        works_with(command, tmp_path, blocks("json")[0], f"127.0.0.1:{server.port}")
    finally:
        server.close()


@pytest.mark.e2e
def test_the_rights_in_postgresql_are_enough(tmp_path: Path, command) -> None:
    server = PostgreSql()
    try:
        server._started = lambda: None
        server.start()
        # the user that makes the rest has this name already
        server.execute(*(line.replace("pyspider", "spider") for line in statements("TEMPLATE")))
        config = next(block for block in blocks("json") if "postgresql" in block).replace(
            "//pyspider:pyspider-pass", "//spider:spider-pass"
        )
        works_with(command, tmp_path, config, f"127.0.0.1:{server.port}")
    finally:
        server.close()


def works_with(command, folder: Path, config: str, address: str) -> None:
    """Tables of all kinds are made, read and written. (The broker is not asked.)"""
    file = folder / "config.json"
    databases = {key: value for key, value in json.loads(config).items() if key != "message_queue"}
    file.write_text(re.sub(r"192\.168\.1\.3:\d+", address, json.dumps(databases)))
    (folder / "shop.py").write_text(HANDLER)
    for words in (
        ("project", "push", str(folder / "shop.py"), "--rate", "unlimited"),
        ("project", "run", "shop"),
        ("project", "list"),
        ("one", str(folder / "shop.py")),
        ("task", "list", "shop"),
        ("result", "export", "shop"),
    ):
        done = command("-c", str(file), *words)
        assert done.code == 0, (words, done.err)
    assert '{"text":"hello"}' in done.out.replace('": ', '":')
