"""The manager in a process of its own, with children that only write down what happens to them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspider_lite import configuration, process_manager

MANAGER = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
from pyspider_lite import configuration, log, process_manager
log.setup()
process_manager.STOPPED, process_manager.LATE = 1.0, 0.5
options = configuration.load(None, {"data_path": sys.argv[1], "drain_timeout": sys.argv[3], "rpc_secret": "t0psecret", "all": {"fetcher_num": 2}}, {}).settings
sys.exit(process_manager.ProcessManager(options, (sys.executable, sys.argv[2])).run())
"""

CHILD = """
import os, signal, sys, threading
from pyspider_lite import managed_child

start, parent = managed_child.begin()
folder = start.settings.data_path
name = f"{start.role}{start.index}"

def note(what):
    with open(os.path.join(folder, "events"), "a") as stream:
        stream.write(f"{what} {name} {os.getpid()}\\n")

mode = os.path.join(folder, name)
mode = open(mode).read() if os.path.exists(mode) else ""
note("start")
if mode.isdigit():
    sys.exit(int(mode))
if mode == "told":
    parent.say_told()
    sys.exit(0)
end = threading.Event()
signal.signal(signal.SIGTERM, (lambda *_: note("deaf")) if mode == "deaf" else (lambda *_: end.set()))
assert os.path.exists(start.settings.message_queue.removeprefix("builtin://"))
parent.say_ready(lambda: note("hold"))
note("ready")
while not end.wait(0.05):
    pass
note("end")
sys.exit(143)
"""

ROOT = Path(__file__).parent.parent
ROLES = {"scheduler0", "fetcher0", "fetcher1", "processor0", "result_worker0"}


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for something to come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


class Suite:
    """A manager and what its children wrote."""

    def __init__(self, folder: Path, drain: float) -> None:
        self.folder = folder
        child = folder / "child.py"
        child.write_text(CHILD)
        self.process = subprocess.Popen(
            [sys.executable, "-c", MANAGER, str(folder), str(child), str(drain)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def events(self, what: str) -> list[tuple[str, int]]:
        """(child, pid) of each event of a kind, in order."""
        file = self.folder / "events"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(name, int(pid)) for kind, name, pid in lines if kind == what]

    def is_up(self) -> bool:
        return {name for name, _ in self.events("ready")} == ROLES

    def end(self) -> tuple[int, str]:
        """The exit code and what was logged."""
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Callable[..., Suite]]:
    started = []

    def start(drain: float = 8.0, **modes: str) -> Suite:
        for name, mode in modes.items():
            (tmp_path / name).write_text(mode)
        started.append(Suite(tmp_path, drain))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_stops_fetchers_first_and_the_scheduler_last(suite, number, code):
    one = suite()
    until(one.is_up)
    one.process.send_signal(number)
    assert one.end()[0] == code
    ended = [name for name, _ in one.events("end")]
    assert set(ended[:2]) == {"fetcher0", "fetcher1"}
    assert ended[2:] == ["processor0", "result_worker0", "scheduler0"]
    assert not os.path.exists(one.folder / "queue.sock")


def test_who_dies_is_started_again_and_the_others_stay(suite):
    one = suite()
    until(one.is_up)
    (victim,) = (pid for name, pid in one.events("ready") if name == "processor0")
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(one.events("ready")) == 6)
    assert one.events("ready")[-1][0] == "processor0"
    one.process.send_signal(signal.SIGTERM)
    code, log = one.end()
    assert code == 143
    assert f"processor[0] (pid {victim}) ended by SIGKILL" in log
    assert len(one.events("start")) == 6


def test_who_is_stopped_by_a_signal_is_replaced(suite):
    """A script can do that to its processor; one that goes on in time stays."""
    one = suite()
    until(one.is_up)
    pids = dict(one.events("ready"))
    os.kill(pids["fetcher0"], signal.SIGSTOP)
    os.kill(pids["processor0"], signal.SIGSTOP)
    os.kill(pids["fetcher0"], signal.SIGCONT)
    until(lambda: len(one.events("ready")) == 6)
    assert one.events("ready")[-1][0] == "processor0"
    one.process.send_signal(signal.SIGTERM)
    code, log = one.end()
    assert code == 143 and len(one.events("start")) == 6
    assert f"processor[0] (pid {pids['processor0']}) has been stopped by a signal for 1 s" in log
    assert f"processor[0] (pid {pids['processor0']}) ended by SIGKILL" in log


