"""A batch of pages in the child: each page is run once and judged alone, whatever one of them does to the process."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

HEAD = "import os, sys, time\nfrom pyspider_lite.handler import *\nclass Handler(BaseHandler):\n"
#: each callback leaves a line in a file, so that it can be seen how often it ran
TELLS = (
    HEAD
    + """
    def tell(self, response):
        with open(FILE, "a") as file:
            file.write(response.url + "\\n")

    def cb(self, response):
        self.tell(response)

    def ends(self, response):
        self.tell(response)
        os._exit(3)

    def late(self, response):
        self.tell(response)
        try:
            time.sleep(60)
        except TimeoutError:
            time.sleep(60)

    def large(self, response):
        self.tell(response)
        return {"text": "x" * 600_000}

    def waits(self, response):
        self.tell(response)
        while not os.path.exists(FILE + ".go"):
            time.sleep(0.01)
"""
)


@pytest.fixture
def told(tmp_path: Path):
    """(script, how often the callback of each page ran)."""
    file = tmp_path / "told"
    file.touch()
    return TELLS.replace("FILE", repr(str(file))), lambda: Counter(file.read_text().split())


def exception(report):
    return report.track["process"]["exception"]


@pytest.mark.parametrize(
    ("callback", "reason", "times"),
    [("ends", "process died: exit code 3", 2), ("late", "process killed: 0.2 s limit", 1)],
)
def test_a_page_that_ends_its_process_spoils_no_other(fresh_rig, told, callback, reason, times):
    """It is to blame when it does so in a process that ran no other page."""
    script, ran = told
    fresh_rig.start(hard_after=0.2)
    pages = [fresh_rig.page(script) for _ in range(20)]
    pages[7] = fresh_rig.page(script, callback, process={"process_time_limit": 0.2})
    fresh_rig.put(*pages)
    reports = [fresh_rig.report_of(page) for page in pages]
    assert [number for number, report in enumerate(reports) if not report.ok] == [7]
    assert exception(reports[7]) == reason
    assert ran() == {page.task.url: times if page is pages[7] else 1 for page in pages}


@pytest.mark.parametrize("end", ["os._exit(5)", "os.kill(os.getpid(), 6)", "os.kill(os.getpid(), 9)"])
def test_a_thread_that_one_page_left_behind_ends_the_process_while_another_runs(rig, told, tmp_path, end):
    script, ran = told
    script += f"""
    def leaves(self, response):
        def end():
            while not os.path.exists(FILE + ".end"):
                time.sleep(0.005)
            {end}
        threading.Thread(target=end).start()
""".replace("FILE", repr(str(tmp_path / "told")))
    first = rig.page(script.replace("import os,", "import threading, os,"), "leaves", project="leaves")
    pages = [rig.page(script, "waits" if number == 3 else "cb") for number in range(10)]
    assert rig.run(first).ok
    rig.put(*pages)
    rig.until(lambda: pages[3].task.url in ran())
    (tmp_path / "told.end").touch()
    rig.until(lambda: ran()[pages[3].task.url] == 2)
    (tmp_path / "told.go").touch()
    assert all(rig.report_of(page).ok for page in pages)
    assert ran() == {page.task.url: 2 if page is pages[3] else 1 for page in pages}


def test_what_is_larger_than_the_pipe_comes_through(rig, told):
    script, ran = told
    pages = [rig.page(script, "large") for _ in range(8)]
    rig.put(*pages)
    reports = [rig.report_of(page) for page in pages]
    assert all(len(report.items[0].result) > 600_000 for report in reports)
    assert set(ran().values()) == {1}


def test_a_child_that_somebody_kills_repeats_the_page_that_ran_and_no_other(rig, told, tmp_path):
    script, ran = told
    pages = [rig.page(script) for _ in range(10)]
    pages[3] = rig.page(script, "waits")
    rig.put(*pages)
    rig.until(lambda: pages[3].task.url in ran())
    os.kill(rig.processor._lane.child.pid, signal.SIGKILL)
    (tmp_path / "told.go").touch()
    assert all(rig.report_of(page).ok for page in pages)
    assert ran() == {page.task.url: 2 if page is pages[3] else 1 for page in pages}


def test_pages_behind_a_slow_one_run_elsewhere_and_once(rig, told, tmp_path):
    script, ran = told
    slow = rig.page(script, "waits", project="slow")
    before, behind = ([rig.page(script, project="quick") for _ in range(5)] for _ in range(2))
    rig.put(*before, slow, *behind)
    assert all(rig.report_of(page).ok for page in [*before, *behind])
    assert not any(report.key == slow.task.key for report in rig.reports())
    (tmp_path / "told.go").touch()
    assert rig.report_of(slow).ok
    assert set(ran().values()) == {1}


def test_a_page_that_writes_into_the_socket_spoils_no_other(fresh_rig, told):
    script, ran = told
    script += (
        "\n    def babbles(self, response):\n        self.tell(response)\n"
        "        for name in os.listdir('/proc/self/fd'):\n"
        "            if os.path.exists('/proc/self/fd/' + name) and os.readlink('/proc/self/fd/' + name).startswith('socket:'):\n"
        "                os.write(int(name), b'\\x02\\x00\\x00\\x00no')\n"
    )
    fresh_rig.start()
    pages = [fresh_rig.page(script) for _ in range(20)]
    pages[7] = fresh_rig.page(script, "babbles")
    fresh_rig.put(*pages)
    reports = [fresh_rig.report_of(page) for page in pages]
    assert [number for number, report in enumerate(reports) if not report.ok] == [7]
    assert exception(reports[7]).startswith("process died: it wrote what cannot be read")
    assert all(ran()[page.task.url] == 1 for page in pages[:7]) and max(ran().values()) <= 2


def test_a_callback_that_closes_the_pipe_by_which_it_wakes_us_does_not_make_us_spin(rig, told, monkeypatch):
    script, _ = told
    shut = script + (
        "\n    def shut(self, response):\n"
        "        for name in os.listdir('/proc/self/fd'):\n"
        "            if os.path.exists('/proc/self/fd/' + name) and os.readlink('/proc/self/fd/' + name).startswith('pipe:'):\n"
        "                os.close(int(name))\n"
        "        time.sleep(0.8)\n"
    )
    rig.run(rig.page(script))
    looks = []
    look = rig.processor._lane.look
    monkeypatch.setattr(rig.processor._lane, "look", lambda timeout: (looks.append(timeout), look(timeout))[1])
    pages = [rig.page(shut, "shut"), rig.page(shut)]
    rig.put(*pages)
    assert all(rig.report_of(page).ok for page in pages)
    assert len(looks) < 50
