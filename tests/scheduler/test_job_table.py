"""Jobs by the clock, as a table: interval or crontab x how long nobody led x grace x max_instances x a run under way x how the run
ends. The expected values come from arithmetic on the ticks, not from the code. Single cases are in `test_clockwork.py`, changes of
the clocks in `test_cron.py`."""

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, done, new

from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.project import JobState
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import TaskStatus

HOUR, DAY = 3_600, 86_400
#: projects are stamped with the real time, so the counted clock is ahead of it
BEGIN = 70_000 * DAY
#: each has a tick each hour, on the hour
HOURLY: dict[str, dict[str, Any]] = {
    "interval": {"every": HOUR},
    "crontab": {"cron": "0 * * * *"},
    "zone": {"cron": "0 * * * *", "tz": "Asia/Shanghai"},
}
AWAY = {"before-the-tick": HOUR / 2, "over-one": HOUR + 40, "over-three": 3 * HOUR + 40}
GRACES = {"none": None, "within": 60.0, "outside": 30.0}


def begin(crawl: Crawl, *jobs: dict[str, Any], at: float) -> None:
    crawl.info["p"] = {"jobs": [{"name": "job", **job} for job in jobs]}
    crawl.project()
    crawl.now = at
    take_over(crawl, at)


def take_over(crawl: Crawl, at: float) -> None:
    """Another scheduler leads from then on; nobody did before."""
    crawl.now = at - 0.1
    crawl.lead()
    crawl.ready("p")


def ticks(crawl: Crawl, name: str = "job") -> list[int]:
    saves = [task.fetch["save"] for task in crawl.given if task.process.get("callback") == "_on_cronjob"]
    return [save["tick"] for save in saves if save["job"] == name]


def record(crawl: Crawl, name: str = "job") -> JobState:
    """The record as it is stored."""
    (state,) = [state for state in crawl.taskdb.project_states()["p"].jobs if state.job.name == name]
    return state


def failing(run: Dispatch) -> Report:
    track = {"fetch": {}, "process": {"ok": False, "exception": "Traceback\nValueError: no"}, "save": {}}
    return replace(done(run), ok=False, track=track)


