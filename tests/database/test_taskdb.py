"""What every taskdb must do: the contract `TaskDB`, on each backend."""

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspider_lite.database import connect_taskdb, schema
from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.errors import DatabaseError, DataError, LostLeadership
from pyspider_lite.models import (
    Control,
    ControlKind,
    CronJob,
    DeadLetter,
    JobState,
    LetterCount,
    NewTask,
    ProjectState,
    Task,
    TaskEnd,
    TaskPriority,
    TaskRestart,
    TaskStatus,
)

P = "shop"


def submission(taskid: str, **fields: Any) -> NewTask:
    return NewTask(taskid=taskid, project=P, url=f"http://x/{taskid}", **fields)


def new(taskid: str, due: float = 1.0, priority: int = 0, **fields: Any) -> NewRow:
    return NewRow(task=submission(taskid, **fields), due=due, priority=priority, updatetime=5.0)


def end(taskid: str, status: TaskStatus = TaskStatus.SUCCESS, **fields: Any) -> TaskEnd:
    given: dict[str, Any] = {
        "schedule": {"retried": 1},
        "due": None,
        "priority": 3,
        "run": 1,
        "updatetime": 9.5,
        "lastcrawltime": 9.0,
        "track": {"save": "x"},
    }
    return TaskEnd(taskid=taskid, status=status, **{**given, **fields})


def insert(taskdb: TaskDB, *rows: NewRow) -> None:
    taskdb.open_project(P)
    with taskdb.begin(None) as tx:
        tx.insert(P, rows)


def one(taskdb: TaskDB, taskid: str) -> Task:
    (found,) = taskdb.get(P, [taskid])
    return found


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_a_new_task_is_read_back_whole(taskdb: TaskDB) -> None:
    insert(taskdb, new("a", 2.5, 7, schedule={"age": 3}, fetch={"save": {"标": "😀"}}, process={"callback": "cb"}))
    assert one(taskdb, "a") == Task(
        taskid="a",
        project=P,
        url="http://x/a",
        schedule={"age": 3},
        fetch={"save": {"标": "😀"}},
        process={"callback": "cb"},
        updatetime=5.0,
        seq=1,
        due=2.5,
        priority=7,
    )


def test_an_insert_leaves_a_stored_task_alone_also_within_a_batch(taskdb: TaskDB) -> None:
    insert(taskdb, new("a", priority=1))
    insert(taskdb, new("a", priority=2), new("b", priority=3), new("b", priority=4))
    assert {task.taskid: task.priority for task in taskdb.select(P)} == {"a": 1, "b": 3}


def test_states_are_of_known_tasks_only(taskdb: TaskDB) -> None:
    insert(taskdb, new("a", 2.0, 7, schedule={"age": 3}))
    with taskdb.begin(None) as tx:
        states = tx.states(P, ["a", "b", "a"])
    assert list(states) == ["a"]
    assert (states["a"].status, states["a"].due, states["a"].priority, states["a"].run) == (1, 2.0, 7, 0)
    assert states["a"].schedule == {"age": 3}


def test_more_keys_than_one_statement_takes(taskdb: TaskDB) -> None:
    ids = [f"id{number}" for number in range(1203)]
    insert(taskdb, *(new(taskid) for taskid in ids))
    with taskdb.begin(None) as tx:
        assert tx.states(P, ids).keys() == set(ids)
    assert {task.taskid for task in taskdb.get(P, ids)} == set(ids)


@pytest.mark.behaviour("S4")
def test_end_writes_what_a_run_ended_with(taskdb: TaskDB) -> None:
    insert(taskdb, new("a"), new("b"))
    with taskdb.begin(None) as tx:
        tx.end(P, [end("a", unconditional=True)])
    task = one(taskdb, "a")
    assert (task.status, task.schedule, task.due, task.priority, task.run) == (2, {"retried": 1}, None, 3, 1)
    assert (task.updatetime, task.lastcrawltime, task.track, task.unconditional) == (9.5, 9.0, {"save": "x"}, True)
    assert one(taskdb, "b").status == TaskStatus.ACTIVE


def test_end_without_a_track_keeps_the_stored_one(taskdb: TaskDB) -> None:
    insert(taskdb, new("a"))
    with taskdb.begin(None) as tx:
        tx.end(P, [end("a")])
        tx.end(P, [end("a", TaskStatus.BAD, track=None, run=2)])
    assert (one(taskdb, "a").status, one(taskdb, "a").track) == (TaskStatus.BAD, {"save": "x"})


