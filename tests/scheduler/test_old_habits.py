"""What pyspider's users rely on and no other test of the scheduler is about."""

from typing import Any

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, done

from pyspider_lite.models import Dispatch, Report
from pyspider_lite.scheduler.project_state import AutoPause


@pytest.mark.behaviour("S57")
@pytest.mark.parametrize("fail_num", [0, -1])
def test_the_pause_can_be_switched_off(fail_num: int) -> None:
    pause = AutoPause(fail_num)
    for now in range(1000):
        pause.record(False, float(now))
        assert not pause.paused(float(now))


@pytest.mark.behaviour("S9", "S80")
@pytest.mark.parametrize("group", ["delete", "Old, DELETE", "a-delete"])
def test_stopped_projects_of_a_group_are_deleted_after_a_day(crawl: Crawl, group: str) -> None:
    crawl.project("p", group=group)
    crawl.project("kept", group="deleted")
    for name in ("p", "kept"):
        crawl.change(name, status="STOP")
    crawl.step(after=86_000)
    assert crawl.projectdb.get("p") is not None
    crawl.step(after=1_000)
    crawl.step()
    assert crawl.projectdb.get("p") is None and crawl.projectdb.get("kept") is not None


@pytest.mark.behaviour("H60")
def test_on_start_keeps_its_save(crawl: Crawl) -> None:
    seen: list[Any] = []

    def on_start(task: Dispatch) -> Report:
        seen.append(task.track.get("save"))
        return replace(done(task), track={"fetch": {}, "process": {"ok": True}, "save": {"runs": len(seen)}})

    crawl.project()
    crawl.pages["on_start"] = on_start
    for run in ("1", "2", "3"):
        crawl.start(run=run)
        crawl.crawl(3.0)
    assert seen == [None, {"runs": 1}, {"runs": 2}]
