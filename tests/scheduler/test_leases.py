"""Where runs are: each rule of the protocol (docs/architecture.md) alone; all of them under random faults: `test_lease_histories`."""

from typing import Any

import pytest

from pyspider_lite.models.names import CONTROL_RUN, Role, RunKey
from pyspider_lite.models.worker import Beat, Claim, Handover, Release
from pyspider_lite.scheduler.leases import DEAD_AFTER, ORDER_KNOWN, UNCLAIMED_AFTER, Leases, Lost

Q, PAGES = "scheduler2fetcher", "fetcher2processor"


def run(taskid: str = "t", number: int = 0) -> RunKey:
    return ("p", taskid, number)


def beat(worker: str = "w", role: str = Role.FETCHER, **fields: Any) -> Beat:
    return Beat(worker=worker, role=role, host="h", pid=1, pool_size=10, **fields)


def claim(batch: str, *runs: RunKey, worker: str = "w", queue: str = Q) -> Claim:
    return Claim(worker=worker, queue=queue, batch=batch, runs=list(runs))


class Clocked:
    """Leases with a clock that runs on."""

    def __init__(self) -> None:
        self.leases = Leases()
        self.now = 0.0
        self.leases.advance(0.0, drained=True)

    def give(self, batch: str, *runs: RunKey, cap: float = 1e9) -> None:
        self.leases.dispatch(batch, Q, [(key, f"ticket of {key[1]}", cap) for key in runs])
        self.leases.sent(batch)

    def wait(self, seconds: float, *beats: Beat, drained: bool = True, step: float = 0.5) -> list[Lost]:
        """Time goes by; these workers beat. What was lost."""
        lost: list[Lost] = []
        for _ in range(round(seconds / step)):
            self.now += step
            self.leases.advance(self.now, drained=drained)
            for one in beats:
                self.leases.beat(one)
            lost += self.leases.check()
        return lost


@pytest.fixture
def at() -> Clocked:
    return Clocked()


def lost_keys(lost: list[Lost]) -> list[RunKey]:
    return [one.run for one in lost]


# --- in a queue ---------------------------------------------------------------------------------------------------------


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


# --- in a worker's hands -------------------------------------------------------------------------------------------------


def test_a_worker_that_beats_keeps_what_it_holds(at: Clocked) -> None:
    at.give("b", run())
    at.leases.claim(claim("b", run()))
    assert at.wait(1_000, beat(holds={"b": [run()]})) == []


def test_a_dead_worker_loses_everything(at: Clocked) -> None:
    at.leases.beat(beat())
    at.give("b", run("t1"), run("t2"))
    at.leases.claim(claim("b", run("t1"), run("t2")))
    assert at.wait(DEAD_AFTER) == []
    lost = at.wait(1)
    assert sorted(lost_keys(lost)) == [run("t1"), run("t2")]
    assert {one.reason for one in lost} == {"its worker died"}
    assert at.leases.workers == {}
    assert at.leases.pool_sizes(Role.FETCHER) == []


def test_a_claim_of_somebody_who_never_beats(at: Clocked) -> None:
    at.give("b", run())
    at.leases.claim(claim("b", run()))
    assert at.wait(DEAD_AFTER) == []
    assert lost_keys(at.wait(1)) == [run()]


def test_what_a_worker_no_longer_holds_is_lost_at_once(at: Clocked) -> None:
    at.give("b", run("t1"), run("t2"))
    at.leases.claim(claim("b", run("t1"), run("t2")))
    at.leases.beat(beat(holds={"b": [run("t2")]}))
    assert [(one.run, one.reason) for one in at.leases.check()] == [(run("t1"), "no longer with its worker")]


def test_a_worker_that_leaves(at: Clocked) -> None:
    at.leases.beat(beat(running=run()))
    at.give("b", run())
    at.leases.claim(claim("b", run()))
    at.leases.beat(beat(leaving=True))
    assert [(one.run, one.deaths) for one in at.leases.check()] == [(run(), 0)]
    assert at.leases.workers == {}


def test_how_long_nobody_of_a_role_was_heard(at: Clocked) -> None:
    at.wait(3)
    assert at.leases.silence(Role.FETCHER) == 3
    at.wait(2, beat())
    at.wait(DEAD_AFTER)
    assert at.leases.silence(Role.FETCHER) == 0
    at.wait(1)
    assert at.leases.silence(Role.FETCHER) == DEAD_AFTER + 1


def test_released(at: Clocked) -> None:
    at.give("b", run("t1"), run("t2"))
    at.leases.claim(claim("b", run("t1"), run("t2")))
    at.leases.release(Release(worker="w", runs=[run("t1"), run("unknown"), run("t2", 7)]))
    at.leases.release(Release(worker="another", runs=[run("t2")]))
    assert lost_keys(at.leases.check()) == [run("t1")]
    assert not at.leases.blame.tolls and not at.leases.blame.suspects


