"""What every taskdb must do with tasks: the contract `TaskDB`, on each backend."""

import threading
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_tasks import P, end, insert, new, one, submission

from pyspider_lite.database.base import NewRow, TaskDB
from pyspider_lite.errors import DatabaseError, DataError, LostLeadership
from pyspider_lite.models.project import ProjectState
from pyspider_lite.models.task import NewTask, Task, TaskPriority, TaskRestart, TaskStatus

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
    assert (taskdb.lead("one", 100.0, "") or 0) > epoch
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
