"""What every taskdb keeps beside the tasks: control work, the projects' states and dead letters."""

from collections.abc import Callable
from contextlib import closing

import msgspec
import pytest
import sqlalchemy as sa
from stored_tasks import P, submission

from pyspider_lite.database import connect_taskdb
from pyspider_lite.database.base import TaskDB
from pyspider_lite.database.schema import CONTROL
from pyspider_lite.database.taskdb import SqlTaskDB
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.letter import DeadLetter, LetterCount
from pyspider_lite.models.project import CronJob, JobState, ProjectState


def test_control_work_is_entered_once_and_kept_in_order(taskdb: TaskDB) -> None:
    def row(name: str, created: float = 1.0) -> Control:
        return Control(
            id=name,
            project=P,
            kind=ControlKind.CRON,
            generation="g",
            task=submission("c", fetch={"a": 1}),
            created=created,
        )

    long = "k" * 200
    with taskdb.begin(None) as tx:
        tx.add_controls([row("b"), row("a"), row(long)])
        tx.add_controls([row("a", created=9.0)])
        assert tx.existing_controls(["a", long, "none"]) == {"a", long}
        assert sorted(tx.waiting_controls(P, "g", ["cron", "start"], 9)) == ["a", "b", long]
        assert len(tx.waiting_controls(P, "g", ["cron"], 2)) == 2
        for other in (("other", "g", ["cron"]), (P, "h", ["cron"]), (P, "g", ["start"])):
            assert tx.waiting_controls(*other, 9) == []
    rows = taskdb.controls(0, 10)
    assert [(found.id, found.created) for found in rows] == [("b", 1.0), ("a", 1.0), (long, 1.0)]
    assert msgspec.structs.replace(rows[0], seq=0) == row("b")
    assert [found.id for found in taskdb.controls(rows[0].seq, 1)] == ["a"]
    task = submission("c", fetch={"a": 1}, schedule={"deaths": 1})
    with taskdb.begin(None) as tx:
        tx.mark_controls([msgspec.structs.replace(row(name), task=task) for name in (long, "a", "none")])
    marked = [msgspec.structs.replace(found, task=task) if found.id != "b" else found for found in rows]
    assert taskdb.controls(0, 10) == marked
    with taskdb.begin(None) as tx:
        tx.delete_controls(["b", long, "none"])
    assert [found.id for found in taskdb.controls(0, 10)] == ["a"]


def test_control_work_of_one_project_is_read_by_kind_and_in_order(taskdb: TaskDB) -> None:
    def row(name: str, kind: ControlKind = ControlKind.MESSAGE, project: str = P, generation: str = "g") -> Control:
        return Control(id=name, project=project, kind=kind, generation=generation, task=submission(name))

    start, long = ControlKind.START, "k" * 200
    with taskdb.begin(None) as tx:
        tx.add_controls([row("b"), row("s", start), row("other", project="z"), row("old", generation="f"), row("a")])
        tx.add_controls([row("t", start, generation=""), row(long)])
        assert {found.id for found in tx.controls(["a", long, "none", "s"])} == {"a", long, "s"}
        assert tx.controls([]) == []

    def page(kind: ControlKind, after: int = 0, limit: int = 9) -> list[Control]:
        heads = taskdb.project_control_heads(P, "g", kind, after, limit)
        rows = taskdb.control_rows(head.id for head in reversed(heads))
        assert [(row.id, row.project, row.kind, row.seq) for row in rows] == [
            (head.id, P, kind, head.seq) for head in heads
        ]
        return rows

    assert [found.id for found in page(start)] == ["s", "t"]
    first = page(ControlKind.MESSAGE, limit=2)
    assert [found.id for found in first] == ["b", "a"]
    assert [found.id for found in page(ControlKind.MESSAGE, first[-1].seq)] == [long]
    assert msgspec.structs.replace(first[0], seq=0) == row("b")
    assert page(ControlKind.INFO) == []


