"""The result worker: what it stores, passes on, waits for and gives back."""

import json
import threading
import time

import pytest
from result_rig import report

from pyspider_lite import codec
from pyspider_lite.errors import DatabaseError, DataError
from pyspider_lite.models.batch import ResultBatch
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.report import RETRIED, Item, Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Beat, Claim, Release
from pyspider_lite.result_worker import OneResultWorker, ResultWorker, result_worker


def test_results_are_stored_and_then_the_report_goes_on_without_them(rigs):
    rig = rigs().start()
    sent = report("t1", {"a": 1}, follows=[NewTask("f", "p", "http://f")], retry_after=3.0)
    rig.put(sent, report("t2", "x", "y"))
    got = rig.reports(2)
    assert got["t1"].ok and got["t1"].items == [] and got["t1"].task is None
    assert (got["t1"].follows, got["t1"].track, got["t1"].retry_after) == (sent.follows, sent.track, 3.0)
    assert rig.stored("t1") == {"": {"a": 1}} and rig.stored("t2") == {"0": "x", "1": "y"}
    assert rig.said(Claim)[0].runs == [("p", "t1", 1), ("p", "t2", 1)]
    assert rig.heartbeat.load == 0


@pytest.mark.parametrize("subclassed", [False, True])
def test_a_repeated_run_leaves_nothing_of_its_first_try(rigs, subclassed):
    class Mine(ResultWorker):
        def on_result(self, task, result):
            super().on_result(task, result)

    rig = rigs(Mine if subclassed else ResultWorker).start()
    rig.put(report("t1", 1, 2, 3), report("t2", 1, 2, 3))
    rig.reports(2)
    rig.put(report("t1", 7, 8))
    rig.until(lambda: len(rig.said(Report)) >= 3)
    assert (rig.stored("t1"), rig.stored("t2")) == ({"0": 7, "1": 8}, {"0": 1, "1": 2, "2": 3})


def test_items_of_an_earlier_run_go_with_the_last_part_of_a_successful_one(rigs):
    rig = rigs().start()
    rig.put(report("t1", 1, 2, 3))
    rig.reports(1)
    rig.put(report("t1", 7, 8, run=2, ok=False))
    rig.reports(2)
    assert rig.stored() == {"0": 7, "1": 8, "2": 3}
    first, last = report("t1", 5, 6, run=3, part=0, parts=0), report("t1", 9, run=3, part=1, parts=2)
    rig.put(first)
    rig.reports(3)
    assert rig.stored() == {"0": 5, "1": 6, "2": 3}
    rig.put(last)
    rig.reports(4)
    assert rig.stored() == {"0": 5, "1": 6, "": 9}


def test_waiting_batches_share_a_transaction(rigs):
    rig = rigs()
    for number in range(4):
        rig.put(*(report(f"t{number}-{n}", n + 1) for n in range(100)))
    rig.heartbeat.start()
    # by hand, so that all of them wait
    for number in range(4):
        rig.worker._deliver(
            ResultBatch(batch=f"x{number}", reports=[report(f"u{number}-{n}", n + 1) for n in range(100)])
        )
    assert rig.worker.step(0) == 400
    assert rig.flaky.calls == [400]
    rig.thread.start()
    rig.reports(800)


def test_the_database_is_waited_for(rigs):
    away = [DatabaseError("gone fishing")]
    rig = rigs(fail=lambda results: away[0] if away else None).start()
    rig.put(report("t1", 1))
    rig.until(lambda: len(rig.flaky.calls) >= 3)
    assert not rig.said(Report) and rig.heartbeat.holds(("p", "t1", 1))
    beats = len(rig.said(Beat))
    rig.until(lambda: len(rig.said(Beat)) > beats)
    away.clear()
    assert rig.reports(1)["t1"].ok
    assert rig.stored() == {"": 1}


def test_what_is_in_hand_for_long_is_stored_as_late(rigs, monkeypatch):
    """Others may have the same runs by then."""
    monkeypatch.setattr(result_worker, "LATE", 0.5)
    rig = rigs(fail=lambda results: None if rig.flaky.late or len(rig.flaky.calls) > 9 else DatabaseError("locked"))
    rig.put(report("t1", 1))
    rig.start()
    rig.reports(1)
    assert rig.flaky.late
    rig.flaky.fail = lambda results: None
    monkeypatch.setattr(result_worker, "LATE", 9.0)
    rig.put(report("t2", 1))
    rig.reports(2)
    assert not rig.flaky.late


def test_stopped_while_the_database_is_away_the_runs_are_given_back(rigs):
    rig = rigs(fail=lambda results: DatabaseError("gone fishing")).start()
    rig.put(report("t1", 1))
    rig.until(lambda: rig.flaky.calls)
    rig.stop()
    assert [item.runs for item in rig.said(Release)] == [[("p", "t1", 1)]]
    rig.thread = threading.Thread()


