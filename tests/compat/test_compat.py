"""The old names, in a process of their own: they must not leak into other tests."""

import subprocess
import sys
from pathlib import Path

import pytest

#: behaviour H5
STAR_NAMES = (
    "sys inspect functools fractions six add_metaclass iteritems quote_chinese curl_to_arguments md5string timeout ListO "
    "rebuild_response pprint ProcessorResult catch_status_code_error not_send_status config NOTSET every BaseHandlerMeta BaseHandler"
)
INSTALL = "from pyspider_lite import compat; compat.install(); compat.install()\n"


def python(code: str, cwd: Path | None = None) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.behaviour("H5", "H6")
@pytest.mark.parametrize(
    "module", ["pyspider.libs.base_handler", "libs.base_handler", "pyspider_lite.libs.base_handler"]
)
def test_star_import(module: str) -> None:
    code = f"{INSTALL}from {module} import *\nimport pyspider_lite\n"
    code += f"assert BaseHandler is pyspider_lite.BaseHandler\nprint([n for n in {STAR_NAMES.split()!r} if n not in globals()])"
    assert python(code) == "[]"


def test_other_modules() -> None:
    code = INSTALL + (
        "from pyspider.libs.utils import md5string, utf8, text, ObjectDict\n"
        "from pyspider.libs.url import quote_chinese\n"
        "from pyspider.libs.response import rebuild_response\n"
        "import sys; assert 'pyspider_lite.result_worker' not in sys.modules\n"
        "from pyspider.result import ResultWorker\n"
        "from six.moves.urllib.parse import urljoin\n"
        "import pyspider; print(pyspider.__version__, rebuild_response({}), ResultWorker.__name__, text(b'x'))"
    )
    assert python(code) == "0.1.0 <Response [599]> ResultWorker x"


def test_nothing_without_install() -> None:
    code = "import pyspider_lite\ntry:\n import libs.base_handler\nexcept ModuleNotFoundError:\n print('none')"
    assert python(code) == "none"


def test_steps_aside_for_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "pyspider").mkdir()
    (tmp_path / "pyspider/__init__.py").write_text("__version__ = 'real'")
    code = f"import sys; sys.path.append({str(tmp_path)!r})\n{INSTALL}import pyspider; print(pyspider.__version__)\n"
    code += "try:\n import pyspider.libs\nexcept ModuleNotFoundError:\n print('not mixed')"
    assert python(code).split("\n") == ["real", "not mixed"]


def test_timeout_block() -> None:
    code = INSTALL + (
        "from pyspider.libs.utils import timeout, TimeoutError\nimport signal, time\n"
        "signal.signal(signal.SIGALRM, lambda *a: None); signal.setitimer(signal.ITIMER_REAL, 30)\n"
        "try:\n with timeout(0.05):\n  time.sleep(10)\nexcept TimeoutError as e: print(e)\n"
        "print(20 < signal.getitimer(signal.ITIMER_REAL)[0] < 30)"
    )
    assert python(code).split("\n") == ["process timeout", "True"]
