"""Which projects wait while pages that take long are set aside, and when what waits goes back to its queue."""

from pyspider_lite.processor.aside import CROWDED, GIVE_BACK, REMEMBERED, SLOW, Turns


def test_who_has_a_page_aside_waits_for_it():
    turns = Turns()
    assert turns.waiting([], full=False, now=0.0) == frozenset()
    assert turns.waiting({"slow"}, full=False, now=0.0) == {"slow"}


def test_only_what_took_long_is_slow():
    turns = Turns()
    assert not turns.took("quick", SLOW - 0.1, 5.0)
    assert turns.took("slow", SLOW, 5.0)
    assert turns.waiting(["a", "b"], full=True, now=5.0) == {"a", "b", "slow"}


def test_who_was_slow_waits_only_where_no_more_can_be_set_aside():
    turns = Turns()
    turns.took("slow", 3.0, 5.0)
    assert turns.waiting(["a"], full=False, now=5.0) == {"a"}
    assert turns.waiting(["a", "b"], full=True, now=6.0) == {"a", "b", "slow"}


def test_it_is_forgotten_after_a_minute_unless_it_was_slow_again():
    turns = Turns()
    turns.took("once", 3.0, 5.0)
    turns.took("again", 3.0, 5.0)
    turns.took("again", 3.0, 9.0)
    assert turns.waiting([], full=True, now=5.0 + REMEMBERED) == {"once", "again"}
    assert turns.waiting([], full=True, now=9.0 + REMEMBERED) == {"again"}
    assert turns.waiting([], full=True, now=9.1 + REMEMBERED) == frozenset()


def test_who_is_mostly_quick_is_slow_for_a_few_pages_only():
    """One page that took long is no reason to have all others of the project wait behind 20 s callbacks."""
    turns = Turns()
    for name in ("mixed", "rare"):
        assert not turns.took(name, 0.05, 5.0)
    assert not turns.took("mixed", 1.2, 6.0) and turns.took("rare", 20.0, 6.0)
    assert turns.took("new", 1.2, 6.0) and turns.took("new", 0.05, 6.0)
    assert turns.waiting(["a", "b"], full=True, now=6.0) == {"a", "b", "rare"}
    pages = 0
    while "rare" in turns.waiting([], full=True, now=6.0):
        turns.took("rare", 0.05, 6.0)
        pages += 1
    assert 5 < pages < 10
    for _ in range(99):
        turns.took("slow", 20.0, 6.0)
    turns.took("slow", 0.05, 6.0)
    assert "slow" in turns.waiting([], full=True, now=6.0)


def test_what_waits_goes_back_at_once_and_then_the_less_often_the_longer_it_takes():
    turns = Turns()
    assert turns.give_back(0.2, False, 100.0)
    assert not turns.give_back(0.9, False, 100.0 + SLOW - 0.1)
    assert turns.give_back(4.0, False, 100.0 + SLOW)
    assert not turns.give_back(7.0, False, 104.9)
    assert turns.give_back(900.0, False, 105.0)
    assert not turns.give_back(900.0, False, 105.0 + GIVE_BACK - 0.1)
    assert turns.give_back(900.0, False, 105.0 + GIVE_BACK)


def test_what_keeps_others_from_coming_in_goes_back_more_often():
    turns = Turns()
    assert turns.give_back(60.0, True, 100.0)
    assert not turns.give_back(60.0, True, 100.0 + CROWDED - 0.1)
    assert not turns.give_back(60.0, False, 100.0 + CROWDED)
    assert turns.give_back(60.0, True, 100.0 + CROWDED)
