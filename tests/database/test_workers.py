"""The list of workers in the taskdb, on every product."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyspider_lite.database import connect_taskdb, parse
from pyspider_lite.database.base import TaskDB
from pyspider_lite.database.worker_table import peek
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.worker import Beat, WorkerRow


def row(worker: str, seen: float = 1.0, **said: object) -> WorkerRow:
    return WorkerRow(beat=Beat(worker=worker, role="fetcher", host="web", pid=1, **said), seen=seen, rate=2.5)  # type: ignore[arg-type]


def by_name(rows: list[WorkerRow]) -> dict[str, WorkerRow]:
    return {row.beat.worker: row for row in rows}


def test_rows_are_written_over(taskdb: TaskDB) -> None:
    assert taskdb.workers() == []
    long = "host-" + "ö" * 80 + ":1:ab"
    first = row("web:1:ab", load=3, state="paused", waiting={"redis://b/0": 5.5})
    taskdb.put_workers([first, row(long)])
    assert by_name(taskdb.workers()) == {"web:1:ab": first, long: row(long)}
    taskdb.put_workers([row("web:1:ab", seen=2.0)])
    assert by_name(taskdb.workers())["web:1:ab"] == row("web:1:ab", seen=2.0)
    taskdb.drop_workers([long, "nobody"])
    assert taskdb.workers() == [row("web:1:ab", seen=2.0)]
    taskdb.put_workers([])
    taskdb.drop_workers([])


def test_what_a_worker_holds_is_not_kept(taskdb: TaskDB) -> None:
    taskdb.put_workers([row("web:1:ab", holds={"batch": [("shop", "task", 1)]}, running=("shop", "task", 1))])
    (kept,) = taskdb.workers()
    assert (kept.beat.holds, kept.beat.running) == ({}, None)


def test_a_hundred_at_once(taskdb: TaskDB) -> None:
    taskdb.put_workers([row(f"web{number}:1:ab") for number in range(300)])
    assert len(taskdb.workers()) == 300
    taskdb.drop_workers(f"web{number}:1:ab" for number in range(300))
    assert taskdb.workers() == []


def test_peek_makes_nothing(shared_urls: Callable[[str], str]) -> None:
    url = shared_urls("taskdb")
    target = parse(url, "taskdb")
    for _ in range(2):
        # where even the database is not there yet, that is said
        with suppress(DatabaseError):
            assert peek(target) is None
    assert not target.path or not Path(target.path).exists()
    database = connect_taskdb(url)
    database.put_workers([row("web:1:ab")])
    database.lead("web:2:cd:ef", 60.0, "http://web:23333/")
    seen = peek(target)
    assert seen is not None and seen.leader == database.leader()
    assert seen.workers == [row("web:1:ab")]
    assert abs(seen.now - database.time()) < 5
    database.close()
