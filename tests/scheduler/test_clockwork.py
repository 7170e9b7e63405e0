"""Jobs by the clock and retries, by a scheduler with a counted clock: takeovers, stalls, ages, attempts."""

from typing import Any

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, done, new

from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask, TaskStatus

DAY = 86_400
#: midnight of some day to come: projects are stamped with the real time
MIDNIGHT = 70_000 * DAY


def job(name: str = "job", **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


def begin(crawl: Crawl, *jobs: dict[str, Any], at: float, **info: Any) -> None:
    """A project with these jobs, and its scheduler, from this time on."""
    crawl.info["p"] = {"jobs": list(jobs), **info}
    crawl.project()
    crawl.now = at
    crawl.lead()
    crawl.ready("p")
    crawl.crawl(1)


def take_over(crawl: Crawl, at: float) -> None:
    """Nobody leads until then."""
    crawl.now = at
    crawl.lead()
    crawl.ready("p")


def ran(crawl: Crawl) -> list[tuple[str, int]]:
    """The jobs that were given out and their ticks."""
    runs = [task for task in crawl.given if task.process.get("callback") == "_on_cronjob"]
    return [(task.fetch["save"]["job"], task.fetch["save"]["tick"]) for task in runs]


def enters(task: NewTask) -> Any:
    return lambda run: done(run, follows=[task])


def failing(run: Dispatch, status_code: int = 500) -> Report:
    return replace(
        done(run), ok=False, track={"fetch": {"status_code": status_code}, "process": {"ok": False}, "save": {}}
    )


# --- jobs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S60", "S61")
@pytest.mark.parametrize("away", [60, 3 * 3600, 40 * DAY])
def test_ticks_that_nobody_was_there_for_are_made_up_once(crawl: Crawl, away: int) -> None:
    """Also of a job that never ran before."""
    nightly = job("nightly", cron="0 0 * * *")
    begin(crawl, nightly, job("often", every=20), at=MIDNIGHT - 30.5)
    before = ran(crawl)
    take_over(crawl, MIDNIGHT - 30 + away)
    crawl.crawl(1)
    now = int(crawl.now)
    assert before == []
    assert ran(crawl) == sorted([("nightly", now // DAY * DAY), ("often", now // 20 * 20)], key=lambda run: run[1])
    # and not once more
    take_over(crawl, crawl.now + 1)
    crawl.crawl(1)
    assert len(ran(crawl)) == 2


def test_a_takeover_between_two_ticks_runs_nothing(crawl: Crawl) -> None:
    begin(crawl, job(cron="0 0 * * *"), at=MIDNIGHT - 5)
    crawl.crawl(6)
    take_over(crawl, MIDNIGHT + 3600)
    crawl.crawl(1)
    assert ran(crawl) == [("job", MIDNIGHT)]


@pytest.mark.parametrize(("away", "runs"), [(59, 1), (61, 0)])
def test_what_was_missed_by_more_than_the_grace_is_left_out(crawl: Crawl, away: int, runs: int) -> None:
    begin(crawl, job(cron="0 0 * * *", misfire_grace=60), at=MIDNIGHT - 10)
    take_over(crawl, MIDNIGHT + away - 0.1)
    crawl.crawl(1)
    assert len(ran(crawl)) == runs
    # the next one is on time
    crawl.now = MIDNIGHT + DAY - 1
    crawl.crawl(3)
    assert ran(crawl)[runs:] == [("job", MIDNIGHT + DAY)]


def test_a_grace_of_nothing_still_runs_on_time(crawl: Crawl) -> None:
    begin(crawl, job(every=10, misfire_grace=0), at=MIDNIGHT + 0.5)
    crawl.crawl(20, step=0.7)
    assert [tick - MIDNIGHT for _, tick in ran(crawl)] == [10, 20]


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_runs_wait_than_the_job_allows(crawl: Crawl, most: int) -> None:
    begin(crawl, job(every=10, max_instances=most), job("other", every=60), at=MIDNIGHT + 0.5)
    for _ in range(65):
        crawl.step(after=1)
    waiting = crawl.controls()
    assert [name for name, _ in ran(crawl)] == ["job"] * most + ["other"]
    # one that ended makes room
    crawl.step(*[done(task) for task in waiting])
    crawl.crawl(10)
    assert ran(crawl)[-1] == ("job", MIDNIGHT + 70)


def test_a_new_job_does_not_make_up_for_what_was_before_it(crawl: Crawl) -> None:
    begin(crawl, job(cron="0 0 * * *"), at=MIDNIGHT + 10 * 3600)
    crawl.info["p"] = {"jobs": [job("added", cron="0 9 * * *")]}
    crawl.change("p", script="v2")
    crawl.crawl(3)
    assert ran(crawl) == []
    crawl.now = MIDNIGHT + DAY + 9 * 3600 - 1
    crawl.crawl(3)
    assert ran(crawl) == [("added", MIDNIGHT + DAY + 9 * 3600)]


def test_jobs_that_cannot_be_read_here_do_not_stop_the_others(crawl: Crawl) -> None:
    begin(crawl, job("bad", cron="0 0 * *"), job("worse", every="x"), job(every=5), at=MIDNIGHT + 1)
    crawl.crawl(5)
    assert ran(crawl) == [("job", MIDNIGHT + 5)]


@pytest.mark.parametrize("period", [job(every=DAY), job(cron="0 2 * * *", tz="Asia/Shanghai")])
def test_an_age_of_the_period_skips_no_run(crawl: Crawl, period: dict[str, Any]) -> None:
    """UA20: pyspider crawled such a page every other day, by seconds."""
    begin(crawl, period, at=MIDNIGHT - 7 * 3600)
    crawl.pages["_on_cronjob"] = enters(new("t", schedule={"age": DAY}))
    crawled = []
    for day in range(4):
        crawl.now = MIDNIGHT + day * DAY - 6 * 3600 - 1 if "cron" in period else MIDNIGHT + day * DAY - 1
        crawl.crawl(2)
        # the run of each day is quicker than that of the day before
        crawl.crawl(1)
        crawled.append(crawl.task("t").run)
    assert crawled == [1, 3, 5, 7]


def test_a_job_enters_a_page_again_that_waits_for_a_retry(crawl: Crawl) -> None:
    begin(crawl, job(every=600), at=MIDNIGHT + 590, retry_delay={"": DAY})
    crawl.pages = {"_on_cronjob": enters(new("t", schedule={"age": 600})), "http://x/t": failing}
    crawl.crawl(10)
    assert crawl.task("t").schedule["retried"] == 1
    crawl.pages["http://x/t"] = done
    crawl.now = MIDNIGHT + 1199
    crawl.crawl(3)
    assert crawl.task("t").status == TaskStatus.SUCCESS


# --- retries ------------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S42", "X-S4")
@pytest.mark.parametrize("age", [None, -1, 0, 5])
def test_delays_are_those_of_the_handler_whatever_the_age(crawl: Crawl, age: int | None) -> None:
    crawl.info["p"] = {"retry_delay": {"0": 10, "": 100}}
    crawl.project()
    crawl.ready("p")
    crawl.pages["http://x/t"] = failing
    crawl.submit(new("t", schedule={} if age is None else {"age": age}))
    waits = []
    for _ in range(3):
        crawl.crawl(1)
        task = crawl.task("t")
        assert task.due is not None and task.lastcrawltime is not None
        waits.append(round(task.due - task.lastcrawltime))
        crawl.now = task.due
    crawl.crawl(1)
    assert waits == [10, 100, 100]
    assert crawl.task("t").status == TaskStatus.FAILED


@pytest.mark.parametrize(("status", "retries"), [(404, 0), (503, 5), (500, 3), (599, 1)])
def test_retries_by_status(crawl: Crawl, status: int, retries: int) -> None:
    crawl.info["p"] = {"retry_delay": {"": 1}}
    crawl.project()
    crawl.ready("p")
    crawl.pages["http://x/t"] = lambda run: failing(run, status)
    crawl.submit(new("t", schedule={"retry_status": {"404": 0, "503": 5, "599": 1}}))
    crawl.crawl(12)
    assert crawl.task("t").status == TaskStatus.FAILED
    assert crawl.task("t").schedule.get("retried", 0) == retries
    assert crawl.events("retry") == retries


@pytest.mark.behaviour("S42")
def test_a_link_that_nobody_can_fetch_ends_at_once(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    track = {"fetch": {"status_code": 599, "error_kind": "invalid-url"}, "process": {"ok": False}, "save": {}}
    crawl.pages["http://x/t"] = lambda run: replace(done(run), ok=False, track=track)
    crawl.submit(new("t"))
    crawl.crawl(3)
    assert (crawl.task("t").status, crawl.task("t").due) == (TaskStatus.FAILED, None)
    assert crawl.events("retry") == 0


@pytest.mark.parametrize("name", ["on_start", "on_finished"])
@pytest.mark.parametrize("failures", [1, 3, 4])
def test_on_start_and_on_finished_are_retried(crawl: Crawl, name: str, failures: int) -> None:
    runs: list[Dispatch] = []

    def page(run: Dispatch) -> Report:
        runs.append(run)
        return failing(run) if len(runs) <= failures else done(run)

    crawl.info["p"] = {"retry_delay": {"": 5}}
    crawl.project()
    crawl.ready("p")
    crawl.pages = {f"data:,{name}": page}
    crawl.start()
    for _ in range(3):
        crawl.crawl(8, step=0.5)
        # nothing of it is only in memory
        crawl.lead()
        crawl.ready("p")
    crawl.check()
    assert len(runs) == min(failures, 3) + 1
    assert crawl.task(name).status == (TaskStatus.FAILED if failures > 3 else TaskStatus.SUCCESS)
    assert crawl.callbacks().count("on_finished") == 1


def test_running_again_replaces_a_retry_that_waits(crawl: Crawl) -> None:
    crawl.project()
    crawl.pages = {"data:,on_start": failing}
    crawl.start()
    crawl.crawl(2)
    assert crawl.task("on_start").due is not None
    crawl.pages = {}
    crawl.start(run="2")
    crawl.crawl(40, step=0.5)
    crawl.check()
    assert (crawl.task("on_start").status, crawl.task("on_start").due) == (TaskStatus.SUCCESS, None)
    assert crawl.callbacks().count("on_start") == 2
    assert crawl.callbacks().count("on_finished") == 1
