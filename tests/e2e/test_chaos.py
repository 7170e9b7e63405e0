"""A crawl whose processes and servers are killed, frozen and cut off all the time ends as one that was left alone.

The seeds are fixed; `scripts/chaos` runs others, for longer.
"""

import sys
from pathlib import Path

import pytest

from pyspider_lite.bench.chaos import check, files
from pyspider_lite.bench.chaos.harms import Harm, Kind
from pyspider_lite.bench.chaos.run import PROGRAM, Options, run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LAUNCHER = str(Path(__file__).with_name("planted_faults.py"))
#: few, so that most of what happens happens without one
FEW = [Harm(1.0, Kind.KILL, "fetcher[0]"), Harm(2.0, Kind.KILL, "processor[0]")]


@pytest.mark.parametrize(
    ("stack", "seed", "minutes"),
    [
        ("builtin-sqlite", 1, 0.5),
        *(
            pytest.param(stack, seed, minutes, marks=pytest.mark.slow)
            for stack in ("builtin-sqlite", "redis-mariadb", "rabbitmq-postgresql")
            for seed, minutes in ((2, 0.8), (3, 2.0))
        ),
    ],
)
def test_nothing_is_lost_and_nothing_is_doubled(tmp_path: Path, stack: str, seed: int, minutes: float) -> None:
    run(Options(tmp_path, seed, minutes, stack, pages=round(1750 * minutes)))
    verdict = check.judge(files.load(tmp_path))
    # a short run on a busy machine harms less than it should
    assert verdict.problems + (verdict.shortfalls if minutes >= 2 else []) == [], verdict


@pytest.mark.parametrize(
    "faults",
    ["drop+twice+forget", *(pytest.param(one, marks=pytest.mark.slow) for one in ("drop", "twice", "forget", ""))],
)
def test_planted_faults_are_found(tmp_path: Path, faults: str) -> None:
    planted = [fault for fault in faults.split("+") if fault]
    program = (sys.executable, LAUNCHER, faults) if planted else PROGRAM
    run(Options(tmp_path, 1, 0.33, pages=700, harms=FEW, patience=15.0, program=program))
    problems = check.judge(files.load(tmp_path)).problems
    signs = {"drop": "asked for more often", "twice": "their result written more often", "forget": "never asked for"}
    seen = {fault for fault, sign in signs.items() if any(sign in problem for problem in problems)}
    # a page whose report was lost is fetched again, and then its result is written again
    assert seen == set(planted) | ({"twice"} if "drop" in planted else set()), problems
