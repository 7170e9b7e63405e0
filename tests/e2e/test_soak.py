"""Nothing grows in daemons that crawl the same pages again and again. Longer: `scripts/soak`."""

from pathlib import Path

import pytest

from pyspider_lite.bench.soak import SCRIPT, soak, table
from pyspider_lite.bench.suite import STACKS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

#: of each page something stays for ever, and a file stays open
LEAK = SCRIPT.replace(
    "def page(self, response):", 'def page(self, response):\n        KEPT.append((b"x" * 50_000, open("/dev/null")))'
)


@pytest.mark.parametrize(
    ("stack", "seconds"),
    [("builtin-sqlite", 40.0), *(pytest.param(stack, 300.0, marks=pytest.mark.slow) for stack in sorted(STACKS))],
)
def test_nothing_grows(tmp_path: Path, stack: str, seconds: float) -> None:
    soaked = soak(tmp_path, STACKS[stack], seconds=seconds, rate=20.0, processors=1)
    assert soaked.problems == [], "\n".join(table(soaked.rows))
    assert soaked.pages_per_s > 10.0
    seen = {(row.what.split()[0], row.kind) for row in soaked.rows}
    roles = ("scheduler", "fetcher", "processor", "result_worker")
    assert seen >= {(role, kind) for role in roles for kind in ("RSS, MB", "files")} | {("broker", "messages")}


@pytest.mark.slow
def test_a_leak_is_found(tmp_path: Path) -> None:
    script = "KEPT = []\n" + LEAK
    problems = soak(tmp_path, STACKS["builtin-sqlite"], seconds=40.0, rate=20.0, processors=1, script=script).problems
    assert len(problems) == 2, problems
    assert all(problem.startswith("script ") for problem in problems)
