"""The processor with its real child: what it reports, which script it runs, how it delivers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from callback_scripts import OK, gone, process, script

from pyspider_lite import outages
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.letter import Broken
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Claim


@pytest.mark.behaviour("P20", "P24")
def test_a_callback_that_works(rig):
    page = rig.page(OK, track={"save": {"n": 4}}, response={"retry_after": 7.0})
    report = rig.run(page)
    assert report.ok and report.key == page.task.key and (report.generation, report.epoch) == ("g1", page.task.epoch)
    assert [item.result for item in report.items] == ['{"title":"T"}']
    assert report.task == NewTask(page.task.taskid, "p", page.task.url, process={"callback": "cb"}, generation="g1")
    (follow,) = report.follows
    assert (follow.url, follow.schedule["priority"], follow.generation) == ("http://a.test/1", 2, "g1")
    assert report.messages[0].message == {"m": 1}
    assert report.retry_after == 7.0
    assert report.track["save"] == {"n": 5}
    assert process(report) | {"time": 0} == {
        "ok": True, "time": 0, "follows": 1, "result": "{'title': ", "logs": "seen\n", "exception": None,
    }  # fmt: skip
    assert report.track["fetch"] == {
        "ok": True, "redirect_url": None, "time": 0.25, "error": None, "status_code": 200, "encoding": "ascii",
        "headers": {"etag": '"e1"'}, "content": None,
    }  # fmt: skip
    # taken, and handed on after it was on the queue
    assert rig.said(Claim)[0].runs == [page.task.key]
    rig.until(lambda: rig.handed_over(QueueName.RESULTS))
    assert rig.handed_over(QueueName.RESULTS)[0].runs == [page.task.key]


def test_without_results_the_report_goes_straight_to_the_scheduler(rig):
    report = rig.run(rig.page(OK, "quiet"))
    assert report in rig.status and not rig.results
    assert report.task is None


def test_a_run_without_results_after_one_with_them_goes_through_the_result_worker(rig):
    """It replaces what the last run stored, by nothing; a page that has not changed keeps it."""
    had = {"process": {"ok": True, "result": "{'title': "}}
    replacing = rig.run(rig.page(OK, "quiet", track=had))
    assert replacing in rig.results and not replacing.items
    unchanged = rig.run(rig.page(OK, "quiet", track=had, response={"status_code": 304}))
    assert unchanged in rig.status


def test_questions_for_other_scripts_do_not_put_the_limit_off(fresh_rig):
    fresh_rig.start(process_time_limit=0.5, hard_after=0.5)
    fresh_rig.projects.save("other", OK)
    body = """
def cb(self, response):
    import sys
    while True:
        try:
            while True:
                sys.modules.pop("projects.other", None)
                import projects.other
        except BaseException:
            pass
"""
    page = fresh_rig.page(script(body))
    assert process(fresh_rig.run(page))["exception"] == "process killed: 0.5 s limit"


def test_an_exception_whose_text_ends_the_process_is_a_failure_like_any_other(rig):
    body = """
def cb(self, response):
    class Bad(Exception):
        def __str__(self):
            raise SystemExit(3)
    raise Bad
