"""Where runs are, from a worker's claim to their end: each rule of the protocol (docs/architecture.md) alone; all of them under random faults:
`test_lease_histories`."""

from clocked_leases import PAGES, Clocked, beat, claim, lost_keys, run

from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.models.names import Role
from pyspider_lite.models.worker import Handover, Release
from pyspider_lite.scheduler.leases import DEAD_AFTER, UNCLAIMED_AFTER


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


def test_the_pools_are_those_of_the_workers_as_they_are_now(at: Clocked) -> None:
    """They are asked for at each step, and worked out when a worker came, went or changed."""
    for worker, pool, state, pools in (
        ("a", 5, "", [5]),
        ("b", 7, "", [5, 7]),
        ("b", 7, "paused", [5]),
        ("b", 7, "", [5, 7]),
        ("a", 6, "", [6, 7]),
    ):
        at.leases.beat(WorkerInfo(worker=worker, role=Role.FETCHER, host="h", pid=1, pool_size=pool).beat(state=state))
        assert at.leases.pool_sizes(Role.FETCHER) == pools
        assert at.leases.pool_sizes(Role.PROCESSOR) == []
    at.leases.beat(WorkerInfo(worker="a", role=Role.FETCHER, host="h", pid=1).beat(leaving=True))
    assert at.leases.pool_sizes(Role.FETCHER) == [7]
    at.wait(DEAD_AFTER + 1)
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
