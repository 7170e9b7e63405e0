"""Programs of the cluster are restarted while it crawls, and a slave is added: what was in hand may be fetched again, no more.

What is in hand is measured: each worker's health port says how many runs it holds. A crawl of the tutorial's 11,110 pages, which are
answered after 100 ms, is over before all programs have been restarted, so there are as many crawls as it takes: a restart
begins while at least half of the pages are still to come.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import msgspec
import pytest

from pyspider_lite.bench.machines import Machine
from pyspider_lite.bench.tutorial_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

PAGES = 11_110
#: programs of a slave
SLAVE = ("pyspider:fetcher_00", "pyspider:processor_00", "pyspider:phantomjs_00")
#: one of them has no work and no health port
NO_WORKER = "pyspider:phantomjs_00"
#: what a scheduler has given out may lie in a queue, or be in the hands of others: `in_flight`
_HELD = re.compile(rb'^pyspider_lite_(?:in_hand|in_flight\{kind="task"\}) (\S+)$', re.MULTILINE)


class InHand(threading.Thread):
    """Asks a worker, until it is gone, how many runs it holds."""

    def __init__(self, machine: Machine, url: str) -> None:
        super().__init__(name="in-hand", daemon=True)
        self._machine = machine
        self._host = urlsplit(url).netloc
        #: the most that it said
        self.most = 0
        self.asked = threading.Event()

    def run(self) -> None:
        with self._machine.inside(), contextlib.suppress(OSError, HTTPException):
            while True:
                connection = HTTPConnection(self._host, timeout=10)
                with contextlib.closing(connection):
                    connection.request("GET", "/metrics")
                    answer = connection.getresponse()
                    found = _HELD.search(answer.read())
                    self.most = max(self.most, int(float(found[1])) if found else 0)
                self.asked.set()
                time.sleep(0.05)


class Crawls:
    """One crawl after the other, and what their restarts may cost."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._number = 0
        self._held = 0

    def begin(self, most: int = PAGES // 2) -> None:
        """Have a crawl going well, of which at most so many pages have been asked for."""
        cluster = self._cluster
        if self._number and len(cluster.requests) < most:
            before = len(cluster.requests)
            cluster.wait(lambda: len(cluster.requests) > before + 500, 60, "the crawl did not go on")
            return
        if self._number:
            self.end()
        self._number += 1
        self._held = 0
        cluster.crawl(PAGES, f"tutorial{self._number}")
        cluster.wait(lambda: len(cluster.requests) > 500, 60, "no pages were crawled")

    def restart(self, machine: Machine, *programs: str) -> None:
        """`supervisorctl restart` of one program of a machine, or `stop all` and `start all`."""
        self.begin()
        cluster = self._cluster
        holders = {name: InHand(machine, url) for name, url in health_ports(cluster, machine, programs).items()}
        for one in holders.values():
            one.start()
        for name, one in holders.items():
            assert one.asked.wait(10), f"{name} does not say what it holds"
        at, repeated, open_requests = len(cluster.requests), self._repeated(), cluster.site.unanswered(machine.address)
        assert not cluster.finished()
        if len(programs) == 1:
            machine.supervisorctl("restart", *programs)
        else:
            machine.supervisorctl("stop", "all")
            machine.supervisorctl("start", "all")
        cluster.wait(cluster.all_up, 60, f"{programs} were not RUNNING after the restart")
        for one in holders.values():
            one.join(10)
        held = {name: one.most for name, one in holders.items()}
        self._held += sum(held.values())
        print(
            f"{machine.name} {' '.join(programs)}: at {at} to {len(cluster.requests)} requests, {open_requests} of this machine "
            f"open, in hand {held}; {self._repeated() - repeated} repeated meanwhile"
        )

    def end(self) -> None:
        """Wait for the crawl's end and check what it cost."""
        cluster = self._cluster
        cluster.wait_until_finished(300)
        cluster.check_results()
        print(f"{cluster.project}: {cluster.speed()}; {self._held} were in hand at its restarts")
        assert len(cluster.requests) <= PAGES + self._held

    def _repeated(self) -> int:
        log = self._cluster.requests
        return len(log) - len({request.path for request in log})


def health_ports(cluster: Cluster, machine: Machine, programs: tuple[str, ...]) -> dict[str, str]:
    """Where each program answers, as its beats say, once it has beaten."""
    running = machine.programs()
    pids = {running[name][1]: name for name in programs if name != NO_WORKER}
    found: dict[str, str] = {}

    def known() -> bool:
        for text in cluster.beats():
            beat = msgspec.json.decode(text)
            if beat["pid"] in pids and beat.get("health"):
                found[pids[beat["pid"]]] = beat["health"]
        return len(found) == len(pids)

    cluster.wait(known, 60, f"no beats of {programs}")
    return found


def restarts(cluster: Cluster) -> Iterator[tuple[Machine, tuple[str, ...]]]:
    """Each program in turn, then all of a slave."""
    for name in ("scheduler:scheduler_00", "result_worker:result_worker_00"):
        yield cluster.master, (name,)
    for name in SLAVE:
        yield cluster.slaves[0], (name,)
    yield cluster.slaves[1], SLAVE


@pytest.mark.parametrize(("broker", "database"), [("redis", "mariadb"), ("rabbitmq", "postgresql")])
def test_restarts_and_a_third_slave(make_cluster: Callable[..., Cluster], broker: str, database: str) -> None:
    cluster = make_cluster(broker, database, **{"health-port": 0})
    cluster.start_servers()
    cluster.master.supervise("master")
    for _ in range(2):
        cluster.add_slave()
    cluster.wait(cluster.all_up, 60, "the programs were not RUNNING")
    crawls = Crawls(cluster)
    for machine, programs in restarts(cluster):
        crawls.restart(machine, *programs)

    # a crawl that has just begun
    crawls.begin(0)
    started = time.monotonic()
    cluster.add_slave()
    cluster.wait(lambda: takes_its_share(cluster), 10 - (time.monotonic() - started), "the third slave had no share")
    print(f"third slave: its share after {time.monotonic() - started:.1f} s, at {len(cluster.requests)} requests")
    assert not cluster.finished()
    crawls.end()


def takes_its_share(cluster: Cluster) -> bool:
    """The last slave has within 10 % of its part of what was asked for in the last two seconds."""
    now = time.monotonic()
    recent = [request.client for request in cluster.site.requests[-5000:] if request.time > now - 2]
    share = recent.count(cluster.slaves[-1].address)
    return bool(recent) and share >= 0.9 * len(recent) / len(cluster.slaves)
