"""A program of the bench that is interrupted leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspider_lite.bench import ending, processes
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.server import Server
from pyspider_lite.exit_codes import TERMINATED

#: seconds, on a busy machine
_LIMIT = 100.0


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def terminated_when(condition: Callable[[], object], number: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """The signal to this process as soon as it holds; the block ends by it."""

    def strike() -> None:
        wait_for(condition)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=strike)
    with pytest.raises(SystemExit) as ended, ending.in_order():
        thread.start()
        yield
    thread.join()
    assert ended.value.code == 128 + number


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP is what it is without `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_the_end_of_its_terminal_ends_it_too(hangup: None) -> None:
    begun = threading.Event()
    with terminated_when(begun.is_set, signal.SIGHUP):
        begun.set()
        time.sleep(_LIMIT)


def test_what_nohup_started_hears_nothing_of_its_terminal(hangup: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with ending.in_order():
        os.kill(os.getpid(), signal.SIGHUP)


def test_a_second_ctrl_c_does_not_interrupt_what_the_first_one_began() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), ending.in_order():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(_LIMIT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            done.append("ended")
    assert done == ["ended"]


def test_a_second_sigterm_does_not_interrupt_what_the_first_one_began() -> None:
    begun = threading.Event()
    done: list[str] = []
    with terminated_when(begun.is_set):
        try:
            begun.set()
            time.sleep(_LIMIT)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("ended")
    assert done == ["ended"]


def test_what_a_command_has_started_is_ended_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with terminated_when(lambda: file.exists() and file.read_text().endswith("\n")):
        # the shell is gone by SIGTERM, its child does not hear of it
        ending.run(["sh", "-c", f"sleep 99 & echo $! > {file}; wait"], patience=0.1)
    wait_for(lambda: processes.over(int(file.read_text())))


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; servers that run as users of their own reach it, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="pyspider_lite-ending-") as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        monkeypatch.undo()


@pytest.mark.parametrize("kind", [MariaDb, PostgreSql])
def test_a_server_that_is_being_set_up_leaves_no_process_and_no_folder(kind: type[Server], temporary: Path) -> None:
    seen: set[int] = set()

    def serves() -> bool:
        found = at_work(temporary)
        seen.update(found)
        return not {"mariadbd", "postgres"}.isdisjoint(map(program, found))

    with terminated_when(serves):
        kind()
    assert at_work(temporary) == [] and list(temporary.iterdir()) == []
    makers = {int(line.split()[4]) for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
    assert not makers & seen


def at_work(folder: Path) -> list[int]:
    """Processes that have the folder in their command line or environment: what sets a server up, and then the server itself."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes() + (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def program(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@pytest.fixture
def bench(temporary: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A crawl of minutes, in a process group of its own."""
    words = [sys.executable, "-m", "pyspider_lite", "bench", "--total", "100000"]
    process = subprocess.Popen(words, start_new_session=True, env={**os.environ, "TMPDIR": str(temporary)})
    yield process
    process.terminate()
    process.wait()


@pytest.mark.e2e
@pytest.mark.parametrize("whole_group", [False, True], ids=["process", "group"])
def test_sigterm_ends_all_that_bench_has_started(
    whole_group: bool, bench: "subprocess.Popen[bytes]", temporary: Path
) -> None:
    """`timeout` sends it to the process, and to its group as well."""
    wait_for(lambda: "processor" in map(processes.role, processes.tree(bench.pid)))
    running = processes.tree(bench.pid)
    bench.terminate()
    if whole_group:
        os.killpg(bench.pid, signal.SIGTERM)
    assert bench.wait(_LIMIT) == TERMINATED
    # a process of scripts hears by its pipe that nobody needs it any more
    wait_for(lambda: all(map(processes.over, running)))
    assert list(temporary.iterdir()) == []
