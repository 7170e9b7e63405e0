"""What all tests share: commands in this process, and one server of each kind for all tests that leave it as it was."""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from pyspider_lite import cli
from pyspider_lite.bench.servers import MariaDb, PostgreSql, RabbitMq, Redis


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


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """Who uses it makes databases of its own."""
    with MariaDb() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSql]:
    """Who uses it makes schemas of its own."""
    with PostgreSql() as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """Who stops, freezes or fills it puts it right again."""
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMq]:
    """Who stops, freezes or fills it puts it right again."""
    with RabbitMq() as server:
        yield server
