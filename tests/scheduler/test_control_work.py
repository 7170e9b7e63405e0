"""Control work in masses: what waits for a project that does not run, or runs slowly, holds up nobody, and none of it is lost."""

from collections import Counter
from typing import Any

import pytest
from played_crawl import Crawl, beat, done, new

from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.names import Role
from pyspider_lite.models.report import Message
from pyspider_lite.models.task import NewTask
from pyspider_lite.scheduler import control_queues
from pyspider_lite.scheduler.control_dispatch import CONTROL_BUDGET, CONTROL_EACH
from pyspider_lite.scheduler.control_queues import KEEP, MAX_ROWS


def enter(
    crawl: Crawl,
    count: int,
    project: str = "sink",
    kind: ControlKind = ControlKind.MESSAGE,
    first: int = 0,
    size: int = 0,
) -> None:
    """Rows of a project, as other programs and leaders before us enter them."""
    found = crawl.projectdb.get(project)
    generation = found.generation if found else "g"
    rows = [
        Control(
            id=f"{kind}:{project}:{number}",
            project=project,
            kind=kind,
            generation=generation,
            task=NewTask(
                f"{number}",
                project,
                "data:,m",
                fetch={"save": ["x" + size * "x", number]},
                process={"callback": "_on_message"},
            ),
        )
        for number in range(first, first + count)
    ]
    with crawl.taskdb.begin(None) as tx:
        tx.add_controls(rows)
    crawl.scheduler.update_projects()


def messages(crawl: Crawl, project: str = "sink") -> list[int]:
    return [
        task.fetch["save"][1]
        for task in crawl.given
        if task.project == project and task.process["callback"] == "_on_message"
    ]


def held(crawl: Crawl) -> int:
    return len(crawl.scheduler._control.rows)


@pytest.mark.parametrize("status", ["STOP", None])
def test_rows_of_a_project_that_does_not_run_hide_nothing(crawl: Crawl, status: str | None) -> None:
    """More of them than fit into memory, also for a new leader; what asks for a deletion is behind them, too."""
    if status is not None:
        crawl.project("sink", status=status)
    enter(crawl, MAX_ROWS + 1_000)
    crawl.project("good")
    crawl.start("good")
    for _ in range(2):
        crawl.crawl(1)
        assert "on_start" in crawl.callbacks("good") and held(crawl) < 100
        crawl.given.clear()
        crawl.start("good", run="2")
        crawl.lead()
    crawl.crawl(1)
    assert messages(crawl) == []
    enter(crawl, 1, kind=ControlKind.DELETE)
    crawl.crawl(2)
    assert crawl.projectdb.get("sink") is None and crawl.taskdb.controls(0, 10) == []


def test_a_project_that_runs_again_gets_all_that_waited_in_order(crawl: Crawl) -> None:
    crawl.project("sink", status="STOP")
    enter(crawl, 2_000)
    crawl.crawl(1)
    crawl.change("sink", status="RUNNING")
    crawl.crawl(0.5)
    crawl.change("sink", status="STOP")
    crawl.crawl(1)
    got = len(messages(crawl))
    assert 0 < got < 2_000
    enter(crawl, 10, first=2_000)
    crawl.lead()
    crawl.crawl(1)
    assert len(messages(crawl)) == got
    crawl.change("sink", status="RUNNING")
    crawl.crawl(25)
    assert messages(crawl) == list(range(2_010))
    assert crawl.taskdb.controls(0, 10) == [] and not crawl.scheduler._control.pending


def test_one_project_with_thousands_leaves_room_for_the_others(crawl: Crawl) -> None:
    """Nothing of it is done meanwhile; with every project that has work there is still room for one more."""
    crawl.project("sink")
    crawl.ready("sink")
    enter(crawl, 3_000)
    for _ in range(5):
        crawl.step()
    assert len(crawl.controls()) == CONTROL_EACH and held(crawl) <= KEEP + CONTROL_EACH
    for name in ("a", "b", "c"):
        crawl.project(name)
        crawl.start(name)
        for _ in range(2):
            crawl.step()
        assert {task.taskid for task in crawl.controls() if task.project == name} == {"_on_get_info", "on_start"}
    enter(crawl, 300, "a")
    crawl.step()
    assert {task.project for task in crawl.controls()} == {"a"}


def test_a_project_has_no_more_in_flight_than_processors_can_begin_soon(crawl: Crawl) -> None:
    """Each of its messages may take long, and all others stand behind them in one queue."""
    crawl.project("sink")
    crawl.ready("sink")
    enter(crawl, 3_000)
    for _ in range(5):
        crawl.step(*[beat(f"p{number}", Role.PROCESSOR, 1) for number in range(3)])
    assert len(crawl.pages_out.bodies) >= 3, "each of them has some"
    assert len(crawl.controls()) == 3 * CONTROL_EACH


