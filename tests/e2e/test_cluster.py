"""The tutorial that pyspider's users follow, on machines of their own: supervisord, one config.json, a broker and a database.

Machines are network namespaces (`pyspider_lite.bench.machines`), all programs are real. Needs root. What is stopped meanwhile is in
`test_cluster_restarts.py` and `test_cluster_outages.py`.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspider_lite.bench import processes
from pyspider_lite.bench.machines import Machine
from pyspider_lite.bench.tutorial_cluster import OURS, Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

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
    print(f"\n{broker}, {database}: {cluster.speed()}")
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
    print(f"\nall and a slave: {cluster.speed()}")
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