"""
    report = rig.run(rig.page(script(body)))
    assert process(report)["exception"] == "Bad (its text cannot be had: SystemExit)"


def test_a_child_that_somebody_kills_costs_its_page_nothing(rig, tmp_path):
    marker = tmp_path / "ran"
    body = f"open({str(marker)!r}, 'a').write('x')\n    if os.path.getsize({str(marker)!r}) == 1: time.sleep(60)\n    return 1"
    page = rig.page(script(f"def cb(self, response):\n    {body}"))
    rig.put(page)
    rig.until(marker.exists)
    os.kill(rig.processor._lane.child.pid, signal.SIGKILL)
    assert rig.report_of(page).ok
    assert marker.read_text() == "xx"


@pytest.mark.behaviour("P21", "X-P6")
@pytest.mark.parametrize(
    ("source", "callback", "exception", "log"),
    [
        (script("def cb(self, response):\n    raise ValueError('错误')"), "cb", "错误", "ValueError: 错误"),
        (script("def cb(self, response):\n    raise ValueError('\\ud800')"), "cb", "\\ud800", "\\ud800"),
        (script("def cb(self, response):\n    sys.exit(3)"), "cb", "3", "SystemExit: 3"),
        (OK, "nope", "self.nope() not implemented!", "not implemented"),
        ("x = 1\nb = = 2\n", "cb", "invalid syntax (<p>, line 2)", "b = = 2"),
        ("import no_such_module_xyz\n", "cb", "No module named 'no_such_module_xyz'", 'File "<p>", line 1'),
        ("x = 1\n", "cb", "need BaseHandler in project module", "AssertionError"),
        ("sys.exit(2)\n" + OK, "cb", "name 'sys' is not defined", "NameError"),
    ],
)
def test_a_failure_is_a_report(rig, source, callback, exception, log):
    report = rig.run(rig.page(source, callback, track={"save": {"n": 4}}))
    assert not report.ok and process(report)["exception"] == exception
    assert log in process(report)["logs"]
    assert report.track["save"] == {"n": 4}
    assert report.track["fetch"]["content"].startswith("<html>")
    assert report.track["fetch"]["headers"]["X-Other"] == "o"


def test_a_script_written_for_pyspider(rig):
    rig.projects.save("shared", "GREETING = 'hello'\n")
    source = OK.replace("pyspider_lite.handler", "pyspider.libs.base_handler") + (
        "    def shared(self, response):\n        from projects.shared import GREETING\n        return md5string(GREETING)\n"
    )
    assert rig.run(rig.page(source)).ok
    assert rig.run(rig.page(source, "shared")).items[0].result == '"5d41402abc4b2a76b9719d911017c592"'


@pytest.mark.behaviour("P11")
def test_no_such_project(rig):
    assert process(rig.run(rig.page(project="nobody")))["exception"] == "no such project!"


def test_a_link_collected_before_the_failure_is_reported(rig):
    body = "def cb(self, response):\n    self.crawl('http://a.test/', callback='cb')\n    1 / 0"
    report = rig.run(rig.page(script(body)))
    assert not report.ok and len(report.follows) == 1


def test_a_new_version_of_the_script_takes_effect_and_the_old_one_is_still_there(rig):
    old, new = (script(f"def cb(self, response):\n    return {{'version': {n}}}") for n in (1, 2))
    first = rig.page(old)
    assert '"version":1' in rig.run(first).items[0].result
    late = rig.page()
    assert '"version":2' in rig.run(rig.page(new)).items[0].result
    asked = rig.projects.asked
    assert '"version":1' in rig.run(late).items[0].result
    assert '"version":2' in rig.run(rig.page()).items[0].result
    assert rig.projects.asked == asked


def test_a_version_that_is_gone_is_replaced_by_the_newest(rig, caplog):
    page = rig.page(OK, "quiet", project_md5sum="0" * 32)
    assert rig.run(page).ok
    assert "is gone; the newest" in caplog.text


def test_the_database_is_waited_for(fresh_rig):
    fresh_rig.start(process_time_limit=0.3, hard_after=0.1)
    assert fresh_rig.run(fresh_rig.page(OK, "quiet", project="q")).ok
    fresh_rig.projects.away = DatabaseError("gone fishing")
    page = fresh_rig.page(OK, "quiet")
    fresh_rig.put(page)
    fresh_rig.until(lambda: fresh_rig.projects.asked >= 4)
    assert len(fresh_rig.reports()) == 1 and fresh_rig.heartbeat.holds(page.task.key)
    fresh_rig.projects.away = None
    assert fresh_rig.report_of(page).ok


def test_no_page_is_taken_before_the_database_was_there(fresh_rig):
    fresh_rig.projects.away = DatabaseError("gone fishing", "mysql+projectdb://u:***@h/projectdb")
    page = fresh_rig.page(OK, "quiet")
    fresh_rig.put(page)
    fresh_rig.start()
    fresh_rig.until(lambda: "mysql+projectdb://u:***@h/projectdb" in outages.waiting())
    assert not fresh_rig.heartbeat.holds(page.task.key)
    fresh_rig.projects.away = None
    assert fresh_rig.report_of(page).ok
    assert not outages.waiting()


def test_control_work_goes_first(fresh_rig):
    page = fresh_rig.page(script("def cb(self, response):\n    time.sleep(0.2)"))
    fresh_rig.put(page, *(fresh_rig.page() for _ in range(5)))
    fresh_rig.start()
    fresh_rig.until(lambda: fresh_rig.heartbeat._running)
    control = fresh_rig.page(OK, "quiet", project="q", control="c1", run=0)
    fresh_rig.put(control, queue=QueueName.CONTROL)
    assert fresh_rig.report_of(control).control == "c1"
    assert len(fresh_rig.reports()) < 4


def test_many_follow_ups_come_in_parts(rig):
    body = "def cb(self, response):\n    for i in range(5000):\n        self.crawl(f'http://a.test/{i}', callback='cb')\n    return {'a': 1}"
    page = rig.page(script(body))
    last = rig.run(page)
    parts = [report for report in rig.reports() if report.key == page.task.key]
    assert last.parts == len(parts) == 9
    assert sorted(part.part for part in parts) == list(range(9))
    assert len({follow.taskid for part in parts for follow in part.follows}) == 5000
    assert [part.parts for part in sorted(parts, key=lambda part: part.part)] == [0] * 8 + [9]
    assert process(last)["follows"] == 5000
    assert sum(len(part.items) for part in parts) == 1


MANY = """
def cb(self, response):
    for i in range(3000):
        self.crawl(f'http://a.test/{i}', callback='cb')
        self.crawl('http://a.test/0', callback='cb')
