"""When is a task run again: every state x age x itag x force_update x exetime x cancel, decided by the pure rules.

The expected values come from `expected`, a table written from the behaviour text (S15 to S22, H54, UA11, UA20), which knows nothing of
the code. The recorded decisions of pyspider itself are in `test_rules.py`.
"""

from itertools import product
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, done, fails, links, new

from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask, TaskState, TaskStatus
from pyspider_lite.scheduler import rules
from pyspider_lite.scheduler.drops import KEPT, Drop, Drops

NOW = 1_600_000_000.0
#: seconds since the last crawl, in all states that have one
CRAWLED = 1_000.0


class Stored(NamedTuple):
    """A state of a task."""

    status: TaskStatus | None
    #: it was fetched before
    crawled: bool = True
    in_flight: bool = False
    #: retries used up
    retried: int = 0


STATES = {
    "never-seen": Stored(None, crawled=False),
    "active-new": Stored(TaskStatus.ACTIVE, crawled=False),
    "active-again": Stored(TaskStatus.ACTIVE),
    "in-flight-new": Stored(TaskStatus.ACTIVE, crawled=False, in_flight=True),
    "in-flight-again": Stored(TaskStatus.ACTIVE, in_flight=True),
    "in-flight-retry": Stored(TaskStatus.ACTIVE, in_flight=True, retried=1),
    "waits-for-retry": Stored(TaskStatus.ACTIVE, retried=1),
    "success": Stored(TaskStatus.SUCCESS),
    "failed": Stored(TaskStatus.FAILED, retried=3),
    "bad": Stored(TaskStatus.BAD),
    "bad-before-its-first-run": Stored(TaskStatus.BAD, crawled=False),
}
AGES = {"unset": None, "-1": -1, "0": 0, "n-stale": CRAWLED - 500, "n-fresh": CRAWLED + 500}
ITAGS = {"unset": None, "same": "v1", "other": "v2"}
EXETIMES = {"unset": None, "past": NOW - 50, "future": NOW + 50}


def expected(state: str, age: str, itag: str, forced: bool, cancel: bool) -> str:
    """The decision as a word, and for what is dropped the reason."""
    stored = STATES[state]
    if state == "never-seen":
        return "nothing-to-cancel" if cancel else "insert"
    # S18, in its order; a page that was never fetched is older than any age
    old_enough = age in ("0", "n-stale") or (age == "n-fresh" and not stored.crawled)
    matched = itag == "other" or old_enough or forced
    # S15: what waits its turn is left alone; UA20: what waits for its retry only is not, if it is old enough
    overtaken = state == "waits-for-retry" and old_enough
    if stored.status == TaskStatus.ACTIVE and not (itag == "other" or forced or overtaken):
        return "active"
    if not matched:
        if itag == "same":
            return "same-itag"
        return "fresh" if age == "n-fresh" else "seen"
    if stored.in_flight:
        return "postpone"  # S21
    if cancel:
        return "cancel"  # S22: only where a rule of S18 matched
    # UA11: by age the server may be asked whether the page changed, forced or with another itag not
    return "restart-forced" if forced or itag == "other" else "restart"


def word(decision: rules.Decision) -> str:
    match decision:
        case rules.Ignore(reason):
            return reason
        case rules.Restart(unconditional):
            return "restart-forced" if unconditional else "restart"
    return type(decision).__name__.lower()


def stored_state(state: str) -> TaskState | None:
    stored = STATES[state]
    if stored.status is None:
        return None
    schedule: dict[str, Any] = {"itag": "v1"} | ({"retried": stored.retried} if stored.retried else {})
    active = stored.status == TaskStatus.ACTIVE
    return TaskState(
        taskid="t",
        status=stored.status,
        schedule=schedule,
        lastcrawltime=NOW - CRAWLED if stored.crawled else None,
        due=NOW if active else None,
        priority=0,
        run=1,
        seq=1,
    )


