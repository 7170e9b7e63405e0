"""Batches that wait in queues, and those that vanished from them."""

import pytest
from clocked_leases import PAGES, Clocked, Q, beat, claim, lost_keys, run

from pyspider_lite.models.worker import Handover
from pyspider_lite.scheduler.leases import DEAD_AFTER, UNCLAIMED_AFTER, Lost
from pyspider_lite.scheduler.places import ORDER_KNOWN


@pytest.mark.behaviour("X-S7")
def test_a_batch_that_waits_is_not_lost_however_long(at: Clocked) -> None:
    at.give("b", run())
    assert at.wait(10_000, step=1.0) == []


def test_a_batch_that_is_not_sent_yet_is_not_lost(at: Clocked) -> None:
    at.leases.dispatch("b", Q, [(run(), None, 1.0)])
    at.wait(1)
    at.leases.seen_empty(Q, at.leases.clock)
    assert at.wait(100) == []


def test_a_queue_that_was_seen_empty_has_lost_its_batches(at: Clocked) -> None:
    at.give("b", run())
    at.wait(1)
    at.leases.seen_empty(Q, at.leases.clock)
    assert at.wait(UNCLAIMED_AFTER) == []
    (lost,) = at.wait(1)
    assert lost == Lost(run(), "its batch vanished from the queue", "ticket of t", 0)
    assert len(at.leases) == 0


def test_an_old_measurement_says_nothing(at: Clocked) -> None:
    at.wait(1)
    asked = at.leases.clock
    at.wait(1)
    at.give("b", run())
    at.leases.seen_empty(Q, asked)
    at.leases.seen_empty(PAGES, at.leases.clock + 1)
    assert at.wait(100) == []


def test_a_later_batch_that_was_claimed_says_that_the_earlier_one_is_gone(at: Clocked) -> None:
    at.give("b1", run("t1"))
    at.wait(ORDER_KNOWN + 0.5)
    at.give("b2", run("t2"))
    at.leases.claim(claim("b2", run("t2")))
    held = beat(holds={"b2": [run("t2")]})
    assert lost_keys(at.wait(UNCLAIMED_AFTER, held)) == []
    assert lost_keys(at.wait(1, held)) == [run("t1")]


def test_batches_of_two_senders_that_were_put_together_may_be_in_either_order(at: Clocked) -> None:
    for name in ("1", "2"):
        at.give(f"b{name}", run(f"t{name}"))
        at.leases.claim(claim(f"b{name}", run(f"t{name}"), worker=f"w{name}"))
    both = [beat("w1"), beat("w2")]
    at.leases.hand_over(Handover(worker="w1", queue=PAGES, batch="c1", runs=[run("t1")]))
    at.wait(0.5, *both)
    at.leases.hand_over(Handover(worker="w2", queue=PAGES, batch="c2", runs=[run("t2")]))
    at.leases.claim(claim("c2", run("t2"), worker="x", queue=PAGES))
    assert at.wait(100, *both, beat("x", holds={"c2": [run("t2")]})) == []


def test_batches_of_one_sender_are_in_its_order(at: Clocked) -> None:
    at.give("b1", run("t1"))
    at.give("b2", run("t2"))
    at.leases.claim(claim("b2", run("t2")))
    assert lost_keys(at.wait(UNCLAIMED_AFTER + 0.5, beat(holds={"b2": [run("t2")]}))) == [run("t1")]


def test_a_beat_stands_for_a_claim_that_was_lost(at: Clocked) -> None:
    at.give("b", run())
    at.wait(1)
    at.leases.seen_empty(Q, at.leases.clock)
    assert at.wait(100, beat(holds={"b": [run()]})) == []
    assert lost_keys(at.wait(DEAD_AFTER + 1)) == [run()]


def test_a_claim_of_a_batch_that_nobody_announced_says_nothing_of_others(at: Clocked) -> None:
    """The receiver's claim may be heard before the sender's handover: the batch may be older than others in the queue."""
    at.give("b", run("t1"), run("t2"))
    at.leases.claim(claim("b", run("t1"), run("t2")))
    at.leases.hand_over(Handover(worker="w", queue=PAGES, batch="later", runs=[run("t2")]))
    at.wait(5, beat(holds={"b": [run("t1")]}))
    at.leases.claim(claim("earlier", run("t1"), worker="x", queue=PAGES))
    assert at.wait(100, beat(), beat("x", holds={"earlier": [run("t1")]})) == []


def test_a_late_claim_takes_the_evidence_away(at: Clocked) -> None:
    at.give("b", run())
    at.wait(1)
    at.leases.seen_empty(Q, at.leases.clock)
    at.wait(UNCLAIMED_AFTER - 1)
    at.leases.claim(claim("b", run()))
    assert at.wait(100, beat(holds={"b": [run()]})) == []
