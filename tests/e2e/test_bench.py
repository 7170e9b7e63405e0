"""`bench` itself, short: a generated site and a given one are crawled, and one daemon alone works."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from odd_site import PAGES, OddSite

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
    assert found["all"]["pages"] == found["floor"]["pages"] == len(PAGES) + 1


def test_one_daemon_alone(tmp_path: Path) -> None:
    bench("--role", "fetcher", "--total", "300", "--json", str(tmp_path / "out.json"))
    assert figures(tmp_path / "out.json")["fetcher"]["pages_per_cpu_s"] > 0
