"""Windowed counters (behaviour S70, S87, W4, X-S19, X-M7)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspider_lite.counters import WINDOWS, Counters

SPANS = {"5m": (10, 300), "1h": (60, 3600), "1d": (600, 86400)}


@pytest.mark.behaviour("S70")
@pytest.mark.parametrize("window", SPANS)
def test_an_event_leaves_its_window_after_exactly_its_span(window: str) -> None:
    width, span = SPANS[window]
    counters, now = Counters(), 1_000_200.0 * 600
    counters.event(now, "p", "success", 3)
    assert counters.get(now, window) == {"p": {"success": 3}}
    assert counters.get(now + span - 0.001, window) == {"p": {"success": 3}}
    assert counters.get(now + span, window) == {}
    assert counters.get(now + span + width * 1000, "all") == {"p": {"success": 3}}


@pytest.mark.behaviour("S70")
@given(st.lists(st.tuples(st.floats(0, 90_000), st.integers(-3, 5)), max_size=60))
def test_windows_agree_with_counting_by_hand(events: list[tuple[float, int]]) -> None:
    counters = Counters()
    events.sort()
    for now, n in events:
        counters.event(now, "p", "x", n)
    now = events[-1][0] if events else 0.0
    for window, (width, span) in SPANS.items():
        first = now // width - span // width
        expected = sum(n for at, n in events if at // width > first)
        assert counters.get(now, window).get("p", {}).get("x", 0) == expected
    assert counters.get(now, "all").get("p", {}).get("x", 0) == sum(n for _, n in events)


@pytest.mark.behaviour("S87")
def test_sums_and_averages_on_demand() -> None:
    counters = Counters()
    for seconds in (0.5, 1.5):
        counters.time(0.0, "p", "fetch_time", seconds)
        counters.event(0.0, "p", "success", 3)
    assert counters.get(0.0, "5m_time", average=False) == {"p": {"fetch_time": 2.0}}
    assert counters.get(0.0, "5m_time", average=True) == counters.get(0.0, "5m_time") == {"p": {"fetch_time": 1.0}}
    assert counters.get(0.0, "5m", average=True) == {"p": {"success": 3.0}}
    assert counters.get(0.0, "all", average=True) == {"p": {"success": 6}}


def test_only_so_many_projects_by_name() -> None:
    counters = Counters(max_projects=2)
    for name in ("a", "b", "c", "d", "a"):
        counters.event(0, name, "200")
        counters.time(0, name, "time", 1.0)
    assert counters.get(0, "all") == {"a": {"200": 2}, "b": {"200": 1}, "other": {"200": 2}}


@pytest.mark.behaviour("X-S19")
def test_averages_stay_right_after_a_pause() -> None:
    counters = Counters()
    for _ in range(10):
        counters.time(0.0, "p", "fetch_time", 0.5)
    assert counters.get(0.0, "5m_time") == {"p": {"fetch_time": 0.5}}
    assert counters.get(1000.0, "5m_time") == {}
    counters.time(1000.0, "p", "fetch_time", 0.25)
    counters.time(1001.0, "p", "fetch_time", 0.75)
    assert counters.get(1002.0, "5m_time") == {"p": {"fetch_time": 0.5}}


@pytest.mark.behaviour("S70", "W4")
def test_what_is_zero_is_left_out() -> None:
    counters = Counters()
    counters.event(0, "p", "pending", 1)
    counters.event(0, "p", "success", 1)
    counters.event(1, "p", "pending", -1)
    assert counters.get(1, "5m") == counters.get(1, "all") == {"p": {"success": 1}}
    assert counters.snapshot(1) == {
        "p": {"5m_time": {}, "5m": {"success": 1}, "1h": {"success": 1}, "1d": {"success": 1}, "all": {"success": 1}}
    }
    assert tuple(counters.snapshot(1)["p"]) == WINDOWS


def test_projects_are_apart_and_can_be_dropped() -> None:
    counters = Counters()
    counters.event(0, "a", "success")
    counters.event(0, "b", "failed", 2)
    counters.drop("a")
    counters.drop("never seen")
    assert counters.get(0, "5m") == {"b": {"failed": 2}}


def test_a_clock_that_is_set_back_loses_nothing() -> None:
    counters = Counters()
    counters.event(10_000, "p", "success")
    counters.event(5_000, "p", "success")
    assert counters.get(10_001, "5m") == {"p": {"success": 2}}


@pytest.mark.behaviour("X-M6")
def test_memory_is_bounded() -> None:
    counters = Counters()
    for n in range(3000):
        counters.event(n * 7, "p", f"reason {n}")
        counters.time(n * 7, "p", f"time {n}", 1.0)
    assert sum(counters.get(3000 * 7, "all")["p"].values()) == 3000
    assert len(counters.get(3000 * 7, "all")["p"]) == 101
    for n in range(100_000):
        counters.event(n, "q", "success")
    dump = counters.dump()
    assert len(dump["p"]["5m_time"]) == 100
    assert [len(dump["q"][window]["success"]) for window in ("5m", "1h", "1d")] == [30, 60, 144]


def test_dump_survives_json_and_goes_on() -> None:
    counters = Counters()
    for now in range(0, 4000, 13):
        counters.event(now, "p", "success", now)
        counters.time(now, "p", "fetch_time", 0.5)
    copy = Counters()
    copy.load(json.loads(json.dumps(counters.dump())))
    for each in (counters, copy):
        each.event(4010, "p", "success", 7)
    for now in (4010, 4200, 7300, 90_000):
        assert copy.snapshot(now) == counters.snapshot(now)


@pytest.mark.parametrize("data", [{"p": 1}, {"p": {}}, {"p": {"all": {"x": "y"}}}, [1]])
def test_data_of_another_shape_changes_nothing(data: object) -> None:
    counters = Counters()
    counters.event(0, "p", "success")
    with pytest.raises(ValueError, match="no counters"):
        counters.load(data)  # type: ignore[arg-type]
    assert counters.get(0, "5m") == {"p": {"success": 1}}


def test_an_unknown_window_is_an_error() -> None:
    with pytest.raises(KeyError, match="2h"):
        Counters().get(0, "2h")


@pytest.mark.behaviour("X-M7")
def test_a_project_is_found_without_a_look_at_the_others() -> None:
    counters = Counters()
    counters.event(0.0, "other", "success")
    counters._projects["other"] = None  # type: ignore[assignment]
    counters.event(1.0, "p", "success")
    counters.time(1.0, "p", "fetch_time", 0.5)
    del counters._projects["other"]
    assert counters.get(1.0, "5m") == {"p": {"success": 1}}
