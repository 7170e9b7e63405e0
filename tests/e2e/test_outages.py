"""Broker and database go away at every moment, and no daemon ends: what they cannot reach is waited for, and nothing is lost.

Real daemons, each a command of its own, on a real Redis and MariaDB (or RabbitMQ and PostgreSQL).
"""

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

import pytest

from pyspider_lite import assembly, bootstrap, configuration
from pyspider_lite.bench import servers, site
from pyspider_lite.errors import DatabaseError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROLES = ("scheduler", "result_worker", "processor", "fetcher")
MAIN, OTHER = (servers.Redis, servers.MariaDb), (servers.RabbitMq, servers.PostgreSql)
#: seconds after the return of a server within which work has to go on
GOES_ON = 10.0
SCRIPT = """
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


class Cluster:
    """One daemon of each role, and their servers, which are not running yet."""

    def __init__(self, folder: Path, broker: Any, database: Any) -> None:
        self.folder = folder
        self.broker, self.database = broker, database
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *roles: str, **config: Any) -> None:
        databases = {kind: self.database.url(kind) for kind in ("taskdb", "projectdb", "resultdb")}
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

    def crawl(self, served: site.Site) -> None:
        (self.folder / "gen.py").write_text(SCRIPT.replace("START", served.url))
        self.command("project", "push", "gen.py", "--name", "gen", "--rate", "unlimited")
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


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        broker, database = (kind() for kind in getattr(request, "param", MAIN))
        stack.callback(broker.close)
        stack.callback(database.close)
        made = Cluster(tmp_path, broker, database)
        yield made
        for daemon in made.daemons.values():
            daemon.kill()
            daemon.wait()


@pytest.mark.behaviour("C92")
def test_no_server_is_there_at_start_then_the_password_is_wrong(cluster: Cluster) -> None:
    wrong = {
        kind: cluster.database.url(kind).replace(servers.PASSWORD, "s3cret-new")
        for kind in ("taskdb", "projectdb", "resultdb")
    }
    cluster.start(**wrong)
    cluster.wait(lambda: all(cluster.speaks(role) for role in ROLES), 30)
    cluster.wait(lambda: all(not cluster.ready(role)["ready"] for role in ROLES), 30)
    for role in ROLES:
        assert cluster.ask(role, "healthz")[0] == 200
    shown = f"mysql+taskdb://{servers.USER}:***@127.0.0.1:{cluster.database.port}/taskdb"
    assert shown in cluster.ready("scheduler")["waiting"]
    assert list(cluster.ready("fetcher")["waiting"]) == [cluster.broker.url]
    cluster.broker.start()
    cluster.database.start()
    cluster.wait(lambda: cluster.ready("fetcher")["ready"], GOES_ON)
    # another reason is said when it has been the reason for ten seconds
    cluster.wait(lambda: "Access denied" in cluster.log("scheduler") or "1045" in cluster.log("scheduler"), 30)
    assert not cluster.ready("scheduler")["ready"]
    cluster.database.execute(f"alter user '{servers.USER}'@'%' identified by 's3cret-new'")
    cluster.wait(lambda: all(cluster.ready(role)["ready"] for role in ROLES), GOES_ON)
    with site.Site(150) as served:
        cluster.crawl(served)
        cluster.complete(served)
    for role in ROLES:
        log = cluster.log(role)
        assert "s3cret" not in log
        assert "Traceback" not in log
        # five connections of one broker are one line
        times = log.count(f"waiting for {cluster.broker.url} since")
        assert times == (0 if role == "scheduler" else 1), log  # who waits to lead needs no broker yet
    assert max(cluster.stop().values()) < 5


def test_all_waits_like_each_of_them(cluster: Cluster) -> None:
    cluster.start("all", health_port=cluster.database.port - 50)  # away from ports promised to servers
    cluster.wait(lambda: cluster.log("all").count("metrics: http") == 4, 30)
    ports = re.findall(r"metrics: http://127.0.0.1:(\d+)/", cluster.log("all"))
    assert len(set(ports)) == 4  # one configuration, and each has its own
    cluster.broker.start()
    cluster.database.start()
    with site.Site(60) as served:
        cluster.crawl(served)
        cluster.complete(served)
    assert "starting it again" not in cluster.log("all")
    cluster.broker.stop()
    cluster.database.stop()
    cluster.wait(lambda: "waiting for mysql+taskdb" in cluster.log("all"), 20)
    assert cluster.stop()["all"] < 20  # role after role


def test_sigterm_ends_who_waits_for_everything(cluster: Cluster) -> None:
    cluster.start()
    cluster.wait(
        lambda: all(cluster.speaks(role) and cluster.ready(role)["waiting"] for role in ("scheduler", "fetcher")), 30
    )
    time.sleep(3.0)  # the back-off is at its longest
    took = cluster.stop()
    assert max(took.values()) < 3.0, took


@pytest.mark.parametrize(
    ("cluster", "seconds"),
    [
        (MAIN, 5.0),
        pytest.param(OTHER, 5.0, marks=pytest.mark.slow),
        pytest.param(MAIN, 60.0, marks=pytest.mark.slow),
        pytest.param(OTHER, 60.0, marks=pytest.mark.slow),
    ],
    indirect=["cluster"],
    ids=["redis-5", "rabbitmq-5", "redis-60", "rabbitmq-60"],
)
@pytest.mark.timeout(900)
def test_outages_under_load(cluster: Cluster, seconds: float) -> None:
    cluster.broker.start()
    cluster.database.start()
    cluster.start()
    with site.Site(1500, delay=0.05) as served:
        cluster.crawl(served)
        cluster.wait(lambda: cluster.count() > 50, 60)
        for server in (cluster.broker, cluster.database):
            server.stop()
            time.sleep(seconds)
            server.start()
            cluster.goes_on(served.pages)
        for server in (cluster.broker, cluster.database):
            server.cut()
            cluster.goes_on(served.pages)
        if isinstance(cluster.broker, servers.Redis):
            with cluster.broker.client() as client:
                client.flushall()
            cluster.goes_on(served.pages)
        cluster.complete(served)
    assert max(cluster.stop().values()) < 5


@pytest.mark.timeout(120)
def test_servers_that_stand_still_do_not_keep_anybody(cluster: Cluster) -> None:
    cluster.broker.start()
    cluster.database.start()
    cluster.start(drain_timeout=2.0)
    cluster.wait(lambda: all(cluster.speaks(role) and cluster.ready(role)["ready"] for role in ROLES), 30)
    cluster.broker.freeze()
    cluster.database.freeze()
    time.sleep(3.0)  # by now all of them wait for an answer
    took = cluster.stop()
    assert max(took.values()) < 2.0 + bootstrap.STOP_GRACE + 1.0, took
