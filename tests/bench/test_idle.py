"""What an idle system costs: real daemons with played workers beside them, few and for a short time."""

from pathlib import Path

import pytest

from pyspider_lite.bench.measures import idle
from pyspider_lite.bench.suite import ALL, CLUSTERS
from pyspider_lite.models.names import Role


def test_played_workers_are_workers_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "_LOOK", 1.0)
    played = dict.fromkeys(idle.PLAYED, 2)
    figures = idle.measure(tmp_path, CLUSTERS[0], 0, played, 4.0)
    assert figures["problems"] == "" and figures["workers"] == 9
    # what is counted as ours is the real ones
    assert {"scheduler", "fetcher", "processor", "result_worker"} <= figures["roles_percent"].keys()
    # each beats every 2 s and waits for orders and work for 3 s at a time
    assert 9 * (1 / 2 + 2 / 3) * 0.5 < figures["broker_commands_per_s"] < 60


def test_the_crowd_makes_a_hundred_workers() -> None:
    assert idle.WORKERS == 100
    names = [subject.name for subject in idle.subjects(Path(), (ALL, CLUSTERS[0]), None)]
    assert names == ["idle all", "idle all 1000 projects", "idle redis+mariadb", "idle redis+mariadb 100 workers"]
    assert set(idle.PLAYED) == {Role.FETCHER, Role.PROCESSOR, Role.RESULT_WORKER}
