"""The scheduler notices that it stands still without a reason, says which condition holds the work, and repairs it."""

import logging
import math

import pytest
from msgspec.structs import replace
from played_crawl import Crawl

from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Beat
from pyspider_lite.scheduler.inbox import Depths
from pyspider_lite.scheduler.watchdog import STILL, Repair, Standing, Waiting, Watchdog, diagnose

WELL = Standing(waiting=[Waiting("p", 3, 3, 0.0)], in_flight=5, budget=200, held=0, queued=0, free=100, room=8)


def test_it_barks_once_in_a_while_and_only_if_nothing_was_given_out():
    dog = Watchdog()
    heard = [
        dog.barks(clock, sent) for clock, sent in [(0, 0), (STILL + 1, 1), (40, 1), (62, 1), (63, 1), (70, 2), (99, 2)]
    ]
    assert heard == [False, False, False, True, False, False, False]
    assert dog.barks(101, 2)


@pytest.mark.parametrize(
    ("change", "cause", "repair"),
    [
        ({"waiting": []}, None, None),
        ({"in_flight": 200, "held": 200, "silent": {"processor": 41.0}}, "no processor has beaten for 41 s", Repair.WORKERS),
        ({"free": 0}, None, None),
        ({"in_flight": 200, "held": 200}, None, None),
        ({"in_flight": 200, "queued": 1}, None, None),
        ({"in_flight": 200}, "200 runs count as in flight that no worker holds and no queue has", Repair.LEASES),
        ({"room": 0}, "the publisher of scheduler2fetcher takes nothing", Repair.NONE),
        ({"room": 0, "away": {"the resultdb"}}, None, None),
        ({"waiting": [Waiting("p", 3, 0, math.inf)]}, "p would be looked at only in inf s", Repair.WINDOW),
        ({"waiting": [Waiting("p", 3, 0, 0.0)]}, "the window in memory of p is empty", Repair.WINDOW),
        ({}, "nothing was given out for 30 s", Repair.WINDOW),
        ({"waiting": [Waiting(f"p{n}", 1, 0, 0.0) for n in range(7)]}, "p0, p1, p2, p3, p4 and 2 more", Repair.WINDOW),
    ],
)  # fmt: skip
def test_what_holds_the_work(change, cause, repair):
    hold = diagnose(replace(WELL, **change))
    if cause is None:
        assert hold is None
    else:
        assert hold is not None and cause in hold.cause and hold.repair is repair


def fetcher(crawl: Crawl, **holds: list) -> Beat:
    return Beat(worker="f1", role=Role.FETCHER, host="h", pid=1, pool_size=100, load=0, holds=holds)


def wait(crawl: Crawl, seconds: float, heard: bool = True) -> None:
    others = [
        Beat(worker=role, role=role, host="h", pid=1, pool_size=1) for role in (Role.PROCESSOR, Role.RESULT_WORKER)
    ]
    for _ in range(round(seconds)):
        crawl.step(fetcher(crawl), *(others if heard else ()), after=1.0, drained=True)


def submit(crawl: Crawl, *numbers: int) -> None:
    crawl.submit(*[NewTask(taskid=str(n), project="p", url=f"http://site.test/{n}") for n in numbers])


@pytest.mark.parametrize("heard", [True, False])
def test_a_project_that_was_put_off_for_ever(crawl, caplog, heard):
    crawl.project()
    crawl.ready("p")
    submit(crawl, 1)
    crawl.crawl(1.0)
    project = crawl.scheduler.projects["p"]
    submit_at_once = project.window
    submit(crawl, 2)
    crawl.tasks()
    assert len(submit_at_once) == 0
    # a defect: the row is due, and nobody knows
    crawl.scheduler.leases.end("p", "2")
    project.window.more, project.window.next_due, project.wake_at = False, math.inf, math.inf
    wait(crawl, STILL - 4, heard)
    assert not crawl.tasks() and "stood still" not in caplog.text
    wait(crawl, 8, heard)
    assert [task.taskid for task in crawl.tasks()] == ["2"]
    assert ("p would be looked at only in inf s; their tasks are looked up anew" in caplog.text) == heard
    assert ("no processor has beaten for" in caplog.text) != heard


def test_rest_is_no_standstill(crawl, caplog):
    crawl.project()
    crawl.ready("p")
    crawl.submit(NewTask(taskid="1", project="p", url="http://site.test/1", schedule={"exetime": crawl.now + 1000}))
    with caplog.at_level(logging.WARNING):
        wait(crawl, 3 * STILL)
    assert "stood still" not in caplog.text


def test_runs_that_nobody_has_are_given_out_again(crawl, caplog):
    crawl.project()
    crawl.ready("p")
    wait(crawl, 2)
    submit(crawl, *range(300))
    wait(crawl, 4)
    lost = crawl.tasks()
    assert len(lost) == 200  # the publisher never said that it sent them
    empty = dict.fromkeys((QueueName.TO_FETCHER, QueueName.TO_PROCESSOR, QueueName.RESULTS, QueueName.CONTROL), 0)
    crawl.step(depths=Depths(crawl.scheduler.leases.clock, empty), drained=True)
    wait(crawl, STILL + 6)
    assert "200 runs count as in flight that no worker holds and no queue has" in caplog.text
    assert {task.taskid for task in crawl.tasks()} & {task.taskid for task in lost}
