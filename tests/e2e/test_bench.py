"""`bench` itself, short: a generated site and a given one are crawled, and one daemon alone works."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from odd_site import COUNT, OddSite

from pyspider_lite.bench import site

pytestmark = pytest.mark.e2e


def bench(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pyspider_lite", "bench", *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def figures(file: Path) -> dict[str, dict[str, Any]]:
    made = json.loads(file.read_text())
    assert made["machine"]["cores"]
    return {run["name"]: run for run in made["runs"]}


@pytest.mark.behaviour("C66", "C97")
def test_a_generated_site_and_the_parts(tmp_path: Path) -> None:
    flags = ("--all-bench", "--taskdb-bench", "--message-queue-bench", "--run-in", "subprocess")
    numbers = (
        "--fetcher-num",
        "1",
        "--processor-num",
        "1",
        "--result-worker-num",
        "1",
        "--total",
        "300",
        "--show",
        "20",
    )
    bench(*flags, *numbers, "--json", str(tmp_path / "out.json"))
    found = figures(tmp_path / "out.json")
    assert found["taskdb"]["insert_per_s"] > 0 and found["message queue"]["put_per_s"] > 0
    run = found["all"]
    assert run["pages"] == run["requests"] == 300 and run["problems"] == ""
    assert {"scheduler", "fetcher", "processor", "result_worker", "script"} <= run["roles"].keys()
    assert 0 < run["cpu_ms_page"] < run["cpu_ms_page_with_start"]


def test_a_given_site_beside_the_floor(tmp_path: Path) -> None:
    with site.Site(120) as served:
        options = ("--site", served.url, "--parse", "doc", "--floor", "--processor-num", "1")
        said = bench(*options, "--json", str(tmp_path / "out.json"))
    found = figures(tmp_path / "out.json")
    assert found["all"]["pages"] == found["floor"]["pages"] == 120
    assert "all / floor, pages per s: " in said


@pytest.mark.parametrize("handler", ["links", "doc"])
def test_a_given_site_with_what_real_ones_have(handler: str, tmp_path: Path) -> None:
    with OddSite() as served:
        bench("--site", served.url, "--parse", handler, "--floor", "--json", str(tmp_path / "out.json"))
    found = figures(tmp_path / "out.json")
    assert found["all"]["pages"] == found["floor"]["pages"] == COUNT


def test_one_daemon_alone(tmp_path: Path) -> None:
    bench("--role", "fetcher", "--total", "300", "--json", str(tmp_path / "out.json"))
    assert figures(tmp_path / "out.json")["fetcher"]["pages_per_cpu_s"] > 0


def test_sigterm_ends_all_that_was_started(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pyspider_lite", "bench", "--total", "20000", "--keep", str(tmp_path / "kept")]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 90
    while not (started := pids_of(tmp_path)) or len(started) < 6:
        assert time.monotonic() < end and running.poll() is None
        time.sleep(0.2)
    running.terminate()
    assert running.wait(40) == 143
    end = time.monotonic() + 10
    while left := [pid for pid in started if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end, left
        time.sleep(0.1)


def pids_of(folder: Path) -> list[int]:
    """Of `all` with its settings in this folder, and its children."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if f"{folder}/kept/all-1/config.json" in (process / "cmdline").read_text():
                children = (process / "task" / process.name / "children").read_text()
                pids += [int(process.name), *map(int, children.split())]
    return pids
