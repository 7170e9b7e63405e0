"""Random histories of the cluster against an oracle: no run applied twice, none forgotten, none poisoned by an outage."""

from collections import Counter

import pytest
from lease_histories import World, replay
from lease_oracle import BOUND, Violation
from played_cluster import STEP

from pyspider_lite.scheduler.blame import Blame
from pyspider_lite.scheduler.leases import POISON_AFTER, Leases
from pyspider_lite.scheduler.places import Places

FEW, ALL = 500, 100_000


def play(seeds: range) -> None:
    """All of them; fails with the first violations."""
    losses: Counter[str] = Counter()
    violations = []
    longest = 0.0
    for seed in seeds:
        try:
            world = replay(seed)
        except Violation as violation:
            violations.append(str(violation))
            continue
        losses += world.oracle.losses
        longest = max(longest, world.oracle.longest)
    assert not violations, f"{len(violations)} of {len(seeds)}:\n" + "\n".join(violations[:5])
    reasons = ("its worker died", "its batch vanished from the queue", "past its time limit", "released")
    assert all(losses[reason] > len(seeds) / 100 for reason in reasons), losses
    assert 5.0 < longest <= BOUND


def test_some_histories() -> None:
    play(range(FEW))


def test_who_is_only_slow_to_say_what_it_does_loses_nothing() -> None:
    """What it made is in others' hands, and done, before its claim is heard."""
    for seed in range(400):
        world = World(seed, killers=0, doubles=False)
        world.kinds = ["slow_to_say"]
        world.play()
        assert not world.oracle.losses, (seed, world.oracle.losses)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_all_histories(part: int) -> None:
    play(range(part * ALL // 10, (part + 1) * ALL // 10))


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(16348, id="pages vanish before the broker hangs, and their sender never comes back"),
        pytest.param(25415, id="pages vanish, and before they are missed the broker hangs"),
        pytest.param(34647, id="pages of a worker that was frozen and woke die at once with the next one"),
        pytest.param(52218, id="a worker finds the broker again three seconds after the leader did, and it hangs"),
        pytest.param(55368, id="a hung copy of a run that is over is adopted"),
        pytest.param(57702, id="a worker dies with a report and a beat that nobody heard"),
        pytest.param(78826, id="pages vanish before their sender, cut off, has said that it put them"),
        pytest.param(92610, id="the last words of a worker that leaves are lost with the broker"),
        pytest.param(95549, id="a worker is cut off while the broker hangs twice"),
        pytest.param(99009, id="pages vanish, and both scheduler and sender were cut off"),
    ],
)
def test_histories_that_went_wrong_once(seed: int) -> None:
    replay(seed)


def test_without_faults_nothing_is_lost() -> None:
    for seed in range(20):
        world = World(seed, killers=0, doubles=False)
        world.play(seconds=0.0)
        assert world.oracle.losses.total() == 0


def test_among_tasks_that_kill_their_processors_all_others_end_well() -> None:
    """Nobody but them is given up, and each after one processor that died before anybody was suspected, and three that named it."""
    for seed in range(100):
        world = World(seed, killers=3, doubles=False)
        world.play(seconds=0.0)
        assert world.oracle.poisoned == world.killers
        assert all(POISON_AFTER <= world.oracle.kills[taskid] <= POISON_AFTER + 1 for taskid in world.killers)


def test_what_workers_say_may_come_twice() -> None:
    """Seldom is something given out again for that; no run is applied twice, none forgotten, nobody taken for dead or blamed."""
    losses: Counter[str] = Counter()
    for seed in range(100):
        world = World(seed, killers=0, doubles=True)
        world.play(seconds=0.0)
        losses += world.oracle.losses
    assert losses.keys() <= {"no longer with its worker"} and losses.total() < 100


@pytest.mark.parametrize(
    ("owner", "method", "what", "first"),
    [
        (Leases, "_bury", "not over|to nobody", 0),
        (Leases, "fresh_term", "taken for dead", 0),
        # seldom is it the only one that can tell
        (Places, "later_one_claimed", "to nobody", 1_000),
        (Leases, "seen_empty", "not over|to nobody", 0),
        (Leases, "_check_caps", "not over", 0),
        # somebody kills one processor after the other, and nobody knows who
        (Blame, "suspect", "not over", 0),
    ],
)
def test_the_oracle_notices(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, what: str, first: int) -> None:
    """What a lease keeping without one of its rules does wrong."""
    monkeypatch.setattr(owner, method, lambda *args, **kwargs: None)
    with pytest.raises(Violation, match=what):
        for seed in range(first, first + FEW):
            replay(seed)


def test_the_oracle_notices_a_run_that_is_applied_twice() -> None:
    world = World(1)
    world.oracle.applied(("p", "t1", 0))
    with pytest.raises(Violation, match="twice"):
        world.oracle.applied(("p", "t1", 0))
    assert world.now % STEP == 0
