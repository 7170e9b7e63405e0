"""Pace: what is granted depends on the time that went by, never on how often somebody asked."""

import math
import random
from collections.abc import Callable

import pytest

from pyspider_lite.scheduler.token_bucket import TokenBucket


def granted(bucket: TokenBucket, start: float, seconds: float, step: Callable[[], float], want: int = 10**6) -> int:
    """How many tasks go in this time, each step taking all that it may."""
    now, total = start, 0
    while now < start + seconds:
        count = int(min(bucket.available(now), want))
        bucket.take(count)
        total += count
        now += step()
    return total


def even(step: float) -> Callable[[], float]:
    return lambda: step


@pytest.mark.behaviour("S31")
@pytest.mark.parametrize("rate", [0.2, 1, 10, 300])
@pytest.mark.parametrize("step", [0.001, 0.0999, 0.1, 0.37, 0.9])
def test_nothing_is_lost_to_the_length_of_a_loop(rate: float, step: float) -> None:
    burst = rate * step + 1  # what comes in during a step, and the fraction that is left of the one before
    bucket = TokenBucket(rate, burst, 0.0)
    bucket.take(int(burst))
    seconds = 1_000 / rate if rate < 10 else 100.0
    if step < 0.01:
        seconds = min(seconds, 100.0)
    got = granted(bucket, 0.0, seconds, even(step))
    # at most the last token is still on its way, or waits for the step that would take it
    assert rate * (seconds - step) * 0.99 - 1 <= got <= rate * seconds + 1


@pytest.mark.behaviour("S31")
@pytest.mark.parametrize("rate", [10, 300, 2000])
def test_steps_cost_nothing_with_the_usual_burst(rate: float) -> None:
    """UA26: a busy database makes a step long."""
    random_ = random.Random(7)
    bucket = TokenBucket(rate, 3, 0.0)
    bucket.take(3)
    got = granted(bucket, 0.0, 100.0, lambda: random_.uniform(0.005, 0.09))
    assert got == pytest.approx(rate * 100, rel=0.01)


@pytest.mark.parametrize("rate", [0.2, 1, 10, 300])
def test_steps_of_any_length(rate: float) -> None:
    random_ = random.Random(5)
    bucket = TokenBucket(rate, rate * 5 + 1, 0.0)
    bucket.take(int(rate * 5 + 1))
    seconds = 2_000 / min(rate, 20)
    got = granted(bucket, 0.0, seconds, lambda: random_.choice([0.001, 0.02, 0.4, 2.5]))
    assert got == pytest.approx(rate * seconds, rel=0.01, abs=rate * 2.5 + 1)


@pytest.mark.parametrize("want", [1, 3])
def test_taking_one_by_one_gives_the_same_pace(want: int) -> None:
    bucket = TokenBucket(10, 10, 0.0)
    bucket.take(10)
    assert granted(bucket, 0.0, 100.0, even(0.05), want) == pytest.approx(1000, rel=0.01)


@pytest.mark.behaviour("S32", "X-K11")
def test_a_new_bucket_is_full() -> None:
    """S32 mended: the first task of a project does not wait."""
    assert TokenBucket(1, 3, 7.0).available(7.0) == 3


def test_no_more_than_the_burst_is_saved_up() -> None:
    bucket = TokenBucket(10, 5, 0.0)
    assert bucket.available(1e9) == 5


@pytest.mark.parametrize(("rate", "burst"), [(0, 3), (-1, 3), (1, 0), (1, 0.5), (math.inf, 0), (0, math.inf)])
def test_never(rate: float, burst: float) -> None:
    """S31: rate 0 or a burst below 1 selects nothing."""
    bucket = TokenBucket(rate, burst, 0.0)
    assert bucket.never
    for now in (0.0, 1.0, 1e9):
        assert bucket.available(now) == 0
        assert bucket.next_at(now) == math.inf


@pytest.mark.parametrize(("rate", "burst"), [(math.inf, 1), (math.inf, math.inf), (math.inf, 3)])
def test_unlimited(rate: float, burst: float) -> None:
    bucket = TokenBucket(rate, burst, 0.0)
    for now in (0.0, 0.0, 1.0):
        assert bucket.available(now) == math.inf
        bucket.take(10_000)
        assert bucket.next_at(now) == now


def test_an_unlimited_burst_with_a_rate() -> None:
    bucket = TokenBucket(5, math.inf, 0.0)
    bucket.take(1_000)
    assert bucket.available(1.0) == math.inf
    assert bucket.next_at(1.0) == 1.0


@pytest.mark.parametrize("rate", [0.2, 1, 10, 300])
def test_one_who_sleeps_until_next_at_finds_a_token(rate: float) -> None:
    bucket = TokenBucket(rate, 1, 100.0)
    now = 100.0
    assert bucket.next_at(now) == now
    for _ in range(1_000):
        assert bucket.available(now) >= 1
        bucket.take(1)
        assert bucket.available(now) == 0
        now = bucket.next_at(now)
    assert now - 100.0 == pytest.approx(1_000 / rate, rel=0.05 if rate == 300 else 0.01)


def test_another_rate_while_running() -> None:
    bucket = TokenBucket(1, 10, 0.0)
    bucket.take(10)
    bucket.set(100, 10, 2.0)
    assert bucket.available(2.0) == 2  # earned at the old rate
    assert bucket.available(2.055) == 7
    bucket.set(100, 3, 2.055)
    assert bucket.available(2.055) == 3


def test_a_project_that_was_closed_opens_full() -> None:
    bucket = TokenBucket(0, 0, 0.0)
    bucket.set(1, 3, 5.0)
    assert bucket.available(5.0) == 3


def test_a_project_that_is_closed_gives_nothing_more() -> None:
    bucket = TokenBucket(1, 3, 0.0)
    bucket.set(0, 3, 1.0)
    assert bucket.available(1e6) == 0


def test_from_limited_to_unlimited_and_back() -> None:
    bucket = TokenBucket(1, 3, 0.0)
    bucket.set(math.inf, math.inf, 0.0)
    bucket.take(1_000)
    assert bucket.available(1.0) == math.inf
    bucket.set(1, 3, 2.0)
    assert bucket.available(2.0) == 3
    bucket.take(3)
    assert bucket.available(2.5) == 0


def test_a_clock_that_was_set_back_stops_nothing() -> None:
    bucket = TokenBucket(1, 3, 1_000.0)
    bucket.take(3)
    assert bucket.available(10.0) == 0
    assert bucket.available(12.0) == 2
    assert granted(bucket, 12.0, 100.0, even(0.5)) == pytest.approx(101, abs=1)


def test_what_was_not_sent_is_given_back() -> None:
    bucket = TokenBucket(1, 3, 0.0)
    bucket.take(3)
    bucket.take(-1)
    assert bucket.available(0.0) == 1
