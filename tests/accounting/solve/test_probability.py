"""The largest sampling probability for a target."""

from __future__ import annotations

import pytest

from accounting.errors import Unreachable, Unsupported
from accounting.events import Event, Gaussian, Poisson
from accounting.filters import RenyiFilter
from accounting.relations import NeighboringRelation
from accounting.solve import EventsAt, solve_sampling_probability
from accounting.targets import (
    AdvantageTarget,
    ApproximateDpTarget,
    BudgetTarget,
    GaussianDpTarget,
    Target,
    TruePositiveRateTarget,
    ZcdpTarget,
)

RENYI = RenyiFilter(1.6, 1e-5)


def sampled(noise: float, count: int) -> EventsAt:
    return lambda probability: [Event(Gaussian(noise), Poisson(probability), count)]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("target", "count"),
    [
        (ApproximateDpTarget(1.0, 1e-5), 100),
        (AdvantageTarget(0.1), 100),
        (BudgetTarget(RENYI, RENYI.zero), 100),
        (TruePositiveRateTarget(0.05, 0.08), 1),
    ],
)
@pytest.mark.parametrize("relation", [NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE])
def test_never_misses_and_target_is_used(target: Target, count: int, relation: NeighboringRelation) -> None:
    events_at = sampled(1.5, count)
    found = solve_sampling_probability(events_at, relation, target)
    assert found.achieved == target.assess(events_at(found.value), relation)
    assert found.achieved.value.upper <= target.limit
    assert target.assess(events_at(found.value * (1 + 5e-5)), relation).value.upper > target.limit


def test_refusals_say_why() -> None:
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    with pytest.raises(Unreachable, match="every sampling probability"):
        solve_sampling_probability(sampled(100.0, 1), relation, ApproximateDpTarget(1.0, 1e-5))
    with pytest.raises(Unreachable, match="even sampling probability 1e-12"):
        solve_sampling_probability(sampled(0.1, 1000), relation, ApproximateDpTarget(1e-3, 1e-12))
    for target in (ZcdpTarget(0.1), GaussianDpTarget(0.1)):
        with pytest.raises(Unsupported, match="does not change"):
            solve_sampling_probability(sampled(3.0, 100), relation, target)
