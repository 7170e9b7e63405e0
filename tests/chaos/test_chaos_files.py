"""The files of a run of chaos are held against each other: what hides a loss or a double is found, and what cannot be read is named."""

from collections.abc import Callable
from pathlib import Path

import pytest
from chaos_files import well, write

from pyspider_lite.bench.chaos import __main__ as command
from pyspider_lite.bench.chaos import check
from pyspider_lite.bench.chaos.files import Files
from pyspider_lite.bench.chaos.pages import Request, path_of


def result_of_another_task(files: Files) -> None:
    files.results[3]["taskid"] = "t9"


def result_of_another_pages_task(files: Files) -> None:
    files.results[3]["taskid"] = "t4"


def two_tasks_of_a_page(files: Files) -> None:
    files.tasks.insert(2, {**files.tasks[1], "taskid": "t9"})
    files.tasks[-1]["counts"]["success"] += 1


def one_task_twice(files: Files) -> None:
    files.tasks.insert(2, dict(files.tasks[1]))
    files.tasks[-1]["counts"]["success"] += 1


def two_lines_of_counts(files: Files) -> None:
    files.tasks.append({**files.tasks[-1], "dead_letters": ["result lost"]})


def exit_missing(files: Files) -> None:
    del files.events[2]


def exit_of_one_of_two_with_one_pid_missing(files: Files) -> None:
    files.events.insert(3, {**files.events[3], "time": 12.7})


def harm_told_twice(files: Files) -> None:
    files.events.insert(2, dict(files.events[1]))
    files.requests.append(Request(20.5, "fetcher[1]", path_of(2)))


def harm_over_twice(files: Files) -> None:
    files.events[2:2] = [{"event": "over", "time": 20.4, "harm": 1, "pages": []}] * 2


def harm_not_begun(files: Files) -> None:
    files.events.insert(2, {"event": "over", "time": 20.4, "harm": 2, "pages": [4]})


def two_runs(files: Files) -> None:
    files.events.insert(1, dict(files.events[0]))


FREEZE = {
    "event": "harm",
    "harm": 2,
    "time": 12.0,
    "kind": "freeze",
    "pid": 8,
    "role": "fetcher[1]",
    "signal": "SIGSTOP",
}


def kill_that_lasts(files: Files) -> None:
    files.events.insert(3, {"event": "over", "time": 29.0, "harm": 1, "pages": []})


def frozen(files: Files, *overs: float) -> None:
    files.events[2:2] = [
        {**FREEZE, "seconds": 8.0, "in_hand": 1, "pages": []},
        *({"event": "over", "time": time, "harm": 2, "pages": []} for time in overs),
    ]


def freeze_without_end(files: Files) -> None:
    frozen(files)


def freeze_that_never_ends(files: Files) -> None:
    frozen(files, 90.0)


def freeze_that_ends_before(files: Files) -> None:
    frozen(files, 11.0)


def end_wanted_by_nobody(files: Files) -> None:
    files.events[2:2] = [
        {"event": "start", "time": 9.5, "pid": 9, "role": "processor[0]"},
        {"event": "exit", "time": 12.6, "pid": 9, "role": "processor[0]", "code": 4, "wanted": True},
    ]


def result_of_no_page(files: Files) -> None:
    files.results.append({**files.results[3], "taskid": "on_finished", "url": "data:,on_finished"})


def task_of_no_page(files: Files) -> None:
    files.tasks.insert(2, {**files.tasks[1], "taskid": "t9", "url": "data:,zzz"})
    files.tasks[-1]["counts"]["success"] += 1


def written_before_the_run(files: Files) -> None:
    files.results[3]["writes"] = [2.0]


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (kill_that_lasts, "1 of harms over that were over at once: 1"),
        (freeze_without_end, "1 of harms that last and are never over: 2"),
        (freeze_that_never_ends, "1 of harms over that lasted otherwise: 2"),
        (freeze_that_ends_before, "1 of harms over that lasted otherwise: 2"),
        (end_wanted_by_nobody, "1 of processes whose end was wanted and done by nobody: processor[0] (pid 9)"),
        (result_of_no_page, "1 of results of no page: data:,on_finished"),
        (task_of_no_page, "1 of tasks of no page: data:,zzz"),
        (written_before_the_run, "1 of results written before the run began: http://127.0.0.1:1/3.html"),
        (result_of_another_task, "1 of results whose task does not exist: http://127.0.0.1:1/3.html"),
        (result_of_another_pages_task, "1 of results whose task does not exist: http://127.0.0.1:1/3.html"),
        (two_tasks_of_a_page, "1 with more than one task: 1"),
        (one_task_twice, "1 of tasks with more than one row: t1"),
        (two_lines_of_counts, "tasks.jsonl has 2 lines that are no task: one is wanted, with the counts"),
        (exit_missing, "1 of processes started that neither ended nor are left over: fetcher[0] (pid 7)"),
        (
            exit_of_one_of_two_with_one_pid_missing,
            "1 of processes started that neither ended nor are left over: fetcher[0] (pid 7)",
        ),
        (harm_told_twice, "1 of harms told more than once: 1"),
        (harm_over_twice, "1 of harms over more than once: 1"),
        (harm_not_begun, "1 of harms over that were not begun: 2"),
        (two_runs, "harms.jsonl is of more than one run: it has 2 lines of event begin"),
    ],
)
def test_files_that_contradict_each_other_are_wrong(break_it: Callable[[Files], None], problem: str) -> None:
    files = well()
    break_it(files)
    assert problem in check.judge(files).problems


def no_command(files: Files) -> None:
    files.events[-1]["left"] = [{"pid": 8}]


def no_controls(files: Files) -> None:
    del files.tasks[-1]["controls"]


def null_url(files: Files) -> None:
    files.tasks[1]["url"] = None


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (no_command, "a line or an entry of it has no field 'command'"),
        (no_controls, "a line or an entry of it has no field 'controls'"),
        (null_url, "a field has a value of the wrong kind: "),
    ],
)
def test_a_line_without_what_is_needed_is_told_in_a_sentence(
    break_it: Callable[[Files], None], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = well()
    break_it(files)
    write(tmp_path, files)
    assert command.show(tmp_path) == 2
    assert f"{tmp_path}: not the files of a run of chaos: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("tasks.jsonl", '{"url": ', "tasks.jsonl, line 8: Expecting value"),
        ("results.jsonl", "5", "results.jsonl, line 7: it is no JSON object"),
        ("access.log", "12.5", "access.log, line 8: not enough values"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(
    name: str, line: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, well())
    with open(tmp_path / name, "a") as file:
        file.write(line)
    assert command.show(tmp_path) == 2
    assert reason in capsys.readouterr().err