def submission(age: str, itag: str, exetime: str, **flags: bool) -> dict[str, Any]:
    values = {"age": AGES[age], "itag": ITAGS[itag], "exetime": EXETIMES[exetime], **flags}
    return {key: value for key, value in values.items() if value is not None and value is not False}


@pytest.mark.behaviour("S15", "S18", "S20", "S21", "S22")
@pytest.mark.parametrize(
    ("state", "age", "itag"), list(product(STATES, AGES, ITAGS)), ids=lambda value: value.replace(" ", "-")
)
def test_what_becomes_of_a_submission(state: str, age: str, itag: str) -> None:
    """1980 rows in 165 cases."""
    stored = stored_state(state)
    in_flight = STATES[state].in_flight
    for forced, exetime, cancel in product((False, True), EXETIMES, (False, True)):
        raw = submission(age, itag, exetime, force_update=forced, cancel=cancel)
        new_schedule = rules.read_schedule(raw)
        decision = rules.on_request(new_schedule, stored, now=NOW, in_flight=in_flight)
        assert word(decision) == expected(state, age, itag, forced, cancel), raw
        # H54: exetime has no say in whether, only in when
        assert rules.first_due(new_schedule, NOW) == (NOW + 50 if exetime == "future" else NOW)


@pytest.mark.parametrize("state", [name for name, stored in STATES.items() if stored.status and stored.crawled])
def test_fresh_says_until_when(state: str) -> None:
    decision = rules.on_request(
        rules.Schedule(age=CRAWLED + 500), stored_state(state), now=NOW, in_flight=STATES[state].in_flight
    )
    wanted = None if STATES[state].status == TaskStatus.ACTIVE else NOW + 500
    assert isinstance(decision, rules.Ignore)
    assert decision.until == wanted


def test_every_word_of_the_table_is_met() -> None:
    """A table that says the same everywhere would prove nothing."""
    met = {
        expected(state, age, itag, forced, cancel)
        for state, age, itag, forced, cancel in product(STATES, AGES, ITAGS, (False, True), (False, True))
    }
    assert met == {
        "insert", "restart", "restart-forced", "postpone", "cancel",
        "seen", "fresh", "same-itag", "active", "nothing-to-cancel",
    }  # fmt: skip


# --- the same through the scheduler and the database --------------------------------------------------------------------


def bring_about(crawl: Crawl, state: str) -> NewTask:
    """A task ``t`` of a running project, in this state, by what a crawl does."""
    stored = STATES[state]
    task = new("t", schedule={"itag": "v1", "retries": 3 if stored.retried < 3 else 0})
    crawl.project()
    crawl.ready("p")
    if stored.status is None:
        return task
    rate = {"rate": 0.0}
    if not stored.crawled and not stored.in_flight:
        crawl.change("p", **rate)
        crawl.step(after=2)
    crawl.submit(task)
    if stored.crawled:
        (run,) = crawl.tasks()
        crawl.step(done(run, ok=not stored.retried))
        crawl.now += CRAWLED
        if state in ("active-again", "bad"):
            crawl.change("p", **rate)
            crawl.step(after=2)
        if state in ("active-again", "bad", "in-flight-again"):
            crawl.submit(replace(task, schedule={**task.schedule, "force_update": True}))
        if stored.in_flight:
            crawl.step(after=0.1)
            assert len(crawl.tasks()) == 1
    if stored.status == TaskStatus.BAD:
        crawl.submit(replace(task, schedule={"cancel": True, "force_update": True}))
    assert crawl.task("t").status == stored.status
    return task