def test_large_messages_stay_in_the_table_until_there_is_room(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a project that does not run none is read at all, no row is read twice, and none is looked for before room came free."""
    monkeypatch.setattr(control_queues, "MAX_BYTES", 100_000)
    for name, status in (("sink", "RUNNING"), ("other", "RUNNING"), ("stopped", "STOP")):
        crawl.project(name, status=status)
        enter(crawl, 60, name, size=10_000)
    read: list[str] = []
    rows = crawl.taskdb.control_rows
    monkeypatch.setattr(crawl.taskdb, "control_rows", lambda ids: read.extend(ids) or rows(ids), raising=False)
    listed: list[str] = []
    heads = crawl.taskdb.project_control_heads
    monkeypatch.setattr(
        crawl.taskdb, "project_control_heads", lambda name, *at: listed.append(name) or heads(name, *at), raising=False
    )
    crawl.lead()
    crawl.step()
    assert held(crawl) < 20 and len(read) <= 22
    for _ in range(CONTROL_EACH):
        crawl.step(after=1)
    # each has in flight what it may, and one message more that waits
    assert held(crawl) <= 2 * (CONTROL_EACH + 1)
    before = len(read), len(listed)
    for _ in range(5):
        crawl.step(after=1)
    assert (len(read), len(listed)) == before
    crawl.ready("sink", "other")
    crawl.crawl(20)
    assert messages(crawl) == messages(crawl, "other") == list(range(60))
    assert sorted(read) == sorted(f"message:{name}:{number}" for name in ("sink", "other") for number in range(60))


def test_messages_of_a_callback_keep_their_order_in_the_table(crawl: Crawl) -> None:
    crawl.project()
    crawl.project("sink", status="STOP")
    crawl.ready("p")
    crawl.submit(new("t"))
    (task,) = crawl.tasks()
    crawl.step(done(task, messages=[Message("sink", number, "data:,m") for number in range(120)]))
    assert messages(crawl) == []
    crawl.change("sink", status="RUNNING")
    crawl.crawl(3)
    assert messages(crawl) == list(range(120))


def test_projects_take_turns(crawl: Crawl) -> None:
    names = [f"p{number}" for number in range(5)]
    for name in names:
        crawl.project(name)
    crawl.ready(*names)
    crawl.pages_out.space = 1
    for name in names:
        enter(crawl, 30, name)
    crawl.step()
    assert Counter(task.project for task in crawl.controls()) == dict.fromkeys(names, 4)


def test_many_projects_with_many_messages_stay_within_bounds(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once memory is full each project has a few rows here, and all come to their end."""
    monkeypatch.setattr(control_queues, "MAX_ROWS", 300)
    names = [f"p{number}" for number in range(20)]
    for name in names:
        crawl.project(name)
        enter(crawl, 100, name)
    crawl.ready(*names)
    most = held(crawl)
    for _ in range(60):
        crawl.crawl(0.1)
        most = max(most, held(crawl))
    # what is in flight is here, too; and each has its info
    assert most <= 300 + CONTROL_BUDGET + len(names) * (control_queues.AT_LEAST + 1)
    for name in names:
        assert messages(crawl, name) == list(range(100))


def test_what_commands_enter_waits_for_no_messages_of_the_same_project(crawl: Crawl) -> None:
    crawl.project("sink", status="STOP")
    enter(crawl, 5_000)
    crawl.start("sink")
    crawl.change("sink", status="RUNNING")
    crawl.crawl(6)
    assert crawl.callbacks("sink").index("on_start") < 2 * KEEP


def test_rows_that_cannot_be_read_hide_nothing(crawl: Crawl, raw_sql: Any) -> None:
    """More of them than a page has; and in the project's own rows."""
    crawl.project("sink", status="STOP")
    enter(crawl, 2_500)
    raw_sql("""UPDATE "lite-control" SET task = '{"broken' WHERE seq < 2400""")
    crawl.project("good")
    crawl.start("good")
    crawl.crawl(1)
    assert "on_start" in crawl.callbacks("good")
    crawl.change("sink", status="RUNNING")
    crawl.crawl(2)
    assert len(messages(crawl)) in range(100, 103)


def test_a_message_that_was_under_way_is_not_run_again(crawl: Crawl) -> None:
    """Its project was stopped meanwhile, and another leads: what the processor reports counts all the same."""
    crawl.project("sink")
    crawl.ready("sink")
    enter(crawl, 3)
    crawl.step()
    flying = crawl.controls()
    assert len(flying) == 3
    crawl.change("sink", status="STOP")
    crawl.lead()
    crawl.step()
    assert held(crawl) == 0
    crawl.step(*[crawl.answer(task) for task in flying[:2]])
    crawl.change("sink", status="RUNNING")
    crawl.crawl(1)
    assert messages(crawl) == [0, 1, 2, 2]


def test_cron_ticks_are_bounded_behind_thousands_of_messages(crawl: Crawl) -> None:
    crawl.info["sink"] = {"cron": [1]}
    crawl.project("sink")
    crawl.ready("sink")
    enter(crawl, 2_000)
    for _ in range(40):
        crawl.step(after=1)
    with crawl.taskdb.begin(None) as tx:
        assert len(tx.waiting_controls("sink", crawl.look("sink").generation, [ControlKind.CRON], 100)) == 10
