"""The tutorial that pyspider's users follow, on machines of their own: supervisord, one config.json, a broker and a database.

Machines are network namespaces (`pyspider_lite.bench.machines`), all programs are real. Needs root.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from pyspider_lite.bench import processes
from pyspider_lite.bench.machines import Machine, Network
from pyspider_lite.bench.servers import PASSWORD, USER, MariaDb, PostgreSql, RabbitMq, Redis
from pyspider_lite.bench.tutorial_site import TutorialSite, title

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SCRIPT = """
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        for number in range({pages}):
            self.crawl("http://{host}/%s.html" % number, callback=self.detail_page)

    @config(priority=2)
    def detail_page(self, response):
        return {{"url": response.url, "title": response.doc("title").text()}}
"""
SLOW_SCRIPT = """
import subprocess
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        for number in range(2):
            self.crawl("data:,%d" % number, callback=self.page)

    def page(self, response):
        with open("{notes}", "a") as file:
            file.write("began\\n")
        done = subprocess.run(["sleep", "4"])
        with open("{notes}", "a") as file:
            file.write("ended\\n")
        return {{"code": done.returncode, "url": response.url}}
"""
#: what a fetcher may have in hand, twice its pool
IN_HAND = 200
PROGRAMS = ("pyspider:fetcher_00", "pyspider:processor_00", "pyspider:phantomjs_00")
OURS = (sys.executable, "-m", "pyspider_lite", "-c", "config.json")
#: servers end with the tests, also when these are killed
_WITH_US = ("setpriv", "--pdeathsig", "KILL")


class Cluster:
    """A master with broker, database and the web server that is crawled; slaves are added."""

    def __init__(self, network: Network, stack: contextlib.ExitStack, broker: str, database: str, delay: float) -> None:
        self._network = network
        self.master = network.add("master")
        self.slaves: list[Machine] = []
        host = self.master.address
        with self.master.inside():
            self.broker: Any = {"redis": Redis, "rabbitmq": RabbitMq}[broker](
                host, _WITH_US, {"redis": 6379, "rabbitmq": 5672}[broker]
            )
            stack.callback(self.broker.close)
            self.database: Any = {"mariadb": MariaDb, "postgresql": PostgreSql}[database](
                host, _WITH_US, {"mariadb": 3306, "postgresql": 5432}[database]
            )
            stack.callback(self.database.close)
            self.site = stack.enter_context(TutorialSite(host, 80, delay))
        engine = {"mariadb": "mysql", "postgresql": "postgresql"}[database]
        where = f"{USER}:{PASSWORD}@{host}:{self.database.port}"
        self.config = {
            "taskdb": f"{engine}+taskdb://{where}/taskdb",
            "projectdb": f"{engine}+projectdb://{where}/projectdb",
            "resultdb": f"{engine}+resultdb://{where}/resultdb",
            "message_queue": f"redis://{host}:6379/db"
            if broker == "redis"
            else f"amqp://{USER}:{PASSWORD}@{host}:5672/",
            "phantomjs-proxy": "127.0.0.1:25555",
            "fetcher": {"xmlrpc-host": host},
        }
        self.master.configure(self.config, ROOT / "supervisor")
        self.pages = 0

    def start_servers(self) -> None:
        """Broker and database, from nothing or again."""
        with self.master.inside():
            for server in (self.broker, self.database):
                if server.process is None:
                    server.start()

    def stop_servers(self) -> None:
        with self.master.inside():
            for server in (self.broker, self.database):
                server.stop()

    def boot_without_servers(self) -> None:
        """Stop broker and database and, as a boot would, start all programs anew."""
        self.stop_servers()
        for machine in (self.master, *self.slaves):
            machine.supervisorctl("restart", "all")
        self.wait(self.all_up, 60, "the programs were not RUNNING")

    def add_slave(self) -> Machine:
        """Another machine with the same files, running."""
        slave = self._network.add(f"slave{len(self.slaves) + 1}")
        slave.configure(self.config, ROOT / "supervisor")
        self.slaves.append(slave)
        slave.supervise("slave")
        return slave

    def crawl(self, pages: int) -> None:
        """Crawl the tutorial's pages."""
        self.pages = pages
        self.run(SCRIPT.format(pages=pages, host=self.master.address))

    def run(self, script: str) -> None:
        """Store the script and have its on_start called."""
        (self.master.folder / "tutorial.py").write_text(script)
        self.master.command("project", "push", "tutorial.py", "--rate", "unlimited", "--status", "RUNNING")
        self.master.command("project", "run", "tutorial")

    def wait(self, condition: Callable[[], Any], timeout: float, what: str) -> None:
        """Until ``condition()`` holds; fails with the logs' ends when it does not in time."""
        end = time.monotonic() + timeout
        while not condition():
            gone = [name for name, (state, _) in self.programs().items() if state in ("EXITED", "FATAL")]
            if time.monotonic() > end or gone:
                logs = "\n".join(machine.tail() for machine in (self.master, *self.slaves))
                pytest.fail(f"{what} within {timeout:g} s; {len(self.site.requests)} requests; ended: {gone}\n{logs}")
            time.sleep(0.2)

    def query(self, kind: str, sql: str) -> list[Any]:
        """Rows of a statement on a database; [] while what it asks for is not there."""
        with contextlib.suppress(pymysql.Error, psycopg.Error):
            if isinstance(self.database, MariaDb):
                return self.database.execute(f"use {kind}", sql)
            return list(self.database.execute(sql, database=kind))
        return []

    def finished(self) -> bool:
        """on_finished has run."""
        return bool(self.query("taskdb", "select 1 from tutorial where taskid = 'on_finished' and status = 2"))

    def wait_until_finished(self, timeout: float) -> None:
        self.wait(self.finished, timeout, f"{self.pages} pages were not crawled")

    def check_results(self) -> None:
        """Each page once, with its title."""
        rows = self.query("resultdb", "select url, result from tutorial")
        found = sorted((url, json.loads(result)["title"]) for url, result in rows)
        paths = [f"/{number}.html" for number in range(self.pages)]
        assert found == sorted((f"http://{self.master.address}{path}", title(path)) for path in paths)
        assert {request.path for request in self.site.requests} == set(paths)

    def wait_for_fetchers(self, *machines: Machine) -> None:
        """Until the scheduler says that the fetchers of these machines are there."""
        logs = [self.master.folder / "output.log", self.master.folder / "supervisor" / "scheduler_00.log"]

        def here() -> bool:
            text = "".join(log.read_text() for log in logs if log.exists())
            return all(f"fetcher {machine.name}:" in text for machine in machines)

        self.wait(here, 60, "the fetchers were not there")

    def all_up(self) -> bool:
        """All programs of all supervisords are RUNNING."""
        states = [state for state, _ in self.programs().values()]
        return bool(states) and set(states) == {"RUNNING"}

    def programs(self) -> dict[str, tuple[str, int]]:
        """State and process id of each program, by the names of machine and program."""
        machines = [machine for machine in (self.master, *self.slaves) if machine.supervised]
        return {f"{machine.name} {name}": found for machine in machines for name, found in machine.programs().items()}


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that do not outlive the test."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network())

        def make(broker: str = "redis", database: str = "mariadb", delay: float = 0.1) -> Cluster:
            return Cluster(network, stack, broker, database, delay)

        yield make


