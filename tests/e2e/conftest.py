"""The real suite, its daemons started as users start them, in a folder of its own. `places` and other modules of this folder can be imported."""

import contextlib
import io
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import cli
from pyspider_lite.bench import processes
from pyspider_lite.bench.machines import Network
from pyspider_lite.bench.tutorial_cluster import Cluster

sys.path.insert(0, str(Path(__file__).parent))

from places import SCRIPT, Place

#: seconds for a test with daemons, unless it says otherwise: each waits with deadlines of its own
TIMEOUT = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT))


class Suite:
    """One `all` on a data folder."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder = folder
        self.config = folder / "config.json"
        sections: dict[str, Any] = {
            "data_path": str(folder / "data"),
            "scheduler": {"xmlrpc_port": 0},
            "fetcher": {"xmlrpc_port": 0},
        }
        for name, value in config.items():
            sections[name] = {**sections.get(name, {}), **value} if isinstance(value, dict) else value
        self.config.write_text(json.dumps(sections))
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "all.log"

    def start(self) -> None:
        """Start it; `stop` is called by the fixture."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.words("all"), stdout=log, stderr=log, cwd=self.folder)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 45.0) -> int:
        """End it by a signal; its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout)

    def words(self, *words: str) -> list[str]:
        """A command line of ours with this configuration."""
        return [sys.executable, "-m", "pyspider_lite", "-c", str(self.config), *words]

    def command(self, *words: str, code: int = 0) -> str:
        """Run a command to its end, in this process: a new one takes half a second of work to begin. Its standard output."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            done = cli.main(["-c", str(self.config), *words])
        assert done == code, f"{words}: exit {done}\n{out.getvalue()}\n{err.getvalue()}"
        return out.getvalue()

    def push(self, name: str, script: str, *words: str) -> None:
        """Store a project and run its on_start."""
        file = self.folder / f"{name}.py"
        file.write_text(script)
        self.command("project", "push", str(file), "--name", name, "--rate", "unlimited", *words)
        self.command("project", "run", name)

    def query(self, kind: str, sql: str) -> list[tuple[Any, ...]]:
        """Rows of task.db, project.db or result.db; [] while the table is not there."""
        path = self.folder / "data" / f"{kind}.db"
        if not path.exists():
            return []
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
        try:
            return database.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []
        finally:
            database.close()

    def statuses(self, name: str) -> dict[int, int]:
        """Number of tasks by status, counted."""
        return dict(self.query("task", f"select status, count(*) from taskdb_{name} group by status"))

    def results(self, name: str) -> list[tuple[str, Any]]:
        """URL and value of each result."""
        rows = self.query("result", f"select url, result from resultdb_{name}")
        return [(url, json.loads(result)) for url, result in rows]

    def finished(self, name: str) -> bool:
        """on_finished has run: the crawl is over."""
        return bool(self.query("task", f"select 1 from taskdb_{name} where taskid = 'on_finished' and status = 2"))

    def wait(self, condition: Callable[[], Any], timeout: float = 60.0) -> None:
        """Until ``condition()`` holds; fails with the log's end when it does not in time."""
        end = time.monotonic() + timeout
        while not condition():
            assert self.process is None or self.process.poll() is None, f"the suite ended:\n{self.tail()}"
            assert time.monotonic() < end, f"not within {timeout} s:\n{self.tail()}"
            time.sleep(0.05)

    def children(self, role: str) -> list[int]:
        """Process ids of the suite's processes of a role."""
        assert self.process is not None
        return [pid for pid in processes.tree(self.process.pid)[1:] if processes.role(pid) == role]

    def tail(self) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:]) if self.log.exists() else ""


@pytest.fixture
def make_suite(tmp_path: Path) -> Iterator[Callable[..., Suite]]:
    """Makes suites that do not outlive the test."""
    with _suites_in(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_suite_for_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Suite]]:
    """The same for all tests of a module."""
    with _suites_in(tmp_path_factory.mktemp("suites")) as make:
        yield make


@contextlib.contextmanager
def _suites_in(parent: Path) -> Iterator[Callable[..., Suite]]:
    suites: list[Suite] = []

    def make(**config: Any) -> Suite:
        folder = parent / f"suite{len(suites)}"
        folder.mkdir()
        suites.append(Suite(folder, **config))
        return suites[-1]

    yield make
    for suite in suites:
        if suite.process is not None and suite.process.poll() is None:
            left = processes.tree(suite.process.pid)
            suite.process.terminate()
            try:
                suite.process.wait(45)
            except subprocess.TimeoutExpired:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                suite.process.wait(10)
                raise


@pytest.fixture(scope="session")
def on_servers(request: pytest.FixtureRequest) -> Callable[[], dict[str, Any]]:
    """Makes settings of a suite on MariaDB and Redis, with databases of its own."""
    numbers = itertools.count()

    def settings() -> dict[str, Any]:
        mariadb, redis = request.getfixturevalue("mariadb"), request.getfixturevalue("redis")
        number = next(numbers)
        broker = redis.url.replace("/0", f"/{1 + number % 15}")
        with redis.client() as client:
            client.execute_command("SELECT", 1 + number % 15)
            client.flushdb()
        databases = {kind: mariadb.url(kind, f"suite{number}_{kind}") for kind in ("taskdb", "projectdb", "resultdb")}
        return {**databases, "message_queue": broker}

    return settings


@pytest.fixture(params=["sqlite", "mariadb"])
def stack(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of a suite: all in its folder, or on servers."""
    return request.getfixturevalue("on_servers")() if request.param == "mariadb" else {}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder with a script, shop.py."""
    with ExitStack() as cleanup:
        found = Place(tmp_path, cleanup)
        found.write("shop.py", SCRIPT)
        yield found


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that do not outlive the test."""
    with ExitStack() as stack:
        yield partial(Cluster, stack.enter_context(Network()), stack)
