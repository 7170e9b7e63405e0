"""Folders in which tests run commands as users do, their disks, and what the commands said."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent


SCRIPT = (
    "from pyspider_lite import BaseHandler\n\n\nclass Handler(BaseHandler):\n    def on_start(self):\n        pass\n"
)
HEAD = "from pyspider_lite import BaseHandler\n\n\nclass Handler(BaseHandler):\n    retry_delay = {0: 0}\n\n"
START = "    def on_start(self):\n        self.crawl('data:,hello', callback=self.page, retries=0)\n\n"
PAGE = "    def page(self, response):\n"
#: crawls a generated site (`bench.site`) that begins at START
SITE_SCRIPT = """
from pyspider.libs.base_handler import *

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("START", callback=self.page)

    @config(age=10 * 24 * 60 * 60)
    def page(self, response):
        for each in response.doc('a[href^="http"]').items():
            self.crawl(each.attr.href, callback=self.page)
        return {"url": response.url, "title": response.doc("title").text()}
"""
NOWHERE = "builtin:///nonexistent/queue.sock"


class Place:
    """A test's folder, and what must be undone at its end."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self.folder = folder
        self.cleanup = cleanup

    def write(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def taken_port(self, port: int = 0) -> int:
        """A port of 127.0.0.1 that somebody listens on."""
        listener = socket.socket()
        self.cleanup.callback(listener.close)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        return int(listener.getsockname()[1])

    def read_only_disk(self) -> None:
        """What is in data/ now is all that there will be."""
        kept = self.folder / "kept"
        (self.folder / "data").rename(kept) if (self.folder / "data").exists() else kept.mkdir()
        self.cleanup.enter_context(small_disk(self.folder / "data", "16m"))
        shutil.copytree(kept, self.folder / "data", dirs_exist_ok=True)
        mount("-o", "remount,ro", str(self.folder / "data"))


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, (
        f"these tests need to mount a tmpfs (run them as root, with CAP_SYS_ADMIN): {done.stderr}"
    )


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A real file system of that size at ``folder``."""
    folder.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield
    finally:
        # lazily: a process that a failed test left behind must not keep it
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Take all space that is left."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65536, 4096):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    """Ours, without what settings are read from."""
    ours = {"TASKDB", "PROJECTDB", "RESULTDB", "AMQP_URL", "QUEUE_MAXSIZE", "SCHEDULER_XMLRPC_PORT", "FETCHER_XMLRPC_PORT"}  # fmt: skip
    return {name: value for name, value in os.environ.items() if name not in ours} | {"PYTHONPATH": str(ROOT)}


def start(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pyspider_lite", *arguments],
        cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], timeout: float = 30.0) -> Ended:
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"it did not end\n{out}\n{err}")
    return Ended(process.returncode, out, err)


def run(folder: Path, *arguments: str) -> Ended:
    return ended(start(folder, *arguments))


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it says, up to the line with ``text``."""
    assert process.stderr is not None
    lines = ""
    for line in process.stderr:
        lines += line
        if text in line:
            return lines
    pytest.fail(f"it ended without saying {text!r}:\n{lines}")
