"""Automatic pause against the recorded table, and when a project wakes up."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite.models.project import ProjectHead, ProjectState
from pyspider_lite.models.task import DueKey
from pyspider_lite.scheduler.project_state import AutoPause, Info, PauseState, ProjectRun

ORACLE = json.loads((Path(__file__).parents[1] / "data/oracle/scheduler.json").read_text())

#: pyspider kept a project paused although a page had just gone well; S56 says that a success frees it at any time
FREED_BY_A_SUCCESS = "success-while-paused"


@pytest.mark.behaviour("S55", "S56")
@pytest.mark.parametrize("row", ORACLE["auto_pause"], ids=lambda row: row["id"])
def test_auto_pause(row: dict[str, Any]) -> None:
    settings = row["settings"]
    pause = AutoPause(
        settings.get("FAIL_PAUSE_NUM", 10),
        pause_time=settings.get("PAUSE_TIME", 300.0),
        check_num=settings.get("UNPAUSE_CHECK_NUM", 3),
    )
    now, freed = 0.0, False
    for event, paused, state in row["steps_event_paused_state"]:
        if event in ("o", "f"):
            pause.record(event == "o", now)
            freed = freed or (row["id"] == FREED_BY_A_SUCCESS and event == "o")
        elif event != "S":  # dispatches do not count
            now += event
        got = (pause.paused(now), str(pause.state))
        assert got == ((False, "free") if freed else (paused, state)), event


def test_a_user_lifts_the_pause() -> None:
    pause = AutoPause(3)
    for _ in range(3):
        pause.record(False, 0.0)
    assert pause.until(1.0) == 300.0
    pause.resume()
    assert not pause.paused(1.0)
    assert pause.until(1.0) == 1.0
    pause.record(False, 1.0)
    assert pause.state is PauseState.FREE


def project(status: str = "RUNNING", rate: float = 1, burst: float = 3, fail_pause_num: int = 2) -> ProjectRun:
    head = ProjectHead(name="p", group=None, status=status, rate=rate, burst=burst, updatetime=0.0, generation="g")
    run = ProjectRun(head, ProjectState(project="p"), window_limit=100, fail_pause_num=fail_pause_num, now=0.0)
    run.window.refill([], None, 100, set().__contains__, 0.0)
    return run


def due(taskid: str, at: float) -> DueKey:
    return DueKey(taskid=taskid, priority=0, due=at, seq=1)


def test_it_sleeps_until_something_may_go() -> None:
    run = project()
    assert run.next_wake(0.0) == math.inf, "the script has not said anything of itself"
    run.info = Info()
    assert run.next_wake(0.0) == math.inf, "there is nothing to do"
    run.window.add(due("t", 50.0), 0.0)
    assert run.next_wake(0.0) == 50.0
    run.window.add(due("u", 0.0), 0.0)
    assert run.next_wake(0.0) == 0.0
    run.bucket.take(3)
    assert run.next_wake(0.0) == pytest.approx(1.0, abs=0.01)
    run.pause.record(False, 0.0)
    run.pause.record(False, 0.0)
    assert run.next_wake(0.0) == 300.0


@pytest.mark.behaviour("S8")
@pytest.mark.parametrize("status", ["TODO", "STOP", "CHECKING", "something else"])
def test_only_debug_and_running_are_worked_on(status: str) -> None:
    run = project(status)
    run.info = Info()
    run.window.add(due("t", 0.0), 0.0)
    assert not run.selectable(0.0)
    assert run.next_wake(0.0) == math.inf


@pytest.mark.behaviour("X-S16")
def test_finished() -> None:
    """S50, UA22: periodic work aside."""
    run = project()
    assert run.finished
    run.counts = ProjectState(project="p", active=2, periodic=1)
    assert not run.finished
    run.counts = ProjectState(project="p", active=1, periodic=1, success=5)
    assert run.finished