def test_the_last_postponed_restart_wins_and_ends_with_the_run(taskdb: TaskDB) -> None:
    insert(taskdb, new("a"))
    with taskdb.begin(None) as tx:
        tx.postpone(P, [submission("a", schedule={"itag": 1}), submission("a", schedule={"itag": 2})])
        assert tx.states(P, ["a"])["a"].pending == submission("a", schedule={"itag": 2})
    assert one(taskdb, "a").pending == submission("a", schedule={"itag": 2})
    with taskdb.begin(None) as tx:
        tx.end(P, [end("a")])
    assert one(taskdb, "a").pending is None


@pytest.mark.behaviour("S19")
def test_a_restart_keeps_track_and_lastcrawltime(taskdb: TaskDB) -> None:
    insert(taskdb, new("a", fetch={"method": "GET"}))
    again = msgspec.structs.replace(submission("a", fetch={"method": "PUT"}), url="http://new/")
    with taskdb.begin(None) as tx:
        tx.end(P, [end("a")])
        tx.postpone(P, [submission("a")])
        tx.restart(P, [TaskRestart(task=again, due=4.0, priority=8, run=2, updatetime=11.0, unconditional=True)])
    task = one(taskdb, "a")
    assert (task.status, task.url, task.fetch, task.schedule) == (1, "http://new/", {"method": "PUT"}, {})
    assert (task.due, task.priority, task.run, task.updatetime, task.unconditional) == (4.0, 8, 2, 11.0, True)
    assert (task.track, task.lastcrawltime, task.pending) == ({"save": "x"}, 9.0, None)


@pytest.mark.parametrize("taskid", ["x" * 65, "编号", "a ", "tab\there", "A", "a'\"%s;`"])
def test_any_id_can_be_stored_and_found(taskdb: TaskDB, taskid: str) -> None:
    insert(taskdb, new(taskid), new("a"))
    with taskdb.begin(None) as tx:
        assert list(tx.states(P, [taskid])) == [taskid]
        tx.end(P, [end(taskid)])
    assert one(taskdb, taskid).status == TaskStatus.SUCCESS
    assert one(taskdb, "a").status == TaskStatus.ACTIVE
    assert {task.taskid for task in taskdb.select(P)} == {taskid, "a"}


def test_select_pages_from_the_newest_and_by_status(taskdb: TaskDB) -> None:
    insert(taskdb, *(new(f"t{number}") for number in range(7)))
    with taskdb.begin(None) as tx:
        tx.end(P, [end("t2"), end("t5")])
    first = taskdb.select(P, limit=3)
    assert [task.taskid for task in first] == ["t6", "t5", "t4"]
    assert [task.taskid for task in taskdb.select(P, limit=3, after=first[-1].seq)] == ["t3", "t2", "t1"]
    assert [task.taskid for task in taskdb.select(P, status=TaskStatus.SUCCESS)] == ["t5", "t2"]
    assert taskdb.status_count(P) == {1: 5, 2: 2}


@pytest.mark.behaviour("D16")
def test_an_unknown_project_reads_as_nothing(taskdb: TaskDB) -> None:
    assert taskdb.get("no", ["a"]) == []
    assert taskdb.select("no") == []
    assert taskdb.status_count("no") == {}
    assert taskdb.refill("no", 1.0, 5).keys == []
    with taskdb.begin(None) as tx:
        assert tx.states("no", ["a"]) == {}
    with pytest.raises(DatabaseError, match="no has no table"), taskdb.begin(None) as tx:
        tx.insert("no", [new("a")])


