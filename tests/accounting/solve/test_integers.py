"""The largest number of steps and the largest batch: it meets the target, and one more does not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import Unreachable, Unsupported
from accounting.events import Event, FullBatch, Gaussian, Laplace, Poisson, PureDp, Sampling
from accounting.filters import RenyiFilter, ZcdpFilter
from accounting.intervals import Answer, Interval
from accounting.relations import NeighboringRelation
from accounting.solve import EventsAtInteger, IntegerSolution, solve_batch_size, solve_count
from accounting.solve.integers import largest_that_meets
from accounting.solve.solution import Range
from accounting.targets import (
    AdvantageTarget,
    ApproximateDpTarget,
    BudgetTarget,
    GaussianDpTarget,
    Target,
    TruePositiveRateTarget,
    ZcdpTarget,
)

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
RENYI = RenyiFilter(1.6, 1e-5)
TARGETS = [
    ApproximateDpTarget(2.0, 1e-5),
    ZcdpTarget(0.1),
    GaussianDpTarget(0.5),
    AdvantageTarget(0.2),
    TruePositiveRateTarget(0.01, 0.05),
    BudgetTarget(RENYI, RENYI.zero),
    BudgetTarget(ZcdpFilter(0.1), (1,)),
]


def steps(noise: float, sampling: Sampling | None = None) -> EventsAtInteger:
    return lambda count: [Event(Gaussian(noise), sampling or FullBatch(), count)]


def batches(noise: float, count: int, size: int) -> EventsAtInteger:
    return lambda batch: [Event(Gaussian(noise), Poisson(batch / size), count)]


def check(found: IntegerSolution, events_at: EventsAtInteger, relation: NeighboringRelation, target: Target) -> None:
    assert found.achieved == target.assess(events_at(found.value), relation)
    assert found.next_achieved == target.assess(events_at(found.value + 1), relation)
    assert found.achieved.value.upper <= target.limit < found.next_achieved.value.upper


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize("target", TARGETS)
def test_one_more_step_misses_the_target(target: Target, relation: NeighboringRelation) -> None:
    check(solve_count(steps(200.0), relation, target), steps(200.0), relation, target)


@pytest.mark.parametrize("target", [*TARGETS[:4], TARGETS[5]])
def test_one_more_sampled_step_misses_the_target(target: Target) -> None:
    events_at = steps(8.0, Poisson(0.05))
    check(solve_count(events_at, ADD_REMOVE, target), events_at, ADD_REMOVE, target)


@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[3], TARGETS[5]])
@pytest.mark.parametrize("relation", [ADD_REMOVE, NeighboringRelation.REPLACE_ONE])
def test_one_more_record_in_the_batch_misses_the_target(target: Target, relation: NeighboringRelation) -> None:
    events_at = batches(3.0, 100, 1000)
    check(solve_batch_size(events_at, relation, target, 1000), events_at, relation, target)


def test_a_batch_size_for_a_true_positive_rate() -> None:
    events_at, target = batches(1.0, 1, 40), TruePositiveRateTarget(0.05, 0.2)
    check(solve_batch_size(events_at, ADD_REMOVE, target, 40), events_at, ADD_REMOVE, target)


@settings(max_examples=60, deadline=None)
@given(st.floats(5.0, 2000.0), st.floats(1e-2, 5.0))
def test_the_largest_count_of_full_batches_has_a_closed_form(noise: float, mu: float) -> None:
    limit = (mu * noise) ** 2
    if limit < 1.0:
        with pytest.raises(Unreachable, match="even one step"):
            solve_count(steps(noise), ADD_REMOVE, GaussianDpTarget(mu))
        return
    found = solve_count(steps(noise), ADD_REMOVE, GaussianDpTarget(mu)).value
    assert found in {math.floor(limit * (1 - 1e-12)), math.floor(limit * (1 + 1e-12))}


def test_a_count_of_mixed_events() -> None:
    def events_at(count: int) -> list[Event]:
        return [Event(Gaussian(50.0), count=count), Event(Laplace(20.0), count=2)]

    target = ApproximateDpTarget(0.5, 1e-6)
    check(solve_count(events_at, ADD_REMOVE, target), events_at, ADD_REMOVE, target)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 10**8 - 1), st.floats(0.05, 4.0), st.booleans())
def test_any_monotone_cost_is_searched_to_the_integer(answer: int, power: float, knows_quick: bool) -> None:
    """A cost of one power below the limit and a cliff above it."""
    asked = []

    def cost(value: int) -> Answer:
        asked.append(value)
        share = (value / (answer + 1)) ** power if value <= answer else 1.0 + value / 10**8
        return Answer(Interval(share, share, share), "test")

    def quick(value: int) -> Answer:
        bound = (2.0 * value / (answer + 1)) ** power if knows_quick else math.inf
        return Answer(Interval(bound, bound, bound), "test")

    words = Range("all", "one", "every number", "")
    target = BudgetTarget(ZcdpFilter(1.0), (0,))
    assert largest_that_meets(cost, quick, target, 10**8, words).value == answer
    assert len(asked) <= 90


def test_a_cost_that_does_not_decrease_everywhere_still_has_its_certificates() -> None:
    """Certified bounds waver in their last digits; what is returned passes and its successor fails all the same."""

    def wavering(value: int) -> Answer:
        share = value / 1000 + (0.003 if value % 2 else 0.0)
        return Answer(Interval(share, share, share), "test")

    words = Range("all", "one", "every number", "")
    found = largest_that_meets(wavering, wavering, BudgetTarget(ZcdpFilter(1.0), (0,)), 10**6, words)
    assert wavering(found.value).value.upper <= 1.0 < wavering(found.value + 1).value.upper


def test_a_quick_bound_that_is_too_low_is_not_believed() -> None:
    def cost(value: int, factor: float) -> Answer:
        share = factor * value / 100
        return Answer(Interval(share, share, share), "test")

    words = Range("all", "one", "every number", "")
    target = BudgetTarget(ZcdpFilter(1.0), (0,))
    found = largest_that_meets(lambda n: cost(n, 1.0), lambda n: cost(n, 0.1), target, 10**6, words)
    assert found.value == 100


def test_unreachable_targets_say_why() -> None:
    with pytest.raises(Unreachable, match="even one step costs rho 0\\.5, more than the target rho 0\\.1"):
        solve_count(steps(1.0), ADD_REMOVE, ZcdpTarget(0.1))
    with pytest.raises(Unreachable, match="every number of steps up to 100000000"):
        solve_count(steps(1e6), ADD_REMOVE, ZcdpTarget(0.1))
    with pytest.raises(Unreachable, match="even a batch size of 1"):
        solve_batch_size(batches(0.5, 10, 10), ADD_REMOVE, ApproximateDpTarget(0.1, 1e-9), 10)
    with pytest.raises(Unreachable, match="every batch size up to 1000"):
        solve_batch_size(batches(100.0, 10, 1000), ADD_REMOVE, ApproximateDpTarget(1.0, 1e-5), 1000)
    with pytest.raises(Unreachable, match="unbounded"):
        solve_count(
            lambda n: [Event(Gaussian(5.0), count=n), Event(PureDp(1.0))], ADD_REMOVE, ApproximateDpTarget(2, 0)
        )


@pytest.mark.parametrize("target", [ZcdpTarget(30.0), GaussianDpTarget(1.0), BudgetTarget(ZcdpFilter(30.0), (0,))])
def test_a_batch_size_that_changes_nothing_is_refused(target: Target) -> None:
    with pytest.raises(Unsupported, match="does not change"):
        solve_batch_size(batches(3.0, 100, 1000), ADD_REMOVE, target, 1000)


def test_the_only_batch_size_of_one_record_is_not_solved_for() -> None:
    with pytest.raises(Unreachable, match="every batch size up to 1 "):
        solve_batch_size(batches(100.0, 1, 1), ADD_REMOVE, ApproximateDpTarget(1.0, 1e-5), 1)
