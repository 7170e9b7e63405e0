"""The rules against what pyspider did (the recorded tables), with every difference that is wanted named here."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import cron
from pyspider_lite.models.project import CronJob
from pyspider_lite.models.task import NewTask, TaskState, TaskStatus
from pyspider_lite.scheduler import rules

ORACLE = json.loads((Path(__file__).parents[1] / "data/oracle/scheduler.json").read_text())
NOW: float = ORACLE["now"]


def schedule_of(raw: dict[str, Any]) -> dict[str, Any]:
    """A schedule of the tables; ``exetime_rel`` is relative to NOW."""
    schedule = dict(raw)
    if "exetime_rel" in schedule:
        schedule["exetime"] = NOW + schedule.pop("exetime_rel")
    return schedule


def ids(row: dict[str, Any]) -> str:
    keys = [name for name in row if name not in ("expect", "counter_all_change")]
    return ",".join(str(row[name]) for name in keys).replace(" ", "").replace('"', "")


# --- submissions ----------------------------------------------------------------------------------------------------


def stored_state(row: dict[str, Any]) -> TaskState | None:
    """What the table's generator had stored: every row was in its third try (retried 2)."""
    if row["stored"] is None:
        return None
    schedule: dict[str, Any] = {"priority": 1, "retried": 2}
    if row["stored_itag"] is not None:
        schedule["itag"] = row["stored_itag"]
    last = row["lastcrawltime_rel"]
    status = TaskStatus[row["stored"].partition("-")[0]]
    return TaskState(
        taskid="t",
        status=status,
        schedule=schedule,
        lastcrawltime=None if last is None else NOW + last,
        due=NOW if status == TaskStatus.ACTIVE else None,
        priority=1,
        run=4,
        seq=1,
    )


def action_of(decision: rules.Decision) -> str:
    return type(decision).__name__.lower()


def wanted_action(row: dict[str, Any]) -> str:
    """pyspider's action, or ours where it differs by intent."""
    new, stored = row["new_schedule"], row["stored"]
    action: str = row["expect"]["action"]
    if stored is None and new.get("cancel"):
        return "ignore"  # X-S9: cancelling what is not there ran it
    if not (stored or "").startswith("ACTIVE"):
        return action
    in_flight = stored == "ACTIVE-processing"
    forced = bool(new.get("force_update"))
    if new.get("itag") and new["itag"] != row["stored_itag"] and not forced:
        # a changed itag says that the page is another one, whatever state the task is in; pyspider left a queued one alone
        return "postpone" if in_flight else "restart"
    age = new.get("age", -1)
    stale = age >= 0 and (row["lastcrawltime_rel"] or -NOW) + age < 0
    if stale and not forced:
        if in_flight:
            return "ignore"  # it runs already (S15); only a direct call of on_request got past that check
        # UA20: it waits for a retry only; a submission that finds it stale does not wait with it
        return "cancel" if new.get("cancel") else "restart"
    return action


@pytest.mark.behaviour("S17", "S18", "X-K1", "X-K2")
@pytest.mark.parametrize("row", ORACLE["new_request"], ids=ids)
def test_a_submission_meets_what_is_stored(row: dict[str, Any]) -> None:
    new = rules.read_schedule(schedule_of(row["new_schedule"]))
    decision = rules.on_request(new, stored_state(row), now=NOW, in_flight=row["stored"] == "ACTIVE-processing")
    assert action_of(decision) == wanted_action(row)
    # the newest submission says when (S19); pyspider merged a queued task's times and took the earlier one
    assert rules.first_due(new, NOW) == NOW + max(0, row["new_schedule"].get("exetime_rel", 0))


def test_most_of_the_recorded_submissions_are_decided_as_in_pyspider() -> None:
    same = sum(wanted_action(row) == row["expect"]["action"] for row in ORACLE["new_request"])
    assert len(ORACLE["new_request"]) - same < 60


