"""The fixture of result workers; `result_rig` can be imported."""

import sys
from pathlib import Path

import pytest

from pyspider_lite.result_worker import ResultWorker

sys.path.insert(0, str(Path(__file__).parent))

from result_rig import Rig


@pytest.fixture
def rigs(tmp_path):
    made = []

    def make(cls=ResultWorker, fail=None):
        made.append(Rig(f"sqlite+resultdb:///{tmp_path}/result.db", cls, fail))
        return made[-1]

    yield make
    for one in made:
        if one.thread.ident is not None:
            one.stop()
