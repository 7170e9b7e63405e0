"""The simulation of a large cluster, small: the real scheduler, twenty fetchers and processors, a counted clock."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspider_lite.bench.simulation.__main__ import main
from pyspider_lite.bench.simulation.counted import Run, simulate
from pyspider_lite.bench.simulation.crowd import Cluster
from pyspider_lite.bench.simulation.tally import Sample, Tally, lines, shares

CLUSTER = Cluster(fetchers=20, processors=20, result_workers=2, poolsize=20, page_seconds=(0.1, 0.5))


def test_a_rate_is_kept_and_everything_is_done_once(tmp_path: Path) -> None:
    figures = simulate(tmp_path, Run(cluster=CLUSTER, rate=500, pages=2_000, speed=float("inf")))
    assert figures["problems"] == ""
    assert figures["given_out_again"] == figures["leases_lost"] == 0
    assert figures["pages_per_s"] == pytest.approx(500, rel=0.1)
    # the budget: twice the places of all fetchers
    assert figures["in_flight"]["most"] <= 2 * 20 * 20
    assert figures["projects"] == {"least": 1.0, "most": 1.0}
    assert figures["fetchers"]["least"] > 0.3
    assert figures["cpu_ms_page"] > 0 and figures["status_bytes_page"] > 100
    assert figures["latency_ms"]["p50"] <= 30


def test_what_dead_workers_had_is_given_out_again_and_nothing_is_lost(tmp_path: Path) -> None:
    run = Run(cluster=CLUSTER, rate=300, pages=1_200, projects=1, speed=float("inf"), deaths=0.1)
    figures = simulate(tmp_path, run)
    assert figures["problems"] == "" and figures["killed"] == 4
    assert 0 < figures["given_out_again"] == figures["leases_lost"]
    # three beats, and the next step
    assert 4 < figures["given_out_again_within_s"] < 10


def test_nobody_is_taken_for_dead_because_the_broker_was_away(tmp_path: Path) -> None:
    run = Run(cluster=CLUSTER, rate=300, pages=900, projects=1, speed=float("inf"), outage=15)
    figures = simulate(tmp_path, run)
    assert figures["problems"] == "" and figures["given_out_again"] == 0
    assert figures["simulated_seconds"] > 15


def test_the_command_prints_a_table_and_writes_a_file(tmp_path: Path) -> None:
    size = ["--fetchers", "3", "--processors", "2", "--result-workers", "1", "--poolsize", "20"]
    words = [*size, "--rate", "200", "--pages", "150", "--projects", "1", "--speed", "inf"]
    made = CliRunner().invoke(main, [*words, "--json", str(tmp_path / "out.json")], standalone_mode=False)
    assert made.exception is None and made.return_value == 0
    assert "| pages per s | " in made.output
    assert '"problems": ""' in (tmp_path / "out.json").read_text()


def test_figures_are_of_the_middle_of_a_run() -> None:
    # a slow start and a slow end
    samples = [
        Sample(0.0, 0.0, 0, 0, 0),
        Sample(50.0, 3.0, 10, 10, 1),
        Sample(58.0, 7.0, 90, 90, 5),
        Sample(90.0, 9.0, 100, 100, 6),
    ]
    figures = Tally(samples=samples, taken=[5], latencies=[0.01, 0.02, 0.5]).figures(pages=100, places=10)
    assert figures["pages_per_s"] == 10.0 and figures["cpu_ms_page"] == 50.0 and figures["cpu_percent"] == 50.0
    assert figures["tasks_batch"] == 20.0 and figures["places_taken_percent"] == 50.0
    assert figures["latency_ms"] == {"p50": 20.0, "p99": 500.0}


def test_shares_are_of_the_median() -> None:
    assert shares([50, 100, 120]) == {"least": 0.5, "most": 1.2}
    assert lines({"pages": 1_000, "fetchers": {"least": 0.5}, "problems": "x"})[2:] == [
        "| pages | 1,000 |",
        "| fetchers | least 0.5 |",
    ]