def test_heads_tell_how_large_the_work_is(shared_urls: Callable[[str], str]) -> None:
    """Those of a table of an earlier version tell nothing."""
    rows = [
        Control(
            id=f"c{size}",
            project=P,
            kind=ControlKind.MESSAGE,
            generation="g",
            task=submission("c", fetch={"save": "x" * size}),
        )
        for size in (0, 1_000_000)
    ]
    with closing(connect_taskdb(shared_urls("taskdb"))) as taskdb, taskdb.begin(None) as tx:
        tx.add_controls(rows)
    with closing(connect_taskdb(shared_urls("taskdb"))) as taskdb:
        small, large = (head.size for head in taskdb.control_heads(0, 9))
        assert 0 < small < 1_000 and large == small + 1_000_000
        with taskdb._database.write() as conn:
            quoted = conn.dialect.identifier_preparer.quote(CONTROL.name)
            conn.exec_driver_sql(f"ALTER TABLE {quoted} DROP COLUMN size")
    with closing(connect_taskdb(shared_urls("taskdb"))) as taskdb:
        assert [head.size for head in taskdb.control_heads(0, 9)] == [0, 0]
        assert [found.task.fetch for found in taskdb.control_rows(["c1000000"])] == [rows[1].task.fetch]


def test_a_page_of_control_work_that_cannot_be_read_is_not_the_last(taskdb: TaskDB) -> None:
    assert isinstance(taskdb, SqlTaskDB)
    rows = [
        Control(id=f"c{number}", project=P, kind=ControlKind.START, generation="g", task=submission(f"c{number}"))
        for number in range(7)
    ]
    with taskdb.begin(None) as tx:
        tx.add_controls(rows)
    ids = [row.id for row in rows]
    with taskdb._database.write() as conn:
        conn.execute(sa.update(CONTROL).where(CONTROL.c.id.in_(ids[:5])).values(task="{broken"))
    assert [found.id for found in taskdb.controls(0, 2)] == ids[5:6]
    assert [found.id for found in taskdb.control_heads(0, 9)] == ids
    assert [found.id for found in taskdb.control_rows(ids)] == ids[5:]
    with taskdb.begin(None) as tx:
        assert [found.id for found in tx.controls(ids[4:6])] == ids[5:6]


def test_project_states_are_written_over(taskdb: TaskDB) -> None:
    first = ProjectState(
        project=P, generation="g", active=1, success=2, failed=3, bad=4, periodic=1, crawl=2, armed=True
    )
    job = JobState(CronJob("价", cron="0 2 * * *", misfire_grace=1.5), tick=60, ended=61.5, error="价", missed=2)
    second = msgspec.structs.replace(first, active=0, armed=False, last_tick=1_800_000_000, jobs=[job, job])
    with taskdb.begin(None) as tx:
        tx.put_project_states([first, ProjectState(project="z")])
        assert tx.project_states([P, "none"]) == {P: first}
        tx.put_project_states([second])
    assert taskdb.project_states() == {P: second, "z": ProjectState(project="z")}


def test_dead_letters_come_newest_first(taskdb: TaskDB) -> None:
    letters = [
        DeadLetter(kind="broken", queue="q", project=P, taskid="t" * 300, reason="标", payload=b"\x00\xff", time=1.0),
        DeadLetter(kind="poison", reason="r", payload=b"", time=2.0),
    ]
    with taskdb.begin(None) as tx:
        tx.add_dead_letters(letters)
    found = taskdb.dead_letters()
    assert [msgspec.structs.replace(letter, seq=0) for letter in found] == letters[::-1]
    assert taskdb.dead_letters(1) == found[:1]
    assert found[0].seq > found[1].seq > 0


def letters_of(taskdb: TaskDB) -> list[tuple[str, str, float]]:
    return [(letter.project, letter.kind, letter.time) for letter in taskdb.dead_letters(10_000, with_payload=False)]