def speed(cluster: Cluster) -> str:
    """What the access log says, for whoever runs the test by hand (-s)."""
    log = cluster.site.requests
    # the middle: without the start and the last pages
    first, last = log[len(log) // 10], log[-max(1, len(log) // 10)]
    rate = 0.8 * len(log) / (last.time - first.time)
    return f"{len(log)} requests for {cluster.pages} pages, {rate:.0f}/s, shares {dict(cluster.site.shares())}"


def check_even(cluster: Cluster, *machines: Machine) -> None:
    """Each machine's share of the requests is within 10 % of even. Work is taken in batches of a quarter of a pool, by whoever has
    room: a short crawl is too few of them to tell as exactly."""
    shares = cluster.site.shares()
    even = cluster.pages / len(machines)
    tolerance = 0.1 if cluster.pages > 10_000 else 0.25
    assert set(shares) == {machine.address for machine in machines}
    assert all(abs(share - even) <= tolerance * even for share in shares.values()), shares


@pytest.mark.parametrize("pages", [3_333, pytest.param(11_110, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("broker", "database"), [("redis", "mariadb"), ("rabbitmq", "postgresql")])
def test_a_master_and_two_slaves(make_cluster: Callable[..., Cluster], broker: str, database: str, pages: int) -> None:
    cluster = make_cluster(broker, database)
    cluster.start_servers()
    cluster.master.supervise("master")
    for _ in range(2):
        cluster.add_slave()
    cluster.wait(cluster.all_up, 60, "the programs were not RUNNING")
    cluster.wait_for_fetchers(*cluster.slaves)
    cluster.crawl(pages)
    cluster.wait_until_finished(300)
    print(f"\n{broker}, {database}: {speed(cluster)}")
    cluster.check_results()
    assert len(cluster.site.requests) == pages
    check_even(cluster, *cluster.slaves)


@pytest.mark.parametrize("pages", [3_333, pytest.param(11_110, marks=pytest.mark.slow)])
def test_all_and_a_slave(make_cluster: Callable[..., Cluster], pages: int) -> None:
    cluster = make_cluster("rabbitmq", "postgresql")
    cluster.start_servers()
    everything = cluster.master.start(*OURS, "all")
    slave = cluster.add_slave()
    cluster.wait_for_fetchers(cluster.master, slave)
    cluster.crawl(pages)
    cluster.wait_until_finished(300)
    assert everything.poll() is None
    print(f"\nall and a slave: {speed(cluster)}")
    cluster.check_results()
    assert len(cluster.site.requests) == pages
    # the master's own fetcher is as good as the slave's
    check_even(cluster, cluster.master, slave)


def test_a_callback_and_what_it_started_live_to_their_end(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """supervisord's SIGTERM is for the processor alone, which waits for its page; what comes next is done by the next one."""
    cluster = make_cluster()
    cluster.start_servers()
    cluster.master.supervise("master")
    slave = cluster.add_slave()
    notes = tmp_path / "notes"
    notes.touch()
    cluster.run(SLOW_SCRIPT.format(notes=notes))
    cluster.wait(lambda: "began" in notes.read_text(), 60, "the callback did not begin")
    children = processes.tree(slave.programs()["pyspider:processor_00"][1])
    slave.supervisorctl("restart", "pyspider:processor_00")
    cluster.wait(cluster.finished, 60, "the crawl did not end")
    assert notes.read_text().split() == ["began", "ended"] * 2
    assert len(children) > 2 and not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    rows = cluster.query("resultdb", "select result from tutorial")
    assert sorted(json.loads(row[0])["code"] for row in rows) == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("broker", "database"), [("redis", "mariadb"), ("rabbitmq", "postgresql")])
def test_restarts_and_a_third_slave(make_cluster: Callable[..., Cluster], broker: str, database: str) -> None:
    # slow pages, so that the crawl is longer than all that is done to it
    cluster = make_cluster(broker, database, 1.0)
    cluster.start_servers()
    cluster.master.supervise("master")
    for _ in range(2):
        cluster.add_slave()
    cluster.wait(cluster.all_up, 60, "the programs were not RUNNING")
    cluster.crawl(11_110)
    cluster.wait(lambda: len(cluster.site.requests) > 500, 60, "no pages were crawled")
    repeated = 0
    for machine, names in ((cluster.master, ("scheduler:*", "result_worker:*")), (cluster.slaves[0], PROGRAMS)):
        for name in names:
            machine.supervisorctl("restart", name)
            cluster.wait(cluster.all_up, 30, f"{name} was not RUNNING after its restart")
            repeated = report_repeats(cluster, name, repeated)
    slave = cluster.slaves[1]
    slave.supervisorctl("stop", "all")
    slave.supervisorctl("start", "all")
    cluster.wait(cluster.all_up, 30, "the slave was not RUNNING after its restart")
    repeated = report_repeats(cluster, "stop all; start all", repeated)

    assert not cluster.finished()
    started = time.monotonic()
    cluster.add_slave()
    cluster.wait(lambda: takes_its_share(cluster), 10 - (time.monotonic() - started), "the third slave had no share")
    print(f"third slave: its share after {time.monotonic() - started:.1f} s")
    assert not cluster.finished()
    cluster.wait_until_finished(300)
    print(f"{broker}, {database}: {speed(cluster)}")
    cluster.check_results()
    # six restarts, of which those of fetchers may cost what these had in hand
    assert len(cluster.site.requests) <= cluster.pages + 2 * IN_HAND


def report_repeats(cluster: Cluster, name: str, before: int) -> int:
    """Tell what a restart cost, bounded; how many requests were repeats up to now."""
    log = list(cluster.site.requests)
    repeated = len(log) - len({request.path for request in log})
    print(f"{name}: {len(log)} requests, {repeated - before} repeated")
    assert repeated - before <= IN_HAND
    return repeated


def takes_its_share(cluster: Cluster) -> bool:
    """The last slave has within 10 % of its part of what was asked for in the last two seconds."""
    now = time.monotonic()
    recent = [request.client for request in cluster.site.requests[-5000:] if request.time > now - 2]
    share = recent.count(cluster.slaves[-1].address)
    return bool(recent) and share >= 0.9 * len(recent) / len(cluster.slaves)


OUTAGES = [5, 60]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("broker", "database"), [("redis", "mariadb"), ("rabbitmq", "postgresql")])
def test_broker_and_database_are_away(make_cluster: Callable[..., Cluster], broker: str, database: str) -> None:
    """With 100,000 tasks: at boot, under load, with connections cut, with the broker emptied."""
    cluster = make_cluster(broker, database)
    # the first boot: neither is there, nor are tables
    cluster.master.supervise("master")
    for _ in range(2):
        cluster.add_slave()
    cluster.wait(cluster.all_up, 60, "the programs were not RUNNING")
    before = cluster.programs()
    time.sleep(OUTAGES[0])
    assert cluster.programs() == before
    cluster.start_servers()
    cluster.crawl(100_000)
    cluster.wait(lambda: len(cluster.site.requests) > 1000, 60, "work did not begin after the boot")

    for what, seconds, act in outages(cluster):
        act()
        before = cluster.programs()
        print(f"{what}: ", end="", flush=True)
        if seconds:
            time.sleep(seconds)
            cluster.start_servers()
        returned = time.monotonic()
        cluster.wait(partial(crawled_since, cluster, returned, 200), 10, f"{what}: work did not go on")
        print(f"work went on after {time.monotonic() - returned:.1f} s, {len(cluster.site.requests)} requests")
        assert cluster.programs() == before, f"{what}: a program ended"
        # a bit of quiet, so that each finds a crawl that goes well
        cluster.wait(partial(crawled_since, cluster, returned, 2000), 60, f"{what}: work did not go on well")
    cluster.wait_until_finished(600)
    assert cluster.programs() == before
    print(speed(cluster))
    cluster.check_results()


def outages(cluster: Cluster) -> Iterator[tuple[str, float, Callable[[], None]]]:
    """What is done, for how long the servers are away (0: they are not), and how it is done."""
    for seconds in OUTAGES:
        yield f"both stopped for {seconds} s", seconds, cluster.stop_servers
        yield f"all programs started while both are away for {seconds} s", seconds, cluster.boot_without_servers
    yield "broker killed", 2, inside(cluster, cluster.broker.kill)
    yield "database killed", 2, inside(cluster, cluster.database.kill)
    yield "connections to the broker cut", 0, inside(cluster, cluster.broker.cut)
    yield "connections to the database cut", 0, inside(cluster, cluster.database.cut)
    if isinstance(cluster.broker, Redis):
        yield "FLUSHALL", 0, inside(cluster, lambda: cluster.broker.client().flushall())


def inside(cluster: Cluster, act: Callable[[], Any]) -> Callable[[], None]:
    """The same, in the network of the master."""

    def do() -> None:
        with cluster.master.inside():
            act()

    return do


def crawled_since(cluster: Cluster, when: float, number: int) -> bool:
    """Whether that many requests came after a time."""
    log = cluster.site.requests
    return len(log) >= number and log[-number].time > when
