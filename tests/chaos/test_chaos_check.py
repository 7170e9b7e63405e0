"""The judge of chaos, on files made by hand: a run in which all is well, and what is found when one thing is not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from chaos_files import PAGES, well, write

from pyspider_lite.bench.chaos import __main__ as command
from pyspider_lite.bench.chaos import check
from pyspider_lite.bench.chaos.files import Files
from pyspider_lite.bench.chaos.pages import Request, path_of, title


def test_a_run_in_which_all_is_well() -> None:
    verdict = check.judge(well())
    assert (verdict.problems, verdict.shortfalls) == ([], [])
    assert verdict.figures == {
        "harms": "1 (1 kill)",
        "SIGKILLs": "1, 1 while work was in hand",
        "pages": "6, 7 requests",
        "losses": "0",
        "doubles": "0",
        "extra requests": "1 (in hand at the harms: 1)",
        "extra writes of a result": "0",
        "longest standstill": "1.0 s without a request, 5 s after the beginning",
        "slowest recovery": "1.5 s until the next page was done, after harm 1, kill of fetcher[0]",
    }


def not_requested(files: Files) -> None:
    del files.requests[4]


def strange_page(files: Files) -> None:
    files.requests.append(Request(22.0, "fetcher[0]", "/77.html"))


def result_lost(files: Files) -> None:
    del files.results[3]


def two_rows(files: Files) -> None:
    files.results.append({**files.results[3], "item": "again"})


def wrong_result(files: Files) -> None:
    files.results[3]["result"] = {"page": 4, "title": title(4)}


def not_audited(files: Files) -> None:
    files.results[3]["writes"] = []


def written_twice(files: Files) -> None:
    files.results[3]["writes"].append(15.1)


def repeated_without_harm(files: Files) -> None:
    files.requests.append(Request(20.5, "fetcher[1]", path_of(4)))


def repeated_before_the_harm(files: Files) -> None:
    files.requests.append(Request(12.2, "fetcher[1]", path_of(2)))


def repeated_twice_for_one_harm(files: Files) -> None:
    files.requests.append(Request(20.5, "fetcher[1]", path_of(2)))


def more_requests_than_in_hand(files: Files) -> None:
    files.events.insert(2, {**files.events[1], "harm": 2, "time": 20.2, "in_hand": 0})
    files.requests.append(Request(20.5, "fetcher[1]", path_of(2)))


def task_open(files: Files) -> None:
    files.tasks[1]["status"] = "active"
    files.tasks[-1]["counts"].update(active=1, success=PAGES - 1)


def task_failed(files: Files) -> None:
    files.tasks[1]["status"] = "failed"
    files.tasks[-1]["counts"].update(failed=1, success=PAGES - 1)


def task_missing(files: Files) -> None:
    del files.tasks[1]
    files.tasks[-1]["counts"].update(success=PAGES - 1)


def result_of_no_page(files: Files) -> None:
    url = files.results[3]["url"].replace("3.html", "77.html")
    files.results.append({**files.results[3], "url": url, "result": {"page": 77, "title": title(77)}})


def task_of_no_page(files: Files) -> None:
    files.tasks.insert(2, {**files.tasks[1], "taskid": "t77", "url": "http://127.0.0.1:1/77.html"})
    files.tasks[-1]["counts"]["success"] += 1


def strange_status(files: Files) -> None:
    files.tasks[1]["status"] = "lost"
    files.tasks[-1]["counts"].update(lost=1, success=PAGES - 1)


def empty_counts(files: Files) -> None:
    files.tasks[-1]["counts"] = {}


def wrong_count(files: Files) -> None:
    files.tasks[-1]["counts"]["success"] += 1


def no_counts(files: Files) -> None:
    del files.tasks[-1]


def control_left(files: Files) -> None:
    files.tasks[-1]["controls"].append("start:chaos:1")


def process_left(files: Files) -> None:
    files.events[-1]["left"].append({"pid": 8, "command": "python child"})


def ended_by_itself(files: Files) -> None:
    files.events[2].update(wanted=False, code=4)


def too_few_kills(files: Files) -> None:
    files.events[0]["minutes"] = 0.1


def nothing_in_hand(files: Files) -> None:
    files.events[0]["minutes"] = 0.05
    files.events[1]["in_hand"] = 0


def broken_harm(files: Files) -> None:
    files.events.insert(2, {"event": "error", "time": 13.0, "harm": 1, "error": "OSError: no"})


def not_finished(files: Files) -> None:
    del files.events[-1]


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (not_requested, "1 never asked for: 4"),
        (strange_page, "1 asked for though no page links to it: /77.html"),
        (result_lost, "1 without a result: 3"),
        (two_rows, "1 with more than one result: 3"),
        (wrong_result, "1 with another page's result: 3"),
        (not_audited, "1 with a result that nobody wrote: 3"),
        (written_twice, "1 their result written more often than they were in hand at harms: 3"),
        (repeated_without_harm, "1 asked for more often than they were in hand at harms: 4"),
        (repeated_before_the_harm, "1 asked for more often than they were in hand at harms: 2"),
        (repeated_twice_for_one_harm, "1 asked for more often than they were in hand at harms: 2"),
        (more_requests_than_in_hand, "2 extra requests, but only 1 were in hand at the harms"),
        (task_open, "1 of tasks active: http://127.0.0.1:1/1.html"),
        (task_failed, "1 of tasks failed: http://127.0.0.1:1/1.html"),
        (task_missing, "1 without a task: 1"),
        (wrong_count, "7 tasks are counted as success, there are 6 rows"),
        (no_counts, "tasks.jsonl has no counts"),
        (result_of_no_page, "1 with a result though no page links to it: 77"),
        (task_of_no_page, "1 with a task though no page links to it: 77"),
        (strange_status, "1 of tasks lost: http://127.0.0.1:1/1.html"),
        (empty_counts, "0 tasks are counted as success, there are 6 rows"),
        (control_left, "1 of control work left: start:chaos:1"),
        (process_left, "1 of processes left over: 8 python child"),
        (ended_by_itself, "fetcher[0] (pid 7) ended by itself, exit code 4"),
        (broken_harm, "harm 1 could not be done: OSError: no"),
        (not_finished, "the run was not finished: harms.jsonl has no beginning or no end"),
    ],
)
def test_what_is_wrong_is_found(break_it: Callable[[Files], None], problem: str) -> None:
    files = well()
    break_it(files)
    assert problem in check.judge(files).problems


@pytest.mark.parametrize(
    ("break_it", "shortfall"),
    [
        (too_few_kills, "only 1 SIGKILLs in 0.1 minutes, 3 are wanted"),
        (nothing_in_hand, "only 0 SIGKILLs while work was in hand in 0.05 minutes, 1 are wanted"),
    ],
)
def test_too_little_harm_is_told_from_what_is_wrong(break_it: Callable[[Files], None], shortfall: str) -> None:
    files = well()
    break_it(files)
    verdict = check.judge(files)
    assert shortfall in verdict.shortfalls
    assert not any("SIGKILL" in problem for problem in verdict.problems)


def test_too_little_harm_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = well()
    too_few_kills(files)
    write(tmp_path, files)
    assert command.show(tmp_path) == command.TOO_LITTLE_HARM == 5
    out = capsys.readouterr().out
    assert "TOO LITTLE HARM: only 1 SIGKILLs in 0.1 minutes" in out and "WRONG" not in out
    result_lost(files)
    write(tmp_path, files)
    assert command.show(tmp_path) == command.WRONG


def test_what_was_in_hand_of_a_frozen_part_may_be_repeated_when_it_wakes_up() -> None:
    files = well()
    # asked for while the part was frozen, done, and asked for by the part itself once it was awake
    files.requests.append(Request(20.5, "fetcher[0]", path_of(5)))
    assert "1 asked for more often than they were in hand at harms: 5" in check.judge(files).problems
    files.events[1].update(kind="freeze", signal="SIGSTOP", in_hand=2)
    files.events[2] = {"event": "over", "harm": 1, "time": 20.4, "pages": []}
    assert [problem for problem in check.judge(files).problems if "asked for" in problem] == []


@pytest.mark.parametrize(
    ("role", "kind", "wrong"),
    [("broker", "cut", 0), ("scheduler[1]", "kill", 0), ("fetcher[0]", "kill", 1), ("fetcher[0]", "term", 0)],
)
def test_what_nobody_can_see_may_be_in_hand_too(role: str, kind: str, wrong: int) -> None:
    files = well()
    files.events.insert(2, {**files.events[1], "harm": 2, "time": 12.6, "role": role, "kind": kind, "pages": []})
    files.requests.append(Request(14.5, "fetcher[1]", path_of(4)))
    assert twice(files) == wrong


@pytest.mark.parametrize(("role", "wrong"), [("broker", 0), ("database", 0), ("fetcher[0]", 1)])
def test_what_is_put_again_while_a_server_is_cut_off_may_be_asked_for_twice_meanwhile(role: str, wrong: int) -> None:
    files = well()
    harm = {**files.events[1], "harm": 2, "time": 12.6, "role": role, "kind": "cut", "signal": "", "pages": []}
    over: dict[str, object] = {"event": "over", "harm": 2, "time": 40.0, "pages": []}
    files.events[2:2] = [harm, over]
    # too late to have been on its way when the cut began
    files.requests[4] = Request(25.0, "fetcher[0]", path_of(4))
    files.requests.append(Request(30.0, "fetcher[1]", path_of(4)))
    assert twice(files) == wrong
    files.requests.append(Request(31.0, "fetcher[1]", path_of(4)))
    assert twice(files) == 1, "a cut is good for one repetition"


def twice(files: Files) -> int:
    return len([problem for problem in check.judge(files).problems if "asked for more often" in problem])


def test_a_folder_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = well()
    write(tmp_path, files)
    assert command.show(tmp_path) == 0
    assert "losses: 0\n" in capsys.readouterr().out
    result_lost(files)
    write(tmp_path, files)
    assert command.show(tmp_path) == 1
    assert "WRONG: 1 without a result: 3\n" in capsys.readouterr().out
    (tmp_path / "access.log").unlink()
    assert command.show(tmp_path) == 2
    assert "access.log: No such file or directory" in capsys.readouterr().err
