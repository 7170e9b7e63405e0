"""What every taskdb must do: tables that are dropped or older, and the leader row."""

import threading

import msgspec
import pytest
import sqlalchemy as sa
from stored_tasks import P, insert, new, one, submission

from pyspider_lite.database import schema
from pyspider_lite.database.base import TaskDB
from pyspider_lite.database.schema import LEADER
from pyspider_lite.database.taskdb import SqlTaskDB
from pyspider_lite.errors import DatabaseError, LostLeadership
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.letter import DeadLetter
from pyspider_lite.models.project import ProjectState

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


def test_a_term_without_end_is_taken_over_if_the_row_is_still_the_same(taskdb: TaskDB) -> None:
    """Its end lies ahead of the clock, which was set back."""
    first = taskdb.lead("one", 3600.0, "") or 0
    seen = taskdb.leader()
    assert seen is not None and taskdb.lead("two", 5.0, "") is None
    assert taskdb.renew(first, 3700.0)
    assert taskdb.lead("two", 5.0, "", instead_of=seen) is None, "it lives: it was renewed"
    left = taskdb.leader()
    assert left is not None
    second = taskdb.lead("two", 5.0, "", instead_of=left)
    assert second is not None and second > first and not taskdb.renew(first, 5.0)
    assert taskdb.lead("three", 5.0, "", instead_of=left) is None, "another stand-by was faster"
    with pytest.raises(LostLeadership), taskdb.begin(first):
        raise AssertionError("it leads no longer")
    with taskdb.begin(second):
        pass


def test_a_copy_that_is_put_back_under_the_same_leader_ends_its_lead(taskdb: TaskDB) -> None:
    assert isinstance(taskdb, SqlTaskDB)
    epoch = taskdb.lead("one", 3.0, "") or 0
    copied = taskdb.leader()
    assert copied is not None
    for term in (5.0, 4.0, 5.0):
        assert taskdb.renew(epoch, term), "that it ends earlier is our own wish"
    with taskdb._database.write() as conn:
        conn.execute(sa.update(LEADER).values(until=copied.until))
    assert not taskdb.renew(epoch, 5.0)
    assert (taskdb.lead("one", 5.0, "") or 0) > epoch


def test_who_leads_already_gets_a_new_epoch(taskdb: TaskDB) -> None:
    first, second = taskdb.lead("one", 100.0, ""), taskdb.lead("one", 100.0, "")
    assert first is not None
    assert second is not None
    assert second > first
    assert not taskdb.renew(first, 100.0)


def test_the_leaders_row_comes_back(taskdb: TaskDB) -> None:
    """A database that was dropped is made anew by whoever comes first, and for a moment it has the table without the row."""
    assert isinstance(taskdb, SqlTaskDB)
    first = taskdb.lead("one", 100.0, "") or 0
    for use in (
        taskdb.leader,
        lambda: taskdb.begin(first).__enter__(),
        lambda: taskdb.lead("one", 100.0, "", elected=True),
    ):
        with taskdb._database.write() as conn:
            conn.execute(sa.delete(LEADER))
        with pytest.raises(DatabaseError, match="the leader's row is missing"):
            use()
        assert not taskdb.renew(first, 100.0)
        assert taskdb.leader() is None
    assert (taskdb.lead("one", 100.0, "") or 0) > first


def test_no_epoch_comes_twice(taskdb: TaskDB) -> None:
    """The row is deleted again and again, or that of a backup is put back: who led before does not lead beside the next."""
    assert isinstance(taskdb, SqlTaskDB)
    taskdb.open_project(P)
    past: list[int] = []
    for holder in ("one", "two", "three", "two"):
        epoch = taskdb.lead(holder, 100.0, "")
        assert epoch is not None and all(epoch > earlier for earlier in past)
        for earlier in past:
            assert not taskdb.renew(earlier, 100.0)
            with pytest.raises(LostLeadership), taskdb.begin(earlier):
                pass
        past.append(epoch)
        # epochs are told apart by the clock, in ms
        while taskdb.time() * 1000 < epoch + 1:
            pass
        with taskdb._database.write() as conn:
            if holder == "three":
                conn.execute(sa.update(LEADER).values(epoch=past[0] - 1, holder="one", until=0.0))
            else:
                conn.execute(sa.delete(LEADER))
        if holder != "three":
            with pytest.raises(DatabaseError, match="the leader's row is missing"):
                taskdb.leader()


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
    assert epochs.count(None) == 5
