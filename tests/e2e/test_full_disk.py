"""The disk of the log, and that of an export, is full: the crawl goes on, and half an export does not keep the disk full.

(The databases' disk: `test_bad_input.py` for SQLite, `test_server_troubles.py` for Redis and RabbitMQ.) Needs root: it mounts a tmpfs.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

PAGES = 200
SCRIPT = f"""
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range({PAGES}):
            self.crawl("data:,%d" % number, callback=self.page)

    def page(self, response):
        print("x" * 2000)
        return {{"url": response.url, "text": "y" * 10_000}}
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def free(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def test_logs_and_exports_find_no_room(make_suite: Callable[..., Any], disk: Path) -> None:
    suite = make_suite()
    suite.log = disk / "all.log"
    suite.start()
    suite.wait(lambda: suite.log.exists() and "scheduler starting" in suite.log.read_text())
    with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    suite.push("noisy", SCRIPT)
    suite.wait(lambda: suite.finished("noisy"))
    assert free(disk) == 0
    assert len(suite.results("noisy")) == PAGES
    # there is room again, for half of the export
    (disk / "filler").unlink()
    before = free(disk)
    suite.command("result", "export", "noisy", "--output", str(disk / "out.jsonl"), code=3)
    assert not list(disk.glob("out*"))
    assert free(disk) > before / 2
    assert suite.stop() == 143
    # what the log has room for it has
    assert "exiting" in suite.log.read_text()
