"""Work that nobody takes is said once, with the reason."""

import pytest

from pyspider_lite.models.worker import Beat
from pyspider_lite.scheduler.leases import Leases
from pyspider_lite.scheduler.presence import Presence


def beat(leases: Leases, role: str, state: str = "", pool: int = 100) -> None:
    leases.beat(Beat(worker=f"{role}:1", role=role, host="web", pid=1, state=state, pool_size=pool))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return messages


def test_who_is_missing_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    leases, presence = Leases(), Presence()
    for second in range(30):
        presence.look(second, leases)
    assert said(caplog) == [], "nothing waits"
    leases.dispatch("b", "scheduler2fetcher", [(("shop", "t", 0), None, 60.0)])
    beat(leases, "processor")
    for second in range(30, 60):
        presence.look(second, leases)
    assert said(caplog) == ["no fetcher is running; tasks given out: 1"]
    beat(leases, "fetcher", "paused")
    for second in range(60, 90):
        presence.look(second, leases)
    assert said(caplog) == ["all fetchers are paused; tasks given out: 1"]
    beat(leases, "fetcher")
    for second in range(90, 120):
        presence.look(second, leases)
    assert said(caplog) == ["a fetcher is at work again"]


def test_who_is_paused_has_no_share() -> None:
    leases = Leases()
    beat(leases, "fetcher", pool=7)
    assert leases.pool_sizes("fetcher") == [7]
    for state in ("paused", "draining", "drained", "stopping"):
        beat(leases, "fetcher", state)
        assert leases.pool_sizes("fetcher") == []
