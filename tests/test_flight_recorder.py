"""The file that says what a processor had begun: as long as that lives it is its own, and it outlives it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyspider_lite.flight_recorder import Begun, FlightRecorder, forget, left_behind

RUN = ("p", "t", 3)

PROCESS = """
import sys, time
from pyspider_lite.flight_recorder import Begun, FlightRecorder
recorder = FlightRecorder(sys.argv[1], "host:1:a")
recorder.note(Begun([("p", "a" * 5000, 1), ("p", "b", 2)]))
recorder.note(Begun([("p", "t", 3)]))
print("begun", flush=True)
time.sleep(60)
"""


def test_what_is_left_of_a_process_that_was_killed(tmp_path: Path) -> None:
    folder = str(tmp_path / "data" / "begun")
    process = subprocess.Popen([sys.executable, "-c", PROCESS, folder], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        # it lives
        assert left_behind(folder) == {}
        forget(folder, "host:1:a")
        assert os.listdir(folder) == ["host:1:a"]
        process.send_signal(signal.SIGKILL)
    assert left_behind(folder) == {"host:1:a": Begun([RUN])}
    forget(folder, "host:1:a")
    assert left_behind(folder) == {} and os.listdir(folder) == []
    forget(folder, "host:1:a")


def test_nothing_is_left_of_one_that_ends(tmp_path: Path) -> None:
    recorder = FlightRecorder(str(tmp_path), "w")
    recorder.note(Begun([RUN]))
    recorder.close()
    recorder.note(Begun([RUN]))
    recorder.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\0\0\0\x09abc", b"\xff" * 100])
def test_a_file_that_a_power_cut_spoilt(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w").write_bytes(content)
    assert left_behind(str(tmp_path)) == {"w": Begun()}


def test_files_that_nobody_reads_are_dropped(tmp_path: Path) -> None:
    for name, age in (("old", 4000), ("new", 10)):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    recorder = FlightRecorder(str(tmp_path), "w")
    assert sorted(os.listdir(tmp_path)) == ["new", "w"]
    recorder.close()


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    recorder = FlightRecorder(str(tmp_path / "file"), "w")
    recorder.note(Begun([RUN]))
    recorder.close()
    assert "who kills all processes here is not found out" in caplog.text
    assert left_behind(str(tmp_path / "file")) == {} == left_behind(str(tmp_path / "none"))
