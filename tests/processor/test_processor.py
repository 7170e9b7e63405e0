"""The processor with its real child: what callbacks do to it, and what it reports."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pyspider_lite import outages
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models import Beat, Broken, Claim, NewTask, QueueName, Release

HEAD = "import os, sys, time, signal, subprocess, threading\nfrom pyspider_lite.handler import *\nclass Handler(BaseHandler):\n"


def script(body: str) -> str:
    """A project with these methods."""
    return HEAD + textwrap.indent(textwrap.dedent(body), "    ")


def process(report):
    return report.track["process"]


def gone(pid: int) -> bool:
    """No such process, or only its zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


OK = script("""
    def cb(self, response):
        print("seen")
        self.save["n"] = self.save.get("n", 0) + 1
        self.crawl("http://a.test/1", callback=self.cb, priority=2)
        self.send_message("other", {"m": 1})
        return {"title": response.etree.findtext(".//title")}

    def quiet(self, response):
        pass

    def pid(self, response):
        return {"pid": os.getpid()}
""")


@pytest.mark.behaviour("P20", "P24")
def test_a_callback_that_works(rig):
    page = rig.page(OK, track={"save": {"n": 4}}, response={"retry_after": 7.0})
    report = rig.run(page)
    assert report.ok and report.key == page.task.key and report.generation == "g1"
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


LOOPS = script("""
    def cb(self, response):
        while True:
            pass

    def gen(self, response):
        yield {"i": 1}
        time.sleep(60)

    def deaf(self, response):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(60)

    def stubborn(self, response):
        while True:
            try:
                time.sleep(60)
            except Exception:
                pass

    def regex(self, response):
        import re
        re.match(r"(a*)*b", "a" * 40)

    def caught(self, response):
        try:
            time.sleep(60)
        except TimeoutError as error:
            return {"late": str(error)}
""")


@pytest.mark.behaviour("H25", "X-P5")
@pytest.mark.parametrize("callback", ["cb", "gen", "regex"])
def test_the_soft_limit_is_an_exception_in_the_callback(fresh_rig, callback):
    fresh_rig.start(process_time_limit=0.5)
    report = fresh_rig.run(fresh_rig.page(LOOPS, callback))
    assert process(report)["exception"] == "process timeout"
    assert 'File "<p>"' in process(report)["logs"]


@pytest.mark.behaviour("H25")
def test_the_soft_limit_can_be_caught_and_the_task_may_set_it(rig):
    report = rig.run(rig.page(LOOPS, "caught", process={"process_time_limit": 0.4}))
    assert report.items[0].result == '{"late":"process timeout"}'


@pytest.mark.behaviour("H25", "X-P5")
@pytest.mark.parametrize("callback", ["deaf", "stubborn"])
def test_the_hard_limit_kills(fresh_rig, callback):
    fresh_rig.start(process_time_limit=0.5, hard_after=0.5)
    fresh_rig.run(fresh_rig.page(OK, "quiet"))
    started = time.monotonic()
    report = fresh_rig.run(fresh_rig.page(LOOPS, callback, track={"save": {"n": 1}}))
    assert process(report)["exception"] == "process killed: 0.5 s limit"
    assert 0.9 < process(report)["time"] < 5 and report.track["save"] == {"n": 1}
    # and another child is there at once
    assert fresh_rig.run(fresh_rig.page(OK, "quiet")).ok
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("statement", "exception"),
    [
        ("os._exit(4)", "process died: exit code 4"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "process died: signal 11 (SIGSEGV)"),
        ("os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)", "process died: "),
        ("[os.close(n) for n in range(3, 30) if os.path.exists(f'/proc/self/fd/{n}')]", "process died: "),
    ],
)
def test_a_callback_that_ends_its_process(rig, statement, exception):
    report = rig.run(rig.page(script(f"def cb(self, response):\n    {statement}")))
    assert process(report)["exception"].startswith(exception)
    assert rig.run(rig.page(OK, "quiet")).ok


def test_a_fork_that_comes_back_is_not_a_second_child(rig):
    reports = [rig.run(rig.page(script("def cb(self, response):\n    os.fork()"))) for _ in range(2)]
    assert all(report.ok for report in reports)


