"""An on_result that does not return: it is told, and ends its worker."""

import os
import subprocess
import sys
import threading
import time

import pytest
from result_rig import report

from pyspider_lite import exit_codes, outages
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Beat
from pyspider_lite.result_worker import ResultWorker
from pyspider_lite.result_worker.on_result_watch import OnResultWatch
from pyspider_lite.result_worker.rows import Work


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
