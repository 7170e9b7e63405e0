"""Retries, as a table: retry number x form of retry_delay x age x status policy, decided by the pure rules; and what may come in
between while a retry is waited for, by a scheduler that is replaced by another. The expected values are literals (S42, S43, UA21)."""

import json
from itertools import product
from typing import Any, NamedTuple

import pytest
from played_crawl import Crawl, fails, new

from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.scheduler import rules

NOW = 1_600_000_000.0
HOUR, DAY = 3_600, 86_400
#: what a script may write, and the seconds before its first, second ... sixth retry (-1: there is none)
FORMS: dict[str, tuple[Any, list[float]]] = {
    "unset": ({}, [30, HOUR, 6 * HOUR, 12 * HOUR, DAY, DAY]),
    "number": (7, [7] * 6),
    "zero": (0, [0] * 6),
    "list": ([1, 5, 60], [1, 5, 60, 60, 60, 60]),
    "tuple": ((1, 5), [1, 5, 5, 5, 5, 5]),
    "dict": ({0: 1, 1: 5, "": 9}, [1, 5, 9, 9, 9, 9]),
    "text-keys": ({"0": 1, "2": 2.5, "": 9}, [1, 9, 2.5, 9, 9, 9]),
    "no-rest": ({0: 1, 1: 2}, [1, 2, DAY, DAY, DAY, DAY]),
    "only-rest": ({"": 4}, [4] * 6),
    "never": ({"": -1}, [-1] * 6),
    "once": ({0: 2, "": -1}, [2, -1, -1, -1, -1, -1]),
}
AGES = {"unset": None, "-1": -1, "0": 0, "short": 3, "long": 30 * DAY}
#: retry_status, and how many retries there are after 404, 503, 500 and 599 where `retries` is 2
POLICIES: dict[str, tuple[dict[str, int], list[int]]] = {
    "none": ({}, [2, 2, 2, 2]),
    "some": ({"404": 0, "503": 5}, [0, 5, 2, 2]),
    "unreachable": ({"599": 1}, [2, 2, 2, 1]),
}
STATUSES = [404, 503, 500, 599]


def table(form: str) -> dict[str, float]:
    """As the scheduler hears of it: through `_on_get_info`, which wraps a number, and as JSON."""
    value = FORMS[form][0]
    return rules.retry_delays(json.loads(json.dumps(value)))


@pytest.mark.behaviour("S42", "S43", "H63", "X-S4")
@pytest.mark.parametrize(("form", "age", "policy"), list(product(FORMS, AGES, POLICIES)))
def test_when_a_task_that_failed_is_tried_again(form: str, age: str, policy: str) -> None:
    """3960 rows in 165 cases."""
    raw: dict[str, Any] = {"retries": 2, "retry_status": POLICIES[policy][0], "priority": 4}
    if AGES[age] is not None:
        raw["age"] = AGES[age]
    for retried, (status, retries) in product(range(6), zip(STATUSES, POLICIES[policy][1], strict=True)):
        schedule = {**raw, "retried": retried} if retried else raw
        ended = rules.on_failure(schedule, table(form), now=NOW, status_code=status)
        delay = FORMS[form][1][retried]
        if retried >= retries or delay < 0:
            wanted = rules.Ended(TaskStatus.FAILED, None, schedule, "failed")
        else:
            after = {**raw, "retried": retried + 1, "exetime": NOW + delay}
            wanted = rules.Ended(TaskStatus.ACTIVE, NOW + delay, after, "retry")
        assert ended == wanted, (retried, status)


@pytest.mark.behaviour("S42")
@pytest.mark.parametrize("schedule", [{}, {"retries": 5}, {"retry_status": {"599": 5}}])
def test_a_url_that_nobody_can_fetch_is_not_tried_again(schedule: dict[str, Any]) -> None:
    ended = rules.on_failure(schedule, {}, now=NOW, status_code=599, error_kind="invalid-url")
    assert ended == rules.Ended(TaskStatus.FAILED, None, schedule, "failed")
    other = rules.on_failure(schedule, {}, now=NOW, status_code=599, error_kind="redirects")
    assert other.status == TaskStatus.ACTIVE


