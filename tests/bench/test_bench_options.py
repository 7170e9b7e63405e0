"""Options of the programs of the bench: what makes no sense, or has no effect, is refused before anything is measured."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from pyspider_lite import cli
from pyspider_lite.bench import command, crawls, effects, given, programs, recovery, soak, targets
from pyspider_lite.bench.simulation.__main__ import main as simulate
from pyspider_lite.exit_codes import BAD_CONFIG, DONE, REFUSED

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawls, "run", lambda *_: [])
    monkeypatch.setattr(command, "_apart", lambda *_: [])
    monkeypatch.setattr(command, "_ratios", lambda *_: {})
    monkeypatch.setattr(targets, "run", lambda *_, **__: ([], {}))


def run(program: click.Command, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    if program is command.bench_command:
        return cli.main(["bench", *words])
    monkeypatch.setattr(sys, "argv", ["program", *words])
    return programs.run(program, "program")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (command.bench_command, "--projects -1"),
        (command.bench_command, "--kill -1"),
        (command.bench_command, "--measure latency --seconds nan"),
        (command.bench_command, "--measure latency --seconds inf"),
        (command.bench_command, "--site ''"),
        (command.bench_command, "--site ftp://127.0.0.1/"),
        (command.bench_command, "--site http:///a.html"),
        (soak.main, "--minutes inf"),
        (soak.main, "--rate nan"),
        (soak.main, "--processors 0"),
        (recovery.main, "--times 0"),
        (simulate, "--pages 0"),
        (simulate, "--deaths 2"),
        (simulate, "--rate nan"),
        (simulate, "--speed nan"),
        (simulate, "--outage inf"),
        (simulate, "--page-seconds 5 1"),
        (simulate, "--page-seconds -1 -1"),
    ],
)
def test_what_no_number_or_url_can_be_is_refused(
    program: click.Command, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    option = words.split()[-2] if not words.startswith("--page-seconds") else "--page-seconds"
    assert run(program, [word.strip("'") for word in words.split()], monkeypatch) == BAD_CONFIG
    assert re.search(rf"Error: Invalid value for '{option}'.*: ", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--only --total 300", "--only"),
        ("--projects 3 --stack redis-mariadb --only", "--stack"),
        ("--kill 1 --stack redis-mariadb --only", "--kill"),
        ("--quick", "--quick"),
        ("--role fetcher --peer scrapy", "--peer"),
        ("--role fetcher --database sqlite", "--database"),
        ("--measure rows --seconds 5", "--seconds"),
        ("--measure idle --urls 5", "--urls"),
        ("--taskdb-bench --parse doc", "--parse"),
        ("--all-targets --total 5", "--total"),
        ("--all-targets --role fetcher", "--role"),
        ("--site http://127.0.0.1/ --page-size 9", "--page-size"),
        ("--peer-file --json x.json", "--json"),
    ],
)
def test_an_option_without_effect_is_refused(
    words: str, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command.bench_command, words.split(), monkeypatch) == BAD_CONFIG
    assert f"Error: {option} has no effect here; " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "--kill 0 --projects 0 --stack redis-mariadb --only",
        "--kill 1 --stack redis-mariadb --stack builtin-sqlite --only",
        "--role fetcher --all-bench --peer scrapy --run-in thread",
        "--measure latency --measure rows --seconds 5 --rows 500 --database sqlite",
        "--all-targets --quick",
        *(" ".join(words) for words in targets.COMMANDS.values()),
        *(" ".join(targets.shortened(words)) for words in targets.COMMANDS.values()),
    ],
)
def test_an_option_with_an_effect_is_taken(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(command.bench_command, words.split(), monkeypatch) == DONE


def test_each_option_has_a_row_in_the_table_of_effects() -> None:
    options: list[Any] = [option for option in command.bench_command.params if option.expose_value]
    assert {option.name for option in options} == effects.EFFECTS.keys()


def test_commands_of_the_documentation_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    commands = sorted(set(re.findall(r"^\| `scripts/bench ?([^`]*)`", page, re.MULTILINE)))
    assert len(commands) > 10
    for words in commands:
        if "--peer-file" not in words:
            assert run(command.bench_command, words.split(), monkeypatch) == DONE, words


@pytest.mark.parametrize("program", [command.bench_command, soak.main, recovery.main])
def test_a_folder_that_was_used_before_is_refused(
    program: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is stored there would be counted as this run's."""
    (tmp_path / "all-1").mkdir()
    assert run(program, ["--keep", str(tmp_path)], monkeypatch) == BAD_CONFIG
    assert f"{tmp_path} is not empty." in capsys.readouterr().err


@pytest.mark.parametrize("program", [command.bench_command, recovery.main, simulate])
def test_a_file_that_cannot_be_written_is_refused_at_the_start(
    program: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crawls, "run", lambda *_: pytest.fail("it was measured"))
    for file, reason in ((tmp_path / "none" / "x.json", "No such file or directory"), (tmp_path, "Is a directory")):
        assert run(program, ["--json", str(file)], monkeypatch) == REFUSED
        assert f"{file}: {reason}" in capsys.readouterr().err


def test_a_file_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    given.try_to_write(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").write_text("figures")
    given.try_to_write(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "figures"


def test_the_file_may_be_in_the_folder_that_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--keep", str(tmp_path / "new"), "--json", str(tmp_path / "new" / "x.json")]
    assert run(command.bench_command, words, monkeypatch) == DONE
    assert (tmp_path / "new" / "x.json").exists()
