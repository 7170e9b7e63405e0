"""When jobs run, by a counted clock: intervals and crontab expressions, clocks that change, ticks that were missed."""

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from pyspider_lite import cron
from pyspider_lite.models.project import CronJob

BERLIN = "Europe/Berlin"
HOUR, DAY = 3_600, 86_400


def second(text: str, tz: str = "UTC") -> int:
    """The Unix second of a wall clock; of two, that of the first."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp())


def shown(ticks: list[float], tz: str) -> list[str]:
    return [datetime.fromtimestamp(tick, ZoneInfo(tz)).strftime("%d %H:%M%z") for tick in ticks]


def following(job: CronJob, after: float, count: int) -> list[float]:
    ticks = []
    for _ in range(count):
        after = cron.next_tick(job, after)
        ticks.append(after)
    return ticks


def daily(text: str, tz: str = "UTC") -> CronJob:
    return CronJob(name="job", cron=text, tz=tz)


def test_a_job_runs_at_its_hour_in_its_zone() -> None:
    job = daily("0 2 * * *", "Asia/Shanghai")
    assert cron.next_tick(job, second("2024-05-01T12:00")) == second("2024-05-01T18:00")
    assert cron.next_tick(job, second("2024-05-01T18:00")) == second("2024-05-02T18:00")
    assert cron.next_tick(job, second("2024-05-01T18:00") - 0.5) == second("2024-05-01T18:00")


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        # clocks go from 02:00 to 03:00 on the 31st
        ("30 2 * * *", ["30 02:30+0100", "31 03:00+0200", "01 02:30+0200"]),
        ("0 3 * * *", ["30 03:00+0100", "31 03:00+0200", "01 03:00+0200"]),
        ("0 0 * * *", ["30 00:00+0100", "31 00:00+0100", "01 00:00+0200"]),
    ],
)
def test_a_time_that_does_not_exist_comes_right_after_the_gap(text: str, ticks: list[str]) -> None:
    assert shown(following(daily(text, BERLIN), second("2024-03-29T12:00"), 3), BERLIN) == ticks


def test_each_hour_is_each_hour_in_spring_and_autumn() -> None:
    job = daily("0 * * * *", BERLIN)
    for day in ("2024-03-31T00:00", "2024-10-27T00:00"):
        ticks = following(job, second(day, BERLIN), 6)
        assert {late - early for early, late in pairwise(ticks)} == {HOUR}


@pytest.mark.parametrize("start", ["2024-10-26T12:00", "2024-10-27T00:31", "2024-10-27T02:29"])
def test_a_time_that_comes_twice_runs_once(start: str) -> None:
    """Clocks go from 03:00 back to 02:00."""
    first = cron.next_tick(daily("30 2 * * *", BERLIN), second(start, BERLIN))
    assert shown([first], BERLIN) == ["27 02:30+0200"]
    # asked for in any second of the next hour, also the repeated one
    for after in range(0, 2 * HOUR, 600):
        assert shown([cron.next_tick(daily("30 2 * * *", BERLIN), first + after)], BERLIN) == ["28 02:30+0100"]


def test_the_newest_tick_is_that_which_came_last() -> None:
    """newest_tick agrees with counting on by next_tick, over both changes of the clocks."""
    jobs = [daily("30 2 * * *", BERLIN), daily("*/20 1-3 * * *", BERLIN), daily("15 * * * *", BERLIN)]
    for start in (second("2024-03-30T20:00"), second("2024-10-26T20:00")):
        for job in jobs:
            newest = None
            for now in range(start, start + 12 * HOUR, 300):
                if cron.next_tick(job, now - 300) <= now:
                    newest = int(cron.next_tick(job, now - 300))
                assert cron.newest_tick(job, start - 300, now) == newest, (job.cron, now)


@pytest.mark.parametrize(
    ("text", "now", "newest"),
    [
        ("* * * * *", "2024-05-01T12:00", "2024-05-01T12:00"),
        ("0 2 * * *", "2024-05-01T01:59", "2024-04-30T02:00"),
        ("0 0 1 1 *", "2024-12-31T00:00", "2024-01-01T00:00"),
        ("0 0 29 2 *", "2027-12-31T00:00", "2024-02-29T00:00"),
        ("0 9 * * mon-fri", "2024-05-05T12:00", "2024-05-03T09:00"),
    ],
)
def test_a_long_time_without_a_scheduler_costs_one_tick(text: str, now: str, newest: str) -> None:
    assert cron.due([daily(text)], 0, second(now)) == [(second(newest), daily(text))]


@pytest.mark.behaviour("X-S21")
def test_after_a_stall_each_job_has_its_newest_tick() -> None:
    jobs = [CronJob(name=str(every), every=every) for every in (60, 300, 3600)]
    assert [(tick, job.name) for tick, job in cron.due(jobs, 0, 3599.9)] == [
        (3300, "300"),
        (3540, "60"),
    ]
    assert [tick for tick, _ in cron.due(jobs, 0, 3600)] == [3600] * 3
    assert cron.due([CronJob(every=60)], 3600, 3600.5) == []
    assert cron.due([], 0, 1e9) == []


@pytest.mark.parametrize(
    ("job", "after", "until", "counted"),
    [
        (CronJob(every=60), 0, 59, 0),
        (CronJob(every=60), 0, 60, 1),
        (CronJob(every=60), 60, 299.5, 3),
        (CronJob(every=1), 0, 1e9, 100),
        (daily("0 2 * * *"), 0, 10 * DAY, 10),
        # a night that has no 02:30, one that has two
        (daily("30 2 * * *", BERLIN), second("2024-03-30T12:00"), second("2024-04-02T12:00"), 3),
        (daily("30 2 * * *", BERLIN), second("2024-10-25T12:00"), second("2024-10-28T12:00"), 3),
    ],
)
def test_how_many_ticks_were_missed(job: CronJob, after: float, until: float, counted: int) -> None:
    assert cron.count(job, after, until) == counted


@pytest.mark.parametrize(("grace", "latest"), [(None, None), (0, 602), (2, 602), (60, 660)])
def test_until_when_a_job_may_begin(grace: float | None, latest: float | None) -> None:
    assert cron.latest(CronJob(every=60, misfire_grace=grace), 600) == latest


def test_the_next_of_several_jobs() -> None:
    jobs = [CronJob(every=60), CronJob(every=7), daily("0 0 * * *")]
    assert cron.next_of(jobs, 100) == 105
    assert cron.next_of(jobs[:1], 60) == 120
    assert cron.next_of(jobs[2:], 60) == DAY
    assert cron.next_of([], 60) == float("inf")


def test_is_tick() -> None:
    assert cron.is_tick(CronJob(every=90), 180)
    assert not cron.is_tick(CronJob(every=90), 181)
    assert cron.is_tick(daily("0 8 * * *", "Asia/Shanghai"), DAY)
    assert not cron.is_tick(daily("0 8 * * *"), DAY)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (daily("0 2 * *"), "'0 2 * *' must have five fields: minute hour"),
        (daily("0 0 2 * * *"), "must have five fields"),
        (daily(""), "must have five fields"),
        (CronJob(every=-1), "the interval must be"),
        (daily("61 * * * *"), "'61 * * * *' cannot be read: Bad minute"),
        (daily("0 2 30 2 *"), "Bad day-of-month"),
        (daily("0 2 * * someday"), "Bad day-of-week"),
        (daily("0 2 * * *", "Mars/Phobos"), "tz='Mars/Phobos' is no time zone"),
        (daily("0 2 * * *", "../etc/passwd"), "is no time zone"),
        (daily("0 2 * * *", ""), "is no time zone"),
        (daily("0 2 * * *", "Europe"), "is no time zone"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(job: CronJob, message: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        cron.check(job)
    assert message in str(caught.value)


# --- age and period -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0, 3, 600])
@pytest.mark.parametrize(("age", "skipped"), [(DAY, 0), (DAY - 60, 0), (DAY + 60, 1), (2 * DAY, 1), (3 * DAY, 2)])
def test_age_is_counted_from_tick_to_tick(late: int, age: int, skipped: int) -> None:
    for job in (CronJob(every=DAY), daily("0 2 * * *", BERLIN)):
        first = int(cron.next_tick(job, second("2024-06-01T00:00")))
        ticks = following(job, first, 4)
        wanted = [tick for tick in ticks if cron.overdue(job, int(tick), first + late, age)]
        assert wanted == ticks[skipped:]


def test_a_page_that_its_tick_crawled_already_is_fresh() -> None:
    assert not cron.overdue(CronJob(every=60), 600, 600.5, 60)
    assert not cron.overdue(CronJob(every=60), 600, 605, 1)