def test_the_memory_limit_kills(fresh_rig):
    fresh_rig.start(memory_limit=200 * 1024 * 1024)
    hog = script(
        "def cb(self, response):\n    hold = []\n    while True:\n        hold.append(bytes(range(256)) * 40_000)\n        time.sleep(0.02)"
    )
    report = fresh_rig.run(fresh_rig.page(hog))
    assert process(report)["exception"] == "process killed: 200 MiB memory limit"
    at_once = script("def cb(self, response):\n    return len('x' * 2**32)")
    assert process(fresh_rig.run(fresh_rig.page(at_once)))["exception"] == "out of memory"
    assert fresh_rig.run(fresh_rig.page(OK, "quiet")).ok


def test_grandchildren_die_with_the_child(fresh_rig, tmp_path):
    fresh_rig.start(process_time_limit=0.6, hard_after=0.4)
    body = f"""
        def cb(self, response):
            pids = [subprocess.Popen(["sleep", "100"]).pid,
                    subprocess.Popen(["sleep", "100"], start_new_session=True).pid]
            open({str(tmp_path / "pids")!r}, "w").write(" ".join(map(str, pids)))
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            time.sleep(60)
    """
    assert "killed" in process(fresh_rig.run(fresh_rig.page(script(body))))["exception"]
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    fresh_rig.until(lambda: all(map(gone, pids)))


def test_what_scripts_start_counts_as_memory(fresh_rig):
    fresh_rig.start(memory_limit=300 * 1024 * 1024)
    hog = "import time; held = b'x' * (120 << 20); time.sleep(60)"
    body = f"def cb(self, response):\n    for _ in range(3):\n        subprocess.Popen([sys.executable, '-c', {hog!r}], start_new_session=True)\n    time.sleep(20)"
    assert process(fresh_rig.run(fresh_rig.page(script(body))))["exception"] == "process killed: 300 MiB memory limit"


def test_processes_that_scripts_leave_behind_are_bounded(fresh_rig, caplog):
    fresh_rig.start()
    at_once = (
        "def cb(self, response):\n    [subprocess.Popen(['sleep', '100']) for _ in range(120)]\n    time.sleep(20)"
    )
    report = fresh_rig.run(fresh_rig.page(script(at_once)))
    assert process(report)["exception"] == "process killed: limit of 100 processes"
    in_turn = script("def cb(self, response):\n    [subprocess.Popen(['sleep', '100']) for _ in range(20)]")
    assert all(fresh_rig.run(fresh_rig.page(in_turn)).ok for _ in range(5))
    fresh_rig.run(fresh_rig.page(in_turn))
    # what they left behind is looked for after a page, four times a second
    fresh_rig.until(
        lambda: fresh_rig.run(fresh_rig.page(OK, "quiet")).ok and "passed the limit of 100 processes" in caplog.text
    )


def test_a_script_that_kills_the_zygote_leaves_no_process_behind(fresh_rig, tmp_path):
    fresh_rig.start()
    body = f"""
        def cb(self, response):
            pid = subprocess.Popen(["sleep", "100"], start_new_session=True).pid
            open({str(tmp_path / "pid")!r}, "w").write(str(pid))
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
    """
    fresh_rig.run(fresh_rig.page(script(body)))
    assert fresh_rig.run(fresh_rig.page(OK, "quiet")).ok
    pid = int((tmp_path / "pid").read_text())
    fresh_rig.until(lambda: gone(pid))


def test_a_flood_of_prints_is_bounded(fresh_rig):
    fresh_rig.start(log_limit=2000)
    body = "def cb(self, response):\n    for i in range(200_000):\n        print('line', i, 'x' * 200)\n    sys.stdout.buffer.write(b'end \\xff')"
    report = fresh_rig.run(fresh_rig.page(script(body)))
    assert len(process(report)["logs"]) == 1000
    assert process(report)["logs"].endswith("\nend \\xff")


@pytest.mark.behaviour("X-P11")
def test_what_is_written_to_the_descriptors_disturbs_nothing(rig):
    report = rig.run(
        rig.page(script("def cb(self, response):\n    os.system('echo to stdout'); os.write(1, b'raw\\n')"))
    )
    assert report.ok and process(report)["logs"] == ""


def test_in_one_prints_are_seen_but_not_among_the_results(fresh_rig, capfd):
    fresh_rig.start(capture_stdout=False)
    report = fresh_rig.run(
        fresh_rig.page(script("def cb(self, response):\n    print('seen')\n    logger.info('told')"))
    )
    assert "told" in process(report)["logs"] and "seen" not in process(report)["logs"]
    out, err = capfd.readouterr()
    assert not out and "seen\n" in err


@pytest.mark.behaviour("P10")
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


