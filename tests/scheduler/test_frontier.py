"""The window of due tasks: whatever its size, tasks come out in the order of the whole table."""

import random

import pytest

from pyspider_lite.models.task import DueKey
from pyspider_lite.scheduler.frontier import Window


def key(taskid: str, priority: int = 0, due: float = 0.0, seq: int = 0) -> DueKey:
    return DueKey(taskid=taskid, priority=priority, due=due, seq=seq)


def fresh(limit: int = 100) -> Window:
    """A window that knows that the table holds nothing else."""
    window = Window(limit)
    window.refill([], None, limit, set().__contains__, 0.0)
    return window


def drain(window: Window) -> list[str]:
    taken = []
    while (best := window.take()) is not None:
        taken.append(best.taskid)
    return taken


def test_priority_then_due_then_sequence() -> None:
    """UA25."""
    window = fresh()
    for one in (key("late", 0, 5, 1), key("b", 0, 1, 3), key("a", 0, 1, 2), key("low", -1, 0, 0), key("high", 9, 9, 9)):
        window.add(one, 10.0)
    assert drain(window) == ["high", "a", "b", "late", "low"]
    assert window.take() is None


def test_take_gives_the_key_as_it_was_put() -> None:
    window = fresh()
    window.add(key("t", 3, 7.5, 11), 10.0)
    assert window.take() == key("t", 3, 7.5, 11)


def test_what_is_not_due_waits_outside() -> None:
    window = fresh()
    window.add(key("t", due=20.0), 10.0)
    assert len(window) == 0
    assert window.next_due == 20.0
    assert not window.wants_refill(19.9)
    assert window.wants_refill(20.0)


@pytest.mark.behaviour("S27")
def test_a_task_has_one_place() -> None:
    window = fresh()
    window.add(key("t", 0, 1), 10.0)
    window.add(key("u", 1, 1), 10.0)
    window.add(key("t", 2, 1), 10.0)
    assert len(window) == 2
    assert drain(window) == ["t", "u"]


def test_a_task_that_became_later_leaves() -> None:
    window = fresh()
    window.add(key("t"), 10.0)
    window.add(key("t", due=50.0), 10.0)
    assert "t" not in window
    assert window.next_due == 50.0


@pytest.mark.behaviour("S25", "X-M1")
def test_a_better_one_evicts_the_worst() -> None:
    window = fresh(4)
    for number in range(4):
        window.add(key(str(number), priority=number), 10.0)
    assert not window.more
    window.add(key("best", priority=9), 10.0)
    assert "0" not in window
    assert window.more
    window.add(key("worse", priority=-9), 10.0)
    assert "worse" not in window
    assert drain(window) == ["best", "3", "2", "1"]


def test_remove() -> None:
    window = fresh()
    window.add(key("t"), 1.0)
    window.remove("t")
    window.remove("never there")
    assert len(window) == 0
    assert "t" not in window


def test_a_window_that_does_not_know_the_table_asks_first() -> None:
    """A newcomer must not overtake what is stored already."""
    window = Window(8)
    for number in range(8):
        window.add(key(f"new{number}", priority=number), 10.0)
    assert window.wants_refill(10.0)
    window.refill(
        [key("old", priority=9), *(key(f"new{n}", priority=n) for n in range(7, -1, -1))],
        None,
        8,
        set().__contains__,
        10.0,
    )
    assert drain(window)[:2] == ["old", "new7"]


def test_a_refill_leaves_out_what_is_in_flight() -> None:
    window = Window(10)
    window.refill([key("a", seq=1), key("b", seq=2), key("c", seq=3)], 99.0, 13, "b".__eq__, 10.0)
    assert drain(window) == ["a", "c"]
    assert not window.more
    assert window.next_due == 99.0


def test_a_full_answer_means_that_there_is_more() -> None:
    window = Window(3)
    window.refill([key("a", seq=1), key("b", seq=2), key("c", seq=3)], None, 3, set().__contains__, 10.0)
    assert window.more
    assert not window.wants_refill(10.0)
    drain(window)
    assert window.wants_refill(10.0)


class Table:
    """The tasks of one project that wait, as the taskdb holds them."""

    def __init__(self) -> None:
        self.rows: dict[str, DueKey] = {}

    def due(self, now: float) -> list[DueKey]:
        rows = [row for row in self.rows.values() if row.due <= now]
        return sorted(rows, key=lambda row: (-row.priority, row.due, row.seq))

    def refill(self, window: Window, now: float, in_flight: set[str]) -> None:
        asked = window.limit + len(in_flight)
        later = [row.due for row in self.rows.values() if row.due > now]
        window.refill(self.due(now)[:asked], min(later, default=None), asked, in_flight.__contains__, now)


@pytest.mark.parametrize("limit", [4, 9, 40])
@pytest.mark.parametrize("seed", range(6))
def test_tasks_come_out_in_the_order_of_the_table(limit: int, seed: int) -> None:
    """The window against a sorted list: inserts, times that come, runs in flight, retries, cancels."""
    random_ = random.Random(seed)
    window, table, in_flight = Window(limit), Table(), set[str]()
    now, made, taken = 0.0, 0, 0

    def enter(taskid: str) -> None:
        due = now + random_.choice([-1, 0, 0, 0, 3, 10, 40])
        row = DueKey(taskid=taskid, priority=random_.choice([0, 0, 0, 1, 5, -3]), due=due, seq=made)
        table.rows[taskid] = row
        window.add(row, now)

    for _ in range(1_500):
        now += random_.choice([0, 0.1, 1])
        match random_.randrange(8):
            case 0 | 1:
                for _ in range(random_.choice([1, 1, 3, 12])):
                    made += 1
                    enter(f"t{made}")
            case 2 if in_flight:  # a run ends: well, or to be tried again
                taskid = random_.choice(sorted(in_flight))
                in_flight.discard(taskid)
                del table.rows[taskid]
                if random_.random() < 0.4:
                    made += 1
                    enter(taskid)
            case 3 if in_flight:  # a run is lost and given out again
                taskid = random_.choice(sorted(in_flight))
                in_flight.discard(taskid)
                window.add(table.rows[taskid], now)
            case 4 if table.rows:
                taskid = random_.choice(sorted(table.rows))
                if taskid not in in_flight:
                    del table.rows[taskid]
                    window.remove(taskid)
            case _:
                if window.wants_refill(now):
                    table.refill(window, now, in_flight)
                waiting = [row for row in table.due(now) if row.taskid not in in_flight]
                best = window.take()
                assert best == (waiting[0] if waiting else None)
                assert len(window) <= limit
                if best is not None:
                    in_flight.add(best.taskid)
                    taken += 1
    assert taken > 300
