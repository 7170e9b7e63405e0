"""The options that pyspider's operators give: each from the command line, from config.json and from its variable, and where it arrives."""

import contextlib
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import assembly, bootstrap, cli, configuration
from pyspider_lite.cli import roles
from pyspider_lite.models.names import Role
from pyspider_lite.process_manager import ProcessManager
from pyspider_lite.settings import Settings

#: id, section, option, pyspider's default (or ours, where it is safer), words and value
OPTIONS = [
    ("C12", "", "debug", False, ["--debug"], True),
    ("C13", "", "queue_maxsize", 100, ["--queue-maxsize", "7"], 7),
    ("C14", "", "taskdb", "sqlite+taskdb:///./data/task.db", ["--taskdb", "sqlite+taskdb:///t.db"], "sqlite+taskdb:///t.db"),
    ("C15", "", "projectdb", "sqlite+projectdb:///./data/project.db", ["--projectdb", "mysql+projectdb://h/p"], "mysql+projectdb://h/p"),
    ("C16", "", "resultdb", "sqlite+resultdb:///./data/result.db", ["--resultdb", "mysql+resultdb://h/r"], "mysql+resultdb://h/r"),
    ("C17", "", "message_queue", "", ["--message-queue", "redis://h:1/2"], "redis://h:1/2"),
    ("C23", "", "add_sys_path", True, ["--not-add-sys-path"], False),
    ("C31", "scheduler", "no_xmlrpc", False, ["--no-xmlrpc"], True),
    ("C32", "scheduler", "xmlrpc_host", "127.0.0.1", ["--xmlrpc-host", "0.0.0.0"], "0.0.0.0"),
    ("C33", "scheduler", "xmlrpc_port", None, ["--xmlrpc-port", "1234"], 1234),
    ("C34", "scheduler", "inqueue_limit", 0, ["--inqueue-limit", "5"], 5),
    ("C35", "scheduler", "delete_time", 86400, ["--delete-time", "60"], 60),
    ("C36", "scheduler", "active_tasks", 100, ["--active-tasks", "9"], 9),
    ("C38", "scheduler", "fail_pause_num", 10, ["--fail-pause-num", "0"], 0),
    ("C39", "scheduler", "scheduler_cls", "", ["--scheduler-cls", "mine.Mine"], "mine.Mine"),
    ("C41", "fetcher", "no_xmlrpc", False, ["--no-xmlrpc"], True),
    ("C41", "fetcher", "xmlrpc_host", "127.0.0.1", ["--xmlrpc-host", "::1"], "::1"),
    ("C42", "fetcher", "xmlrpc_port", None, ["--xmlrpc-port", "1234"], 1234),
    ("C43", "fetcher", "poolsize", 100, ["--poolsize", "8"], 8),
    ("C44", "fetcher", "proxy", "", ["--proxy", "h:8080"], "h:8080"),
    ("C45", "fetcher", "user_agent", "", ["--user-agent", "me/1"], "me/1"),
    ("C46", "fetcher", "timeout", 120, ["--timeout", "7"], 7),
    ("C49", "fetcher", "fetcher_cls", "", ["--fetcher-cls", "mine.Mine"], "mine.Mine"),
    ("C50", "processor", "processor_cls", "", ["--processor-cls", "mine.Mine"], "mine.Mine"),
    ("C51", "processor", "process_time_limit", 30, ["--process-time-limit", "0"], 0),
    ("C52", "result_worker", "result_cls", "", ["--result-cls", "mine.Mine"], "mine.Mine"),
    ("C65", "all", "fetcher_num", 1, ["--fetcher-num", "3"], 3),
    ("C65", "all", "processor_num", 1, ["--processor-num", "3"], 3),
    ("C65", "all", "result_worker_num", 1, ["--result-worker-num", "3"], 3),
]  # fmt: skip
VARIABLES = {
    "C13": "QUEUE_MAXSIZE", "C14": "TASKDB", "C15": "PROJECTDB", "C16": "RESULTDB", "C17": "AMQP_URL",
    "C33": "SCHEDULER_XMLRPC_PORT", "C42": "FETCHER_XMLRPC_PORT",
}  # fmt: skip


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: Callable[..., Any]) -> Callable[..., Settings]:
    """Start a command line that ends before anything runs; its settings."""
    seen: list[Settings] = []

    class Manager:
        def __init__(self, settings: Settings) -> None:
            seen.append(settings)

        def run(self) -> int:
            return 0

    def run_role(role: Role, settings: Settings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(roles.bootstrap, "run_role", run_role)
    monkeypatch.setattr(roles.bootstrap, "leave_threads", lambda code: code)
    monkeypatch.setattr(roles.bootstrap, "check_queue", lambda settings, served=False: None)
    monkeypatch.setattr(roles.process_manager, "ProcessManager", Manager)

    def start(*words: str) -> Settings:
        seen.clear()
        done = command(*words)
        assert done.code == 0, done.err
        return seen[0]

    return start


def value(settings: Settings, section: str, name: str) -> Any:
    return getattr(getattr(settings, section) if section else settings, name)


def words(section: str, given: list[str]) -> list[str]:
    return [section, *given] if section else [*given, "scheduler"]


@pytest.mark.parametrize(
    ("id_", "section", "name", "default", "given", "wanted"),
    [pytest.param(*row, id=f"{row[0]}-{row[2]}", marks=pytest.mark.behaviour(row[0])) for row in OPTIONS],
)
def test_an_option(
    id_: str, section: str, name: str, default: Any, given: list[str], wanted: Any,
    started: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    role = section or "scheduler"
    assert value(started(role), section, name) == default
    assert value(started(*words(section, given)), section, name) == wanted
    Path("config.json").write_text(
        json.dumps({section: {name.replace("_", "-"): wanted}} if section else {name: wanted})
    )
    assert value(started("-c", "config.json", role), section, name) == wanted
    if id_ in VARIABLES:
        monkeypatch.setenv(VARIABLES[id_], str(wanted))
        assert value(started(role), section, name) == wanted


@pytest.mark.behaviour("C30", "C37", "C40", "C41", "C65")
@pytest.mark.parametrize(
    "given",
    [
        ["scheduler", "--xmlrpc"],
        ["scheduler", "--loop-limit", "1000"],
        ["scheduler", "--threads", "4"],
        ["fetcher", "--xmlrpc"],
        ["all", "--run-in", "thread"],
    ],
)
def test_what_has_no_effect_is_accepted(given: list[str], started: Any) -> None:
    assert started(*given) == started(given[0])


@pytest.mark.behaviour("C1")
def test_one_program_with_global_options_and_one_command(started: Any) -> None:
    (program,) = (
        one for one in importlib.metadata.entry_points(group="console_scripts") if one.name == "pyspider_lite"
    )
    assert program.load() is cli.main
    settings = started("--queue-maxsize", "7", "fetcher", "--poolsize", "8")
    assert (settings.queue_maxsize, settings.fetcher.poolsize) == (7, 8)
    settings = started("--queue-maxsize", "9")
    assert (settings.queue_maxsize, settings.fetcher.poolsize) == (9, 100)


@pytest.mark.behaviour("C74")
def test_the_section_all_counts_with_and_without_the_command(started: Any) -> None:
    Path("config.json").write_text('{"all": {"fetcher-num": 4}}')
    for given in (("-c", "config.json"), ("-c", "config.json", "all")):
        assert started(*given).all.fetcher_num == 4


@pytest.mark.behaviour("C65", "C91", "C93")
def test_what_all_starts_when_nothing_is_set(started: Any) -> None:
    """The web UI is to come."""
    settings = started("all", "--fetcher-num", "2", "--processor-num", "3")
    assert settings.queue_url == f"builtin://{Path('data/queue.sock').absolute()}"
    children = [child.role for child in ProcessManager(settings)._children]
    assert sorted(children) == sorted(
        [Role.SCHEDULER, Role.FETCHER, Role.FETCHER, *[Role.PROCESSOR] * 3, Role.RESULT_WORKER]
    )


@pytest.mark.behaviour("C5", "C23", "C39", "C49", "C50")
@pytest.mark.parametrize(
    ("role", "more", "said"),
    [
        ("scheduler", [], "found"),
        ("fetcher", [], "found"),
        ("processor", [], "found"),
        ("result_worker", [], "found"),
        ("fetcher", ["--not-add-sys-path"], "fetcher-cls: mine.Mine cannot be loaded"),
    ],
)
def test_a_class_beside_the_working_directory(tmp_path: Path, role: str, more: list[str], said: str) -> None:
    (tmp_path / "mine.py").write_text("print('found')\nraise SystemExit(0)\n")
    option = f"--{role.removesuffix('_worker')}-cls"
    line = [sys.executable, "-P", "-m", "pyspider_lite", "--message-queue", "redis://127.0.0.1:1/0", *more, role]
    done = subprocess.run([*line, option, "mine.Mine"], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("raise SystemExit(0)", "result-cls: mine.Mine cannot be loaded: SystemExit: 0"),
        (
            "class Mine:\n    def __init__(self, *_):\n        raise SystemExit(0)",
            "a class of yours called sys.exit(0)",
        ),
    ],
)
def test_a_class_that_ends_the_process_is_said(tmp_path: Path, script: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(script)
    line = [sys.executable, "-m", "pyspider_lite", "--message-queue", "redis://127.0.0.1:1/0", "result_worker"]
    done = subprocess.run(
        [*line, "--result-cls", "mine.Mine"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_where_they_arrive(tmp_path: Path) -> None:
    config = {
        "data_path": str(tmp_path),
        "message_queue": "memory://operators",
        "queue_maxsize": 7,
        "scheduler": {"inqueue_limit": 5, "delete_time": 60, "active_tasks": 9, "fail_pause_num": 0, "no_xmlrpc": True},
        "fetcher": {"poolsize": 8, "proxy": "h:8080", "user_agent": "me/1", "timeout": 7, "no_xmlrpc": True},
        "processor": {"process_time_limit": 3},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = configuration.load(str(tmp_path / "config.json"), {}, {}).settings
    with contextlib.ExitStack() as stack:
        parts = {role: assembly.Assembly(settings, stack).build(role).role for role in list(Role)[:4]}
        options = parts[Role.SCHEDULER]._options
        assert (options.inqueue_limit, options.delete_time, options.active_tasks, options.fail_pause_num) == (
            5,
            60,
            9,
            0,
        )
        fetcher = parts[Role.FETCHER]
        defaults = fetcher._fetch._defaults
        assert (fetcher._poolsize, defaults.proxy, defaults.user_agent, defaults.timeout) == (8, "h:8080", "me/1", 7)
        assert parts[Role.PROCESSOR]._options.process_time_limit == 3
        queue = assembly.connector(settings, "scheduler2fetcher")()  # type: ignore[arg-type]
        stack.callback(queue.close)
        for number in range(7):
            queue.put(b"%d" % number, 0)
        with pytest.raises(Exception, match="no room"):
            queue.put(b"8", 0)
    for role in (Role.SCHEDULER, Role.FETCHER):
        assert bootstrap._rpc_server(role, settings, 0) is None
