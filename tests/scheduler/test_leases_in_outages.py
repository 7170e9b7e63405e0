"""What time counts, and what becomes of leases when it is the scheduler that was away."""

import pytest
from clocked_leases import PAGES, Clocked, Q, beat, claim, lost_keys, run

from pyspider_lite.models.names import CONTROL_RUN, Role
from pyspider_lite.models.worker import Handover
from pyspider_lite.scheduler.leases import DEAD_AFTER, UNCLAIMED_AFTER
from pyspider_lite.scheduler.places import ORDER_KNOWN


def test_an_outage_of_ours_kills_nobody(at: Clocked) -> None:
    at.leases.beat(beat())
    at.give("b", run())
    at.leases.claim(claim("b", run()))
    assert at.wait(1_000, drained=False) == []
    assert at.wait(100, beat(holds={"b": [run()]})) == []


def test_a_stall_counts_as_one_second(at: Clocked) -> None:
    at.leases.beat(beat())
    at.now += 3_600
    at.leases.advance(at.now, drained=True)
    assert at.leases.clock == 1.0
    at.leases.check()
    assert "w" in at.leases.workers


def test_time_counts_as_soon_as_all_that_was_said_in_it_is_heard(at: Clocked) -> None:
    """With hundreds of workers more than one call's worth waits each time (docs/scaling.md)."""
    at.leases.beat(beat())
    for _ in range(70):
        at.now += 0.1
        at.leases.advance(at.now, drained=False)
        assert at.leases.check() == []
        at.leases.advance(at.now, drained=True)
    assert at.leases.clock == pytest.approx(7.0)
    at.leases.check()
    assert "w" not in at.leases.workers


def test_a_clock_that_was_set_back(at: Clocked) -> None:
    at.wait(5)
    at.now -= 1_000
    at.leases.advance(at.now, drained=True)
    assert at.leases.clock == 5.0
    at.wait(2)
    assert at.leases.clock == 7.0


def test_a_fresh_term(at: Clocked) -> None:
    at.leases.beat(beat())
    at.give("b", run())
    at.wait(DEAD_AFTER - 1)
    at.leases.seen_empty(Q, at.leases.clock)
    at.leases.fresh_term()
    at.leases.seen_empty(Q, at.leases.clock - 1)  # measured before it
    assert at.wait(DEAD_AFTER - 1) == []
    assert "w" in at.leases.workers


def test_an_outage_does_not_hide_which_batch_was_put_first(at: Clocked) -> None:
    """Pages vanish, then there is an outage; those of another sender that were put later, but before the outage, tell."""
    for name in ("w1", "w2"):
        at.give(f"to {name}", run(name))
        at.leases.claim(claim(f"to {name}", run(name), worker=name))
    both = [beat("w1"), beat("w2"), beat("p", Role.PROCESSOR)]
    at.leases.hand_over(Handover(worker="w1", queue=PAGES, batch="vanishes", runs=[run("w1")]))
    at.wait(ORDER_KNOWN + 0.5, *both[:1], beat("w2", holds={"to w2": [run("w2")]}))
    at.leases.hand_over(Handover(worker="w2", queue=PAGES, batch="later", runs=[run("w2")]))
    at.leases.fresh_term()
    assert at.wait(10, *both) == []
    at.leases.claim(claim("later", run("w2"), worker="p", queue=PAGES))
    both[2] = beat("p", Role.PROCESSOR, holds={"later": [run("w2")]})
    assert at.wait(UNCLAIMED_AFTER, *both) == []
    assert lost_keys(at.wait(1, *both)) == [run("w1")]


def test_a_new_leader_adopts(at: Clocked) -> None:
    at.leases.beat(beat(holds={"b": [run("t1"), ("p", "start", CONTROL_RUN)]}))
    assert (at.leases.tasks["p"], at.leases.controls) == (1, 1)
    assert at.leases.run_of("p", "t1") == 0
    lost = at.wait(7)
    assert sorted(lost_keys(lost)) == [("p", "start", CONTROL_RUN), run("t1")]
    assert (at.leases.tasks["p"], at.leases.controls) == (0, 0)