SIMPLE = [name for name in STATES if name not in ("in-flight-retry", "waits-for-retry")]


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("state", SIMPLE)
def test_rows_of_the_table_in_a_scheduler(crawl: Crawl, state: str, restarted: bool) -> None:
    """Each drop has its reason, counted and kept; a new scheduler decides as the old one."""
    task = bring_about(crawl, state)
    if restarted and not STATES[state].in_flight:
        crawl.lead()
        crawl.step()
        crawl.ready("p")
        if state in ("active-new", "active-again"):
            assert crawl.tasks() == []
    for age, itag in (("unset", "unset"), ("n-fresh", "unset"), ("unset", "same")):
        wanted = expected(state, age, itag, False, True)
        before = crawl.events(f"dropped-{wanted}")
        crawl.submit(replace(task, schedule=submission(age, itag, "unset", cancel=True)))
        if wanted in ("cancel", "postpone"):
            continue
        assert crawl.events(f"dropped-{wanted}") == before + 1
        kept = crawl.scheduler.projects["p"].drops.get("t")
        assert kept is not None
        assert (kept.reason, kept.time) == (wanted, crawl.now)
        assert (kept.until is not None) == (wanted == "fresh")


@pytest.mark.behaviour("S22", "X-S9")
def test_a_cancelled_stranger_is_not_taken_for_known(crawl: Crawl) -> None:
    """Nothing was stored of it, so the next submission is its first."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t", schedule={"cancel": True, "force_update": True}))
    crawl.submit(new("t"))
    assert [task.taskid for task in crawl.tasks()] == ["t"]


@pytest.mark.behaviour("X-S22", "S19")
def test_a_restart_without_a_schedule_has_all_its_retries(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    (run,) = crawl.tasks()
    crawl.step(fails(run))
    assert crawl.task("t").schedule["retried"] == 1
    crawl.submit(new("t", schedule={"force_update": True}))
    (again,) = crawl.tasks()
    assert "retried" not in again.schedule
    assert "retried" not in crawl.task("t").schedule


def test_a_forced_run_sends_no_validators_and_a_304_is_counted(crawl: Crawl) -> None:
    """UA11, also for a run that was forced while another one was in flight."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    (first,) = crawl.tasks()
    crawl.submit(new("t", schedule={"force_update": True}))
    crawl.step(not_modified(first))
    crawl.step()
    (second,) = crawl.tasks()
    assert (first.unconditional, second.unconditional) == (False, True)
    assert crawl.events("not-modified") == 1
    crawl.step(done(second))
    assert (crawl.events("not-modified"), crawl.events("success")) == (1, 2)


def not_modified(task: Dispatch) -> Report:
    track = {"fetch": {"ok": True, "time": 0.1, "status_code": 304}, "process": {"ok": True, "time": 0.0}}
    return done(task, track=track)


# --- what is kept of drops ----------------------------------------------------------------------------------------------


def test_links_that_a_callback_drops_are_counted(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    (run,) = crawl.tasks()
    process = {"ok": True, "time": 0.1, "dropped": {"bad-url": 2, "duplicate": 1, "odd": "x"}}
    crawl.step(done(run, track={"fetch": {"ok": True}, "process": process}))
    assert [crawl.events(f"dropped-{reason}") for reason in ("bad-url", "duplicate", "odd")] == [2, 1, 0]


def test_the_last_drops_of_a_crawl_are_found_by_page(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.pages = {"http://x/a": links("b", "a"), "http://x/b": links("a", "b")}
    crawl.submit(new("a"))
    crawl.crawl(2)
    kept = crawl.scheduler.projects["p"].drops.get("a")
    assert kept is not None
    assert (kept.reason, kept.times, kept.url) == ("seen", 2, "http://x/a")


def test_drops_are_bounded_and_the_newest_stay() -> None:
    drops = Drops()
    for number in range(3 * KEPT):
        drops.add(Drop(float(number), str(number), "u" * 10_000, "seen"))
        drops.add(Drop(float(number), "often", "u", "seen"))
    assert len(drops) == KEPT
    often, newest = drops.get("often"), drops.get(str(3 * KEPT - 1))
    assert often is not None and newest is not None
    assert (often.times, len(newest.url)) == (3 * KEPT, 1024)
    assert drops.get("0") is None