def test_what_was_cut_off_at_the_end_of_a_drain_counts_as_a_death_until_it_ends(at: Clocked) -> None:
    """A callback may end its processor by SIGTERM and never return: without a count it would do so for ever."""
    key = ("p", "t")
    for deaths in (1, 2):
        at.give(f"b{deaths}", run())
        at.leases.claim(claim(f"b{deaths}", run(), queue=PAGES))
        cut = Release(worker="w", runs=[run()], cut_off=True)
        # a queue server may have it twice
        at.leases.release(cut)
        at.leases.release(cut)
        assert [(one.reason, one.deaths) for one in at.leases.check()] == [("cut off", deaths)]
        assert key in at.leases.blame.suspects
    at.give("b3", run())
    at.leases.end(*key)
    assert not at.leases.blame.tolls and not at.leases.blame.suspects


def test_handed_over(at: Clocked) -> None:
    at.give("b", run("t1"), run("t2"))
    at.leases.claim(claim("b", run("t1"), run("t2")))
    at.leases.hand_over(Handover(worker="w", queue=PAGES, batch="c", runs=[run("t1")]))
    # it waits for a processor, and is not the worker's any more
    assert at.wait(100, beat(holds={"b": [run("t2")]})) == []
    assert lost_keys(at.wait(100)) == [run("t2")]


def test_the_receivers_claim_before_the_senders_handover(at: Clocked) -> None:
    at.give("b", run())
    at.leases.claim(claim("b", run()))
    at.leases.claim(claim("c", run(), worker="x", queue=PAGES))
    at.leases.hand_over(Handover(worker="w", queue=PAGES, batch="c", runs=[run()]))
    both = (beat(), beat("x", Role.PROCESSOR, holds={"c": [run()]}))
    assert at.wait(100, *both) == []
    assert lost_keys(at.wait(7, both[0])) == [run()]


def test_the_receivers_claim_before_the_senders(at: Clocked) -> None:
    at.give("b", run())
    at.leases.claim(claim("c", run(), worker="x", queue=PAGES))
    at.leases.claim(claim("b", run()))
    at.leases.hand_over(Handover(worker="w", queue=PAGES, batch="c", runs=[run()]))
    both = (beat(), beat("x", Role.PROCESSOR, holds={"c": [run()]}))
    assert at.wait(100, *both) == []
    assert lost_keys(at.wait(7, both[0])) == [run()]


def test_a_claim_that_is_heard_late_takes_nothing_back(at: Clocked) -> None:
    """The fetcher is slow to say that it took the batch: by then its pages are with a processor, and some of them over."""
    at.give("b0", run("t1"), run("t2"))
    at.leases.claim(claim("pages", run("t1"), run("t2"), worker="p", queue=PAGES))
    at.leases.hand_over(Handover(worker="p", queue="processor2result", batch="results", runs=[run("t1")]))
    at.leases.claim(claim("b0", run("t1"), run("t2"), worker="f"))
    at.leases.hand_over(Handover(worker="f", queue=PAGES, batch="pages", runs=[run("t1"), run("t2")]))
    at.leases.beat(beat("p", Role.PROCESSOR, holds={"pages": [run("t2")]}))
    at.leases.beat(beat("f", holds={}))
    assert at.wait(3, beat("p", Role.PROCESSOR, holds={"pages": [run("t2")]}), beat("f", holds={})) == []


def test_past_its_cap(at: Clocked) -> None:
    at.give("b", run("short"), cap=20)
    at.give("b2", run("long"), cap=1e9)
    at.wait(100)  # the time in a queue does not count
    at.leases.claim(claim("b", run("short")))
    at.leases.claim(claim("b2", run("long")))
    held = beat(holds={"b": [run("short")], "b2": [run("long")]})
    assert at.wait(20, held) == []
    (lost,) = at.wait(1, held)
    assert (lost.run, lost.reason) == (run("short"), "past its time limit")


def test_who_reports_in_parts_begins_anew_with_each(at: Clocked) -> None:
    at.give("b", run(), cap=20)
    at.leases.claim(claim("b", run()))
    held = beat(holds={"b": [run()]})
    for _ in range(3):
        assert at.wait(15, held) == []
        at.leases.goes_on(run())
    assert at.wait(20, held) == []
    assert lost_keys(at.wait(1, held)) == [run()]


def test_who_waits_for_room_is_not_past_its_cap(at: Clocked) -> None:
    at.give("b", run(), cap=5)
    at.leases.claim(claim("b", run()))
    for _ in range(100):
        at.now += 1
        at.leases.advance(at.now, drained=True)
        at.leases.beat(beat(holds={"b": [run()]}))
        assert at.leases.check(frozenset({Role.FETCHER})) == []


