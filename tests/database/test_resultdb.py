"""What every resultdb must do: the contract `ResultDB`, on each backend."""

import itertools
import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from pyspider_lite.database import resultdb as resultdb_module
from pyspider_lite.database.base import ResultDB
from pyspider_lite.database.resultdb import SqlResultDB
from pyspider_lite.errors import DataError
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult

pytestmark = pytest.mark.drivers

P = "shop"


def result(
    taskid: str,
    run: int = 0,
    *,
    epoch: int = 1,
    generation: str = "g",
    replace: bool = True,
    complete: bool = False,
    project: str = P,
    **items: str,
) -> TaskResult:
    named = [Item("" if name == "only" else name, text) for name, text in items.items()]
    return TaskResult(
        project=project,
        taskid=taskid,
        url="http://x",
        run=run,
        epoch=epoch,
        generation=generation,
        items=named,
        replace=replace,
        complete=complete,
    )


def stored(resultdb: ResultDB, taskid: str) -> dict[str, tuple[int, str]]:
    return {row.item: (row.run, row.result) for row in resultdb.get(P, taskid)}


def test_results_are_read_back(resultdb: ResultDB) -> None:
    text = '{"标题": "😀", "n": 1.5}'
    resultdb.store([result("a", only=text), result("b", x="1", y="2")])
    (row,) = resultdb.get(P, "a")
    assert (row.taskid, row.url, row.result, row.item, row.run) == ("a", "http://x", text, "", 0)
    assert row.updatetime > 1.7e9
    assert [found.item for found in resultdb.get(P, "b")] == ["x", "y"]
    assert resultdb.count(P) == 3
    assert resultdb.projects() == {P}


@pytest.mark.behaviour("D35")
def test_storing_twice_is_storing_once(resultdb: ResultDB) -> None:
    for _ in range(2):
        resultdb.store([result("a", x="1", y="2")])
    assert stored(resultdb, "a") == {"x": (0, "1"), "y": (0, "2")}


def test_an_older_run_never_replaces_a_newer_one(resultdb: ResultDB) -> None:
    resultdb.store([result("a", 2, x="new")])
    resultdb.store([result("a", 1, x="old", y="old", replace=False)])
    assert stored(resultdb, "a")["x"] == (2, "new")
    # both in one batch, the newer one first
    resultdb.store([result("b", 2, x="new"), result("b", 1, x="old")])
    assert stored(resultdb, "b") == {"x": (2, "new")}
    resultdb.store([result("a", 2, x="again")])
    assert stored(resultdb, "a")["x"] == (2, "again")


def test_a_run_of_a_later_scheduler_is_newer_whatever_its_number(resultdb: ResultDB) -> None:
    """As after a taskdb was put back from a copy that is older than the resultdb: its runs are counted again."""
    resultdb.store([result("a", 8, x="before", y="before")])
    resultdb.store([result("a", 4, epoch=2, x="after")])
    assert stored(resultdb, "a") == {"x": (4, "after")}
    # what was given out before comes late
    resultdb.store(
        [result("a", 9, epoch=1, x="late"), result("a", 5, epoch=2, x="again"), result("a", 7, epoch=1, x="late")]
    )
    assert stored(resultdb, "a") == {"x": (5, "again")}
    # the same run given out by both
    resultdb.store([result("b", 3, epoch=2, complete=True, x="2"), result("b", 3, epoch=1, complete=True, x="1")])
    assert stored(resultdb, "b") == {"x": (3, "2")}


