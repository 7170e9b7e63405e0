"""What all tests share."""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from pyspider_lite import cli


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def unchanged_logging() -> Iterator[None]:
    """Commands set logging up; a test leaves it as it was."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    logging.captureWarnings(False)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command line inside this process."""

    def run(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = cli.main(list(arguments))
        return Outcome(code, *capfd.readouterr())

    return run
