"""One daemon of each role on a real broker and a real database that come and go, for the tests of outages."""

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from places import SITE_SCRIPT

from pyspider_lite import assembly, configuration
from pyspider_lite.bench import site
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.errors import DatabaseError

ROLES = ("scheduler", "result_worker", "processor", "fetcher")
MAIN, OTHER = (Redis, MariaDb), (RabbitMq, PostgreSql)
DATABASES = ("taskdb", "projectdb", "resultdb")
#: seconds after the return of a server within which work has to go on
GOES_ON = 10.0


class SqliteFiles:
    """In the place of a database server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, kind: str) -> str:
        return f"sqlite+{kind}:///{self.folder}/{kind}.db"

    def close(self) -> None:
        """Files need no end."""


class Cluster:
    """One daemon of each role, and their servers, which are not running yet."""

    def __init__(self, folder: Path, broker: Any, database: Any) -> None:
        self.folder = folder
        self.broker, self.database = broker, database
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *roles: str, **config: Any) -> None:
        databases = {kind: self.database.url(kind) for kind in DATABASES}
        any_port = {"scheduler": {"xmlrpc_port": 0}, "fetcher": {"xmlrpc_port": 0}, "health_port": 0}
        fixed = {"data_path": str(self.folder / "data"), "message_queue": self.broker.url, **databases, **any_port}
        (self.folder / "config.json").write_text(json.dumps(fixed | config))
        for role in roles or ROLES:
            with open(self.folder / f"{role}.log", "ab") as log:
                self.daemons[role] = subprocess.Popen(self.words(role), stdout=log, stderr=log, cwd=self.folder)

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pyspider_lite", "-c", str(self.folder / "config.json"), *words]

    def command(self, *words: str) -> None:
        done = subprocess.run(self.words(*words), capture_output=True, text=True, cwd=self.folder, timeout=60)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"

    def crawl(self, served: site.Site, rate: str = "unlimited") -> None:
        (self.folder / "gen.py").write_text(SITE_SCRIPT.replace("START", served.url))
        self.command("project", "push", "gen.py", "--name", "gen", "--rate", rate)
        self.command("project", "run", "gen")

    def log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text(errors="replace")

    def wait(self, condition: Callable[[], Any], timeout: float) -> float:
        """Until it holds, with all daemons alive; how long that took."""
        began = time.monotonic()
        while not condition():
            tails = "\n".join(f"--- {role}\n{self.log(role)[-3000:]}" for role in self.daemons)
            assert all(daemon.poll() is None for daemon in self.daemons.values()), f"one has ended:\n{tails}"
            assert time.monotonic() - began < timeout, f"not within {timeout} s:\n{tails}"
            time.sleep(0.1)
        return time.monotonic() - began

    def ask(self, role: str, path: str) -> tuple[int, str]:
        """Of its health port."""
        found = re.search(r"metrics: (http://\S+)", self.log(role))
        assert found, self.log(role)
        try:
            with urllib.request.urlopen(found[1] + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ready(self, role: str) -> dict[str, Any]:
        status, text = self.ask(role, "readyz")
        answer: dict[str, Any] = json.loads(text)
        assert answer["ready"] == (status == 200)
        return answer

    def speaks(self, role: str) -> bool:
        return "metrics: http" in self.log(role)

    def rows(self) -> list[tuple[str, Any]]:
        settings = configuration.load(str(self.folder / "config.json"), {}, {}).settings
        with contextlib.closing(assembly.connect_resultdb(settings)) as resultdb:
            try:
                return [(row.url, json.loads(row.result)) for row in resultdb.select("gen")]
            except DatabaseError:
                return []

    def count(self) -> int:
        return len(self.rows())

    def goes_on(self, total: int) -> None:
        """After all is reachable: within `GOES_ON` there are new results, unless all are there."""
        before = self.count()
        self.wait(lambda: self.count() > before or self.count() >= total, GOES_ON)

    def complete(self, served: site.Site) -> None:
        self.wait(lambda: self.count() >= served.pages, 120)
        expected = {f"http://127.0.0.1:{served.port}/{index}.html": site.title(index) for index in range(served.pages)}
        rows = self.rows()
        assert {url: value["title"] for url, value in rows} == expected
        assert max(Counter(url for url, _ in rows).values()) == 1

    def stop(self) -> dict[str, float]:
        """SIGTERM to one after the other; seconds that each took."""
        took = {}
        for role, daemon in self.daemons.items():
            began = time.monotonic()
            daemon.terminate()
            assert daemon.wait(60) == 143, self.log(role)[-3000:]
            took[role] = time.monotonic() - began
        self.daemons.clear()
        return took


@contextlib.contextmanager
def served_by(folder: Path, broker: Any, database: Any) -> Iterator[Cluster]:
    """A cluster of these servers, which do not outlive the block, nor do its daemons."""
    with contextlib.ExitStack() as stack:
        stack.callback(broker.close)
        stack.callback(database.close)
        made = Cluster(folder, broker, database)
        try:
            yield made
        finally:
            for daemon in made.daemons.values():
                daemon.kill()
                daemon.wait()