def test_an_adopted_run_that_hangs(at: Clocked) -> None:
    held = beat(holds={"b": [run()]})
    at.leases.beat(held)
    assert at.leases.uncapped == {("p", "t")}
    at.leases.set_cap(("p", "t"), 20.0)
    at.leases.adopting = False
    assert at.wait(20, held) == []
    assert [(one.run, one.reason) for one in at.wait(1, held)] == [(run(), "past its time limit")]
    assert at.leases.uncapped == set()


# --- the end of a run ----------------------------------------------------------------------------------------------------


def test_ended(at: Clocked) -> None:
    at.give("b", run("t1"), run("t2"))
    assert at.leases.run_of("p", "t1") == 0
    assert at.leases.end("p", "t1") == "ticket of t1"
    assert at.leases.end("p", "t1") is None
    assert at.leases.run_of("p", "t1") is None
    assert set(at.leases.in_flight()) == {("p", "t2")}


def test_what_was_reported_cannot_be_lost(at: Clocked) -> None:
    """The commit may take its time; meanwhile the worker has forgotten the run, or died."""
    at.leases.beat(beat(running=run()))
    at.give("b", run())
    at.leases.claim(claim("b", run()))
    at.leases.reported(run(number=7))
    at.leases.reported(run())
    at.leases.beat(beat())
    assert at.wait(100) == []
    assert at.leases.run_of("p", "t") == 0
    at.leases.end("p", "t")
    assert len(at.leases) == 0


def test_only_the_death_over_a_running_task_counts_against_it(at: Clocked) -> None:
    for death in (1, 2, 3):
        name = f"w{death}"
        at.give(name, run("killer"), run("lamb"))
        at.leases.claim(claim(name, run("killer"), run("lamb"), worker=name))
        at.leases.beat(beat(name, holds={name: [run("killer"), run("lamb")]}, running=run("killer")))
        lost = at.wait(7)
        assert {one.run[1]: one.deaths for one in lost} == {"killer": death, "lamb": 0}
    at.leases.end("p", "killer")
    assert at.leases.blame.tolls == {}


def test_all_that_a_processor_died_with_is_suspected_until_it_is_over(at: Clocked) -> None:
    """It may have died of any of them before it could say so; none is blamed for that."""
    at.give("a", run("killer"), run("lamb"), run("early"))
    at.give("b", run("of a fetcher"))
    at.leases.claim(claim("b", run("of a fetcher"), worker="f"))
    at.leases.beat(beat("f", holds={"b": [run("of a fetcher")]}))
    at.leases.claim(claim("c", run("killer"), run("lamb"), worker="p", queue=PAGES))
    at.leases.beat(beat("p", Role.PROCESSOR, holds={"c": [run("killer"), run("lamb")]}))
    at.leases.claim(claim("d", run("early"), worker="never heard", queue=PAGES))
    assert {one.deaths for one in at.wait(7)} == {0}
    assert (
        set(at.leases.blame.suspects) == {("p", name) for name in ("killer", "lamb", "early")}
        and not at.leases.blame.tolls
    )
    at.leases.end("p", "killer")
    at.leases.forget("p")
    assert not at.leases.blame.suspects


def test_a_processor_may_die_before_it_claims(at: Clocked) -> None:
    at.give("b", run())
    at.leases.claim(claim("b", run()))
    at.leases.hand_over(Handover(worker="w", queue=PAGES, batch="c", runs=[run()]))
    at.wait(1, beat())
    at.leases.seen_empty(PAGES, at.leases.clock)
    assert lost_keys(at.wait(UNCLAIMED_AFTER + 1, beat())) == [run()]
    assert set(at.leases.blame.suspects) == {("p", "t")}


def test_who_was_silent_and_comes_back_did_not_die(at: Clocked) -> None:
    """Frozen, or cut off from the broker: three times, and the task is none the worse for it."""
    for _ in range(3):
        at.give("b", run())
        at.leases.claim(claim("b", run()))
        at.leases.beat(beat(holds={"b": [run()]}, running=run()))
        (lost,) = at.wait(7)
        assert lost.deaths == 1
        at.leases.beat(beat())
        assert at.leases.blame.tolls == {}


def test_a_late_beat_about_a_run_that_is_over_holds_up_nothing(at: Clocked) -> None:
    """Two had the run, one ended it: what the other still holds must not stand in the way of the next run."""
    at.leases.adopting = False
    at.leases.beat(beat(holds={"b": [run()]}, running=run()))
    assert at.leases.run_of("p", "t") is None


def test_a_running_key_that_is_no_longer_the_workers_does_not_count(at: Clocked) -> None:
    at.give("b", run())
    at.leases.claim(claim("b", run()))
    at.leases.beat(beat(holds={"b": [run()]}, running=run()))
    at.leases.hand_over(Handover(worker="w", queue=PAGES, batch="c", runs=[run()]))
    at.wait(7)
    assert at.leases.blame.tolls == {}


# --- our own outages ------------------------------------------------------------------------------------------------------


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
