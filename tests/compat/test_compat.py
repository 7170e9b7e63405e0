"""The old names, in a process of their own: they must not leak into other tests."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyspider_lite

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


#: section 12 of the list: module -> names
SURFACE = {
    "pyspider.libs.utils": "md5string utf8 text pretty_unicode unicode_obj decode_unicode_obj unicode_string decode_unicode_string "
    "timeout TimeoutError getitem ReadOnlyDict ObjectDict Get run_in_thread run_in_subprocess format_date load_object "
    "python_console get_python_console check_port_open hide_me",
    "pyspider.libs.response": "Response rebuild_response get_encoding",
    "pyspider.libs.url": "get_content_type quote_chinese curl_to_arguments _build_url _encode_params _encode_multipart_formdata",
    "pyspider.libs.dataurl": "encode decode",
    "pyspider.libs.log": "LogFormatter SaveLogHandler enable_pretty_logging",
    "pyspider.libs.pprint": "pprint",
    "pyspider.libs.ListIO": "ListO",
    "pyspider.libs.sample_handler": "Handler",
    "pyspider.libs.multiprocessing_queue": "Queue",
    "pyspider.result": "ResultWorker OneResultWorker",
    "pyspider.result.result_worker": "ResultWorker OneResultWorker",
    "pyspider.database": "connect_database",
    "pyspider.database.base.taskdb": "TaskDB",
    "pyspider.database.base.projectdb": "ProjectDB",
    "pyspider.database.base.resultdb": "ResultDB",
    "pyspider.database.sqlite.taskdb": "TaskDB",
    "pyspider.database.mysql.resultdb": "ResultDB",
    "pyspider.database.sqlalchemy": "TaskDB ProjectDB ResultDB",
    "pyspider.database.local.projectdb": "ProjectDB",
    "pyspider.message_queue": "connect_message_queue",
    "pyspider.scheduler": "Scheduler ThreadBaseScheduler OneScheduler",
    "pyspider.scheduler.token_bucket": "",
    "pyspider.fetcher": "Fetcher",
    "pyspider.fetcher.tornado_fetcher": "Fetcher",
    "pyspider.processor": "Processor ProcessorResult",
    "pyspider.run": "cli main scheduler fetcher processor result_worker phantomjs puppeteer all one send_message",
    "pyspider": "__version__",
    "six": "iteritems string_types text_type PY2 PY3 add_metaclass moves",
    "six.moves.urllib.parse": "urljoin quote urlencode",
}


def test_the_whole_surface() -> None:
    code = f"{INSTALL}import importlib\nfor module, names in {SURFACE!r}.items():\n"
    code += " m = importlib.import_module(module)\n for n in names.split(): assert hasattr(m, n), (module, n)\nimport pyspider.libs, six; six.moves.urllib.parse.quote; print('all', hasattr(pyspider.libs, 'x'))"
    assert python(code) == "all False"


def test_what_is_left_out_says_why() -> None:
    code = INSTALL + (
        "from pyspider_lite.compat import LEFT_OUT\nimport importlib\n"
        "for name in LEFT_OUT:\n"
        " importlib.import_module(name.rpartition('.')[0])\n"
        " try: importlib.import_module(name); print('there is', name)\n"
        " except ModuleNotFoundError as e: assert LEFT_OUT[name] in str(e)\n"
        "from pyspider.database.mongodb.taskdb import TaskDB"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "" and done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: pyspider.database.mongodb is not part of pyspider_lite: "
        "tasks, projects and results are kept in SQLite, MySQL/MariaDB or PostgreSQL"
    )


@pytest.mark.behaviour("A1", "C6")
def test_a_logging_ini_of_pyspiders(tmp_path: Path) -> None:
    code = "from pyspider_lite import log, old_names; old_names.install(); import logging, os, pyspider\n"
    code += "log.setup(os.path.join(os.path.dirname(pyspider.__file__), 'logging.conf'))\n"
    code += "print(type(logging.getLogger().handlers[0].formatter).__name__)"
    assert python(code) == "LogFormatter"


def test_the_folder_can_be_deleted(tmp_path: Path) -> None:
    package = Path(pyspider_lite.__file__).parent
    shutil.copytree(package, tmp_path / "pyspider_lite", ignore=shutil.ignore_patterns("compat", "__pycache__"))
    (tmp_path / "script.py").write_text(
        "from pyspider_lite import *\nclass Handler(BaseHandler):\n def on_start(self):\n  self.crawl('data:,x', callback=self.f)\n"
        " def f(self, response):\n  return {'text': response.text}\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom pyspider_lite import cli, __file__\n"
    code += f"assert __file__.startswith({str(tmp_path)!r})\nsys.exit(cli.main(['one', 'script.py']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0 and json.loads(done.stdout)["result"] == {"text": "x"}, done.stderr


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


@pytest.mark.behaviour("A3")
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
