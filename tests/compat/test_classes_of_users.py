"""Classes that a configuration names may import pyspider's names, as scripts do."""

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = """
from pyspider.result import ResultWorker
from pyspider.libs.utils import md5string


class Mine(ResultWorker):
    def on_result(self, task, result):
        return super(Mine, self).on_result(task, dict(result, md5=md5string(task['url'])))
"""


@pytest.mark.behaviour("C52", "C77", "P41")
def test_a_result_worker(tmp_path: Path) -> None:
    (tmp_path / "my_worker.py").write_text(WORKER)
    code = f"import sys; sys.path.append({str(tmp_path)!r})\n"
    code += "from pyspider_lite.assembly import load_class\nassert 'pyspider' not in sys.modules\n"
    code += "found = load_class('my_worker.Mine', object, 'result-cls')\n"
    code += (
        "from pyspider_lite.result_worker import ResultWorker\nprint(found.__name__, issubclass(found, ResultWorker))\n"
    )
    for name in ("pyspider.result.ResultWorker", "pyspider.fetcher.tornado_fetcher.Fetcher"):
        code += f"print(load_class({name!r}, lambda: int, 'x').__name__)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["Mine", "True", "int", "int"], done.stderr
