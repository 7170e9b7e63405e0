"""A whole scheduler against the tables of data/oracle/scheduler.json that no test of the pure rules holds, and what is another here."""

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from played_crawl import Crawl, done, fails, new

from pyspider_lite.models.task import Task, TaskStatus
from pyspider_lite.scheduler.scheduler import Options
from pyspider_lite.scheduler.token_bucket import TokenBucket

ORACLE = json.loads((Path(__file__).parents[1] / "data/oracle/scheduler.json").read_text())


def by_id(row: dict[str, Any]) -> str:
    return str(row.get("id") or "-".join(str(value) for value in row.values() if not isinstance(value, list | dict)))


def test_every_table_is_held_by_a_test() -> None:
    held = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for table in ORACLE.keys() - {"about", "made_by"}:
        assert f'ORACLE["{table}"]' in held, table


@pytest.mark.behaviour("S16")
@pytest.mark.parametrize("row", ORACLE["inqueue_limit"], ids=by_id)
def test_the_limit_of_waiting_tasks(crawl: Crawl, row: dict[str, Any]) -> None:
    crawl.project(rate=0)
    crawl.submit(*[new(str(number)) for number in range(row["queued"])])
    crawl.options = Options(inqueue_limit=row["inqueue_limit"])
    crawl.lead()
    crawl.ready("p")
    crawl.submit(new("one more"))
    stored = len(crawl.taskdb.get("p", ["one more"]))
    assert (stored, crawl.events("dropped-overflow")) == ((1, 0) if row["expect"] == "accepted" else (0, 1))


#: id -> (status, a track was stored), and why; reports name their run here, and count as long as it is the row's
OTHER_ENDS = {
    "not-processing": (2, True, "a result that comes after its run was taken for lost still counts (S29)"),
    "not-queued": (2, True, "a result that comes after a restart of the scheduler still counts (S65)"),
    "stopped": (2, True, "what was under way when a project was stopped counts (S13)"),
    "no-track": (2, False, "whether a run went well is a field of its own, which cannot be missing"),
    "no-process": (2, True, "whether a run went well is a field of its own, which cannot be missing"),
    "no-url": (2, True, "the URL is the row's"),
}


@pytest.mark.behaviour("S40", "S44")
@pytest.mark.parametrize("row", ORACLE["odd_status_packs"], ids=by_id)
def test_odd_reports(crawl: Crawl, row: dict[str, Any]) -> None:
    crawl.project("a", rate=0 if row["state"] == "ready" else 1e6)
    crawl.ready("a")
    crawl.submit(new("t", "a"))
    crawl.tasks()
    if row["state"] == "unqueued":
        crawl.lead()
    elif row["state"] == "stopped":
        crawl.change("a", status="STOP")
    pack = row["pack"]
    ok = pack.get("track", {}).get("process", {}).get("ok", True)
    # of a run that a worker had of the row as it is now
    run = replace(
        crawl.given[0], taskid=pack["taskid"], project=pack["project"], url=pack.get("url", ""), control="", run=0
    )
    crawl.step(done(run, ok=ok, track=pack.get("track", {})))
    found: Task = crawl.task("t", "a")
    status, stored = OTHER_ENDS.get(row["id"], (row["expect"]["status"], row["expect"]["track_stored"]))[:2]
    assert (found.status, bool(found.track)) == (status, stored)
    if row["id"] not in OTHER_ENDS:
        assert found.schedule.get("retried") == row["expect"]["retried"]


@pytest.mark.behaviour("S31", "S32")
@pytest.mark.parametrize("row", ORACLE["token_bucket"], ids=by_id)
def test_a_bucket_gives_no_less_than_pyspiders_and_no_more_than_its_rate(row: dict[str, Any]) -> None:
    """pyspider's lost up to a token at each look, and began empty (S32); one that begins empty is made by taking what is in it."""
    rate, burst = row["rate"], row["burst"]
    bucket = TokenBucket(rate, burst, 0.0)
    if row["start"] == 0:
        bucket.take(burst)
    began = burst if row["start"] is None else 0
    now, ours, theirs = 0.0, 0, 0
    for seconds, _, taken in row["steps_dt_tokens_taken"]:
        now += seconds
        if bucket.available(now) >= 1:
            bucket.take(1)
            ours += 1
        theirs += taken
        assert ours >= theirs or bucket.never
        assert ours <= began + rate * now + 1e-6
    # closed is closed at once: pyspider gave away what was in it
    assert not bucket.never or ours == 0


@pytest.mark.behaviour("S28", "S31", "S32", "X-K11")
@pytest.mark.parametrize("row", ORACLE["selection_pace"], ids=by_id)
def test_the_pace_of_a_new_project(crawl: Crawl, row: dict[str, Any]) -> None:
    """The burst at once, where pyspider's project waited for its first token; after it the rate, where it lost a part of it."""
    rate, burst = row["rate"], row["burst"]
    crawl.project(rate=rate, burst=burst)
    crawl.ready("p")
    crawl.submit(*[new(str(number)) for number in range(row["tasks"])])
    given = []
    for _ in row["selected_per_loop"]:
        tasks = crawl.tasks()
        given.append(len(tasks))
        crawl.step(*map(done, tasks), after=row["loop_interval"])
    if rate == 0 or burst < 1:
        assert sum(given) == sum(row["selected_per_loop"]) == 0
        return
    seconds = row["loop_interval"] * len(given)
    assert given[0] == min(math.floor(burst), 200), "the budget of a fetcher that nobody knows yet"
    assert sum(row["selected_per_loop"]) <= sum(given) <= min(row["tasks"], burst + rate * seconds + 1)
    assert sum(given) >= min(row["tasks"], burst + rate * (seconds - 0.2) - 1)