def test_items_of_two_runs_are_never_mixed(resultdb: ResultDB) -> None:
    """A result worker that stood still has an older run of the page in hand."""
    resultdb.store([result("a", 2, epoch=2, complete=True, x="new", y="new")])
    resultdb.store([result("a", 2, epoch=1, complete=True, x="late", z="late")])
    resultdb.store([result("a", 1, epoch=2, complete=True, z="late")])
    assert stored(resultdb, "a") == {"x": (2, "new"), "y": (2, "new")}
    # in parts, the last of which says that it is late
    resultdb.store([result("a", 1, epoch=2, z="late", replace=False)])
    resultdb.store([result("a", 1, epoch=2, w="late")])
    assert stored(resultdb, "a") == {"x": (2, "new"), "y": (2, "new")}
    # of one that failed what it had stays beside what was there
    resultdb.store([result("a", 4, epoch=2, y="failed", replace=False)])
    resultdb.store([result("a", 3, epoch=2, complete=True, y="late", z="late")])
    assert stored(resultdb, "a") == {"x": (2, "new"), "y": (4, "failed")}
    resultdb.store([result("a", 5, epoch=2, complete=True, z="5"), result("a", 6, epoch=2, y="6", replace=False)])
    assert stored(resultdb, "a") == {"z": (5, "5"), "y": (6, "6")}


@pytest.mark.parametrize("late", [(1, 6), (2, 5), (2, 0)])
def test_parts_of_a_late_run_come_no_more_than_its_end(resultdb: ResultDB, late: tuple[int, int]) -> None:
    """In whatever order its parts come, and however the later run came."""
    epoch, run = late
    part, end = result("a", run, epoch=epoch, replace=False, p="late"), result("a", run, epoch=epoch, e="late")
    whole = [result("a", 6, epoch=2, complete=True, x="new")]
    in_parts = [result("a", 6, epoch=2, x="new", replace=False), result("a", 6, epoch=2, y="new")]
    for later in (whole, in_parts):
        for order in ([part, end], [end, part], [part]):
            resultdb.drop(P, "")
            resultdb.store(later)
            for one in order:
                resultdb.store([one])
            assert set(stored(resultdb, "a").values()) == {(6, "new")}
        resultdb.drop(P, "")
        resultdb.store([*later, part])
        assert set(stored(resultdb, "a").values()) == {(6, "new")}


def test_the_first_run_in_parts_given_out_twice_is_not_mixed(resultdb: ResultDB) -> None:
    first = [result("a", epoch=1, a="1", replace=False), result("a", epoch=1, b="1")]
    second = [result("a", epoch=2, c="2", replace=False), result("a", epoch=2, d="2")]
    for order in ([*first, *second], [*second, *first], [first[0], *second, first[1]]):
        resultdb.drop(P, "")
        for one in order:
            resultdb.store([one])
        assert stored(resultdb, "a") == {"c": (0, "2"), "d": (0, "2")}


@pytest.mark.parametrize("prompt", [False, True])
def test_two_runs_that_are_stored_at_once_are_not_mixed(resultdb: ResultDB, prompt: bool) -> None:
    """One of them is late, or both are: the database was shut for a while."""
    assert isinstance(resultdb, SqlResultDB)
    resultdb.store([result("first")])
    with closing(resultdb.copy()) as other:
        for number in range(20):
            start = threading.Barrier(2)
            older = result(f"t{number}", 6, epoch=1, complete=True, c="1", title="1")
            newer = result(f"t{number}", 6, epoch=2, complete=True, d="2", title="2")

            def store(where: SqlResultDB, one: TaskResult, late: bool, start: threading.Barrier = start) -> None:
                start.wait(10)
                where.store([one], late=late)

            with ThreadPoolExecutor(2) as pool:
                done = [pool.submit(store, resultdb, older, True), pool.submit(store, other, newer, not prompt)]
                for each in done:
                    each.result(30)
            assert stored(resultdb, f"t{number}") == {"d": (6, "2"), "title": (6, "2")}


def test_a_store_that_takes_long_is_done_again_as_a_late_one(
    resultdb: ResultDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resultdb_module, "PROMPT", -1.0)
    tries: list[bool] = []
    store = SqlResultDB._store

    def spied(self: SqlResultDB, by_project: dict[str, list[TaskResult]], late: bool) -> None:
        tries.append(late)
        store(self, by_project, late)

    monkeypatch.setattr(SqlResultDB, "_store", spied)
    resultdb.store([result("a", x="1")])
    assert tries == [False, True] and stored(resultdb, "a") == {"x": (0, "1")}


