"""Commands without daemons (`project`: `test_cli_project`): what they say, and the exit codes, which are compared exactly."""

import csv
import io
import json
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import __version__, database, exit_codes
from pyspider_lite.errors import ConfigError, DatabaseError, PyspiderLiteError, QueueError, RefusedToStart, ScriptError
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import NewTask, TaskEnd

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.usefixtures("folder")


# --- errors (each bad input with its sentence is a row of e2e/test_bad_input) ---


def config(text: str) -> list[str]:
    """A command that needs a config.json with this content."""
    Path("config.json").write_text(text)
    return ["-c", "config.json", "project", "list"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (ScriptError("x"), 2),
        (RefusedToStart("x"), 3),
        (DatabaseError("x"), 3),
        (QueueError("x"), 3),
        (OSError(28, "No space left on device", "a.db"), 3),
        (PyspiderLiteError("x"), 4),
        (KeyError("x"), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_which_error_ends_in_which_code(error, code):
    assert exit_codes.of_error(error) == code
    assert exit_codes.sentence(error)


def test_a_defect_shows_its_traceback(command, monkeypatch):
    def broken(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("pyspider_lite.bootstrap.make_data_path", broken)
    outcome = command("all")
    assert outcome.code == 4
    assert "Traceback" in outcome.err
    assert outcome.err.endswith("pyspider_lite: internal error: KeyError: 'oops'\n")


def test_an_export_that_cannot_be_written_leaves_nothing(command):
    store_results("shop", {"a": {"text": "x" * 100_000}})
    before = os.listdir(".")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    try:
        outcome = command("result", "export", "shop", "--output", "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert outcome.code == 3
    assert "File too large" in outcome.err
    assert os.listdir(".") == before


@pytest.mark.behaviour("C75", "C10", "C19")
def test_an_unknown_key_is_a_warning_and_the_command_runs(command):
    command("project", "push", "shop.py")
    outcome = command(*config('{"fetcher": {"pol-size": 1}, "beanstalk": "x"}'))
    assert outcome.code == 0
    assert outcome.err.count("is ignored") == 2
    assert "unknown key fetcher.pol_size is ignored; did you mean fetcher.poolsize?" in outcome.err


# --- the rest of the surface ---


@pytest.mark.behaviour("C4")
def test_version_and_help(command):
    assert command("version").out == f"pyspider_lite {__version__}\n"
    assert __version__ in command("--version").out
    for name in ("all", "one", "scheduler", "fetcher", "processor", "result_worker", "project", "task", "result"):
        outcome = command(name, "--help")
        assert outcome.code == 0
        assert outcome.out.startswith(f"Usage: pyspider_lite {name}")


@pytest.mark.behaviour("C3")
def test_a_hyphen_in_a_command_is_an_underscore(command):
    outcome = command("result-worker", "--help")
    assert outcome.code == 0
    assert "Start a result worker" in outcome.out


def test_version_imports_nothing_heavy():
    code = (
        "import sys; from pyspider_lite import cli; cli.main(['version']); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    loaded = set(done.stdout.split())
    assert not loaded & {
        "sqlalchemy",
        "kombu",
        "pycurl",
        "lxml",
        "pyquery",
        "requests",
        "asyncio",
        "xmlrpc",
        "zstandard",
    }


# --- tasks and results ---


def store_results(name: str, results: dict[str, Any]) -> None:
    Path("data").mkdir(exist_ok=True)
    connected = database.connect_resultdb("sqlite+resultdb:///./data/result.db")
    for index, (taskid, value) in enumerate(results.items()):
        items = [Item("", json.dumps(value, ensure_ascii=False))]
        connected.store([TaskResult(project=name, taskid=taskid, url=f"http://h/{taskid}", run=index, items=items)])
    connected.close()


def test_tasks(command):
    from pyspider_lite.database.base import NewRow

    Path("data").mkdir()
    connected = database.connect_taskdb("sqlite+taskdb:///./data/task.db")
    connected.open_project("shop")
    task = NewTask("t1", "shop", "http://h/价")
    with connected.begin(None) as transaction:
        transaction.insert("shop", [NewRow(task=task, due=time.time(), priority=0, updatetime=time.time())])
    connected.close()
    listed = command("task", "list", "shop")
    assert listed.code == 0
    assert listed.out.startswith("ACTIVE")
    assert listed.out.endswith("t1  http://h/价\n")
    assert command("task", "list", "shop", "--status", "failed").out == ""
    assert json.loads(command("task", "show", "shop", "t1").out)["url"] == "http://h/价"
    assert json.loads(command("task", "show", "shop", "http://h/价").out)["taskid"] == "t1"
    assert command("task", "show", "shop", "http://h/").err.endswith("there is no task http://h/ in a project shop\n")
    assert command("task", "show", "none", "http://h/").err.endswith("there is no task http://h/ in a project none\n")
    assert command("task", "show", "shop", "t2").err == "pyspider_lite: there is no task t2 in a project shop\n"
    assert command("task", "list", "other").code == 2


def test_a_task_that_waits_for_a_retry_says_which_and_when(command, monkeypatch):
    from pyspider_lite.database.base import NewRow

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    Path("data").mkdir()
    connected = database.connect_taskdb("sqlite+taskdb:///./data/task.db")
    connected.open_project("shop")
    schedule = {"retries": 2, "retry_status": {"503": 5}}
    with connected.begin(None) as transaction:
        for taskid, retried in (("waits", 1), ("failed", 2), ("new", 0)):
            task = NewTask(taskid, "shop", "http://h/", schedule={**schedule, "retried": retried})
            transaction.insert("shop", [NewRow(task=task, due=2e9, priority=0, updatetime=1e9)])
        for taskid, retried, status, due in (("waits", 1, 1, 2e9), ("failed", 2, 3, None)):
            end = TaskEnd(
                taskid=taskid,
                status=status,
                schedule={**schedule, "retried": retried},
                due=due,
                priority=0,
                run=1,
                updatetime=1e9,
                lastcrawltime=1e9,
                track={"fetch": {"status_code": 503 if taskid == "waits" else 500}},
            )
            transaction.end("shop", [end])
    connected.close()
    shown = {taskid: json.loads(command("task", "show", "shop", taskid).out) for taskid in ("waits", "failed", "new")}
    assert {taskid: (task.get("retry"), task.get("next attempt at")) for taskid, task in shown.items()} == {
        "waits": ("1 of 5", "2033-05-18 03:33:20 +0000"),
        "failed": ("2 of 2", None),
        "new": (None, "2033-05-18 03:33:20 +0000"),
    }
    monkeypatch.undo()
    time.tzset()


@pytest.mark.behaviour("W50", "W53")
def test_export_as_json(command):
    store_results("shop", {"a": {"x": "价"}, "b": [1], "c": None})
    lines = [json.loads(line) for line in command("result", "export", "shop").out.splitlines()]
    assert [(line["taskid"], line["url"], line["result"]) for line in lines] == [
        ("c", "http://h/c", None), ("b", "http://h/b", [1]), ("a", "http://h/a", {"x": "价"}),
    ]  # fmt: skip
    assert "价" in command("result", "export", "shop").out
    assert json.loads(command("result", "export", "shop", "--format", "json").out) == lines
    assert len(command("result", "show", "shop", "--limit", "2").out.splitlines()) == 2
    assert command("result", "export", "nope").err == "pyspider_lite: there are no results of a project nope\n"


@pytest.mark.behaviour("W52")
def test_export_as_csv(command):
    store_results("shop", {"u": {"a": 'x,"y', "b": None, "c": 1.5}, "v": {"a": [1], "b": "中", "d": 2}})
    command("result", "export", "shop", "--format", "csv", "--output", "out.csv")
    assert Path("out.csv").read_bytes().decode() == (
        'url,a,b,...\r\nhttp://h/v,[1],中,"{""d"": 2}"\r\nhttp://h/u,"x,""y",null,"{""c"": 1.5}"\r\n'
    )
    store_results("mixed", {"u": {"a": 1}, "v": "text"})
    rows = list(csv.reader(io.StringIO(command("result", "export", "mixed", "--format", "csv").out)))
    assert rows == [["url", "..."], ["http://h/v", "text"], ["http://h/u", '{"a": 1}']]


def test_an_export_keeps_permissions_and_follows_no_link_that_was_laid_for_it(command):
    store_results("shop", {"a": 1})
    Path("secret").write_text("old")
    os.chmod("secret", 0o640)
    for output in ("new", "secret"):
        os.symlink("victim", f"{output}.part")
        assert command("result", "export", "shop", "--output", output).code == 0
    mask = os.umask(0o022)
    os.umask(mask)
    assert [stat.S_IMODE(os.stat(name).st_mode) for name in ("new", "secret")] == [0o666 & ~mask, 0o640]
    assert not os.path.exists("victim") and not [name for name in os.listdir(".") if name.startswith(".export")]


def test_export_to_a_link_replaces_what_it_points_to(command):
    store_results("shop", {"a": 1})
    os.makedirs("far/away")
    Path("far/away/file").write_text("old")
    os.symlink("away/file", "far/second")
    os.symlink("far/second", "first")
    os.symlink("far/none", "dangling")
    with open("far/away/file") as reader:
        for output in ("first", "dangling"):
            assert command("result", "export", "shop", "--output", output).code == 0
        # who reads the old one reads it to its end
        assert reader.read() == "old"
    assert os.readlink("first") == "far/second" and os.readlink("far/second") == "away/file"
    assert Path("far/away/file").read_text() == Path("far/none").read_text() == command("result", "export", "shop").out
    assert sorted(os.listdir("far")) == ["away", "none", "second"] and os.listdir("far/away") == ["file"]


def test_export_to_what_is_no_file_writes_there(command):
    store_results("shop", {"a": 1})
    os.mkfifo("pipe")
    os.symlink("pipe", "link")
    for output in ("pipe", "link"):
        reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
        assert command("result", "export", "shop", "--output", output).code == 0
        assert json.loads(os.read(reader, 10_000))["taskid"] == "a"
        os.close(reader)
    assert stat.S_ISFIFO(os.lstat("pipe").st_mode) and os.path.islink("link")
    os.mkdir("place")
    os.symlink("second", "first")
    os.symlink("first", "second")
    for output in ("place", "first"):
        outcome = command("result", "export", "shop", "--output", output)
        assert outcome.code != 0 and output in outcome.err and "Traceback" not in outcome.err
    assert not [name for name in os.listdir(".") if name.endswith(".part")]


def test_export_to_standard_output_by_its_name(folder):
    store_results("shop", {"a": 1})
    Path("log").write_text("before\n")
    # as /dev/stdout is, which a mistake here must not reach
    os.symlink("/proc/self/fd/1", "stdout")
    os.symlink("/proc/self/fd", "descriptors")
    line = f"{sys.executable} -m pyspider_lite result export shop --output"
    for place in ("stdout >> log", "descriptors/1 >> log", "stdout | cat >> log"):
        subprocess.run(["bash", "-c", f"{line} {place}"], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    first, *lines = Path("log").read_text().splitlines()
    assert os.path.islink("stdout")
    assert first == "before" and [json.loads(line)["taskid"] for line in lines] == ["a"] * 3


def test_a_reader_that_has_enough(folder):
    store_results("shop", {f"t{index}": {"text": "x" * 5000} for index in range(200)})
    line = f"{sys.executable} -m pyspider_lite result export shop | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_no_password_in_a_message(command):
    outcome = command("--message-queue", "nope://user:secret@host/x", "fetcher", "--no-xmlrpc")
    assert outcome.code == 2
    assert "secret" not in outcome.err
    outcome = command("--projectdb", "nope+projectdb://user:secret@host/x", "project", "list")
    assert outcome.code == 2
    assert "secret" not in outcome.err


def test_what_is_stored_is_an_ordinary_database(command):
    command("project", "push", "shop.py")
    with sqlite3.connect("data/project.db") as connection:
        assert connection.execute("SELECT name, status FROM projectdb").fetchall() == [("shop", "TODO")]
    connection.close()
