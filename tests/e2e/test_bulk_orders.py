"""`task retry`, `task set` and `task cancel` for 1,000,000 tasks of one project while another is crawled: it takes minutes, not memory, and the
crawl goes on."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite.bench import processes, site
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.database import connect_taskdb
from pyspider_lite.models.project import ProjectState

sys.path.insert(0, str(Path(__file__).parent))
from outage_cluster import Cluster, SqliteFiles, served_by

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(7200)]

TASKS = 1_000_000
#: pages a second of the other project, and seconds that it may stand still
RATE, STILL = 20, 10.0
#: bytes that the command may take, and that the scheduler may grow
COMMAND, GROWTH = 150e6, 60e6
ORDERS = [
    (("retry", "big", "--failed"), "run again", 1),
    (("set", "big", "--all", "--priority", "3"), "given this priority", 1),
    (("cancel", "big", "--all"), "cancelled", 4),
]
SCRIPT = "from pyspider_lite import BaseHandler\nclass Handler(BaseHandler):\n    def page(self, response): pass\n"
#: the numbers 1 to N as column i, a key made of each, and how a column is quoted
_ROWS = {
    "sqlite": (
        "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {0}) SELECT i FROM n) AS s",
        "printf('%032x', i)",
        '"{}"',
    ),
    "mysql": ("(SELECT seq AS i FROM seq_1_to_{0}) AS s", "lower(lpad(hex(i), 32, '0'))", "`{}`"),
}


def fill(url: str, table: str) -> None:
    """Tasks that have failed, as the scheduler would have left them."""
    with closing(connect_taskdb(url)) as taskdb:
        taskdb.open_project("big")
        database: Any = taskdb
        numbers, key, quoted = _ROWS[database._database.dialect]
        values = {
            "taskid": key,
            "project": "'big'",
            "url": "'http://127.0.0.1:1/'",
            "status": "3",
            "schedule": "'{}'",
            "fetch": "'{}'",
            "process": f"'{json.dumps({'callback': 'page'})}'",
            "lastcrawltime": "1.0",
            "updatetime": "1.0",
            "priority": "0",
            "run": "1",
        }
        columns = ", ".join(map(quoted.format, values))
        with database._database.write() as conn:
            conn.exec_driver_sql(
                f"INSERT INTO {table} ({columns}) SELECT {', '.join(values.values())} FROM {numbers.format(TASKS)}"
            )
        with taskdb.begin(None) as tx:
            tx.put_project_states([ProjectState(project="big", failed=TASKS)])


def order(cluster: Cluster, words: tuple[str, ...], asked: Callable[[], int]) -> str:
    """Give it and watch; what it said at its end."""
    began, first = time.monotonic(), asked()
    grown = processes.rss(cluster.daemons["scheduler"].pid)
    with open(cluster.folder / "order.txt", "w+b") as out:
        command = subprocess.Popen(cluster.words("task", *words), stdout=out, cwd=cluster.folder)
        seen, since, longest = first, began, 0.0
        try:
            while command.poll() is None:
                assert processes.rss(command.pid) < COMMAND
                assert processes.rss(cluster.daemons["scheduler"].pid) < grown + GROWTH
                if (now := asked()) != seen:
                    seen, since = now, time.monotonic()
                longest = max(longest, time.monotonic() - since)
                assert longest < STILL
                time.sleep(0.1)
        finally:
            command.kill()
            command.wait()
    took = time.monotonic() - began
    print(f"{words}: {took:.0f} s, {(asked() - first) / took:.1f} pages a second, the longest pause {longest:.1f} s")
    assert asked() - first > took * RATE / 2
    return (cluster.folder / "order.txt").read_text().strip()


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_a_million_tasks_beside_a_crawl(tmp_path: Path, kind: str) -> None:
    database: Any = SqliteFiles(tmp_path) if kind == "sqlite" else MariaDb()
    with served_by(tmp_path, Redis(), database) as cluster, site.Site(50_000, size=500) as served:
        cluster.broker.start()
        if kind == "mariadb":
            database.start()
        fill(database.url("taskdb"), "taskdb_big" if kind == "sqlite" else "big")
        cluster.start()
        (tmp_path / "big.py").write_text(SCRIPT)
        cluster.command("project", "push", "big.py", "--name", "big", "--status", "stop")
        cluster.crawl(served, str(RATE))
        cluster.wait(lambda: cluster.count() > 50, 60)
        for words, said, status in ORDERS:
            outcome = order(cluster, words, lambda: sum(served.requests.values()))
            assert outcome == f"{TASKS} {said}"
            with closing(connect_taskdb(database.url("taskdb"))) as taskdb:
                assert taskdb.status_count("big") == {status: TASKS}
        cluster.stop()