def test_a_value_that_does_not_fit_is_named_and_nothing_is_stored(taskdb: TaskDB) -> None:
    taskdb.open_project(P)
    with pytest.raises(DataError, match=r"task shop:'bad': fetch: \$\.save"), taskdb.begin(None) as tx:
        tx.insert(P, [new("good"), new("bad", fetch={"save": object()})])
    with pytest.raises(DataError, match="tasks of shop"), taskdb.begin(None) as tx:
        tx.insert(P, [new("good")])
        tx.insert(P, [new("bad", priority=2**64)])
    with pytest.raises(DataError), taskdb.begin(None) as tx:
        tx.insert(P, [NewRow(task=NewTask(taskid="bad", project=P, url="\ud800"), due=0.0, priority=0, updatetime=0.0)])
    assert taskdb.select(P) == []


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    # no NUL and no half of a surrogate pair: PostgreSQL's text has neither
    | st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a标😀 $.", max_size=4), inner, max_size=3),
    max_leaves=8,
)
json_dicts = st.dictionaries(st.text("ab标😀", min_size=1, max_size=4), json_values, max_size=4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    taskid=st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=90),
    url=st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=2000),
    parts=st.tuples(json_dicts, json_dicts, json_dicts, json_dicts),
    due=st.floats(0, 1e10),
    priority=st.integers(-(2**63), 2**63 - 1),
)
def test_values_come_back_unchanged(
    taskdb: TaskDB, taskid: str, url: str, parts: tuple[dict[str, Any], ...], due: float, priority: int
) -> None:
    schedule, fetch, process, track = parts
    taskdb.drop_project(P)
    taskdb.open_project(P)
    given_task = NewTask(taskid=taskid, project=P, url=url, schedule=schedule, fetch=fetch, process=process)
    with taskdb.begin(None) as tx:
        tx.insert(P, [NewRow(task=given_task, due=due, priority=priority, updatetime=1.5)])
    task = one(taskdb, taskid)
    assert (task.taskid, task.url, task.schedule, task.fetch, task.process) == (taskid, url, schedule, fetch, process)
    assert (task.due, task.priority) == (due, priority)
    with taskdb.begin(None) as tx:
        tx.end(P, [end(taskid, track=track, schedule=process)])
        tx.postpone(P, [given_task])
    task = one(taskdb, taskid)
    assert (task.track, task.schedule, task.pending) == (track, process, given_task)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_block_that_raises_leaves_nothing(taskdb: TaskDB) -> None:
    insert(taskdb, new("a"))
    with pytest.raises(ZeroDivisionError), taskdb.begin(None) as tx:
        tx.insert(P, [new("b")])
        tx.end(P, [end("a")])
        tx.put_project_states([ProjectState(project=P)])
        raise ZeroDivisionError
    assert [task.status for task in taskdb.select(P)] == [TaskStatus.ACTIVE]
    assert taskdb.project_states() == {}
    insert(taskdb, new("c"))
    assert one(taskdb, "c")


def test_who_does_not_lead_writes_nothing(taskdb: TaskDB) -> None:
    taskdb.open_project(P)
    epoch = taskdb.lead("one", 100.0, "")
    assert epoch is not None
    with taskdb.begin(epoch) as tx:
        tx.insert(P, [new("a")])
    assert taskdb.lead("one", 100.0, "") == epoch + 1
    with pytest.raises(LostLeadership, match="one leads"), taskdb.begin(epoch) as tx:
        tx.insert(P, [new("b")])
    assert [task.taskid for task in taskdb.select(P)] == ["a"]


def test_reads_inside_a_transaction_take_part_in_it(taskdb: TaskDB) -> None:
    taskdb.open_project(P)
    with taskdb.begin(None) as tx:
        tx.insert(P, [new("a")])
        assert one(taskdb, "a").taskid == "a"
        with pytest.raises(DatabaseError, match="open already"), taskdb.begin(None):
            pass