def state(status: int = TaskStatus.ACTIVE, last: float | None = None, **schedule: Any) -> TaskState:
    return TaskState(
        taskid="t", status=status, schedule=schedule, lastcrawltime=last, due=NOW, priority=0, run=0, seq=1
    )


@pytest.mark.parametrize(
    ("stored", "new", "reason"),
    [
        (None, {"cancel": True, "force_update": True}, rules.NOTHING_TO_CANCEL),
        (state(TaskStatus.SUCCESS, NOW - 10), {}, rules.SEEN),
        (state(TaskStatus.FAILED, NOW - 10), {"age": -1}, rules.SEEN),
        (state(TaskStatus.SUCCESS, NOW - 10), {"age": 10}, rules.FRESH),
        (state(TaskStatus.SUCCESS, NOW - 10, itag="v1"), {"itag": "v1"}, rules.SAME_ITAG),
        (state(), {"age": 0}, rules.ACTIVE),
        (state(TaskStatus.ACTIVE, NOW - 10, retried=1), {"age": 11}, rules.ACTIVE),
    ],
)
def test_a_refusal_has_a_reason(stored: TaskState | None, new: dict[str, Any], reason: str) -> None:
    decision = rules.on_request(rules.read_schedule(new), stored, now=NOW, in_flight=False)
    assert isinstance(decision, rules.Ignore)
    assert decision.reason == reason


def test_a_queued_task_that_was_never_tried_is_left_alone_by_age() -> None:
    stored = state(TaskStatus.ACTIVE, None)
    assert rules.on_request(rules.Schedule(age=0), stored, now=NOW, in_flight=False) == rules.Ignore(rules.ACTIVE)


@pytest.mark.parametrize(
    ("new", "unconditional"),
    [({"age": 5}, False), ({"force_update": True}, True), ({"itag": "v2"}, True), ({"itag": "v2", "age": 5}, True)],
)
def test_forced_means_without_validators(new: dict[str, Any], unconditional: bool) -> None:
    """UA11: a restart by age may ask "was it modified?", a forced one or one with another itag must not."""
    stored = state(TaskStatus.SUCCESS, NOW - 10, itag="v1")
    decision = rules.on_request(rules.read_schedule(new), stored, now=NOW, in_flight=False)
    assert decision == rules.Restart(unconditional)


@pytest.mark.parametrize(
    ("exetime", "due"), [(0, NOW), (NOW - 1, NOW), (NOW + 9, NOW + 9), (float("inf"), 1e15), (float("-inf"), NOW)]
)
def test_first_due(exetime: float, due: float) -> None:
    assert rules.first_due(rules.Schedule(exetime=exetime), NOW) == due


# --- reports --------------------------------------------------------------------------------------------------------


def wanted_end(row: dict[str, Any]) -> tuple[str, float | None, int | None]:
    """Status, delay and retried of pyspider, or ours where they differ by intent."""
    expect, schedule, ok = row["expect"], row["schedule"], row["ok"]
    wanted = (expect["status"], expect.get("delay"), expect.get("retried"))
    periodic = bool(schedule.get("auto_recrawl")) and schedule.get("age", -1) >= 0
    if ok and not periodic:
        return "SUCCESS", None, schedule.get("retried")  # age -1 is "never again" (H54), not "at once and for ever"
    if ok:
        return "ACTIVE", float(schedule["age"]), None  # the next round has all its retries again
    if periodic or "age" not in schedule:
        return wanted
    # UA21, X-S4: how long a page counts as fresh says nothing of when to try again
    table = row["retry_delay"] or rules.DEFAULT_RETRY_DELAY
    retried = schedule.get("retried", 0)
    delay = table.get(str(retried), table.get("", rules.DEFAULT_RETRY_DELAY[""]))
    if retried >= schedule.get("retries", 3) or delay < 0:
        return "FAILED", None, schedule.get("retried")
    return "ACTIVE", float(delay), retried + 1


