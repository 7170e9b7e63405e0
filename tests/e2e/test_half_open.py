"""The network between the daemons and their servers drops all packets, and nobody is told: connections are half open.

Machines are network namespaces (`pyspider_lite.bench.machines`): the daemons are on one, broker and database on another, whose cable is
pulled. Needs root.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pyspider_lite.bench import site
from pyspider_lite.bench.machines import Machine, Network
from pyspider_lite.log import mask_url

sys.path.insert(0, str(Path(__file__).parent))
from outage_cluster import GOES_ON, MAIN, OTHER, ROLES, Cluster, served_by

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

#: seconds after which it is said of broker and database that they are waited for: an idle connection is missed in 6 s, then a new one in 10 s
SAID = 30.0


class Apart(NamedTuple):
    """Daemons here, servers there."""

    network: Network
    there: Machine
    cluster: Cluster

    def start_servers(self) -> None:
        with self.there.inside():
            self.cluster.broker.start()
            self.cluster.database.start()

    def loses(self, seconds: float, *, restart: bool) -> None:
        """All packets for so long, and at least until that is said; ``restart``: the servers die meanwhile and are started again."""
        self.network.unplug(self.there)
        cut = time.monotonic()
        if restart:
            self.cluster.broker.kill()
            self.cluster.database.kill()
        self.cluster.wait(self.both_are_waited_for, SAID)
        assert all(self.cluster.ask(role, "healthz")[0] == 200 for role in ROLES)
        time.sleep(max(0.0, cut + seconds - time.monotonic()))
        self.network.plug(self.there)
        if restart:
            self.start_servers()

    def both_are_waited_for(self) -> bool:
        waiting = self.cluster.ready("scheduler")["waiting"]
        return mask_url(self.cluster.broker.url) in waiting and any(
            where.startswith(("mysql", "sqlalchemy")) for where in waiting
        )


@pytest.fixture
def apart(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Apart]:
    with Network() as network:
        here, there = network.add("here"), network.add("there")
        broker, database = (kind(there.address) for kind in request.param)
        # this thread and what it starts
        with here.inside(), served_by(tmp_path, broker, database) as cluster:
            yield Apart(network, there, cluster)


@pytest.mark.parametrize(
    ("apart", "seconds", "restart"),
    [
        pytest.param(MAIN, 8.0, False, id="redis"),
        *(
            pytest.param(stack, seconds, restart, marks=pytest.mark.slow, id=f"{name}-{seconds:g}-{restart}")
            for name, stack in (("redis", MAIN), ("rabbitmq", OTHER))
            for seconds in (8.0, 60.0)
            for restart in (False, True)
        ),
    ],
    indirect=["apart"],
)
def test_packets_vanish_under_load(apart: Apart, seconds: float, restart: bool) -> None:
    cluster = apart.cluster
    apart.start_servers()
    cluster.start()
    with site.Site(700, delay=0.05) as served:
        cluster.crawl(served)
        cluster.wait(lambda: cluster.count() > 50, 60)
        apart.loses(seconds, restart=restart)
        asked = sum(served.requests.values())
        cluster.wait(lambda: sum(served.requests.values()) > asked, GOES_ON)
        cluster.goes_on(served.pages)
        cluster.complete(served)
    assert not any("Traceback" in cluster.log(role) for role in ROLES)
    cluster.stop()
