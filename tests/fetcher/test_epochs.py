"""Batches of a leader that leads no longer."""

from pyspider_lite.fetcher.epochs import HOLDS, Epochs


def test_older_is_outdated_while_newer_comes():
    epochs = Epochs()
    given = [(1, 0.0), (1, 1.0), (3, 2.0), (1, 3.0), (2, 4.0), (3, 5.0), (4, 6.0), (3, 7.0)]
    assert [epochs.outdated(*one) for one in given] == [False, False, False, True, True, False, False, True]


def test_a_new_taskdb_begins_at_one():
    """Its batches are dropped for a while, given out again, and then they count."""
    epochs = Epochs()
    assert not epochs.outdated(57, 0.0)
    assert epochs.outdated(1, HOLDS - 1)
    assert not epochs.outdated(1, HOLDS)
    assert not epochs.outdated(1, HOLDS + 1)
