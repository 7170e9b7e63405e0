"""`cluster` on real daemons: a crawl that is paused and goes on, workers that drain and stop, a stand-by that takes over."""

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyspider_lite import configuration
from pyspider_lite.cli.cluster import look
from pyspider_lite.cli.cluster_view import as_records
from pyspider_lite.errors import ConfigError

pytestmark = pytest.mark.e2e

SCRIPT = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range(300):
            self.crawl(f"data:,{number}", callback=self.page)

    def page(self, response):
        return {"text": response.text}
"""


class Daemons:
    """Processes beside `all`, each started as a user starts it."""

    def __init__(self, suite: Any) -> None:
        self.suite = suite
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, role: str) -> subprocess.Popen[bytes]:
        with open(self.suite.folder / f"{role}.log", "ab") as log:
            process = subprocess.Popen(self.suite.words(role), stdout=log, stderr=log, cwd=self.suite.folder)
        self.processes.append(process)
        return process


@pytest.fixture
def suite(make_suite: Callable[..., Any]) -> Any:
    suite = make_suite(all={"fetcher_num": 2})
    suite.start()
    suite.wait(lambda: len(listed(suite)) == 5, 20)
    return suite


@pytest.fixture
def daemons(suite: Any) -> Iterator[Daemons]:
    daemons = Daemons(suite)
    yield daemons
    for process in daemons.processes:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def records(suite: Any) -> list[dict[str, Any]]:
    """What `cluster list --format jsonl` prints, without a process for each look; [] while there is no database."""
    try:
        return list(as_records(look(configuration.load(str(suite.config), {}, {}).settings)))
    except ConfigError:
        return []


def listed(suite: Any, role: str = "", state: str = "") -> list[dict[str, Any]]:
    workers = [record for record in records(suite) if record["type"] == "worker" and record["state"] != "silent"]
    return [row for row in workers if role in ("", row["role"]) and state in ("", row["state"])]


def leader(suite: Any) -> str | None:
    return next((record["holder"] for record in records(suite) if record["type"] == "leader"), None)


def test_pause_drain_resume(suite: Any) -> None:
    suite.command("cluster", "list")
    assert "processor" in suite.command("cluster", "drain", "processor")
    assert suite.command("cluster", "pause", "fetcher").count(": paused\n") == 2
    out = suite.command("cluster", "list", code=1)
    assert "missing: all fetchers are paused\nmissing: all processors are paused\n" in out
    assert suite.command("cluster", "resume", "processor").endswith(": at work\n")
    suite.push("shop", SCRIPT)
    # on_start needs no fetcher; its pages wait
    suite.wait(lambda: "all fetchers are paused; tasks given out: " in suite.log.read_text(), 30)
    assert suite.results("shop") == []
    one, two = [row["worker"] for row in listed(suite, "fetcher", "paused")]
    assert suite.command("cluster", "resume", one) == f"fetcher {one}: at work\n"
    suite.wait(lambda: suite.finished("shop"))
    assert len(suite.results("shop")) == 300
    suite.wait(lambda: "a fetcher is at work again" in suite.log.read_text(), 10)
    assert [row["worker"] for row in listed(suite, "fetcher", "paused")] == [two]
    assert suite.command("cluster", "drain", two) == f"fetcher {two}: drained, nothing in hand\n"
    assert suite.command("cluster", "resume", two, one).count(": at work\n") == 2
    suite.command("cluster", "pause", "scheduler", code=2)


def test_stop_and_take_over(suite: Any, daemons: Daemons) -> None:
    fetcher, spare = daemons.start("fetcher"), daemons.start("scheduler")
    suite.wait(lambda: len(listed(suite)) == 7, 20)
    (own,) = [row for row in listed(suite, "fetcher") if row["pid"] == fetcher.pid]
    assert own["notes"] == []
    assert suite.command("cluster", "stop", own["worker"]) == f"fetcher {own['worker']}: stopped\n"
    assert fetcher.wait(10) == 0, "supervisor leaves it stopped"

    (first,) = listed(suite, "scheduler", "leading")
    (second,) = listed(suite, "scheduler", "standing by")
    assert second["pid"] == spare.pid and str(leader(suite)).startswith(first["worker"])
    assert suite.command("cluster", "stop", first["worker"]) == f"scheduler {first['worker']}: stopped\n"
    suite.wait(lambda: str(leader(suite)).startswith(second["worker"]), 15)
    # `all` leaves its own stopped, as supervisor does
    suite.wait(lambda: len(listed(suite, "fetcher", "at work")) == 2, 15)
    suite.wait(lambda: suite.children("scheduler") == [], 15)
    assert suite.command("cluster", "stop", second["worker"]) == f"scheduler {second['worker']}: stopped\n"
    assert spare.wait(15) == 0
