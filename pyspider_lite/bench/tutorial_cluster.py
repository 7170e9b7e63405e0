"""The cluster of pyspider's tutorial: a master with broker, database and the web server that is crawled, and slaves. For the tests of a
cluster; each machine is a network namespace with a supervisord of its own, all programs are real.
"""

import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from pyspider_lite.bench.machines import Machine, Network
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.servers.server import PASSWORD, USER
from pyspider_lite.bench.tutorial_site import Request, TutorialSite, title

#: our command line, in the folder of a machine
OURS = (sys.executable, "-m", "pyspider_lite", "-c", "config.json")
#: the handler of the tutorial; its places are filled by `crawl`
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
#: our files for supervisord
_SUPERVISOR = Path(__file__).parent.parent.parent / "supervisor"
#: servers end with the tests, also when these are killed
_WITH_US = ("setpriv", "--pdeathsig", "KILL")


class Cluster:
    """A master with broker, database and the web server that is crawled; slaves are added."""

    def __init__(
        self,
        network: Network,
        stack: contextlib.ExitStack,
        broker: str = "redis",
        database: str = "mariadb",
        *,
        delay: float = 0.1,
        **options: Any,
    ) -> None:
        """``broker`` is redis or rabbitmq, ``database`` mariadb or postgresql; the pages are answered after ``delay`` seconds. The
        configuration is the tutorial's, and ``options``."""
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
            **options,
        }
        self.master.configure(self.config, _SUPERVISOR)
        #: the crawl that goes on: its project, its pages, and where it begins in the access log
        self.project, self.pages, self._first = "tutorial", 0, 0

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
        slave.configure(self.config, _SUPERVISOR)
        self.slaves.append(slave)
        slave.supervise("slave")
        return slave

    def crawl(self, pages: int, project: str = "tutorial", script: str = SCRIPT) -> None:
        """Crawl the tutorial's pages."""
        self.project, self.pages, self._first = project, pages, len(self.site.requests)
        self.run(script.format(pages=pages, host=self.master.address))

    def run(self, script: str) -> None:
        """Store the script and have its on_start called."""
        (self.master.folder / f"{self.project}.py").write_text(script)
        self.master.command("project", "push", f"{self.project}.py", "--rate", "unlimited", "--status", "RUNNING")
        self.master.command("project", "run", self.project)

    @property
    def requests(self) -> list[Request]:
        """The part of the access log that is the crawl's."""
        return self.site.requests[self._first :]

    def wait(self, condition: Callable[[], Any], timeout: float, what: str) -> None:
        """Until ``condition()`` holds; fails with the logs' ends when it does not in time."""
        end = time.monotonic() + timeout
        while not condition():
            gone = [name for name, (state, _) in self.programs().items() if state in ("EXITED", "FATAL")]
            if time.monotonic() > end or gone:
                logs = "\n".join(machine.tail() for machine in (self.master, *self.slaves))
                raise AssertionError(
                    f"{what} within {timeout:g} s; {len(self.site.requests)} requests; ended: {gone}\n{logs}"
                )
            time.sleep(0.2)

    def query(self, kind: str, sql: str) -> list[Any]:
        """Rows of a statement on a database; [] while what it asks for is not there."""
        with contextlib.suppress(pymysql.Error, psycopg.Error):
            if isinstance(self.database, MariaDb):
                return self.database.execute(f"use {kind}", sql)
            return list(self.database.execute(sql, database=kind))
        return []

    def beats(self) -> list[str]:
        """What each worker said last, as JSON."""
        name = "`lite-worker`" if isinstance(self.database, MariaDb) else '"lite-worker"'
        return [row[0] for row in self.query("taskdb", f"select beat from {name}")]

    def finished(self) -> bool:
        """on_finished has run."""
        return bool(self.query("taskdb", f"select 1 from {self.project} where taskid = 'on_finished' and status = 2"))

    def wait_until_finished(self, timeout: float) -> None:
        self.wait(self.finished, timeout, f"{self.pages} pages were not crawled")

    def check_results(self) -> None:
        """Each page of the crawl was asked for, and is there once, with its title; raises AssertionError."""
        rows = self.query("resultdb", f"select url, result from {self.project}")
        found = Counter((url, json.loads(result)["title"]) for url, result in rows)
        paths = [f"/{number}.html" for number in range(self.pages)]
        expected = Counter((f"http://{self.master.address}{path}", title(path)) for path in paths)
        if found != expected:
            lacking, more = expected - found, found - expected
            raise AssertionError(
                f"{self.project}: {lacking.total()} results are missing ({[*lacking][:5]}), {more.total()} are too many "
                f"({[*more][:5]})"
            )
        if {request.path for request in self.requests} != set(paths):
            raise AssertionError(f"{self.project}: other pages were asked for than those of the crawl")

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

    def speed(self) -> str:
        """What the access log says of the crawl."""
        log = self.requests
        # the middle: without the start and the last pages
        first, last = log[len(log) // 10], log[-max(1, len(log) // 10)]
        rate = 0.8 * len(log) / (last.time - first.time)
        shares = dict(Counter(request.client for request in log))
        return f"{len(log)} requests for {self.pages} pages, {rate:.0f}/s, shares {shares}"