@pytest.mark.behaviour("S3", "S41", "S42", "S43")
@pytest.mark.parametrize("row", ORACLE["status_pack"], ids=ids)
def test_a_report_ends_a_run(row: dict[str, Any]) -> None:
    raw = row["schedule"]
    if row["ok"]:
        ended = rules.on_success(raw, now=NOW)
    else:
        ended = rules.on_failure(raw, rules.retry_delays(row["retry_delay"]), now=NOW)
    status, delay, retried = wanted_end(row)
    assert TaskStatus(ended.status).name == status
    assert ended.due == (None if delay is None else NOW + delay)
    assert ended.schedule.get("retried") == retried
    assert [ended.event] == row["expect"]["counted"] or "age" in raw
    if ended.status == TaskStatus.ACTIVE and not row["ok"]:
        # as pyspider would load it again (S65)
        assert ended.schedule["exetime"] == ended.due


@pytest.mark.behaviour("X-S4")
def test_only_age_and_a_success_of_periodic_work_differ_from_the_recorded_ends() -> None:
    for row in ORACLE["status_pack"]:
        expect = row["expect"]
        if wanted_end(row) != (expect["status"], expect.get("delay"), expect.get("retried")):
            assert "age" in row["schedule"]


def test_the_schedule_of_a_success_stays_as_it_was() -> None:
    raw = {"priority": 3, "retried": 1, "age": 60}
    assert rules.on_success(raw, now=NOW) == rules.Ended(TaskStatus.SUCCESS, None, raw, "success")


def test_periodic_work_is_forced_only_once() -> None:
    raw = {"age": 60, "auto_recrawl": True, "retried": 2, "force_update": True, "priority": 1}
    ended = rules.on_success(raw, now=NOW)
    assert (ended.status, ended.due, ended.event) == (TaskStatus.ACTIVE, NOW + 60, "success")
    assert ended.schedule == {"age": 60, "auto_recrawl": True, "priority": 1}


@pytest.mark.parametrize(("auto_recrawl", "age"), [(True, None), (True, -1), (False, 60)])
def test_work_is_periodic_only_with_an_age(auto_recrawl: bool, age: float | None) -> None:
    raw = {"auto_recrawl": auto_recrawl, "age": age}
    assert not rules.read_schedule(raw).periodic
    assert rules.on_success(raw, now=NOW).status == TaskStatus.SUCCESS


def test_periodic_work_never_fails_for_good() -> None:
    raw = {"age": 60, "auto_recrawl": True, "retries": 0, "retried": 9}
    for table in ({}, {"": -1.0}, {"": 10.0}, {"": 1000.0}):
        ended = rules.on_failure(raw, table, now=NOW)
        assert (ended.status, ended.event) == (TaskStatus.ACTIVE, "retry")
        assert ended.due is not None
        assert ended.due - NOW == (10 if table.get("") == 10 else 60)


@pytest.mark.parametrize(("asked", "due"), [(None, 30), (5, 30), (31, 31), (7200, 7200)])
def test_a_server_may_ask_for_more_time_but_not_for_less(asked: float | None, due: float) -> None:
    assert rules.on_failure({}, {}, now=NOW, retry_after=asked).due == NOW + due


def test_what_a_server_asks_for_is_no_further_try() -> None:
    assert rules.on_failure({"retries": 0}, {}, now=NOW, retry_after=5).status == TaskStatus.FAILED


def test_periodic_work_waits_as_long_as_the_server_asks() -> None:
    raw = {"age": 60, "auto_recrawl": True}
    assert rules.on_failure(raw, {}, now=NOW, retry_after=600).due == NOW + 600


@pytest.mark.parametrize(
    ("value", "table"),
    [
        (None, {}),
        ({}, {}),
        (5, {"": 5}),
        (True, {}),
        ({0: 5, 1: 60, "": 600}, {"0": 5, "1": 60, "": 600}),
        ({"0": "soon", "": 1.5}, {"": 1.5}),
        ("fast", {}),
        ([1, 2], {"0": 1, "1": 2, "": 2}),
        ([], {}),
        ([10, "soon"], {"0": 10}),
    ],
)
def test_a_handlers_retry_delay(value: Any, table: dict[str, float]) -> None:
    """H63: a number stands for all tries; keys are numbers in a script and text in a message."""
    assert rules.retry_delays(value) == table