#: id -> what came, and why
OTHER_ORDERS = {
    "merge-lowers": (["b", "a"], "the newest submission says which priority; pyspider kept the higher one"),
    "float-priority": (["a", "b"], "priorities are whole numbers"),
}


@pytest.mark.behaviour("S26", "S27")
@pytest.mark.parametrize("row", ORACLE["queue_order"], ids=by_id)
def test_the_order_of_tasks(crawl: Crawl, row: dict[str, Any]) -> None:
    """Entered with force_update, so that the second submission of a task counts. What is not done is not given out again
    after 600 seconds, but when its worker is gone (S29)."""
    crawl.project()
    crawl.ready("p")
    start = crawl.now + 0.1
    puts = row["puts_taskid_priority_exetime_rel"]
    crawl.submit(
        *[
            new(
                taskid,
                schedule={"priority": priority, "force_update": True, **({"exetime": start + later} if later else {})},
            )
            for taskid, priority, later in puts
        ]
    )
    for expect in row["expect"][:-1]:
        crawl.step(after=max(0.0, start + expect["at"] - crawl.now))
        got = [task.taskid for task in crawl.tasks()]
        assert got == (OTHER_ORDERS[row["id"]][0] if expect["got"] and row["id"] in OTHER_ORDERS else expect["got"])
    assert crawl.taskdb.status_count("p") == {TaskStatus.ACTIVE: row["expect"][0]["size"]}
    crawl.step(after=665)
    assert crawl.tasks() == []


@pytest.mark.behaviour("S8", "S12", "S13", "S14")
@pytest.mark.parametrize("row", ORACLE["project_status"], ids=by_id)
def test_which_statuses_are_active(crawl: Crawl, row: dict[str, Any]) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("loaded", schedule={"exetime": crawl.now + 1e6}))
    crawl.project("q", status=row["status"])
    crawl.step()
    asked = [task for task in crawl.controls() if task.project == "q"]
    assert [task.process["callback"] for task in asked] == row["sent"]
    assert crawl.scheduler.projects["q"].active == row["active"]
    # what comes by XML-RPC is refused there; what comes by a queue was found by a run, or by a stranger, before the project was
    # stopped, and waits until it is started again, where pyspider lost it (S13)
    crawl.submit(new("t", "q"))
    crawl.step(*map(crawl.answer, asked))
    assert [task.taskid for task in crawl.tasks() if task.project == "q"] == (["t"] if row["accepts_new"] else [])
    assert crawl.task("t", "q").status == TaskStatus.ACTIVE
    crawl.change("p", status=row["status"])
    crawl.step()
    assert crawl.scheduler.projects["p"].active == row["active"]
    assert len(crawl.taskdb.get("p", ["loaded"])) == 1


#: sizes of queues -> what each project gets of a budget of 200 at first. Shares are equal here, and the small go whole (S36).
SHARES = {
    (5000,): [200],
    (5000, 5000): [100, 100],
    (50, 5000): [50, 100],
    (10, 10, 5000): [10, 10, 100],
    (2000,) * 5: [40] * 5,
    (3000,) * 12: [24] + [16] * 11,
    (1, 0, 0): [1, 0, 0],
}


@pytest.mark.behaviour("S36")
@pytest.mark.parametrize("row", ORACLE["selection_share"], ids=by_id)
def test_shares_of_projects(crawl: Crawl, row: dict[str, Any]) -> None:
    sizes = row["queue_sizes"]
    names = [f"p{number:02}" for number in range(len(sizes))]
    for name in names:
        crawl.project(name, rate=0)
    crawl.ready(*names)
    crawl.submit(
        *itertools.chain.from_iterable(_tasks(name, min(size, 300)) for name, size in zip(names, sizes, strict=True))
    )
    for name in names:
        crawl.projectdb.update(name, rate=1e6)
    crawl.scheduler.update_projects()
    crawl.step()
    given = [task.project for task in crawl.tasks()]
    counts = [given.count(name) for name in names]
    assert sorted(counts, reverse=True) == sorted(SHARES[tuple(sizes)], reverse=True)


def _tasks(project: str, count: int) -> Iterator[Any]:
    return (new(str(number), project) for number in range(count))


@pytest.mark.behaviour("S50", "S57", "X-S16")
@pytest.mark.parametrize("row", ORACLE["on_finished"], ids=by_id)
def test_when_a_crawl_is_finished(tmp_path: Path, row: dict[str, Any]) -> None:
    """It is known from the counts, so nobody waits for loops that fail-pause-num says; and it comes through a queue of its own, so
    that it is stored when it was called."""
    crawl = Crawl(tmp_path, Options(fail_pause_num=row["fail_pause_num"]))
    crawl.project("a")
    crawl.ready("a")
    crawl.submit(new("t", "a"), new("fails", "a", schedule={"retries": 0}))
    crawl.step(*[fails(task) if task.taskid == "fails" else done(task) for task in crawl.tasks()])
    crawl.step()
    (called,) = crawl.controls()
    message = row["message"]
    assert {name: getattr(called, name) for name in message} == message
    crawl.step(done(called))
    crawl.crawl(3)
    assert crawl.callbacks("a").count("on_finished") == 1
    stored = crawl.task("on_finished", "a")
    assert (stored.url, stored.schedule, stored.status) == (message["url"], message["schedule"], TaskStatus.SUCCESS)
    crawl.check()
    crawl.close()
