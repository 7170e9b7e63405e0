"""A queue in memory against a model of it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pyspider_lite.message_queue import store
from pyspider_lite.message_queue.store import Store


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.count = 0
        self.ready: list[int] = []
        self.taken: list[int] = []

    @rule(size=st.integers(0, 50))
    def append(self, size: int) -> None:
        self.count += 1
        self.store.append(b"x" * size)
        self.ready.append(self.count)

    @rule(limit=st.integers(1, 5))
    def take(self, limit: int) -> None:
        serials = [entry.serial for entry in self.store.take(limit)]
        assert serials == self.ready[:limit]
        del self.ready[:limit]
        self.taken += serials

    @rule(pick=st.sets(st.integers(0, 30)))
    def ack(self, pick: set[int]) -> None:
        self.store.ack(pick)
        self.taken = [serial for serial in self.taken if serial not in pick]

    @rule(pick=st.sets(st.integers(0, 30)))
    def give_back(self, pick: set[int]) -> None:
        self.store.give_back(pick)
        self.ready = sorted(self.ready + [serial for serial in self.taken if serial in pick])
        self.taken = [serial for serial in self.taken if serial not in pick]

    @rule()
    def purge(self) -> None:
        assert self.store.purge() == len(self.ready)
        self.ready.clear()

    @invariant()
    def sizes_agree(self) -> None:
        assert len(self.store) == len(self.ready)
        assert self.store.has_room(0, len(self.ready) + 1)
        assert not self.ready or not self.store.has_room(0, len(self.ready))
        kept = [entry.body for entry in (*self.store._ready, *self.store._taken.values())]
        assert self.store._bytes == sum(map(len, kept))


StoreMachine.TestCase.settings = settings(max_examples=60, deadline=None)
TestStore = StoreMachine.TestCase


def test_bytes_are_bounded_with_those_that_are_unacknowledged() -> None:
    box = Store()
    box.append(bytes(store.MAX_BYTES - 10))
    assert box.has_room(10, 0)
    assert not box.has_room(11, 0)
    (entry,) = box.take(1)
    assert not box.has_room(11, 0)
    box.ack([entry.serial])
    assert box.has_room(11, 0)


def test_one_take_is_bounded_in_bytes_but_gives_at_least_one() -> None:
    box = Store()
    for size in (store.MAX_TAKE, 1, store.MAX_TAKE - 1, 1):
        box.append(bytes(size))
    assert [len(box.take(10)) for _ in range(3)] == [1, 2, 1]
