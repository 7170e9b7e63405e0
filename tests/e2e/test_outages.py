"""Broker and database go away at every moment, and no daemon ends: what they cannot reach is waited for, and nothing is lost.

Real daemons, each a command of its own, on a real Redis and MariaDB (or RabbitMQ and PostgreSQL).
"""

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspider_lite import bootstrap
from pyspider_lite.bench import site
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.servers.server import PASSWORD, USER

sys.path.insert(0, str(Path(__file__).parent))
from outage_cluster import GOES_ON, MAIN, OTHER, ROLES, Cluster, served_by

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    broker, database = (kind() for kind in getattr(request, "param", MAIN))
    with served_by(tmp_path, broker, database) as made:
        yield made


@pytest.mark.behaviour("C92")
def test_no_server_is_there_at_start_then_the_password_is_wrong(cluster: Cluster) -> None:
    wrong = {
        kind: cluster.database.url(kind).replace(PASSWORD, "s3cret-new") for kind in ("taskdb", "projectdb", "resultdb")
    }
    cluster.start(**wrong)
    cluster.wait(lambda: all(cluster.speaks(role) for role in ROLES), 30)
    cluster.wait(lambda: all(not cluster.ready(role)["ready"] for role in ROLES), 30)
    for role in ROLES:
        assert cluster.ask(role, "healthz")[0] == 200
    shown = f"mysql+taskdb://{USER}:***@127.0.0.1:{cluster.database.port}/taskdb"
    assert shown in cluster.ready("scheduler")["waiting"]
    assert list(cluster.ready("fetcher")["waiting"]) == [cluster.broker.url]
    cluster.broker.start()
    cluster.database.start()
    cluster.wait(lambda: cluster.ready("fetcher")["ready"], GOES_ON)
    # another reason is said when it has been the reason for ten seconds
    cluster.wait(lambda: "Access denied" in cluster.log("scheduler") or "1045" in cluster.log("scheduler"), 30)
    assert not cluster.ready("scheduler")["ready"]
    cluster.database.execute(f"alter user '{USER}'@'%' identified by 's3cret-new'")
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
        if isinstance(cluster.broker, Redis):
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


@pytest.mark.parametrize(
    "cluster",
    [MAIN, pytest.param(OTHER, marks=pytest.mark.slow)],
    indirect=True,
    ids=["mariadb", "postgresql"],
)
def test_databases_are_dropped(cluster: Cluster) -> None:
    """Whoever may make them (MariaDB: who has all rights in a database) does so at once, else they are waited for, with the reason.
    Tables are made anew; all daemons live, and all goes on with what is left."""
    cluster.broker.start()
    cluster.database.start()
    cluster.start()
    postgresql = isinstance(cluster.database, PostgreSql)

    def drop(kind: str, role: str) -> None:
        before = len(cluster.log(role))
        cluster.database.drop(kind)
        said = f"/{kind} since .*CREATE DATABASE" if postgresql else f"/{kind} did not exist: it is made"
        cluster.wait(lambda: re.search(said, cluster.log(role)[before:]), 30)
        if postgresql:
            assert [where.rpartition("/")[2] for where in cluster.ready(role)["waiting"]] == [kind]
            cluster.database.create(kind)
        cluster.wait(lambda: all(cluster.ready(role)["ready"] for role in ROLES), GOES_ON)

    with site.Site(400, delay=0.05) as served:
        cluster.crawl(served)
        cluster.wait(lambda: cluster.count() > 20, 60)
        drop("resultdb", "result_worker")
        cluster.wait(lambda: "crawl 1 is finished" in cluster.log("scheduler"), 60)
        assert cluster.count() > 0
        drop("projectdb", "scheduler")
        cluster.wait(lambda: "project gen is gone" in cluster.log("scheduler"), GOES_ON)
        drop("taskdb", "scheduler")
        # nothing is known any more: every page is new
        cluster.crawl(served)
        cluster.complete(served)
    for role in ROLES:
        assert "Traceback" not in cluster.log(role)
    cluster.stop()
