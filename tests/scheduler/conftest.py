"""What the tests of the scheduler share: `played_crawl` can be imported, and ``crawl`` is one on empty databases."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from played_crawl import Crawl


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Crawl]:
    """A crawl whose counts and leases are right at the end of the test."""
    crawl = Crawl(tmp_path)
    yield crawl
    crawl.check()
    crawl.close()
