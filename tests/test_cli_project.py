"""`project`: what its commands say, store and ask of the scheduler, without daemons."""

import io
import json
import time
from pathlib import Path

import pytest

from pyspider_lite import database
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.project import Project, ProjectState
from pyspider_lite.models.task import NewTask
from pyspider_lite.processor.scripts import script_md5
from pyspider_lite.scheduler import control

pytestmark = pytest.mark.usefixtures("folder")


def project(name: str) -> Project:
    connected = database.connect_projectdb("sqlite+projectdb:///./data/project.db")
    try:
        found = connected.get(name)
    finally:
        connected.close()
    assert found is not None
    return found


def controls() -> list[Control]:
    connected = database.connect_taskdb("sqlite+taskdb:///./data/task.db")
    try:
        return connected.controls(0, 100)
    finally:
        connected.close()


def test_push_stores_a_new_project_with_pyspiders_defaults(command):
    outcome = command("project", "push", "shop.py")
    assert outcome.code == 0
    assert outcome.out.startswith("shop added, status TODO\n")
    stored = project("shop")
    assert (stored.script, stored.rate, stored.burst, stored.status) == (Path("shop.py").read_text(), 1, 3, "TODO")
    assert stored.generation


def test_push_again_changes_only_what_is_given(command):
    command("project", "push", "shop.py", "--rate", "5", "--group", "g", "--status", "debug")
    Path("shop.py").write_text(Path("shop.py").read_text() + "# new\n")
    before = project("shop")
    outcome = command("project", "push", "shop.py", "--burst", "unlimited")
    assert outcome.out == "shop changed, status DEBUG\n"
    stored = project("shop")
    assert (stored.rate, stored.burst, stored.group, stored.status) == (5, float("inf"), "g", "DEBUG")
    assert stored.script.endswith("# new\n")
    assert stored.generation == before.generation
    assert stored.updatetime > before.updatetime


def test_push_reads_the_encoding_that_the_script_names(command, folder):
    (folder / "shop.py").write_bytes("# coding: gb18030\nx = '价格'\n".encode("gb18030"))
    command("project", "push", "shop.py")
    assert "价格" in project("shop").script


@pytest.mark.parametrize("values", [["--rate", "0"], ["--burst", "0"]])
def test_a_rate_of_nothing_is_said(command, values):
    assert "is 0: nothing of shop will be selected" in command("project", "push", "shop.py", *values).err
    assert "is 0: nothing of shop will be selected" in command("project", "run", "shop").err


def test_run_makes_it_active_and_enters_on_start(command):
    command("project", "push", "shop.py")
    assert command("project", "run", "shop").out == "shop is RUNNING; on_start was entered\n"
    assert project("shop").status == "RUNNING"
    (control,) = controls()
    assert (control.project, control.kind, control.generation) == ("shop", "start", project("shop").generation)
    assert (control.task.taskid, control.task.url, control.task.process) == (
        "on_start", "data:,on_start", {"callback": "on_start"},
    )  # fmt: skip
    command("project", "set", "shop", "--status", "DEBUG")
    command("project", "run", "shop")
    assert project("shop").status == "DEBUG"
    assert len(controls()) == 2


def test_set_stop_and_list(command):
    command("project", "push", "shop.py", "--name", "a")
    command("project", "push", "shop.py", "--name", "b", "--rate", "unlimited")
    assert (
        command("project", "set", "a", "--rate", "7", "--status", "RUNNING").out
        == "a: status RUNNING, rate 7.0, burst 3.0\n"
    )
    assert command("project", "stop", "a").code == 0
    rows = [json.loads(line) for line in command("project", "list", "--format", "jsonl").out.splitlines()]
    assert [(row["name"], row["status"], row["rate"]) for row in rows] == [
        ("a", "STOP", 7.0),
        ("b", "TODO", "unlimited"),
    ]
    assert command("project", "list").out.splitlines()[0].split()[:3] == ["name", "group", "status"]


def test_a_project_that_is_not_there(command):
    command("project", "push", "shop.py")
    for line in (["run"], ["stop"], ["set", "--rate", "1"], ["delete", "--yes"]):
        outcome = command("project", line[0], "shpo", *line[1:])
        assert (outcome.code, outcome.err) == (2, "pyspider_lite: there is no project shpo; did you mean shop?\n")
    assert command("project", "set", "shop").code == 2


def test_delete_asks_the_scheduler_and_tells_if_there_is_none(command, monkeypatch):
    monkeypatch.setattr("pyspider_lite.cli.project.DELETE_PATIENCE", 0.3)
    command("project", "push", "shop.py", "--status", "RUNNING")
    outcome = command("project", "delete", "shop", "--yes")
    assert outcome.code == 3
    assert "waiting for the scheduler to delete shop" in outcome.out
    assert "is a scheduler running?" in outcome.err
    assert project("shop").status == "STOP"
    command("project", "delete", "shop", "--yes")
    assert [control.kind for control in controls()] == ["delete"]
    # what is done to it now would be deleted, too
    for words in (["push", "shop.py"], ["run", "shop"]):
        outcome = command("project", *words)
        assert (outcome.code, "shop is to be deleted" in outcome.err) == (3, True)
    assert "it is to be deleted" in command("project", "show", "shop").out
    assert project("shop").status == "STOP"


