"""How much control work memory holds, and of which projects the table is read again."""

import pytest

from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.task import NewTask
from pyspider_lite.scheduler import control_queues
from pyspider_lite.scheduler.control_queues import AT_LEAST, KEEP, ControlQueues


def row(project: str, number: int, kind: ControlKind = ControlKind.MESSAGE, size: int = 0) -> Control:
    task = NewTask(str(number), project, "data:,m", fetch={"save": "x" * size})
    return Control(id=f"{kind}:{project}:{number}", project=project, kind=kind, generation="g", task=task)


def filled(project: str, count: int, size: int = 0) -> ControlQueues:
    """One whose project has more in the table."""
    queues = ControlQueues()
    for number in range(count):
        queues.put(row(project, number, size=size))
    queues.leave(project, active=True)
    return queues


def test_room_is_what_the_rows_leave() -> None:
    queues = ControlQueues()
    whole = queues.room
    first, second, third = (row("p", number, size=1_000) for number in range(3))
    for one in (first, second, third):
        queues.put(one)
    taken = whole - queues.room
    assert 3_000 < taken < 4_000
    assert queues.take("p") is first
    # in flight, and back
    assert whole - queues.room == taken
    queues.put(first)
    assert whole - queues.room == taken
    queues.drop(second.id)
    queues.drop(second.id)
    assert whole - queues.room == taken * 2 // 3
    assert queues.take_all("p") == [third, first] and queues.take("p") is None
    assert whole - queues.room == taken * 2 // 3
    queues.forget("p")
    assert queues.room == whole and queues.empty


def test_a_row_that_waits_twice_is_taken_once() -> None:
    queues = filled("p", 1)
    queues.put(queues.rows["message:p:0"])
    assert len(queues.take_all("p")) == 1


def test_a_project_is_read_again_when_half_of_it_is_gone() -> None:
    queues = filled("p", KEEP)
    while len(queues.rows) > KEEP // 2:
        assert queues.to_read(9) == []
        one = queues.take("p")
        assert one is not None
        queues.drop(one.id)
    assert queues.to_read(9) == []
    assert queues.take("p") is not None
    assert queues.to_read(9) == ["p"]


def test_a_project_whose_large_message_waits_is_read_again_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_queues, "MAX_BYTES", 15_000)
    queues = filled("p", 2, size=10_000)
    assert queues.room < 0
    assert not queues.has_room(row("p", 2)) and queues.to_read(9) == []
    assert queues.has_room(row("q", 0)) and queues.has_room(row("p", 0, ControlKind.START))
    one = queues.take("p")
    assert one is not None and queues.to_read(9) == []
    # its report came
    queues.drop(one.id)
    assert queues.has_room(row("p", 2)) and queues.to_read(9) == ["p"]


def test_a_project_of_which_nothing_waits_gets_one_message_whatever_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_queues, "MAX_BYTES", 5_000)
    queues = filled("p", 1, size=10_000)
    assert queues.to_read(9) == []
    assert queues.take("p") is not None
    assert queues.room < 0 and queues.to_read(9) == ["p"]


def test_once_there_are_too_many_rows_each_project_has_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_queues, "MAX_ROWS", 100)
    queues = filled("p", 100)
    queues.leave("q", active=True)
    assert queues.to_read(1) == ["q"]
    for number in range(AT_LEAST):
        assert queues.has_room(row("q", number))
        queues.put(row("q", number))
    assert not queues.has_room(row("q", AT_LEAST)) and not queues.has_room(row("q", 0, ControlKind.START))
    assert queues.has_room(row("q", 0, ControlKind.INFO)) and queues.to_read(9) == []