@pytest.mark.behaviour("P40")
@pytest.mark.parametrize("error", [DataError("p:t7: too odd"), TypeError("of the driver")])
def test_only_the_task_that_cannot_be_stored_fails(rigs, error):
    rig = rigs(fail=lambda results: error if any(r.taskid == "t7" for r in results) else None).start()
    rig.put(*(report(f"t{n}", n + 1, follows=[NewTask(f"f{n}", "p", "http://f")]) for n in range(10)))
    got = rig.reports(10)
    assert [taskid for taskid, one in got.items() if not one.ok] == ["t7"]
    process = got["t7"].track["process"]
    assert process["exception"] == process["logs"] == f"result could not be stored: {error}"
    assert process["time"] == 0.1 and not process["ok"] and got["t7"].follows
    assert rig.stored("t9") == {"": 10} and rig.stored("t7") == {}
    (kept,) = rig.said(Broken)
    assert (kept.kind, kept.queue, kept.project, kept.taskid) == ("result", QueueName.RESULTS, "p", "t7")
    assert kept.reason == process["exception"] and kept.size == len(kept.body)
    letter = codec.unpack(kept.body, Report)
    assert (letter.items, letter.run, letter.task, letter.follows) == ([Item("", "8")], 1, report("t7").task, [])


def test_results_on_their_second_way_are_stored_and_nobody_hears_of_it(rigs):
    rig = rigs().start()
    again = {"part": RETRIED, "parts": 0, "track": {}}
    rig.put(report("t1", "old", run=1, **again), report("t2", "kept", run=1, **again), report("t3", 1, run=2))
    rig.put(report("t1", "new", run=2), report("t1", "older", run=1, **again))
    rig.reports(2)
    rig.until(lambda: rig.flaky.calls and sum(rig.flaky.calls) == 5)
    assert rig.stored("t1") == {"": "new"}
    assert rig.stored("t2") == {"": "kept"}
    assert sorted(one.taskid for one in rig.said(Report)) == ["t1", "t3"]
    assert all("t2" not in str(one.runs) for one in rig.said(Claim))


def test_of_large_results_the_beginning_is_kept(rigs):
    rig = rigs(fail=lambda results: DataError("no")).start()
    rig.put(report("t1", "x" * 3_000_000))
    rig.reports(1)
    (kept,) = rig.said(Broken)
    assert len(kept.body) == 1024 * 1024 and kept.size > 3_000_000


def test_a_part_that_cannot_be_stored_ends_the_run_as_failed(rigs):
    rig = rigs(fail=lambda results: DataError("no")).start()
    rig.put(report("t1", 1, part=3, parts=0, track={}))
    got = rig.reports(1)["t1"]
    assert (got.ok, got.part, got.parts) == (False, 0, 1)


@pytest.mark.behaviour("P42")
def test_one_prints_lines(rigs, capsys):
    rig = rigs(OneResultWorker).start()
    rig.put(report("t1", {"a": "中"}))
    assert rig.reports(1)["t1"].ok
    line = json.loads(capsys.readouterr().out)
    assert line.pop("updatetime") == pytest.approx(time.time(), abs=10)
    assert line == {"taskid": "t1", "project": "p", "url": "http://a/t1", "result": {"a": "中"}}
    assert rig.flaky.calls == []


def test_a_message_that_cannot_be_read_is_kept_aside(rigs):
    rig = rigs().start()
    rig.connect(QueueName.RESULTS)().put(b"not ours", 1)
    rig.put(report("t1", 1))
    rig.reports(1)
    assert rig.said(Broken)[0].queue == QueueName.RESULTS


@pytest.mark.parametrize("name", ["", "a`b", "a\0", "a b", "x" * 65])
def test_a_name_that_no_project_has_holds_nobody_up(rigs, name):
    """What a database says of a table of that name looks as if it was away."""
    rig = rigs().start()
    rig.put(report("odd", 1, project=name), report("t1", 2))
    assert {taskid: one.ok for taskid, one in rig.reports(2).items()} == {"odd": False, "t1": True}
    assert rig.stored("t1") == {"": 2}
    assert [(kept.project, kept.reason) for kept in rig.said(Broken)] == [
        (name, "no project can have the name in this message")
    ]


@pytest.mark.parametrize("order", ["pause", "drain"])
def test_an_order_holds_it_back_until_it_is_resumed(rigs, order):
    rig = rigs().start()
    getattr(rig.worker, order)()
    # a take that was under way when the order came may still bring one
    rig.put(report("t1", {"a": 1}))
    rig.put(report("t2", {"a": 2}))
    rig.until(lambda: rig.said(Beat)[-1].state == ("paused" if order == "pause" else "drained"))
    beats = len(rig.said(Beat))
    rig.until(lambda: len(rig.said(Beat)) > beats + 2)
    assert len(rig.said(Report)) < 2
    rig.worker.resume()
    assert set(rig.reports(2)) == {"t1", "t2"}
    assert rig.said(Beat)
