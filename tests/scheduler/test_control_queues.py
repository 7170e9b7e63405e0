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
    whole = queues.room(0)
    first, second, third = (row("p", number, size=1_000) for number in range(3))
    for one in (first, second, third):
        queues.put(one)
    taken = whole - queues.room(0)
    assert 3_000 < taken < 4_000
    assert queues.take("p") is first
    # in flight, and back
    assert whole - queues.room(0) == taken
    queues.put(first)
    assert whole - queues.room(0) == taken
    queues.drop(second.id)
    queues.drop(second.id)
    assert whole - queues.room(0) == taken * 2 // 3
    assert queues.take_all("p") == [third, first] and queues.take("p") is None
    assert whole - queues.room(0) == taken * 2 // 3
    queues.forget("p")
    assert queues.room(0) == whole and queues.empty


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


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 5,000 bytes are large, of which 15,000 bytes may be here and 25,000 in flight."""
    monkeypatch.setattr(control_queues, "LARGE", 5_000)
    monkeypatch.setattr(control_queues, "MAX_BYTES", 15_000)
    monkeypatch.setattr(control_queues, "OUT_BYTES", 25_000)


@pytest.mark.usefixtures("narrow")
def test_a_project_whose_large_message_waits_is_read_again_when_there_is_room() -> None:
    queues = filled("p", 2, size=10_000)
    large = row("q", 2, size=10_000)
    assert queues.room(10_000) < 0 < queues.room(0)
    # of whatever project it is; others do not wait for it
    assert not queues.has_room(large) and queues.has_room(row("q", 0))
    assert queues.has_room(row("p", 0, ControlKind.START))
    queues.leave("q", active=True, size=10_000)
    assert queues.to_read(9) == ["p"], "nobody knows how large its next one is"
    one = queues.take("p")
    assert one is not None and not queues.has_room(large)
    # its report came
    queues.drop(one.id)
    assert queues.has_room(large) and queues.to_read(9) == ["p", "q"]
    # who got something is behind who got nothing
    queues.got_some("p")
    assert queues.to_read(9) == ["q", "p"]


@pytest.mark.usefixtures("narrow")
def test_of_large_messages_few_are_in_flight() -> None:
    queues = ControlQueues()
    for number in range(4):
        queues.put(row("p", number, size=10_000))
    taken = []
    for _ in range(2):
        taken.append(queues.take("p"))
        assert not queues.too_much_out
    third = queues.take("p")
    assert third is not None and queues.too_much_out
    queues.put(third, first=True)
    assert not queues.too_much_out
    assert taken[0] is not None
    queues.drop(taken[0].id)
    assert queues.take("p") is third and not queues.too_much_out
    # one may always go, however large it is
    queues = filled("p", 1, size=50_000)
    assert queues.take("p") is not None and not queues.too_much_out


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