def test_it_is_said_when_a_clock_was_ahead(resultdb: ResultDB, caplog: pytest.LogCaptureFixture) -> None:
    """The taskdb was put back from a copy of before, so the leader row knows nothing of that time."""
    now = int(time.time() * 1000)
    resultdb.store([result("a", 1, epoch=now + 3_600_000, x="ahead")])
    with caplog.at_level(logging.INFO):
        resultdb.store([result("a", 1, epoch=now, x="today")])
        assert "those of a later run are stored" not in caplog.text
        assert re.search(r"clock was ahead, and count as newer for 3\d\d\d s", caplog.text)
        resultdb.store([result("b", 2, epoch=now, x="2"), result("c", 1, epoch=now, x="1")])
        resultdb.store([result("b", 1, epoch=now, x="1"), result("c", 2, epoch=now, x="2")])
    assert caplog.text.count("results of 1 tasks came late") == 1
    assert stored(resultdb, "a") == {"x": (1, "ahead")}


def test_results_of_a_version_that_kept_no_epoch_are_older(resultdb: ResultDB) -> None:
    resultdb.store([result("a", 8, epoch=0, x="before")])
    resultdb.store([result("a", 1, x="after")])
    assert stored(resultdb, "a") == {"x": (1, "after")}


def test_a_table_made_before_there_were_epochs_gets_them(resultdb: ResultDB) -> None:
    resultdb.store([result("a", 8, x="before")])
    database, name = resultdb._database, resultdb._tables.name(P)  # type: ignore[attr-defined]
    with database.change_tables() as conn:
        conn.exec_driver_sql(f"ALTER TABLE {conn.dialect.identifier_preparer.quote(name)} DROP COLUMN epoch")
    resultdb._tables.forget()  # type: ignore[attr-defined]
    resultdb.store([result("a", 1, x="after")])
    assert stored(resultdb, "a") == {"x": (1, "after")}


def test_a_successful_run_drops_the_items_of_earlier_ones(resultdb: ResultDB) -> None:
    resultdb.store([result("a", 0, x="1", y="1"), result("b", 0, x="1")])
    resultdb.store([result("a", 1, y="2", replace=False)])
    assert stored(resultdb, "a") == {"x": (0, "1"), "y": (1, "2")}
    # the parts of one run keep one another's items
    resultdb.store([result("a", 1, z="2")])
    assert stored(resultdb, "a") == {"y": (1, "2"), "z": (1, "2")}
    assert stored(resultdb, "b") == {"x": (0, "1")}
    resultdb.store([result("a", 2)])
    assert stored(resultdb, "a") == {}


@pytest.mark.parametrize("run", [0, 3])
def test_a_repeated_run_drops_what_its_first_try_had_more(resultdb: ResultDB, run: int) -> None:
    resultdb.store([result("a", run, complete=True, x="1", y="1", z="1"), result("b", run, x="1", y="1")])
    # an item on its own each, as a user's result worker stores them
    resultdb.store([result("a", run, complete=True, x="2"), result("a", run, complete=True, z="2")])
    assert stored(resultdb, "a") == {"x": (run, "2"), "z": (run, "2")}
    assert stored(resultdb, "b") == {"x": (run, "1"), "y": (run, "1")}, "another task's"
    # in parts nobody knows all
    resultdb.store([result("b", run, x="2")])
    assert stored(resultdb, "b") == {"x": (run, "2"), "y": (run, "1")}
    # a late try of an earlier run changes nothing
    if run:
        resultdb.store([result("a", run - 1, complete=True, y="0")])
        assert stored(resultdb, "a").keys() >= {"x", "z"}


@pytest.mark.behaviour("X-P9")
def test_late_results_of_a_dropped_generation_are_ignored(resultdb: ResultDB) -> None:
    resultdb.store([result("a", only="1"), result("b", only="1", project="other")])
    resultdb.drop(P, "g")
    assert (resultdb.count(P), resultdb.projects(), resultdb.count("other")) == (0, {"other"}, 1)
    resultdb.store([result("late", only="1"), result("c", only="1", project="other")])
    assert (resultdb.count(P), resultdb.projects(), resultdb.count("other")) == (0, {"other"}, 2)
    resultdb.store([result("late", only="1"), result("new", only="2", generation="h")])
    assert [row.taskid for row in resultdb.select(P)] == ["new"]
    resultdb.drop(P, "h")
    resultdb.drop(P, "h")
    assert resultdb.count(P) == 0


