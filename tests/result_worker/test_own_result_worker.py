"""Result workers of users: classes with an on_result of their own."""

import sys
import time

import pytest
from result_rig import report

from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Beat, Release
from pyspider_lite.result_worker import ResultWorker


class Own(ResultWorker):
    """As users write it (behaviour P41)."""

    def __init__(self, resultdb, inqueue):
        super().__init__(resultdb, inqueue)
        self.seen = []

    def on_result(self, task, result):
        assert task["fetch"] == {"save": 1} and task["project"] and task["url"]
        self.seen.append((task["taskid"], result))
        if result == "bad":
            raise ValueError("not good")
        if result != "skip":
            return super().on_result(task, {"own": result})


@pytest.mark.behaviour("P41")
def test_a_subclass_sees_each_item_and_stores_by_calling_ours(rigs):
    rig = rigs(Own).start()
    rig.put(report("t1", "a", "b"), report("t2", "skip"), report("t3", "bad"), report("t4", {"d": [1]}))
    got = rig.reports(4)
    assert rig.worker.seen == [("t1", "a"), ("t1", "b"), ("t2", "skip"), ("t3", "bad"), ("t4", {"d": [1]})]
    assert rig.stored("t1") == {"0": {"own": "a"}, "1": {"own": "b"}}
    assert rig.stored("t2") == {} and rig.stored("t3") == {}
    assert [taskid for taskid, one in got.items() if not one.ok] == ["t3"]
    assert got["t3"].track["process"]["exception"] == "on_result: ValueError: not good"


class Unspeakable(BaseException):
    """Of a script that breaks its own exceptions."""

    def __str__(self):
        raise SystemExit(1)


def test_an_exception_without_a_text_fails_its_task_only(rigs):
    class Failing(ResultWorker):
        def on_result(self, task, result):
            if task["taskid"] == "t1":
                raise Unspeakable

    rig = rigs(Failing).start()
    rig.put(report("t1", "a"), report("t2", "b"))
    got = rig.reports(2)
    assert (got["t1"].ok, got["t2"].ok) == (False, True)
    assert got["t1"].track["process"]["exception"].startswith("on_result: Unspeakable: ")


def test_sys_exit_in_on_result_fails_its_task_only(rigs):
    class Exiting(ResultWorker):
        def on_result(self, task, result):
            if task["taskid"] == "t1":
                sys.exit(0)

    rig = rigs(Exiting).start()
    rig.put(report("t1", "a"), report("t2", "b"))
    got = rig.reports(2)
    assert (got["t1"].ok, got["t2"].ok) == (False, True)
    assert got["t1"].track["process"]["exception"] == "on_result: SystemExit: 0"


def test_a_class_of_the_user_is_told_about_a_suspect_when_the_scheduler_knows(rigs):
    """It may end the process: then that was over this report, and what came with it is over."""
    seen = []

    class Killer(ResultWorker):
        def on_result(self, task, result):
            rig.pump()
            running = [one.running for one in rig.status if isinstance(one, Beat)][-1]
            over = [one.taskid for one in rig.status if isinstance(one, Report)]
            seen.append((task["taskid"], running and running[1], over))
            super().on_result(task, result)

    rig = rigs(Killer)
    assert rig.heartbeat.info.own_class
    rig.put(report("t1", 1, suspect=True), report("t2", 1), report("t3", 1, suspect=True))
    rig.start()
    rig.reports(3)
    assert seen == [("t2", None, []), ("t1", "t1", ["t2"]), ("t3", "t3", ["t2", "t1"])]
    rig.until(lambda: rig.said(Beat)[-1].running is None)
    assert not rigs().heartbeat.info.own_class


def test_a_suspect_is_given_back_when_the_scheduler_cannot_be_told_in_the_drain_time(rigs, monkeypatch):
    called = []

    class Killer(ResultWorker):
        def on_result(self, task, result):
            called.append(task["taskid"])

    rig = rigs(Killer)
    rig.put(report("t1", 1, suspect=True))

    def announce(run, give_up):
        assert not give_up()
        rig.worker._stop_at = time.monotonic()
        return not give_up()

    monkeypatch.setattr(rig.heartbeat, "announce", announce)
    rig.start()
    rig.until(lambda: rig.said(Release))
    assert called == [] and rig.said(Release)[0].runs == [("p", "t1", 1)]