def test_a_pause_is_shown_and_lifted(command):
    command("project", "push", "shop.py", "--status", "RUNNING")
    assert command("project", "resume", "shop").out == "shop does not pause\n"
    for until, words in ((time.time() + 300, "the project pauses until"), (1.0, "the project was paused")):
        connected = database.connect_taskdb("sqlite+taskdb:///./data/task.db")
        row = ProjectState(
            project="shop",
            active=3,
            periodic=1,
            failed=10,
            crawl=4,
            armed=True,
            paused_until=until,
            pause_reason="it fails",
        )
        with connected.begin(None) as tx:
            tx.put_project_states([row])
        connected.close()
        before = project("shop").updatetime
        shown = command("project", "show", "shop").out.splitlines()
        assert shown[:3] == [
            "shop is RUNNING, rate 1.0, burst 3.0",
            "tasks: 3 active (1 of them again and again), 0 success, 10 failed, 0 bad",
            "crawl 5 goes on",
        ]
        assert shown[3].startswith(f"{words}") and "because it fails" in shown[3]
        (listed,) = [json.loads(line) for line in command("project", "list", "--format", "jsonl").out.splitlines()]
        assert listed["paused_until"]
        assert command("project", "resume", "shop").out == "shop goes on\n"
        assert project("shop").updatetime > before
    before = project("shop").updatetime
    command("project", "run", "shop")
    assert project("shop").updatetime > before
    command("project", "stop", "shop")
    assert len(command("project", "show", "shop").out.splitlines()) == 3
    refused = command("project", "resume", "shop")
    assert refused.code == 2
    assert "shop is STOP, not paused: pyspider_lite project set shop --status RUNNING has it go on" in refused.err


def test_delete_asks_the_user(command, monkeypatch):
    command("project", "push", "shop.py")
    terminal = io.StringIO("n\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", terminal)
    assert command("project", "delete", "shop").code == 130
    assert controls() == []


def test_delete_needs_a_terminal_or_yes(command, monkeypatch):
    command("project", "push", "shop.py")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    outcome = command("project", "delete", "shop")
    assert outcome.code == 2 and "--yes" in outcome.err
    assert controls() == []


def test_messages_that_wait_are_counted(command, folder):
    command("project", "push", "shop.py")
    rows = [
        Control(
            id=f"m{number}",
            project="shop",
            kind=ControlKind.MESSAGE,
            generation=project("shop").generation,
            task=NewTask(f"m{number}", "shop", "data:,m"),
        )
        for number in range(3)
    ]
    connected = database.connect_taskdb("sqlite+taskdb:///./data/task.db")
    with connected.begin(None) as tx:
        tx.add_controls(rows)
    connected.close()
    assert "messages for it: 3 wait or are under way" in command("project", "show", "shop").out


def test_a_script_that_could_not_be_loaded_is_shown(command, folder):
    command("project", "push", "shop.py")
    command("project", "run", "shop")
    row_id = control.info_id("shop", project("shop").generation, script_md5(project("shop").script))
    connected = database.connect_taskdb("sqlite+taskdb:///./data/task.db")
    failed = json.dumps({"of": row_id, "failed": "ModuleNotFoundError: No module named 'nowhere'" + "!" * 100})
    with connected.begin(None) as tx:
        tx.put_project_states([ProjectState(project="shop", active=1, crawl=0, armed=True, info=failed)])
    connected.close()
    shown = command("project", "show", "shop").out.splitlines()
    assert shown[3].startswith("its script could not be loaded: ModuleNotFoundError: No module named 'nowhere'!!")
    (listed,) = [json.loads(line) for line in command("project", "list", "--format", "jsonl").out.splitlines()]
    assert listed["script_error"].endswith("!" * 100)
    assert command("project", "list").out.splitlines()[1].endswith("No module named 'nowhere'" + "!" * 34)
    (problem,) = [line for line in command("doctor").out.splitlines() if line.startswith("problem: script:")]
    assert "the script of shop could not be loaded" in problem and "No module named 'nowhere'" in problem
    assert "pyspider_lite project push" in problem
    # changed, it was not tried yet
    folder.joinpath("shop.py").write_text(project("shop").script + "\n# mended\n")
    command("project", "push", "shop.py")
    assert len(command("project", "show", "shop").out.splitlines()) == 3
    assert "problem: script" not in command("doctor").out


def test_a_row_whose_script_is_no_python_is_warned_of(command):
    command("project", "push", "shop.py")
    connected = database.connect_projectdb("sqlite+projectdb:///./data/project.db")
    connected.update("shop", script="def (:\n")
    connected.close()
    for line in (["run", "shop"], ["set", "shop", "--status", "RUNNING"]):
        outcome = command("project", *line)
        assert outcome.code == 0
        assert "the script is no Python, so it cannot be loaded: shop:1: " in outcome.err
