"""What the tests of the scheduler share: `played_crawl` and its like can be imported, ``crawl`` is one on empty databases, and ``ready`` one with a project."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from clocked_leases import Clocked
from played_crawl import Crawl


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Crawl]:
    """A crawl whose counts and leases are right at the end of the test."""
    crawl = Crawl(tmp_path)
    yield crawl
    crawl.check()
    crawl.close()


@pytest.fixture
def ready(crawl: Crawl) -> Crawl:
    """A crawl with a project ``p`` whose script has answered."""
    crawl.project()
    crawl.ready("p")
    return crawl


@pytest.fixture
def at() -> Clocked:
    """Leases of a scheduler that hears all, with their clock."""
    return Clocked()


@pytest.fixture
def raw_sql(tmp_path: Path) -> Callable[[str], None]:
    """Changes the taskdb of ``crawl`` behind everybody's back."""

    def execute(statement: str) -> None:
        with closing(sqlite3.connect(tmp_path / "task.db")) as connection, connection:
            connection.execute(statement)

    return execute