"""


def test_the_first_of_many_links_are_sent_while_the_callback_runs(rig):
    page = rig.page(script(MANY + "    time.sleep(1.0)\n    1 / 0"))
    rig.put(page)

    def parts():
        return [report for report in rig.status if isinstance(report, Report) and report.key == page.task.key]

    rig.until(lambda: len(parts()) == 4)
    assert rig.heartbeat.holds(page.task.key) and not any(part.parts or part.track for part in parts())
    last = rig.report_of(page)
    # a callback that fails keeps its links
    assert not last.ok and last.parts == 5 and process(last)["follows"] == 3000
    assert len({follow.taskid for part in parts() for follow in part.follows}) == 3000
    assert sum(len(part.follows) for part in parts()) == 3000


def test_a_thread_of_a_script_sends_nothing_by_itself(rig):
    body = (
        MANY
        + "\ndef threaded(self, response):\n    import threading\n    thread = threading.Thread(target=self.cb, args=(None,))"
    )
    page = rig.page(script(body + "\n    thread.start()\n    thread.join()"), "threaded")
    last = rig.run(page)
    parts = [report for report in rig.reports() if report.key == page.task.key]
    assert last.ok and last.parts == len(parts) == 3
    assert len({follow.taskid for part in parts for follow in part.follows}) == 3000


def test_waiting_to_be_heard_is_no_time_of_the_callbacks(fresh_rig, monkeypatch):
    fresh_rig.start(process_time_limit=1.0, hard_after=0.5)
    monkeypatch.setattr(fresh_rig.heartbeat, "clear", lambda: False)
    page = fresh_rig.page(script(MANY.replace("3000", "10_000")))
    began = time.monotonic()
    # a second passes before more is taken, as nobody seems to hear it, and what has room in the socket is a small part of it
    assert fresh_rig.run(page).ok and time.monotonic() - began > 1.5


def test_a_callback_that_submits_links_for_ever_is_ended(fresh_rig):
    fresh_rig.start(process_time_limit=0.5, hard_after=0.5)
    body = """
def cb(self, response):
    import itertools
    links = itertools.count()
    while True:
        try:
            while True:
                self.crawl(f'http://a.test/{next(links)}', callback='cb')
        except BaseException:
            pass
"""
    report = fresh_rig.run(fresh_rig.page(script(body)))
    assert process(report)["exception"] == "process killed: 0.5 s limit"
    assert len([part for part in fresh_rig.reports() if part.follows]) > 1


def test_a_result_that_is_too_large_fails_the_task(rig):
    report = rig.run(rig.page(script("def cb(self, response):\n    return 'x' * 9_000_000")))
    assert "takes 9000" in process(report)["exception"] and not report.items


@pytest.mark.behaviour("S67")
def test_a_message_that_cannot_be_read_is_kept_aside(rig):
    rig.connect(QueueName.TO_PROCESSOR)().put(b"not ours", 1)
    assert rig.until(lambda: rig.said(Broken))[0].queue == QueueName.TO_PROCESSOR
    assert rig.run(rig.page(OK, "quiet")).ok


def test_an_idle_child_that_dies_is_replaced_and_no_page_suffers(rig):
    pid = int(rig.run(rig.page(OK, "pid")).items[0].result.partition(":")[2].rstrip("}"))
    os.kill(pid, signal.SIGKILL)
    assert rig.run(rig.page(OK, "quiet")).ok


def test_a_processor_that_is_killed_leaves_nobody_behind(tmp_path):
    endless = script("""
        def cb(self, response):
            child = subprocess.Popen(["sleep", "100"])
            print(os.getpid(), child.pid, file=sys.stderr)
            while True:
                pass
    """)
    path = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    program = (
        f"import sys, time; sys.path[:0] = {path!r}\n"
        f"from conftest import Rig\nrig = Rig()\nrig.start()\nrig.put(rig.page({endless!r}))\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stderr is not None
        pids = [int(word) for word in parent.stderr.readline().split()]
        assert len(pids) == 2 and not any(map(gone, pids))
        parent.kill()
        deadline = time.monotonic() + 5
        while not all(map(gone, pids)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
