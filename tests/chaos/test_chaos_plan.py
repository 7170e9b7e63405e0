"""What chaos plans to do, and the pages it crawls."""

from collections import Counter

import pytest

from pyspider_lite.bench.chaos import harms, pages
from pyspider_lite.bench.chaos.harms import BUILTIN, SERVERS, Kind


@pytest.mark.parametrize("abilities", [BUILTIN, SERVERS])
@pytest.mark.parametrize("seed", range(1, 6))
def test_two_minutes_have_all_kinds_of_harm(seed: int, abilities: harms.Abilities) -> None:
    planned = harms.plan(seed, 120, abilities)
    assert planned == harms.plan(seed, 120, abilities)
    assert planned != harms.plan(seed + 1, 120, abilities)
    kinds = Counter(harm.kind for harm in planned)
    assert kinds[Kind.KILL] > 2 * harms.KILLS
    assert kinds[Kind.TERM] == 6
    assert {(harm.kind, harm.target) for harm in planned} >= set(abilities)
    assert [harm.at for harm in planned] == sorted(harm.at for harm in planned)
    for harm in planned:
        assert 0 <= harm.at <= 120
        assert harm.at % (harms.WAVE + harms.CALM) <= harms.WAVE
        if harm.kind is Kind.FREEZE:
            assert harm.seconds > 6.0  # a leader's term, and the time after which a worker is dead
    names = Counter(harm.role for harm in planned if harm.kind is Kind.KILL)
    assert names.keys() >= {"scheduler", "fetcher", "processor", "result_worker"}


def test_each_page_is_linked_to_by_one_that_comes_before() -> None:
    total = 3500
    linked = Counter(child for page in range(total) for child in pages.follow_ups(page, total))
    assert linked == Counter(range(1, total))
    for page in (1, 77, total - 1):
        assert pages.parents(page)[-1] == 0
        assert page in pages.follow_ups(pages.parents(page)[0], total)
        assert f'<a href="/{pages.parents(page)[0]}.html">'.encode() in pages.body(page, total)
    assert sum(pages.delay(page) > 1 for page in range(total)) == 500
