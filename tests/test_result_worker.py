"""The result worker on memory queues and a real SQLite resultdb."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from pyspider_lite import codec, exit_codes, outages
from pyspider_lite.database import connect_resultdb
from pyspider_lite.errors import DatabaseError, DataError
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.memory import MemoryQueue
from pyspider_lite.models.batch import ResultBatch, StatusBatch
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.report import RETRIED, Item, Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Beat, Claim, Release
from pyspider_lite.result_worker import OneResultWorker, ResultWorker, result_worker
from pyspider_lite.result_worker.on_result_watch import OnResultWatch
from pyspider_lite.result_worker.rows import Work

_spaces = itertools.count()


def report(taskid="t1", *results, project="p", run=1, **fields):
    items = [Item(str(n) if len(results) > 1 else "", codec.to_json(result)) for n, result in enumerate(results)]
    track = {"fetch": {"ok": True}, "process": {"ok": True, "time": 0.1, "logs": "log", "exception": None}, "save": {}}
    task = NewTask(taskid, project, f"http://a/{taskid}", fetch={"save": 1})
    return Report(
        **{
            "project": project,
            "taskid": taskid,
            "url": task.url,
            "run": run,
            "items": items,
            "track": track,
            "task": task,
        }
        | fields
    )


class Flaky:
    """A resultdb that raises what ``fail`` gives for a batch, and counts."""

    def __init__(self, resultdb, fail):
        self.resultdb, self.fail, self.calls, self.late = resultdb, fail, [], False

    def projects(self):
        return self.resultdb.projects()

    def store(self, results, *, late=False):
        self.calls.append(len(results))
        self.late = late
        error = self.fail(results)
        if error is not None:
            raise error
        self.resultdb.store(results)


class Rig:
    def __init__(self, url, cls=ResultWorker, fail=None):
        self.space = f"results-{next(_spaces)}"
        self.resultdb = connect_resultdb(url)
        # the worker's own connection
        stored = connect_resultdb(url)
        self.flaky = Flaky(stored, fail or (lambda results: None))
        self.heartbeat = Heartbeat(WorkerInfo.make("result_worker", 1), self.connect(QueueName.STATUS), 0.3)
        self.worker = cls(self.flaky, self.connect(QueueName.RESULTS)).attach(heartbeat=self.heartbeat, drain_timeout=2)
        self.status = []
        #: its process would be gone
        self.ended = False
        self.thread = threading.Thread(target=self.worker.run)
        self._closing = [self.resultdb, stored]

    def connect(self, name):
        return lambda: MemoryQueue(self.space, name)

    def start(self):
        self.heartbeat.start()
        self.thread.start()
        return self

    def stop(self):
        self.worker.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()
        assert self.heartbeat.stop(5) or self.ended
        for one in self._closing:
            one.close()
        self.pump()

    def put(self, *reports):
        self.connect(QueueName.RESULTS)().put(
            codec.encode(ResultBatch(batch=f"b{time.monotonic()}", reports=list(reports))), 1
        )

    def pump(self):
        for received in self.connect(QueueName.STATUS)().get(1000, 0):
            self.status += codec.decode(received.body, StatusBatch).items

    def said(self, kind):
        self.pump()
        return [item for item in self.status if isinstance(item, kind)]

    def reports(self, count):
        self.until(lambda: len(self.said(Report)) >= count)
        return {one.taskid: one for one in self.said(Report)}

    def until(self, condition, seconds=10):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.status[-3:]
            time.sleep(0.01)

    def stored(self, taskid="t1", project="p"):
        return {row.item: json.loads(row.result) for row in self.resultdb.get(project, taskid)}


@pytest.fixture
def rigs(tmp_path):
    made = []

    def make(cls=ResultWorker, fail=None):
        made.append(Rig(f"sqlite+resultdb:///{tmp_path}/result.db", cls, fail))
        return made[-1]

    yield make
    for one in made:
        if one.thread.ident is not None:
            one.stop()


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


def test_an_on_result_that_does_not_return_is_told_and_then_its_worker_ends(rigs, monkeypatch, caplog):
    """What else it had in hand is given back by the last beat."""
    at_work, may_end, ended = threading.Event(), threading.Event(), []

    class Hanging(ResultWorker):
        def on_result(self, task, result):
            at_work.set()
            may_end.wait(10)

    rig = rigs(Hanging)
    watch = rig.worker._watch
    watch.limit = 100.0
    rig.put(report("t1", 1), report("t2", 2))
    rig.start()
    assert at_work.wait(10)
    now = time.monotonic()
    watch.step(now + 29)
    assert not outages.waiting()
    watch.step(now + 31)
    ((where, _),) = outages.waiting().items()
    assert where == f"the end of on_result ({__name__}.{Hanging.__qualname__})"
    assert outages.reasons()[where].startswith("it has been at work on p:t1 since ")
    monkeypatch.setattr(os, "_exit", lambda code: ended.append(code))
    watch.step(now + 101)
    assert ended == [exit_codes.OVERDUE]
    rig.ended = True
    first = rig.said(Report)[0]
    assert (first.taskid, first.ok, first.items) == ("t1", False, [])
    assert first.track["process"]["exception"] == "on_result: did not return within 100 s"
    assert rig.said(Broken)[0].taskid == "t1"
    last = rig.said(Beat)[-1]
    assert last.leaving and not last.holds
    may_end.set()


def test_a_call_that_ends_is_waited_for_no_longer(caplog):
    watch = OnResultWatch("store.Store", lambda work: pytest.fail("it is not overdue"))
    watch.begin(Work(report("t1", 1)))
    now = time.monotonic()
    watch.step(now + 10_000)
    assert outages.waiting()
    watch.end()
    watch.step(now + 10_001)
    assert not outages.waiting()
    watch.begin(Work(report("t2", 1)))
    watch.step(time.monotonic())
    assert not outages.waiting()


_WATCHED = """
import os, re, signal, subprocess, sys, time
from types import SimpleNamespace
from pyspider_lite.result_worker import on_result_watch

on_result_watch.STUCK, on_result_watch._LOOK = 1.5, 0.3
watch = on_result_watch.OnResultWatch("store.Store", print)
watch.start()
work = SimpleNamespace(report=SimpleNamespace(project="p", taskid="t"))
"""


def _watched(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _WATCHED + script], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("wait", [0, 1.0])
def test_a_call_that_lets_no_other_thread_run_ends_the_process(wait):
    """Its stack is shown; the scheduler has taken the worker for dead by then. It may have let others run before, for a while, and have
    closed stderr."""
    done = _watched(f"""
def on_result():
    sys.stderr.close()
    sys.__stderr__.close()
    time.sleep({wait})
    re.match("(a+)+$", "a" * 60 + "b")

watch.begin(work)
on_result()
""")
    assert done.returncode == 1 and "Timeout" in done.stderr and "in on_result" in done.stderr


def test_a_call_that_lets_others_run_may_take_longer():
    done = _watched("watch.begin(work); time.sleep(2.2); watch.end(); print('over')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")


@pytest.mark.parametrize("close", ["", "os.close(2)"])
def test_between_two_calls_a_process_may_be_frozen_or_stuck(close):
    """SIGSTOP to the worker and SIGCONT long after."""
    done = _watched(f"""
watch.begin(work)
{close}
watch.end()
subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -STOP {{os.getpid()}}; sleep 2; kill -CONT {{os.getpid()}}"])
time.sleep(0.8)
time.sleep(0.8)
print("over")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