def test_who_is_stopped_together_with_us_is_not_replaced_when_all_goes_on(suite):
    one = suite()
    until(one.is_up)
    pids = [pid for _, pid in one.events("ready")]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    one.process.send_signal(signal.SIGSTOP)
    time.sleep(2.0)
    one.process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    time.sleep(1.2)
    one.process.send_signal(signal.SIGTERM)
    code, log = one.end()
    assert code == 143 and len(one.events("start")) == 5 and "killed" not in log


def test_restarts_become_slower(suite):
    one = suite(processor0="1")
    until(lambda: [name for name, _ in one.events("start")].count("processor0") == 4)
    one.process.send_signal(signal.SIGTERM)
    _, log = one.end()
    waits = [float(line.rpartition(" in ")[2].removesuffix(" s")) for line in log.splitlines() if "again in" in line]
    assert waits[:3] == [0.0, 0.5, 1.0]


def test_who_was_told_to_stop_is_not_started_again(suite):
    one = suite(processor0="told", result_worker0="1")
    # those that crash come again and again meanwhile
    until(lambda: [name for name, _ in one.events("start")].count("result_worker0") == 3)
    one.process.send_signal(signal.SIGTERM)
    _, log = one.end()
    assert "processor[0] was told to stop" in log
    assert [name for name, _ in one.events("start")].count("processor0") == 1


def test_who_ends_by_itself_is_started_again(suite):
    """An `os._exit(0)` in code of users, which is no order."""
    one = suite(result_worker0="0")
    until(lambda: [name for name, _ in one.events("start")].count("result_worker0") == 2)
    one.process.send_signal(signal.SIGTERM)
    _, log = one.end()
    assert "ended with exit code 0; starting it again" in log and "was told to stop" not in log


@pytest.mark.parametrize("code", [2, 3, 4])
def test_a_child_that_cannot_start_ends_all_with_its_code(suite, code):
    one = suite(fetcher1=str(code))
    assert one.end()[0] == code
    assert not [pid for _, pid in one.events("start") if is_alive(pid)]


def test_two_on_one_folder(suite):
    one = suite()
    until(one.is_up)
    other = suite()
    code, log = other.end()
    assert code != 143
    assert f"is in use by another `all`, pid {one.process.pid}" in log
    assert len(one.events("start")) == 5


def test_children_die_with_their_parent(suite):
    one = suite(fetcher0="deaf")
    until(one.is_up)
    one.process.kill()
    one.process.communicate()
    until(lambda: not [pid for _, pid in one.events("start") if is_alive(pid)])


def test_who_does_not_end_in_time_is_killed(suite):
    one = suite(drain=0.4, fetcher0="deaf")
    until(one.is_up)
    one.process.send_signal(signal.SIGTERM)
    code, log = one.end()
    assert code == 143
    assert "fetcher[0] did not end in time: killed" in log
    assert {name for name, _ in one.events("end")} == ROLES - {"fetcher0"}


def test_the_stages_share_the_drain_time(suite):
    """None of them ends by itself, and yet it is over in time; the scheduler was told first to give out nothing more."""
    drain = 4.0
    one = suite(drain=drain, **dict.fromkeys(ROLES, "deaf"))
    until(one.is_up)
    began = time.monotonic()
    one.process.send_signal(signal.SIGTERM)
    assert one.end()[0] == 143
    assert drain - 0.5 < time.monotonic() - began < drain + 2.0
    assert [name for name, _ in one.events("hold")] == ["scheduler0"]
    stopped = [name.rstrip("01") for name, _ in one.events("deaf")]
    assert stopped == ["fetcher", "fetcher", "processor", "result_worker", "scheduler"]


def test_callbacks_have_most_of_the_drain_time(tmp_path):
    settings = configuration.load(None, {"data_path": str(tmp_path), "drain_timeout": 30.0}, {}).settings
    manager = process_manager.ProcessManager(settings)
    drains = [manager._child_settings(role).drain_timeout for role in process_manager.STOP_ORDER]
    assert drains == [pytest.approx(seconds) for seconds in (3.0, 13.0, 3.0, 3.0)]
    assert sum(process_manager.SHARES.values()) == pytest.approx(1.0)


def test_a_second_signal_ends_everything_at_once(suite):
    one = suite(drain=60, fetcher0="deaf")
    until(one.is_up)
    one.process.send_signal(signal.SIGTERM)
    until(lambda: one.events("deaf"))
    one.process.send_signal(signal.SIGINT)
    assert one.end()[0] == 130
    assert not [pid for _, pid in one.events("start") if is_alive(pid)]


def test_no_password_on_a_command_line(suite):
    one = suite()
    until(one.is_up)
    for _, pid in one.events("ready"):
        for file in ("cmdline", "environ"):
            assert b"t0psecret" not in Path(f"/proc/{pid}/{file}").read_bytes()