def until_told(folder: Path) -> str:
    """A script whose `cb` ends when the folder has a file of the page's name."""
    return script(f"""
        def cb(self, response):
            while not os.path.exists(os.path.join({str(folder)!r}, os.path.basename(response.url))):
                time.sleep(0.02)

        def quiet(self, response):
            pass
    """)


def tell(folder: Path, page) -> None:
    (folder / page.task.url.rpartition("/")[2]).touch()


def test_other_projects_go_on_beside_a_slow_page(rig, tmp_path):
    source = until_told(tmp_path)
    slow, same = rig.page(source), [rig.page(source, "quiet") for _ in range(3)]
    others = [rig.page(OK, project="q") for _ in range(3)]
    rig.put(slow, *same, *others)
    assert all(rig.report_of(page).ok for page in others)
    # another processor could take these now; here they come after the slow one
    rig.until(lambda: rig.handed_over(QueueName.TO_PROCESSOR))
    assert rig.handed_over(QueueName.TO_PROCESSOR)[0].runs == [page.task.key for page in same]
    rig.until(lambda: rig.said(Beat) and rig.said(Beat)[-1].running == slow.task.key)
    assert not any(report.project == "p" for report in rig.reports())
    tell(tmp_path, slow)
    assert all(rig.report_of(page).ok for page in [slow, *same])
    rig.until(lambda: not rig.processor._aside)


def test_a_project_of_slow_pages_runs_one_at_a_time_and_leaves_room_for_others(rig, tmp_path):
    pages = [rig.page(until_told(tmp_path)) for _ in range(3)]
    rig.put(*pages)
    for number, page in enumerate(pages):
        rig.until(lambda: rig.processor._aside)
        assert all(rig.run(rig.page(OK, project="q")).ok for _ in range(5))
        assert len(rig.processor._aside) == 1 and len([one for one in rig.reports() if one.project == "p"]) == number
        tell(tmp_path, page)
        assert rig.report_of(page).ok


@pytest.mark.behaviour("P1")
def test_pages_behind_many_slow_ones_are_given_back(rig, tmp_path):
    slow = [rig.page(until_told(tmp_path), project=name) for name in ("p", "r", "s")]
    others = [rig.page(OK, "quiet", project="q") for _ in range(3)]
    control = rig.page(OK, "quiet", project="q", control="c1", run=0)
    rig.put(*slow, *others)
    rig.until(lambda: len(rig.processor._aside) == 2 and rig.processor._lane.page)
    rig.put(control, queue=QueueName.CONTROL)
    rig.until(lambda: rig.handed_over(QueueName.TO_PROCESSOR) and rig.handed_over(QueueName.CONTROL))
    assert rig.handed_over(QueueName.TO_PROCESSOR)[0].runs == [page.task.key for page in others]
    # another processor would take them now; here they come back after a slow one
    for page in slow:
        tell(tmp_path, page)
    assert all(rig.report_of(page).ok for page in [*slow, *others, control])


def test_a_thread_that_goes_on_for_ever_ends_with_its_child(rig, caplog):
    busy = script("def cb(self, response):\n    threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()")
    assert rig.run(rig.page(busy, project="busy")).ok
    rig.until(
        lambda: rig.run(rig.page(OK, "quiet")).ok and "threads and processes that callbacks left" in caplog.text, 60
    )
    assert "it ran busy, p" in caplog.text


def test_a_child_that_a_script_has_spoilt_is_replaced(rig):
    assert rig.run(
        rig.page(script("def cb(self, response):\n    self.crawl = None\n    sys.modules.clear()"), project="q")
    ).ok
    done = [rig.run(rig.page(script("def cb(self, response):\n    import queue, sched, uuid"))).ok for _ in range(6)]
    assert done[-1] and done.count(False) <= 5


def test_what_a_callback_leaves_set_is_not_left_to_others(rig):
    left = script(
        "def cb(self, response):\n    sys.settrace(lambda *args: time.sleep(0.01))\n"
        "    signal.setitimer(signal.ITIMER_PROF, 0.01)\n    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])"
    )
    assert rig.run(rig.page(left, project="q")).ok
    report = rig.run(rig.page(LOOPS, "cb", process={"process_time_limit": 0.4}))
    assert process(report)["exception"] == "process timeout" and process(report)["time"] < 2


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
    assert last.parts == len(parts) == 5
    assert sorted(part.part for part in parts) == list(range(5))
    assert len({follow.taskid for part in parts for follow in part.follows}) == 5000
    assert [part.parts for part in sorted(parts, key=lambda part: part.part)] == [0, 0, 0, 0, 5]
    assert process(last)["follows"] == 5000
    assert sum(len(part.items) for part in parts) == 1


