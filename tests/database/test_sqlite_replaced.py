"""An SQLite file that is replaced or removed while it is open: noticed before the next transaction, and nothing is mixed up."""

import multiprocessing
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb
from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.errors import DatabaseError, LostLeadership
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import NewTask

P = "p"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "task.db"


@pytest.fixture
def taskdb(path: Path) -> Iterator[TaskDB]:
    database = connect_taskdb(f"sqlite+taskdb:///{path}")
    database.open_project(P)
    yield database
    database.close()


def insert(taskdb: TaskDB, *taskids: str, epoch: int | None = None) -> None:
    rows = [NewRow(task=NewTask(taskid=i, project=P, url="u"), due=1.0, priority=0, updatetime=1.0) for i in taskids]
    with taskdb.begin(epoch) as tx:
        tx.insert(P, rows)


def tasks(path: Path) -> list[str]:
    """What the file has, as anybody else sees it."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in connection.execute(f"SELECT taskid FROM taskdb_{P} ORDER BY taskid")]


def copy_of(path: Path) -> Path:
    """As `sqlite3 FILE ".backup COPY"` makes it."""
    copy = path.with_suffix(".copy")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def test_a_copy_is_put_in_its_place(taskdb: TaskDB, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    insert(taskdb, "a")
    copy = copy_of(path)
    insert(taskdb, "lost")
    os.replace(copy, path)
    with pytest.raises(DatabaseError, match=r"task\.db: another file was put in its place; opening it anew"):
        insert(taskdb, "b")
    assert "what was written since is only in the old one" in caplog.text
    insert(taskdb, "b")
    assert [task.taskid for task in taskdb.get(P, ["a", "b", "lost"])] == ["a", "b"]
    assert tasks(path) == ["a", "b"]
    # the log of the old one has what was not in its file yet
    assert (path.parent / "task.db-wal.replaced").exists()


def test_who_leads_believes_nothing_of_what_was_there_before(taskdb: TaskDB, path: Path) -> None:
    """The copy has the same epoch, but not the tasks that this leader has in memory."""
    epoch = taskdb.lead("we", 60, "")
    insert(taskdb, "a", epoch=epoch)
    copy = copy_of(path)
    insert(taskdb, "b", epoch=epoch)
    os.replace(copy, path)
    with pytest.raises(DatabaseError, match="anew"):
        taskdb.time()
    with pytest.raises(LostLeadership, match="replaced"):
        insert(taskdb, "c", epoch=epoch)
    epoch = taskdb.lead("we", 60, "")
    insert(taskdb, "c", epoch=epoch)
    assert tasks(path) == ["a", "c"]


@pytest.mark.parametrize("suffixes", [("",), ("", "-wal", "-shm")])
def test_it_is_removed(taskdb: TaskDB, path: Path, suffixes: tuple[str, ...]) -> None:
    epoch = taskdb.lead("we", 60, "")
    insert(taskdb, "a", epoch=epoch)
    for suffix in suffixes:
        os.unlink(f"{path}{suffix}")
    with pytest.raises(DatabaseError, match="the file was removed; opening it anew"):
        taskdb.leader()
    assert taskdb.leader() is None and taskdb.projects() == set()
    with pytest.raises(LostLeadership):
        insert(taskdb, "b", epoch=epoch)
    taskdb.open_project(P)
    insert(taskdb, "c", epoch=taskdb.lead("we", 60, ""))
    assert tasks(path) == ["c"]


def test_the_log_beside_a_file_behind_a_link(path: Path) -> None:
    """SQLite has the log beside the file that the link points to: it is moved away with that file's name, and only then."""
    real, other = path.with_name("real.db"), path.with_name("other.db")
    path.symlink_to(real)
    with closing(connect_taskdb(f"sqlite+taskdb:///{path}")) as taskdb:
        taskdb.open_project(P)
        insert(taskdb, "a")
        os.replace(copy_of(real), real)
        with pytest.raises(DatabaseError, match="another file was put in its place"):
            insert(taskdb, "b")
        insert(taskdb, "b")
        assert tasks(real) == ["a", "b"] and path.with_name("real.db-wal.replaced").exists()
        # now the link points to another file: the old one keeps its log
        copy_of(real).rename(other)
        insert(taskdb, "c")
        path.unlink()
        path.symlink_to(other)
        with pytest.raises(DatabaseError, match="another file was put in its place"):
            insert(taskdb, "d")
        insert(taskdb, "d")
        assert (tasks(real), tasks(other)) == (["a", "b", "c"], ["a", "b", "d"])