@pytest.mark.behaviour("X-D3")
def test_a_copy_serves_another_thread(taskdb: TaskDB) -> None:
    taskdb.open_project(P)
    copy = taskdb.copy()
    failed: list[BaseException] = []

    def work(database: TaskDB, name: str) -> None:
        try:
            for number in range(30):
                with database.begin(None) as tx:
                    tx.insert(P, [new(f"{name}{number}")])
                    tx.states(P, [f"{name}{number}"])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(database, name)) for database, name in ((taskdb, "a"), (copy, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    copy.close()
    assert taskdb.status_count(P) == {1: 60}


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("D17")
def test_projects_are_those_with_a_table(taskdb: TaskDB) -> None:
    assert taskdb.projects() == set()
    taskdb.open_project("shop")
    taskdb.open_project("shop")
    taskdb.open_project("select")
    assert taskdb.projects() == {"shop", "select"}


def test_dropping_a_project_takes_everything_of_it_and_nothing_else(taskdb: TaskDB) -> None:
    for project in (P, "other"):
        taskdb.open_project(project)
        with taskdb.begin(None) as tx:
            tx.insert(project, [new("a")])
            tx.add_controls([Control(id=f"{project}-1", project=project, kind="cron", task=submission("c"))])
            tx.put_project_states([ProjectState(project=project)])
            tx.add_dead_letters([DeadLetter(kind="k", project=project, reason="r", payload=b"", time=1.0)])
    taskdb.drop_project(P)
    assert taskdb.projects() == {"other"}
    assert (taskdb.select(P), len(taskdb.select("other"))) == ([], 1)
    assert [row.project for row in taskdb.controls(0, 10)] == ["other"]
    assert list(taskdb.project_states()) == ["other"]
    assert [row.project for row in taskdb.dead_letters()] == ["other"]
    taskdb.drop_project("never there")


def test_a_state_table_from_before_there_were_pauses(taskdb: TaskDB) -> None:
    with taskdb.begin(None) as tx:
        tx.put_project_states([ProjectState(project=P, active=3, armed=True)])
    database = taskdb._database  # type: ignore[attr-defined]
    with database.change_tables() as conn:
        quoted = conn.dialect.identifier_preparer.quote_identifier("lite-project-state")
        for column in ("paused_until", "pause_reason", "info"):
            conn.exec_driver_sql(f"ALTER TABLE {quoted} DROP COLUMN {column}")
        schema.ensure(conn, schema.PROJECT_STATE)
    assert taskdb.project_states() == {P: ProjectState(project=P, active=3, armed=True)}
    with taskdb.begin(None) as tx:
        tx.put_project_states([ProjectState(project=P, paused_until=1.5, pause_reason="why", info='{"of": "价"}')])
        assert tx.project_states([P])[P].pause_reason == "why"
        assert tx.project_states([P])[P].info == '{"of": "价"}'
    assert taskdb.project_states()[P].paused_until == 1.5


def test_a_row_that_cannot_be_read_does_not_stop_the_others(taskdb: TaskDB, caplog: pytest.LogCaptureFixture) -> None:
    insert(taskdb, new("a"), new("b"))
    with taskdb.begin(None) as tx:
        tx.add_controls([Control(id=name, project=P, kind=ControlKind.CRON, task=submission(name)) for name in "xyz"])
        tx.postpone(P, [submission("a")])
    database = taskdb._database  # type: ignore[attr-defined]
    with database.write() as conn:
        conn.execute(sa.update(schema.CONTROL).where(schema.CONTROL.c.id == "y").values(task="{half"))
        tasks = schema.task_table(taskdb._tables.name(P), conn.dialect.name)  # type: ignore[attr-defined]
        conn.execute(sa.update(tasks).where(tasks.c.taskid == "a").values(pending="{half"))
    for _ in range(2):
        assert [found.id for found in taskdb.controls(0, 10)] == ["x", "z"]
    assert caplog.text.count(f"control work y of {P} cannot be read") == 1
    with taskdb.begin(None) as tx:
        assert {taskid: state.pending for taskid, state in tx.states(P, ["a", "b"]).items()} == {"a": None, "b": None}
    assert one(taskdb, "a").pending is None


def test_what_asks_for_a_deletion_outlives_it(taskdb: TaskDB) -> None:
    epoch = taskdb.lead("a", 9.0, "")
    row = Control(id="d", project=P, kind=ControlKind.DELETE, task=submission("d"))
    with taskdb.begin(None) as tx:
        tx.add_controls([row, msgspec.structs.replace(row, id="c", kind=ControlKind.CRON)])
    taskdb.drop_project(P, epoch)
    assert [found.id for found in taskdb.controls(0, 10)] == ["d"]
    insert(taskdb, new("a"))
    with pytest.raises(LostLeadership):
        taskdb.drop_project(P, (epoch or 0) - 1)
    assert one(taskdb, "a").taskid == "a"


def test_a_table_dropped_by_another_process_reads_as_nothing(taskdb: TaskDB) -> None:
    insert(taskdb, new("a"))
    copy = taskdb.copy()
    copy.drop_project(P)
    copy.close()
    assert taskdb.select(P) == []
    insert(taskdb, new("b"))
    assert one(taskdb, "b").taskid == "b"


# --- refill -----------------------------------------------------------------------------------------------------------


def test_refill_gives_the_best_that_are_due(taskdb: TaskDB) -> None:
    rows = [new("late", 30.0, 9), new("low", 1.0, -1), new("b", 2.0, 5), new("a", 2.0, 5), new("first", 1.0, 5)]
    insert(taskdb, *rows, new("top", 20.0, 9), new("later", 99.0, 0))
    answer = taskdb.refill(P, 20.0, 10)
    # equal ones in order of arrival, which for one batch is that of the ids
    assert [key.taskid for key in answer.keys] == ["top", "first", "a", "b", "low"]
    assert [(key.priority, key.due) for key in answer.keys] == [(9, 20.0), (5, 1.0), (5, 2.0), (5, 2.0), (-1, 1.0)]
    assert answer.next_due == 30.0
    assert [key.taskid for key in taskdb.refill(P, 20.0, 2).keys] == ["top", "first"]
    assert taskdb.refill(P, 20.0, 2).next_due == 30.0
    assert taskdb.refill(P, 100.0, 100).next_due is None


def test_refill_leaves_out_what_is_not_active(taskdb: TaskDB) -> None:
    insert(taskdb, new("done"), new("retry"), new("x" * 80))
    with taskdb.begin(None) as tx:
        tx.end(P, [end("done", due=1.0), end("retry", TaskStatus.ACTIVE, due=50.0, priority=0)])
    answer = taskdb.refill(P, 10.0, 10)
    assert ([key.taskid for key in answer.keys], answer.next_due) == (["x" * 80], 50.0)


# --- beside the tasks -------------------------------------------------------------------------------------------------


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
    with taskdb.begin(None) as tx:
        tx.delete_controls(["b", long, "none"])
    assert [found.id for found in taskdb.controls(0, 10)] == ["a"]


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


def test_a_priority_is_changed_and_nothing_else(taskdb: TaskDB) -> None:
    taskdb.open_project(P)
    submitted = NewTask("t" * 70, P, "http://a/", schedule={"priority": 1, "age": 5}, fetch={"a": 1})
    with taskdb.begin(None) as tx:
        tx.insert(P, [NewRow(task=submitted, due=10.0, priority=1, updatetime=5.0)])
        tx.postpone(P, [submitted])
    (before,) = taskdb.get(P, [submitted.taskid])
    with taskdb.begin(None) as tx:
        tx.set_priority(P, [TaskPriority(taskid=submitted.taskid, priority=-7, schedule={"priority": -7, "age": 5})])
    (after,) = taskdb.get(P, [submitted.taskid])
    assert after == msgspec.structs.replace(before, priority=-7, schedule={"priority": -7, "age": 5})
    assert taskdb.refill(P, 20.0, 5).keys[0].priority == -7


def test_dead_letters_always_fit(taskdb: TaskDB) -> None:
    letter = DeadLetter(kind="k" * 99, project="p" * 99, taskid="a\0\ud800b", reason="r\0", payload=b"\0", time=1.0)
    with taskdb.begin(None) as tx:
        tx.add_dead_letters([letter])
    (found,) = taskdb.dead_letters()
    assert (found.kind, found.project, found.payload) == ("k" * 64, "p" * 64, b"\0")
    assert (found.taskid, found.reason) == ("a\ufffd?b", "r\ufffd")


# --- the leader row ---------------------------------------------------------------------------------------------------


def test_one_leads_until_its_term_ends(taskdb: TaskDB) -> None:
    assert taskdb.leader() is None
    first = taskdb.lead("one", 100.0, "127.0.0.1:1")
    assert first is not None
    leader = taskdb.leader()
    assert leader is not None
    assert (leader.epoch, leader.holder, leader.rpc) == (first, "one", "127.0.0.1:1")
    assert 90 < leader.until - taskdb.time() <= 100
    assert taskdb.lead("two", 100.0, "") is None
    taskdb.resign(first)
    second = taskdb.lead("two", -1.0, "")
    assert second is not None
    assert second > first
    # its term is over, but nobody took the lead
    assert taskdb.renew(second, -1.0)
    third = taskdb.lead("one", 100.0, "")
    assert third is not None
    assert third > second
    assert not taskdb.renew(second, 100.0)
    taskdb.resign(second)
    assert taskdb.lead("two", 100.0, "") is None
    assert taskdb.renew(third, 200.0)
    renewed = taskdb.leader()
    assert renewed is not None
    assert renewed.until - taskdb.time() > 150


def test_who_leads_already_gets_a_new_epoch(taskdb: TaskDB) -> None:
    first, second = taskdb.lead("one", 100.0, ""), taskdb.lead("one", 100.0, "")
    assert first is not None
    assert second is not None
    assert second > first
    assert not taskdb.renew(first, 100.0)


def test_only_one_of_many_becomes_leader(taskdb: TaskDB) -> None:
    copies = [taskdb.copy() for _ in range(6)]
    epochs: list[int | None] = []

    def run(copy: TaskDB, name: str) -> None:
        epochs.append(copy.lead(name, 100.0, ""))

    threads = [threading.Thread(target=run, args=(copy, f"h{i}")) for i, copy in enumerate(copies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for copy in copies:
        copy.close()
    assert sorted(epochs, key=str) == [1, None, None, None, None, None]


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
