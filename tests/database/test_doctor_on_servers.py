"""`doctor` while no scheduler runs, on every product: what it finds, that it changes nothing, and what `--repair` does."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pyspider_lite.cli import doctor
from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb
from pyspider_lite.database.base import NewRow
from pyspider_lite.database.schema import CONTROL, LEADER, task_table
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.project import Project, ProjectState
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import NewTask

P = "shop"
#: what is always said here
NO_SCHEDULER = "problem: cluster: no scheduler is running"


def new(taskid: str, **schedule: Any) -> NewRow:
    return NewRow(
        task=NewTask(taskid=taskid, project=P, url="u", schedule=schedule), due=1.0, priority=0, updatetime=1.0
    )


def control(name: str, project: str, kind: str = ControlKind.MESSAGE) -> Control:
    return Control(id=name, project=project, kind=kind, task=NewTask(taskid="t", project=project, url="u"), created=1.0)


class Place:
    """Databases with a project of five tasks, and the command on them."""

    def __init__(self, urls: Callable[[str], str], folder: Path, command: Callable[..., Any]) -> None:
        self._command = command
        self._config = folder / "config.json"
        kinds = ("taskdb", "projectdb", "resultdb")
        self._config.write_text(json.dumps({kind: urls(kind) for kind in kinds} | {"data_path": str(folder / "data")}))
        self.taskdb: Any = connect_taskdb(urls("taskdb"))
        self.projectdb = connect_projectdb(urls("projectdb"))
        self.resultdb: Any = connect_resultdb(urls("resultdb"))
        self.projectdb.insert(Project(name=P, script="x", status="RUNNING"))
        self.resultdb.store([TaskResult(project=P, taskid="t0", url="u", run=0, items=[Item("", "1")])])
        self.taskdb.open_project(P)
        with self.taskdb.begin(None) as tx:
            tx.insert(P, [new(f"t{number}") for number in range(4)] + [new("again", auto_recrawl=True, age=9)])
            tx.put_project_states([ProjectState(project=P, active=5, periodic=1)])

    def doctor(self, *words: str) -> tuple[int, list[str]]:
        outcome = self._command("-c", str(self._config), "doctor", *words)
        assert outcome.err == ""
        beside = ("not checked: queues: ", "hint: settings: message-queue is not set")
        return outcome.code, [line for line in outcome.out.splitlines() if not line.startswith(beside)]

    def state(self) -> ProjectState:
        found: ProjectState = self.taskdb.project_states()[P]
        return found

    def write(self, statement: sa.Executable) -> None:
        with self.taskdb._database.write() as conn:
            conn.execute(statement)

    def change(self, taskid: str, **columns: Any) -> None:
        table = task_table(self.taskdb._tables.name(P), self.taskdb._dialect)
        self.write(sa.update(table).where(table.c.taskid == taskid).values(columns))


@pytest.fixture
def place(
    shared_urls: Callable[[str], str],
    tmp_path: Path,
    command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    monkeypatch.setattr(doctor, "BETWEEN", 0.0)
    place = Place(shared_urls, tmp_path, command)
    yield place
    for database in (place.taskdb, place.projectdb, place.resultdb):
        database.close()


#: where the product makes no difference
one_product = pytest.mark.parametrize("shared_urls", ["sqlite-file"], indirect=True)


def begins(lines: list[str], *beginnings: str) -> None:
    """Each line begins as said, one for one."""
    assert len(lines) == len(beginnings), lines
    for line, beginning in zip(lines, beginnings, strict=True):
        assert line.startswith(beginning), lines


def test_a_place_at_rest_lacks_a_scheduler_only(place: Place) -> None:
    code, lines = place.doctor()
    assert code == 1
    begins(lines, NO_SCHEDULER)
    assert place.doctor("--repair") == (1, lines)


def test_counts(place: Place) -> None:
    with place.taskdb.begin(None) as tx:
        tx.put_project_states([ProjectState(project=P, active=2, success=7, crawl=4, last_tick=9, generation="g")])
    _, lines = place.doctor()
    wrong = f"problem: counts: {P} is kept as active 2, success 7, periodic 0, but its table has active 5, success 0, periodic 1: "
    begins(lines, NO_SCHEDULER, wrong)
    assert place.state().active == 2
    code, lines = place.doctor("--repair")
    assert (code, lines[-1]) == (
        1,
        f"repaired: counts: counts of {P}: active 2 -> 5, success 7 -> 0, periodic 0 -> 1",
    )
    kept = ProjectState(project=P, generation="g", active=5, periodic=1, crawl=4, last_tick=9)
    assert place.state() == kept


@one_product
def test_counts_of_what_another_program_wrote(place: Place) -> None:
    place.taskdb.drop_project(P)
    place.taskdb.open_project(P)
    with place.taskdb.begin(None) as tx:
        tx.insert(P, [new("t0")])
    begins(place.doctor()[1], NO_SCHEDULER, f"problem: counts: no counts are kept of {P}, whose table has active 1,")
    place.doctor("--repair")
    (project,) = place.projectdb.heads()
    assert place.state() == ProjectState(project=P, generation=project.generation, active=1)


@one_product
def test_a_table_that_is_gone(place: Place) -> None:
    with place.taskdb._database.write() as conn:
        place.taskdb._tables.drop(conn, P)
    begins(place.doctor()[1], NO_SCHEDULER, f"problem: counts: {P} is kept as 5 tasks, but its table is gone: ")
    place.doctor("--repair")
    assert place.state().active == 0
    begins(place.doctor()[1], NO_SCHEDULER)


def test_tasks(place: Place) -> None:
    place.change("t0", due=None)
    place.change("t1", due=None, schedule='{"exetime": 1234.5}')
    place.change("t2", schedule="[broken")
    place.change("t3", status=17)
    with place.taskdb.begin(None) as tx:
        tx.put_project_states([ProjectState(project=P, active=4, periodic=1)])
    expected = (
        NO_SCHEDULER,
        f"problem: tasks: 2 tasks of {P} (t0, t1) are ACTIVE without a due time",
        f"problem: tasks: 1 task of {P} (t3) is in no known state",
        f"problem: tasks: of {P} these columns hold no JSON that can be read: t2 (schedule)",
    )
    for _ in range(2):
        begins(place.doctor()[1], *expected)  # to look has changed nothing
    _, lines = place.doctor("--repair")
    begins(lines, *expected, f"repaired: tasks: tasks of {P} without a due time")
    due = {task.taskid: task.due for task in place.taskdb.get(P, ["t0", "t1"])}
    assert due == {"t0": 0.0, "t1": 1234.5}


@one_product
def test_the_lead_is_held_by_nobody(place: Place) -> None:
    epoch = place.taskdb.lead("ghost:1:ab:cd", 60.0, "")
    place.write(sa.update(LEADER).values(until=LEADER.c.until + 1e6))
    (held,) = [line for line in place.doctor()[1] if not line.startswith("not checked: which tasks ")]
    assert held.startswith("problem: leader: the leader row gives the lead to ghost:1:ab:cd for another 10000")
    code, lines = place.doctor("--repair")
    assert (code, lines[-1]) == (
        0,
        "repaired: leader: the lead is free: a scheduler that runs takes it within seconds",
    )
    assert (place.taskdb.lead("other", 6.0, "") or 0) > (epoch or 0)


def test_control_work(place: Place) -> None:
    rows = [
        control("bad", P),
        control("orphan", "ghost"),
        control("good", P),
        control("gone", "ghost", ControlKind.DELETE),
    ]
    with place.taskdb.begin(None) as tx:
        tx.add_controls(rows)
    place.write(sa.update(CONTROL).where(CONTROL.c.id == "bad").values(task="{half"))
    found = (
        NO_SCHEDULER,
        f"problem: control: the row bad in lite-control, project {P}, cannot be read",
        "problem: control: 1 row of control work wait",
    )
    begins(place.doctor()[1], *found)
    _, lines = place.doctor("--repair")
    begins(lines, *found, "repaired: control: bad: 1 of control work", "repaired: control: ghost: 1 of control work")
    assert [row.id for row in place.taskdb.controls(0, 10)] == ["good", "gone"]
    letters = {letter.taskid: (letter.kind, letter.project, letter.payload) for letter in place.taskdb.dead_letters()}
    assert letters["bad"] == ("control", P, b"{half")
    assert letters["orphan"][:2] == ("control", "ghost")
    begins(place.doctor()[1], NO_SCHEDULER, "problem: dead-letters: 2 dead letters: ")


def test_rows_of_no_project(place: Place) -> None:
    place.projectdb.drop(P)
    with place.taskdb._database.write() as conn:
        conn.exec_driver_sql(f"CREATE TABLE {place.taskdb._tables.name('customers')} (id INTEGER PRIMARY KEY)")
    begins(
        place.doctor()[1],
        NO_SCHEDULER,
        f"problem: tables: the taskdb has 5 tasks of {P}, but the projectdb has no such project",
        f"problem: tables: the resultdb has 1 results of {P}, but the projectdb has no such project",
    )


@one_product
def test_many_rows_are_sampled(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("examination", "remedies"):
        monkeypatch.setattr(f"pyspider_lite.cli.{module}.COUNTED", 3)
    with place.taskdb.begin(None) as tx:
        tx.put_project_states([ProjectState(project=P, active=900, success=1, periodic=1)])
    sampled = f"sampled: {P} has over 3 active tasks; --full counts them"
    _, lines = place.doctor()
    begins(lines, NO_SCHEDULER, f"problem: counts: {P} is kept as success 1, but its table has success 0", sampled)
    _, lines = place.doctor("--full")
    begins(lines, NO_SCHEDULER, f"problem: counts: {P} is kept as active 900, success 1, but its table has active 5, ")
    # fewer are kept than were counted: that is sure
    with place.taskdb.begin(None) as tx:
        tx.put_project_states([ProjectState(project=P, active=2, periodic=1)])
    wrong = f"problem: counts: {P} is kept as active 2, but its table has active over 3: "
    begins(place.doctor()[1], NO_SCHEDULER, wrong, sampled)
    place.doctor("--repair")
    assert place.state().active == 5


@one_product
def test_many_projects_with_one_trouble_are_said_once(place: Place) -> None:
    for number in range(13):
        place.projectdb.insert(Project(name=f"p{number:02}", script="x"))
    with place.taskdb.begin(None) as tx:
        tx.put_project_states([ProjectState(project=f"p{number:02}", active=1) for number in range(13)])
    _, lines = place.doctor()
    assert len(lines) == 12
    assert lines[-1] == "problem: counts: 3 more like these: run doctor again when they are mended"
