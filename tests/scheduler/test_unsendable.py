"""Rows that no message can carry, and rows that nobody can decide on: each fails alone, and nothing beside it waits or is forgotten."""

from typing import Any

import pytest
from played_crawl import Crawl, new

from pyspider_lite.database.base import NewRow
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.letter import LetterKind
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.task import NewTask, TaskStatus

#: JSON takes it, msgpack does not
LARGE = 2**70


def message(crawl: Crawl, name: str, value: Any, project: str = "p") -> Control:
    task = NewTask(name, project, f"data:,{name}", fetch={"save": ["x", value]}, process={"callback": "_on_message"})
    generation = crawl.look(project).generation
    return Control(id=f"message:{name}", project=project, kind=ControlKind.MESSAGE, generation=generation, task=task)


def enter(crawl: Crawl, *rows: Control) -> None:
    with crawl.taskdb.begin(None) as tx:
        tx.add_controls(rows)
    crawl.scheduler.update_projects()


def insert(crawl: Crawl, *tasks: NewTask) -> None:
    crawl.taskdb.open_project("p")
    with crawl.taskdb.begin(None) as tx:
        tx.insert("p", [NewRow(task=task, due=1.0, priority=0, updatetime=1.0) for task in tasks])
    crawl.scheduler.look_again("p")


def test_a_stored_message_that_cannot_travel_fails_and_the_rest_goes(ready: Crawl) -> None:
    """Whoever wrote it: an older version, or a hand. Nothing that was chosen with it is forgotten."""
    ready.project("q")
    ready.ready("p", "q")
    many = [message(ready, f"m{number}", LARGE if number == 7 else number) for number in range(30)]
    enter(ready, *many, message(ready, "other", 1, "q"))
    ready.start("q")
    ready.crawl(2)
    assert ready.callbacks("p").count("_on_message") == 29
    assert {"on_start", "_on_message"} <= set(ready.callbacks("q"))
    assert ready.taskdb.controls(0, 10) == []
    (letter,) = ready.taskdb.dead_letters()
    assert (letter.kind, letter.queue, letter.project) == (LetterKind.TASK, QueueName.CONTROL, "p")
    assert "cannot be given out: it has an integer of more than 64 bits" in letter.reason
    assert str(LARGE).encode() in letter.payload
    assert not ready.scheduler.leases.in_flight()


@pytest.mark.parametrize("value", [LARGE, -(2**63) - 1])
def test_a_stored_task_that_cannot_travel_fails_and_the_rest_goes(ready: Crawl, value: int) -> None:
    insert(ready, *(new(f"t{number}", fetch={"save": value if number == 3 else 1}) for number in range(9)))
    ready.crawl(2)
    assert ready.taskdb.status_count("p") == {TaskStatus.SUCCESS: 8, TaskStatus.FAILED: 1}
    assert "more than 64 bits" in ready.task("t3").track["process"]["exception"]
    (letter,) = ready.taskdb.dead_letters()
    assert (letter.kind, letter.taskid) == (LetterKind.TASK, "t3")


def test_half_a_surrogate_in_a_row_of_pyspider(ready: Crawl, raw_sql: Any) -> None:
    """Python's own JSON, which pyspider used, writes and reads it."""
    insert(ready, new("half"), new("whole"))
    raw_sql("""UPDATE "taskdb_p" SET fetch = '{"save": "\\ud800"}' WHERE taskid = 'half'""")
    ready.crawl(2)
    assert (ready.task("whole").status, ready.task("half").status) == (TaskStatus.SUCCESS, TaskStatus.FAILED)
    assert "half a surrogate pair" in ready.task("half").track["process"]["exception"]


@pytest.mark.parametrize("levels", [300, 900, 5_000])
def test_a_row_that_is_nested_too_deeply_is_run_without_that(ready: Crawl, raw_sql: Any, levels: int) -> None:
    insert(ready, new("deep"), new("flat"))
    raw_sql(f"""UPDATE "taskdb_p" SET fetch = '{{"save": {"[" * levels + "]" * levels}}}' WHERE taskid = 'deep'""")
    enter(ready, message(ready, "a", 1), message(ready, "b", 1))
    deep = f'{{"taskid": "b", "project": "p", "url": "u", "fetch": {{"save": {"[" * levels + "]" * levels}}}}}'
    raw_sql(f"""UPDATE "lite-control" SET task = '{deep}' WHERE id = 'message:b'""")
    ready.crawl(2)
    assert (ready.task("flat").status, ready.task("deep").status) == (TaskStatus.SUCCESS, TaskStatus.SUCCESS)
    assert ready.callbacks("p").count("_on_message") == 1


def test_a_schedule_that_makes_no_sense_holds_up_nothing(ready: Crawl, raw_sql: Any) -> None:
    """The report of such a task is applied as that of one with nothing in its schedule, in one transaction with the others."""
    insert(ready, new("bad"), new("worse"), new("good"))
    raw_sql("""UPDATE "taskdb_p" SET schedule = '{"retries": "many"}' WHERE taskid = 'bad'""")
    raw_sql("""UPDATE "taskdb_p" SET schedule = '{"auto_recrawl": true, "age": [1]}' WHERE taskid = 'worse'""")
    ready.crawl(2)
    assert {ready.task(name).status for name in ("bad", "worse", "good")} == {TaskStatus.SUCCESS}
    ready.submit(new("bad", schedule={"force_update": True}), new("worse", schedule={"age": 0}), new("next"))
    ready.crawl(2)
    assert {ready.task(name).status for name in ("bad", "worse", "next")} == {TaskStatus.SUCCESS}


def test_an_error_that_nobody_thought_of_fails_one_report(ready: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspider_lite.scheduler.plan import Plan

    def end_task(self: Plan, report: Any, delays: Any, real: Any = Plan.end_task) -> None:
        if report.taskid == "bad" and report.ok:
            raise KeyError("nobody thought of this")
        real(self, report, delays)

    monkeypatch.setattr(Plan, "end_task", end_task)
    ready.submit(*(new(name, schedule={"retries": 0}) for name in ("bad", "good", "also")))
    ready.crawl(2)
    assert ready.task("bad").status == TaskStatus.FAILED
    assert {ready.task(name).status for name in ("good", "also")} == {TaskStatus.SUCCESS}


def test_a_message_that_cannot_be_stored_takes_nothing_with_it(ready: Crawl) -> None:
    """Half a surrogate cannot come by XML-RPC; from inside it would be refused by the database, and by it alone."""
    answered: list[str] = []
    for value in ("a", "\ud800", "b"):
        task = NewTask(
            "m", "p", f"data:,{len(answered)}", fetch={"save": ["x", value]}, process={"callback": "_on_message"}
        )
        ready.scheduler.send_message(task, f"p:{value!a}", lambda plan: answered.append("stored or given up"))
    ready.project("q")
    ready.crawl(1)
    assert ready.callbacks("p").count("_on_message") == 2 and "_on_get_info" in ready.callbacks("q")
    assert len(answered) >= 3