# --- schedules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"priority": "high"}, "priority"),
        ({"retries": []}, "retries"),
        ({"exetime": "tomorrow"}, "exetime"),
        ({"age": {}}, "age"),
        ({"retried": float("nan")}, "retried"),
    ],
)
def test_an_invalid_schedule_names_the_key(raw: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=f"schedule.{key} is .*, not a number"):
        rules.read_schedule(raw)


def test_numbers_may_be_text_and_as_large_as_they_like() -> None:
    schedule = rules.read_schedule({"priority": "9", "age": 1e300, "retries": float("inf"), "exetime": "12.5"})
    assert (schedule.priority, schedule.age, schedule.retries, schedule.exetime) == (9, 2**31 - 1, 2**31 - 1, 12.5)


def test_null_is_the_default() -> None:
    assert rules.read_schedule(dict.fromkeys(("priority", "retries", "exetime", "age", "itag"))) == rules.Schedule()


@pytest.mark.behaviour("S5")
@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (NewTask("t", "p", "u"), None),
        (NewTask("", "p", "u"), "taskid is missing"),
        (NewTask("t", "", "u"), "project is missing"),
        (NewTask("t", "p", ""), "url is missing"),
        (NewTask("t", "p", "u", schedule={"age": "x"}), "schedule.age is 'x', not a number"),
    ],
)
def test_what_is_no_submission(task: NewTask, reason: str | None) -> None:
    assert rules.is_no_submission(task) == reason


# --- cron -----------------------------------------------------------------------------------------------------------


def ticks(intervals: list[int], start: float, seconds: float, step: float) -> list[int]:
    """The ticks that a loop with this step gives out."""
    given: list[int] = []
    last = int(start)
    for count in range(round(seconds / step) + 1):
        for tick, _ in cron.due([CronJob(every=every) for every in intervals if every], last, start + count * step):
            given.append(tick)
            last = tick
    return given


@pytest.mark.behaviour("S60", "X-K3")
@pytest.mark.parametrize("row", [row for row in ORACLE["cron"] if "seconds" in row], ids=ids)
@pytest.mark.parametrize("step", [0.1, 1.0])
def test_ticks_come_when_they_came_in_pyspider(row: dict[str, Any], step: float) -> None:
    start, seconds = row["start"], row["seconds"]
    # pyspider's last loop was a little before the end
    wanted = [tick for tick in row["ticks_sent"] if tick <= start + seconds]
    assert [tick for tick in ticks([row["min_tick"]], start, seconds, step) if tick <= max(wanted, default=0)] == wanted


def test_a_stall_costs_a_job_its_older_ticks() -> None:
    """X-S21: pyspider replayed every second of a stall."""
    (row,) = [row for row in ORACLE["cron"] if row.get("id") == "stall-185s"]
    start = int(row["start"])
    assert len(row["ticks_sent"]) == 3
    job = CronJob(every=row["min_tick"])
    assert cron.due([job], start, start + 185) == [(row["ticks_sent"][-1], job)]


def test_a_cap_holds_for_the_delays_that_a_handler_leaves_out() -> None:
    assert rules.capped({"0": 0}, 2.0) == {"0": 0, "": 2.0}
    assert max(rules.capped({}, 2.0).values()) == 2.0


@pytest.mark.behaviour("S3", "H50")
def test_every_key_of_a_schedule_is_read() -> None:
    raw = {"priority": 2, "retries": 5, "exetime": 9.5, "age": 60, "itag": "v1", "force_update": True}
    raw |= {"auto_recrawl": True, "cancel": True, "retried": 1}
    assert rules.read_schedule(raw) == rules.Schedule(2, 5, 9.5, 60, "v1", True, True, True, 1)
    assert rules.read_schedule({}) == rules.Schedule(0, 3, 0.0, None, None, False, False, False, 0)
