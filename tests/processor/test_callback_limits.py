"""The processor with its real child: callbacks that take too long or too much, or harm their process."""

import re
import time

import pytest
from callback_scripts import LOOPS, OK, gone, process, script


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


def test_memory_that_processes_share_counts_once(fresh_rig):
    fresh_rig.start(memory_limit=200 * 1024 * 1024)
    body = """
        def cb(self, response):
            held = bytes(60 << 20)
            started = []
            for _ in range(8):
                pid = os.fork()
                if not pid:
                    time.sleep(1.5)
                    os._exit(0)
                started.append(pid)
            for pid in started:
                os.waitpid(pid, 0)
    """
    assert fresh_rig.run(fresh_rig.page(script(body))).ok


def test_code_in_c_that_gets_no_memory_and_crashes_is_told_with_the_limit(fresh_rig):
    fresh_rig.start(memory_limit=200 * 1024 * 1024)
    body = "def cb(self, response):\n    held = b'x' * (150 << 20)\n    os.kill(os.getpid(), signal.SIGSEGV)"
    reason = process(fresh_rig.run(fresh_rig.page(script(body))))["exception"]
    assert re.fullmatch(r"process died: signal 11 \(SIGSEGV\), with \d+ MiB of memory; the limit is 200 MiB", reason)


def test_processes_that_scripts_leave_behind_are_bounded(fresh_rig, caplog):
    fresh_rig.start()
    at_once = (
        "def cb(self, response):\n    [subprocess.Popen(['sleep', '100']) for _ in range(120)]\n    time.sleep(20)"
    )
    report = fresh_rig.run(fresh_rig.page(script(at_once)))
    assert process(report)["exception"] == "process killed: limit of 100 processes"
    in_turn = script("def cb(self, response):\n    [subprocess.Popen(['sleep', '100']) for _ in range(20)]")
    assert all(fresh_rig.run(fresh_rig.page(in_turn)).ok for _ in range(5))
    last = fresh_rig.run(fresh_rig.page(in_turn))
    if not last.ok:  # it took a quarter of a second, so they were counted while it ran
        assert process(last)["exception"] == "process killed: limit of 100 processes"
        return
    # what they left behind is looked for after a page, four times a second
    fresh_rig.until(
        lambda: fresh_rig.run(fresh_rig.page(OK, "quiet")).ok and "passed the limit of 100 processes" in caplog.text
    )


@pytest.mark.parametrize("env", [None, {}])
def test_a_script_that_kills_the_zygote_leaves_no_process_behind(fresh_rig, tmp_path, env):
    """Not even one that has left its session, its parent, its files and its environment."""
    fresh_rig.start()
    body = f"""
        def cb(self, response):
            zygote = os.getppid()
            if not os.fork():
                os.setsid()
                if os.fork():
                    os._exit(0)
                open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
                os.closerange(0, 100)
                os.execve("/bin/sleep", ["sleep", "100"], {env!r} if {env!r} is not None else dict(os.environ))
            while not os.path.exists({str(tmp_path / "pid")!r}):
                time.sleep(0.01)
            time.sleep(0.1)
            os.kill(zygote, signal.SIGKILL)
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