def test_dead_letters_are_found_by_id_kind_and_project_in_pages(taskdb: TaskDB) -> None:
    letters = [
        DeadLetter(kind=kind, project=project, reason="r", payload=b"abc", size=7, time=float(index))
        for index, (kind, project) in enumerate(
            [("task", P), ("result", P), ("task", "z"), ("task", P), ("message", "")]
        )
    ]
    with taskdb.begin(None) as tx:
        tx.add_dead_letters(letters)
    first = taskdb.dead_letters(1, kind="task", project=P, with_payload=False)
    assert [(letter.time, letter.payload, letter.size, letter.cut) for letter in first] == [(3.0, b"", 7, True)]
    second = taskdb.dead_letters(10, kind="task", project=P, before=first[0].seq)
    assert [(letter.time, letter.payload) for letter in second] == [(0.0, b"abc")]
    assert taskdb.dead_letters(10, project="") == taskdb.dead_letters(1)
    assert taskdb.dead_letter(second[0].seq) == second[0]
    assert taskdb.dead_letter(10**9) is None
    counts = {(found.project, found.kind): (found.count, found.bytes) for found in taskdb.count_dead_letters()}
    assert counts == {(P, "task"): (2, 6), (P, "result"): (1, 3), ("z", "task"): (1, 3), ("", "message"): (1, 3)}
    assert taskdb.drop_dead_letters([first[0].seq, 10**9, second[0].seq]) == 2
    assert letters_of(taskdb) == [("", "message", 4.0), ("z", "task", 2.0), (P, "result", 1.0)]


def test_a_table_of_dead_letters_without_sizes_is_completed(shared_urls: Callable[[str], str]) -> None:
    letter = DeadLetter(kind="task", taskid="标" * 100, reason="r", payload=b"abc", time=1.0)
    with closing(connect_taskdb(shared_urls("taskdb"))) as before, before.begin(None) as tx:
        tx.add_dead_letters([letter])
    with closing(connect_taskdb(shared_urls("taskdb"))) as before:
        database = before._database
        with database.write() as conn:
            quoted = conn.dialect.identifier_preparer.quote("lite-dead-letter")
            for column in ("size", "kept"):
                conn.exec_driver_sql(f"ALTER TABLE {quoted} DROP COLUMN {column}")
    with closing(connect_taskdb(shared_urls("taskdb"))) as after:
        (found,) = after.dead_letters()
        assert msgspec.structs.replace(found, seq=0) == letter
        assert after.count_dead_letters() == [LetterCount(project="", kind="task", count=1, bytes=0)]


def test_an_id_of_a_dead_letter_does_not_come_again(taskdb: TaskDB) -> None:
    seqs = []
    for _ in range(3):
        with taskdb.begin(None) as tx:
            tx.add_dead_letters([DeadLetter(kind="task", reason="r", payload=b"", time=0.0)])
        (found,) = taskdb.dead_letters()
        seqs.append(found.seq)
        assert taskdb.drop_dead_letters([found.seq]) == 1
    assert len(set(seqs)) == 3


@pytest.mark.parametrize(
    ("rows", "size", "before", "left"),
    [
        (10_000, 10**9, 0.0, 1300),
        (1200, 10**9, 0.0, 1200),
        (10_000, 2000, 0.0, 200),
        (10_000, 10**9, 700.0, 600),
        (0, 0, 0.0, 0),
    ],
)
def test_the_oldest_dead_letters_are_dropped(taskdb: TaskDB, rows: int, size: int, before: float, left: int) -> None:
    with taskdb.begin(None) as tx:
        tx.add_dead_letters(
            [DeadLetter(kind="task", reason="r", payload=b"0123456789", time=float(time)) for time in range(1300)]
        )
    assert taskdb.trim_dead_letters(rows, size, before) == 1300 - left
    assert [time for _, _, time in letters_of(taskdb)] == [float(time) for time in range(1299, 1299 - left, -1)]


def test_dead_letters_always_fit(taskdb: TaskDB) -> None:
    letter = DeadLetter(kind="k" * 99, project="p" * 99, taskid="a\0\ud800b", reason="r\0", payload=b"\0", time=1.0)
    with taskdb.begin(None) as tx:
        tx.add_dead_letters([letter])
    (found,) = taskdb.dead_letters()
    assert (found.kind, found.project, found.payload) == ("k" * 64, "p" * 64, b"\0")
    assert (found.taskid, found.reason) == ("a\ufffd?b", "r\ufffd")


def test_numbers_of_control_rows_do_not_come_again(taskdb: TaskDB) -> None:
    """The scheduler looks for rows after the last one it saw: a row that took the number of a deleted one would never be seen."""
    seen = []
    for name in ("a", "b"):
        row = Control(id=name, project=P, kind=ControlKind.START, task=submission("t"))
        with taskdb.begin(None) as tx:
            tx.add_controls([row])
        seen += [found.seq for found in taskdb.controls(0, 10)]
        with taskdb.begin(None) as tx:
            tx.delete_controls([name])
    assert seen[0] < seen[1]