@pytest.mark.behaviour("S60", "S61", "H33")
@pytest.mark.parametrize(("kind", "away", "grace"), list(product(HOURLY, AWAY, GRACES)))
def test_what_was_missed(crawl: Crawl, kind: str, away: str, grace: str) -> None:
    begin(crawl, {**HOURLY[kind], "max_instances": 1, "misfire_grace": GRACES[grace]}, at=BEGIN + 0.5)
    # a first leader that did nothing, a second one after a while, a third at once
    for at in (BEGIN + AWAY[away], BEGIN + AWAY[away] + 1):
        take_over(crawl, at)
        crawl.crawl(0.5)
    passed = int(AWAY[away] // HOUR)
    runs = passed > 0 and grace != "outside"
    assert ticks(crawl) == [BEGIN + passed * HOUR] * runs
    kept = record(crawl)
    assert (kept.tick, kept.error) == (BEGIN + passed * HOUR if runs else 0, "")
    assert kept.missed == (passed - 1 if runs else passed)
    if kept.missed:
        assert kept.missed_tick == BEGIN + (passed - runs) * HOUR
        assert kept.missed_why == (
            "made up for by the next" if runs else "it is 40 s late, more than its misfire_grace"
        )
    # the next one is on time, and the only one
    crawl.now = BEGIN + (passed + 1) * HOUR - 1
    crawl.crawl(5)
    assert ticks(crawl)[runs:] == [BEGIN + (passed + 1) * HOUR]
    assert record(crawl).tick == BEGIN + (passed + 1) * HOUR


@pytest.mark.behaviour("S60")
@pytest.mark.parametrize(("most", "restart", "fails"), list(product((1, 2, 10), (False, True), (False, True))))
def test_while_a_run_is_under_way(crawl: Crawl, most: int, restart: bool, fails: bool) -> None:
    """No more of them wait or run than the job allows, also for the next leader; the end of one makes room, well or not."""
    begin(crawl, {"every": 10, "max_instances": most}, at=BEGIN + 0.5)
    for _ in range(35):
        crawl.step(after=1)
    under_way = crawl.controls()
    assert ticks(crawl) == [BEGIN + 10, BEGIN + 20, BEGIN + 30][:most]
    crawl.now = BEGIN + 36
    if restart:
        crawl.lead()
        crawl.step()
        # the new leader heard of no worker that has them
        again = crawl.controls()
        assert [task.control for task in again] == [task.control for task in under_way]
        under_way = again
    for _ in range(5):
        crawl.step(after=1)
    left_out = max(0, 4 - most)
    assert record(crawl).missed == left_out
    if left_out:
        assert record(crawl).missed_why == f"max_instances is {most}, and {most} waited or ran already"
    crawl.step(*[failing(task) if fails else done(task) for task in under_way])
    assert record(crawl).error == ("ValueError: no" if fails else "")
    crawl.crawl(10)
    assert ticks(crawl)[-1] == BEGIN + 50
    assert record(crawl).missed == left_out


@pytest.mark.behaviour("S60")
def test_a_job_that_fails_stops_no_other_and_does_not_stop_itself(crawl: Crawl) -> None:
    begin(crawl, {"name": "bad", "every": 10}, {"name": "good", "every": 10}, at=BEGIN + 0.5)
    crawl.pages["_on_cronjob"] = lambda run: (
        failing(run) if run.fetch["save"]["job"] == "bad" else done(run, follows=[new("t", schedule={"age": 10})])
    )
    crawl.crawl(25)
    assert ticks(crawl, "bad") == ticks(crawl, "good") == [BEGIN + 10, BEGIN + 20]
    assert [record(crawl, name).error for name in ("bad", "good")] == ["ValueError: no", ""]
    assert crawl.task("t").run == 3  # ended, entered again, ended: at each tick
    # what is wrong with a job is no reason to pause the project's pages
    assert crawl.task("t").status == TaskStatus.SUCCESS


# --- a grace holds wherever a tick waits ------------------------------------------------------------------------------


def given(crawl: Crawl) -> list[dict[str, Any]]:
    return [task.fetch["save"] for task in crawl.controls() if task.process.get("callback") == "_on_cronjob"]


@pytest.mark.parametrize(("grace", "latest"), [(None, None), (0, 2), (1, 2), (60, 60), (0.5e9, 0.5e9)])
@pytest.mark.parametrize("waits_for", ["room", "a scheduler", "its project"])
def test_a_tick_that_waits_keeps_its_grace(
    crawl: Crawl, grace: float | None, latest: float | None, waits_for: str
) -> None:
    """Who runs it is told until when it may begin (`BaseHandler._on_cronjob` looks at that), however it came to wait."""
    begin(crawl, {"every": HOUR, "misfire_grace": grace}, at=BEGIN + HOUR - 1.5)
    crawl.pages_out.space = 0
    for _ in range(3):
        crawl.step(after=1)
    assert given(crawl) == []
    if waits_for == "a scheduler":
        take_over(crawl, BEGIN + HOUR + 600)
    elif waits_for == "its project":
        crawl.change("p", status="STOP")
        crawl.step()
        crawl.now = BEGIN + HOUR + 600
        crawl.change("p", status="RUNNING")
    crawl.pages_out.space = 100
    crawl.step()
    runs = given(crawl) or [task.fetch["save"] for task in crawl.given if task.process["callback"] == "_on_cronjob"]
    wanted = {"tick": BEGIN + HOUR, "job": "job"}
    assert runs == [wanted if latest is None else {**wanted, "latest": BEGIN + HOUR + latest}]


def test_what_was_left_out_when_it_was_to_begin_counts_as_missed(crawl: Crawl) -> None:
    begin(crawl, {"every": 10, "misfire_grace": 5}, at=BEGIN + 0.5)
    crawl.pages["_on_cronjob"] = lambda run: done(run, info={"left_out": "it is 9 s late, more than its misfire_grace"})
    crawl.crawl(11)
    kept = record(crawl)
    assert (kept.tick, kept.ended, kept.missed, kept.missed_tick) == (0, 0, 1, BEGIN + 10)
    assert kept.missed_why == "it is 9 s late, more than its misfire_grace"


# --- what the script says ---------------------------------------------------------------------------------------------


def test_records_follow_the_script(crawl: Crawl) -> None:
    """A changed job keeps its record, one that is gone loses it, a new one begins with nothing."""
    begin(crawl, {"name": "a", "every": 10}, {"name": "b", "every": 10}, at=BEGIN + 0.5)
    crawl.crawl(11)
    crawl.info["p"] = {"jobs": [{"name": "b", "every": HOUR}, {"name": "c", "every": HOUR}]}
    crawl.change("p", script="v2")
    crawl.crawl(3)
    kept = {state.job.name: (state.job.every, state.tick) for state in crawl.taskdb.project_states()["p"].jobs}
    assert kept == {"b": (HOUR, BEGIN + 10), "c": (HOUR, 0)}
    crawl.info["p"] = {"jobs": []}
    crawl.change("p", script="v3")
    crawl.crawl(3)
    assert crawl.taskdb.project_states()["p"].jobs == []


# --- age and period ---------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("X-S4")
@pytest.mark.parametrize(("age", "page", "restart"), list(product((10, 25, None), ("ok", "fails"), (False, True))))
def test_a_page_of_a_job_each_ten_seconds(crawl: Crawl, age: int | None, page: str, restart: bool) -> None:
    """Age = period skips no tick, whether the page went well or waits for a retry; a longer age skips as many as it covers; without an
    age a page is crawled once, and a retry is waited for (X-K2)."""
    begin(crawl, {"every": 10}, at=BEGIN + 0.5)
    crawled: list[int] = []

    def fetched(run: Dispatch) -> Report:
        crawled.append(int(crawl.now) // 10 * 10 - BEGIN)
        return done(run, ok=page == "ok")

    schedule = {} if age is None else {"age": age}
    crawl.pages = {"_on_cronjob": lambda run: done(run, follows=[new("t", schedule=schedule)]), "http://x/t": fetched}
    for until in (25, 65):
        crawl.crawl(BEGIN + until - crawl.now)
        if restart:
            take_over(crawl, crawl.now + 1)
    wanted = {10: [10, 20, 30, 40, 50, 60], 25: [10, 40], None: [10]}[age]
    # a retry after 30 s, by the default delays, only comes where no tick was before it
    if page == "fails" and age != 10:
        wanted = sorted({*wanted, 40})
    assert crawled == wanted