def test_a_damaged_file_says_how_that_comes_and_what_to_do(taskdb: TaskDB, path: Path) -> None:
    insert(taskdb, "a")
    taskdb.close()
    content = bytearray(path.read_bytes())
    # all but the page that says what is there
    content[4096:] = b"\x99" * (len(content) - 4096)
    path.write_bytes(content)
    said = pytest.raises(DatabaseError, match=r"damaged.* by the -wal of another .*stop all.*reliability\.md")
    with closing(connect_taskdb(f"sqlite+taskdb:///{path}")) as damaged, said:
        damaged.get(P, ["a"])


def test_results_and_projects_go_into_the_new_file(tmp_path: Path) -> None:
    resultdb = connect_resultdb(f"sqlite+resultdb:///{tmp_path}/result.db")
    projectdb = connect_projectdb(f"sqlite+projectdb:///{tmp_path}/project.db")
    with closing(resultdb), closing(projectdb):
        projectdb.insert(Project(name=P))
        for number in range(3):
            result = TaskResult(
                taskid=f"t{number}", project=P, url="u", run=0, generation="", items=[Item("", str(number))]
            )
            resultdb.store([result])
            assert [row.taskid for row in resultdb.select(P)] == [f"t{number}"]
            (tmp_path / "result.db").unlink()
        (tmp_path / "project.db").unlink()
        with pytest.raises(DatabaseError, match="the file was removed"):
            projectdb.get(P)
        assert projectdb.get(P) is None
        projectdb.insert(Project(name=P))


def test_a_log_that_cannot_be_moved_away_is_waited_for(
    taskdb: TaskDB, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never opened beside another file."""
    insert(taskdb, "a")
    os.replace(copy_of(path), path)
    kept = path.with_suffix(".db-wal.replaced")
    kept.mkdir()
    for _ in range(2):
        with pytest.raises(DatabaseError, match=r"task\.db-wal is of the file .* cannot be moved away: Is a directory"):
            insert(taskdb, "b")
    kept.rmdir()
    with pytest.raises(DatabaseError, match="anew"):
        insert(taskdb, "b")
    insert(taskdb, "b")
    assert tasks(path) == ["a", "b"]


def _write(url: str, name: str, start: Event, count: int) -> None:
    database = connect_taskdb(url)
    database.open_project(P)
    start.wait()
    for number in range(count):
        for _ in range(5):
            try:
                database.open_project(P)
                insert(database, f"{name}{number:04}")
                break
            except DatabaseError:
                continue
    database.close()


def test_processes_that_write_meanwhile_agree_on_the_new_file(taskdb: TaskDB, path: Path) -> None:
    """Each notices by itself; the file is sound, and has at its end what all wrote last."""
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    url = f"sqlite+taskdb:///{path}"
    writers = [context.Process(target=_write, args=(url, name, start, 200)) for name in "xyz"]
    for writer in writers:
        writer.start()
    copies = []
    for number in range(4):
        copies.append(path.with_suffix(f".copy{number}"))
        os.replace(copy_of(path), copies[-1])
    start.set()
    for copy in copies:
        writers[0].join(0.15)
        os.replace(copy, path)
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert [name[0] for name in tasks(path) if name.endswith("0199")] == ["x", "y", "z"]
