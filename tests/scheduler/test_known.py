"""The known keys: exact, and bounded."""

from pyspider_lite.scheduler.known import KnownKeys


def test_what_was_added_is_known_in_its_project() -> None:
    known = KnownKeys()
    known.add("a", {"1", "2"})
    known.add("b", {"3"})
    assert "1" in known.known("a")
    assert "3" not in known.known("a")
    assert "1" not in known.known("nobody")
    assert len(known) == 3


def test_added_twice_counts_once() -> None:
    known = KnownKeys()
    known.add("a", {"1", "2"})
    known.add("a", {"2", "3"})
    assert len(known) == 3


def test_a_dropped_project_leaves_nothing() -> None:
    known = KnownKeys()
    known.add("a", {"1", "2"})
    known.add("b", {"1"})
    known.drop("a")
    known.drop("a")
    assert len(known) == 1
    assert "1" not in known.known("a")
    assert "1" in known.known("b")


def test_the_oldest_of_the_fullest_project_go() -> None:
    known = KnownKeys(100)
    known.add("small", {"s"})
    for number in range(1_000):
        known.add("large", {str(number)})
        assert len(known) <= 100
    assert "s" in known.known("small")
    assert "999" in known.known("large")
    assert "0" not in known.known("large")
    assert len(known) == len(known.known("small")) + len(known.known("large"))


def test_the_bound_holds_for_what_comes_at_once() -> None:
    known = KnownKeys(100)
    known.add("a", {str(number) for number in range(150)})
    known.add("b", {str(number) for number in range(150)})
    assert len(known) <= 100