@pytest.mark.behaviour("S42")
@pytest.mark.parametrize(("form", "age"), list(product(FORMS, (0, 3, 40 * DAY))))
def test_periodic_work_is_tried_for_ever(form: str, age: int) -> None:
    """By its delays, as far as they are shorter than its period."""
    for retried in range(6):
        raw = {"auto_recrawl": True, "age": age, "retries": 0, "retried": retried}
        ended = rules.on_failure(raw, table(form), now=NOW, status_code=404)
        delay = FORMS[form][1][retried]
        assert (ended.status, ended.due) == (TaskStatus.ACTIVE, NOW + (min(delay, age) if delay >= 0 else age))
        assert ended.schedule["retried"] == retried + 1


# --- what comes in between --------------------------------------------------------------------------------------------


class Then(NamedTuple):
    """What is known of the task right after, and when it ran (seconds after its first try) until it was given up."""

    status: TaskStatus
    retried: int
    ran: list[int]


#: delays of 10, 100, 100 s; the event comes 50 s after the second try: the third is due at 110 s, the last at 210 s
GOES_ON = Then(TaskStatus.ACTIVE, 2, [0, 10, 110, 210])
BEGINS_ANEW = Then(TaskStatus.ACTIVE, 0, [0, 10, 60, 70, 170, 270])
EVENTS: dict[str, tuple[Any, Then]] = {
    "nothing": (None, GOES_ON),
    "plain": ({}, GOES_ON),
    "same-itag": ({"itag": "v1"}, GOES_ON),
    "age-not-over": ({"age": 1000}, GOES_ON),
    "age-over": ({"age": 20}, BEGINS_ANEW),
    "age-0": ({"age": 0}, BEGINS_ANEW),
    "other-itag": ({"itag": "v2"}, BEGINS_ANEW),
    "force": ({"force_update": True}, BEGINS_ANEW),
    "cancel": ({"cancel": True}, GOES_ON),
    "cancel-and-force": ({"cancel": True, "force_update": True}, Then(TaskStatus.BAD, 2, [0, 10])),
    "stopped-for-a-while": ("stop", GOES_ON),
    "other-delays": ("edit", Then(TaskStatus.ACTIVE, 2, [0, 10, 110, 115])),
}


def take_over(crawl: Crawl) -> None:
    crawl.lead()
    crawl.ready("p")


@pytest.mark.behaviour("S18", "S42", "S43", "S65")
@pytest.mark.parametrize(("event", "restart"), list(product(EVENTS, (False, True))))
def test_while_a_retry_is_waited_for(crawl: Crawl, event: str, restart: bool) -> None:
    what, then = EVENTS[event]
    crawl.info["p"] = {"retry_delay": [10, 100]}
    crawl.project()
    crawl.ready("p")
    tries: list[float] = []

    def page(run: Dispatch) -> Report:
        tries.append(crawl.now - begun)
        return fails(run)

    crawl.pages["http://x/t"] = page
    begun = crawl.now
    crawl.submit(new("t", schedule={"itag": "v1"}), after=0)
    for seconds in (0, 10, 60):
        crawl.now = begun + seconds
        crawl.crawl(0.5)
    if restart:
        take_over(crawl)
    happens(crawl, what)
    task = crawl.task("t")
    assert (task.status, task.schedule.get("retried", 0)) == (then.status, then.retried)
    while (due := crawl.task("t").due) is not None:
        if restart:
            take_over(crawl)
        crawl.now = max(crawl.now, due)
        crawl.crawl(0.5)
    assert tries == [pytest.approx(at, abs=2) for at in then.ran]
    assert crawl.task("t").status == (TaskStatus.BAD if then.status == TaskStatus.BAD else TaskStatus.FAILED)


def happens(crawl: Crawl, what: Any) -> None:
    if isinstance(what, dict):
        crawl.submit(NewTask("t", "p", "http://x/t", schedule=what), after=0)
    elif what == "stop":
        crawl.change("p", status="STOP")
        crawl.step()
        crawl.change("p", status="RUNNING")
        crawl.ready("p")
    elif what == "edit":
        crawl.info["p"] = {"retry_delay": 5}
        crawl.change("p", script="v2")
        crawl.ready("p")


@pytest.mark.behaviour("S18", "S20")
@pytest.mark.parametrize("known", [False, True])
def test_an_age_of_nothing_runs_a_page_again_that_is_known(crawl: Crawl, known: bool) -> None:
    """Tasks that the scheduler knows to be stored are not read again, unless the submission has something to compare."""
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    crawl.crawl(1)
    if not known:
        take_over(crawl)
    crawl.submit(new("t", schedule={"age": 0}))
    crawl.crawl(1)
    assert len([task for task in crawl.given if task.taskid == "t"]) == 2
