"""What all tests share: commands in this process, and one server of each kind for all tests that leave it as it was."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pyspider_lite import cli
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis

#: files that take a minute or more, the longest first
LONG = [
    "test_recovery_times", "test_chaos", "test_cluster", "test_outages", "test_crash_matrix", "test_project_states", "test_soak",
    "test_half_open", "test_shutdown", "test_hostile_callbacks", "test_scripts", "test_jobs_and_retries", "test_rpc_ports",
    "test_daemons_in_trouble", "test_bad_input", "test_doctor",
]  # fmt: skip
#: fixtures, and parameters, that are server programs
SERVERS = {"mariadb", "postgresql", "redis", "rabbitmq", "zookeeper"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first, then all end-to-end tests: they mostly wait, and xdist gives files to its workers in this order. Tests on
    servers get a marker."""
    ranks = {name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: (ranks.get(item.path.stem, len(LONG)), item.get_closest_marker("e2e") is None))
    for item in items:
        assert isinstance(item, pytest.Function)
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if SERVERS & {*item.fixturenames, *(each for each in given if isinstance(each, str))}:
            item.add_marker(pytest.mark.servers)


_SCRIPT = (
    "from pyspider_lite import BaseHandler\n\n\nclass Handler(BaseHandler):\n    def on_start(self):\n        pass\n"
)


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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the commands of a test, with no settings around it and a script ``shop.py``."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name in {"TASKDB", "PROJECTDB", "RESULTDB", "AMQP_URL", "QUEUE_MAXSIZE"} or name.endswith("_XMLRPC_PORT"):
            monkeypatch.delenv(name)
    (tmp_path / "shop.py").write_text(_SCRIPT)
    return tmp_path