def test_a_result_that_is_too_large_fails_the_task(rig):
    report = rig.run(rig.page(script("def cb(self, response):\n    return 'x' * 9_000_000")))
    assert "takes 9000" in process(report)["exception"] and not report.items


@pytest.mark.behaviour("S67")
def test_drain_finishes_the_page_and_gives_the_others_back(fresh_rig):
    fresh_rig.start()
    slow = fresh_rig.page(script("def cb(self, response):\n    time.sleep(0.8)"))
    others = [fresh_rig.page(OK, project="q") for _ in range(3)]
    fresh_rig.put(slow, *others)
    fresh_rig.until(lambda: fresh_rig.heartbeat._running == slow.task.key)
    fresh_rig.stop()
    fresh_rig.pump()
    assert fresh_rig.report_of(slow, 1).ok
    assert sorted(run for item in fresh_rig.said(Release) for run in item.runs) == sorted(p.task.key for p in others)
    assert fresh_rig.heartbeat.load == 0


def test_drain_has_an_end(fresh_rig):
    fresh_rig.start(drain_timeout=0.5)
    page = fresh_rig.page(script("def cb(self, response):\n    time.sleep(60)"))
    fresh_rig.put(page)
    fresh_rig.until(lambda: fresh_rig.heartbeat._running)
    started = time.monotonic()
    fresh_rig.stop()
    fresh_rig.pump()
    assert time.monotonic() - started < 6
    assert not fresh_rig.reports() and page.task.key in [run for item in fresh_rig.said(Release) for run in item.runs]


@pytest.mark.behaviour("X-M5", "P32")
def test_results_wait_when_the_result_queue_is_full(fresh_rig):
    fresh_rig.start(results_size=1)
    pages = [fresh_rig.page(OK) for _ in range(12)]
    for page in pages:
        fresh_rig.put(page)
        time.sleep(0.05)
    queue = fresh_rig.connect(QueueName.RESULTS)()
    deadline = time.monotonic() + 15
    while not queue.qsize():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    assert queue.qsize() == 1
    fresh_rig.until(lambda: len(fresh_rig.results) == 12)
    assert {report.key for report in fresh_rig.results} == {page.task.key for page in pages}


@pytest.mark.behaviour("P2", "X-P2")
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


def test_paused_it_takes_nothing_and_finishes_what_it_has(fresh_rig):
    fresh_rig.start()
    slow = fresh_rig.page(script("def cb(self, response):\n    time.sleep(0.6)"), project="slow")
    rest = [fresh_rig.page(OK, "quiet") for _ in range(3)]
    fresh_rig.put(slow, *rest)
    fresh_rig.until(lambda: fresh_rig.said(Claim))
    fresh_rig.processor.pause()
    assert all(fresh_rig.report_of(page).ok for page in (slow, *rest))
    fresh_rig.until(lambda: fresh_rig.said(Beat)[-1].state == "paused" and not fresh_rig.said(Beat)[-1].holds)
    later = fresh_rig.page(OK, "quiet")
    fresh_rig.put(later)
    beats = len(fresh_rig.said(Beat))
    fresh_rig.until(lambda: len(fresh_rig.said(Beat)) > beats + 2)
    assert len(fresh_rig.said(Claim)) == 1
    fresh_rig.processor.resume()
    assert fresh_rig.report_of(later).ok


def test_drained_it_gives_back_what_has_not_begun(fresh_rig):
    fresh_rig.start()
    slow = fresh_rig.page(script("def cb(self, response):\n    time.sleep(0.6)"), project="slow")
    rest = [fresh_rig.page(OK, "quiet") for _ in range(3)]
    fresh_rig.put(slow, *rest)
    fresh_rig.until(lambda: any(beat.running == slow.task.key for beat in fresh_rig.said(Beat)))
    fresh_rig.processor.drain()
    assert fresh_rig.report_of(slow).ok
    fresh_rig.until(lambda: fresh_rig.said(Beat)[-1].state == "drained")
    assert [run for release in fresh_rig.said(Release) for run in release.runs] == [page.task.key for page in rest]
    fresh_rig.processor.resume()
    assert fresh_rig.run(fresh_rig.page(OK, "quiet")).ok