@pytest.mark.behaviour("W53", "D14")
def test_results_are_streamed_newest_first(resultdb: ResultDB) -> None:
    for start in (0, 3, 130):
        resultdb.store([result(f"t{number:03}", only=str(number)) for number in range(start, 260)])
    rows = [int(row.result) for row in resultdb.select(P)]
    assert rows == list(range(259, -1, -1))
    assert [int(row.result) for row in resultdb.select(P, offset=5, limit=3)] == [254, 253, 252]
    assert [int(row.result) for row in resultdb.select(P, offset=50, limit=150)] == rows[50:200]
    assert list(resultdb.select(P, offset=500)) == []
    assert list(resultdb.select(P, limit=0)) == []


@pytest.mark.behaviour("X-D5")
def test_a_reader_in_the_middle_does_not_stop_writers(resultdb: ResultDB) -> None:
    resultdb.store([result(f"t{number}", only="1") for number in range(250)])
    rows = resultdb.select(P)
    first = list(itertools.islice(rows, 10))
    copy = resultdb.copy()
    copy.store([result("more", only="1")])
    copy.close()
    assert len(first) + len(list(rows)) == 250


@pytest.mark.behaviour("D16")
def test_an_unknown_project_reads_as_nothing(resultdb: ResultDB) -> None:
    assert (resultdb.count("no"), resultdb.get("no", "a"), list(resultdb.select("no"))) == (0, [], [])
    resultdb.drop("no", "")


def test_long_ids_and_items(resultdb: ResultDB) -> None:
    taskid, item = "t" * 100, "http://long/" + "标" * 300
    resultdb.store([result(taskid, **{item: "1", item + "!": "2"})])
    assert {(row.taskid, row.item, row.result) for row in resultdb.get(P, taskid)} == {
        (taskid, item, "1"),
        (taskid, item + "!", "2"),
    }


@pytest.mark.behaviour("D34", "X-D6")
def test_a_large_result(resultdb: ResultDB) -> None:
    text = '"' + "标" * 1_000_000 + '"'
    resultdb.store([result("a", only=text)])
    assert resultdb.get(P, "a")[0].result == text


def test_a_batch_with_a_bad_row_stores_nothing(resultdb: ResultDB) -> None:
    with pytest.raises(DataError, match="results of shop"):
        resultdb.store([result("a", only="1"), result("b", only="\ud800")])
    assert resultdb.count(P) == 0


@pytest.mark.behaviour("X-D9")
def test_a_table_dropped_by_another_process_is_made_again(resultdb: ResultDB) -> None:
    resultdb.store([result("a", only="1", generation="")])
    copy = resultdb.copy()
    copy.drop(P, "")
    copy.close()
    assert resultdb.count(P) == 0
    resultdb.store([result("b", only="1")])
    assert resultdb.count(P) == 1


def test_two_workers_store_at_once(resultdb: ResultDB) -> None:
    copies = [resultdb.copy() for _ in range(2)]
    failed: list[BaseException] = []

    def work(copy: ResultDB, name: str) -> None:
        try:
            for number in range(15):
                copy.store([result(f"{name}{number}", only="1"), result("both", number, only=name)])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(copy, f"w{i}-")) for i, copy in enumerate(copies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for copy in copies:
        copy.close()
    assert failed == []
    assert resultdb.count(P) == 31
    assert resultdb.get(P, "both")[0].run == 14


def test_a_project_that_was_dropped_elsewhere_and_made_anew_is_stored_at_once(resultdb: ResultDB) -> None:
    resultdb.store([result("a", generation="old", only="1")])
    other = resultdb.copy()
    other.drop(P, "old")
    other.close()
    resultdb.store([result("a", generation="new", only="2")])
    assert stored(resultdb, "a") == {"": (0, "2")}
