"""Prices at the edges: tiny and huge parameters in every cell of the table, under every relation.

A positive loss costs at least one unit, and a price that cannot be found is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import mpmath as mp
import pytest

from accounting.errors import AccountingError, InvalidValue
from accounting.events import (
    MECHANISMS,
    SAMPLINGS,
    ApproximateDp,
    Blocks,
    BufferedGaussian,
    CorrelatedGaussian,
    CyclicPoisson,
    DiscreteGaussian,
    DiscreteLaplace,
    DisjointBatches,
    Event,
    Exponential,
    FixedOrderEpochs,
    FullBatch,
    Gaussian,
    GaussianMixture,
    GeneralizedGaussian,
    InverseSquareRootGaussian,
    Laplace,
    Mechanism,
    Poisson,
    PureDp,
    RandomAllocation,
    RandomizedResponse,
    RenyiDp,
    ReportNoisyMax,
    Sampling,
    ShuffledEpochs,
    ShuffleModel,
    SquareRootGaussian,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
    ZcDp,
)
from accounting.filters import (
    FILTERS,
    ApproximateDpFilter,
    ApproximateGaussianDpFilter,
    GaussianDpFilter,
    PrivacyFilter,
    PureDpFilter,
    RenyiFilter,
    ZcdpFilter,
    renyi_dp_cost,
)
from accounting.losses.rules import rules_of
from accounting.numbers import MAX_COUNT, MAX_EVENTS
from accounting.relations import NeighboringRelation
from accounting.units import NANO, SATURATED
from tests.accounting.filters.costs.cells import ADD_REMOVE, REPLACE, SPECIAL

#: The last one lies above the last order that the Renyi guarantees below state.
ORDERS = (1.0 + 1e-7, 1.5, 2.0, 33.5, 1e4)
BUDGETS: dict[str, PrivacyFilter] = {
    each.kind: each
    for each in (
        PureDpFilter(1.0),
        ApproximateDpFilter(1.0, 1e-5),
        ApproximateGaussianDpFilter(1.0, 1e-5),
        ZcdpFilter(1.0),
        GaussianDpFilter(1.0),
        RenyiFilter(1e9, 1e-5, ORDERS),
    )
}
STATED = (5e-324, 1e-300, 1e-160, 1e-30, 1e-12, 1e6)
NOISE = (1e-3, 1e6)
MECHANISMS_AT_EDGES: tuple[Mechanism, ...] = (
    *(kind(number) for kind in (PureDp, Exponential, ZcDp) for number in STATED),
    *(ReportNoisyMax(number, noise) for number in STATED for noise in ("laplace", "gumbel", "exponential")),
    *(ApproximateDp(*each) for each in product(STATED, (0.0, 5e-324, 1.0))),
    *(RenyiDp((1.25, 100.0), each) for number in STATED for each in ((number, number), (0.0, number))),
    *(kind(noise) for kind in (Gaussian, Laplace) for noise in NOISE),
    *(kind(noise, grid) for kind in (DiscreteGaussian, DiscreteLaplace) for noise in NOISE for grid in (0.25, 1.0)),
    *(TreeAggregation(noise, *tree) for noise in NOISE for tree in ((1, 0), (10**8, 10**8 - 1))),
    *(GaussianMixture((5e-324, 1.0), pair) for pair in product(NOISE, NOISE)),
    *(GeneralizedGaussian(*norm, noise) for noise in NOISE for norm in ((1.0, 10**10, 130.0), (2.0, 1, 1.0))),
    *(CorrelatedGaussian(noise, each) for noise in NOISE for each in ((1e-6,), (1e6, 1e6), (1.0, 0.0))),
    *(
        kind(noise, bands)
        for kind in (SquareRootGaussian, InverseSquareRootGaussian)
        for noise in NOISE
        for bands in (1, 9)
    ),
    *(BufferedGaussian(noise, (each, 0.0), (each, 1.0)) for noise in NOISE for each in (0.0, 1.0)),
    *(RandomizedResponse(*each) for each in product((2, 3, 10**9), (1e-300, 1e-12, math.nextafter(1.0, 0.0)))),
)
SAMPLINGS_AT_EDGES: tuple[Sampling, ...] = (
    FullBatch(),
    *(Poisson(q) for q in (5e-324, 1e-300, 1e-160, 1e-12, math.nextafter(1.0, 0.0))),
    *(kind(*each) for kind in (WithoutReplacement, WithReplacement) for each in ((1, 10**9), (1, 2))),
    *(TruncatedPoisson(q, most, 10**9) for q in (5e-324, 1e-300, 1e-12) for most in (1, 10**8)),
    ShuffledEpochs(10**8),
    DisjointBatches("independent"),
    RandomAllocation(1000, 1),
    Blocks(1000, 2),
    *(CyclicPoisson(q, 10**8, "independent") for q in (5e-324, 1e-12, 1.0)),
    FixedOrderEpochs(10**8),
)


def samplings_of(mechanism: Mechanism) -> Iterator[Sampling]:
    yield from (each for each in SAMPLINGS_AT_EDGES if type(each) in mechanism.samplings)
    if ShuffleModel in mechanism.samplings:
        epsilon, delta = getattr(mechanism, "epsilon", 0.0), getattr(mechanism, "delta", 0.0)
        yield from (ShuffleModel(users, epsilon, delta) for users in (1, 2, 10**4))


EVENTS = [Event(each, sampling) for each in MECHANISMS_AT_EDGES for sampling in samplings_of(each)]


#: A cover takes a search, so that it is tried at some of them.
TRIED = {kind: EVENTS[::17] if kind == "approximate_gaussian_dp" else EVENTS for kind in BUDGETS}


def test_every_mechanism_and_sampling_is_tried() -> None:
    tried = {(type(event.mechanism), type(event.sampling)) for event in EVENTS}
    assert tried == {(each, sampling) for each in MECHANISMS.values() for sampling in each.samplings}
    assert {sampling for _, sampling in tried} == set(SAMPLINGS.values())
    assert list(BUDGETS) == list(FILTERS)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", BUDGETS)
def test_a_positive_loss_costs_at_least_one_unit(kind: str) -> None:
    budget, priced = BUDGETS[kind], 0
    for event, relation in product(TRIED[kind], NeighboringRelation):
        try:
            amounts = budget.cost((event,), relation, 1e-6).amounts
        except AccountingError:
            continue  # which names what would work
        assert min(amounts[:1] if has_delta(kind) else amounts) >= 1, (event, relation)
        assert max(amounts) <= SATURATED, (event, relation)
        priced += 1
    assert priced > len(TRIED[kind]) / 3


def has_delta(kind: str) -> bool:
    """Whether the second amount is a delta, of which much costs none."""
    return kind in ("approximate_dp", "approximate_gaussian_dp")


@pytest.mark.parametrize("kind", BUDGETS)
def test_what_reveals_nothing_costs_nothing_and_adds_nothing(kind: str) -> None:
    nothing = [PureDp(0.0), Exponential(0.0), ReportNoisyMax(0.0, "gumbel"), ReportNoisyMax(0.0, "laplace")]
    nothing += [RandomizedResponse(3, 1.0), ZcDp(0.0), RenyiDp((1.25, 1e5), (0.0, 0.0)), ApproximateDp(0.0, 0.0)]
    budget = BUDGETS[kind]
    if kind == "approximate_dp":
        # Two orders are converted to an epsilon, which is never 0: little is known from them alone.
        nothing = [each for each in nothing if not isinstance(each, RenyiDp)]
    free = [Event(each, count=MAX_COUNT) for each in nothing if kind in each.filters]
    assert all(each.mechanism.reveals_nothing for each in free)
    assert not any(each.mechanism.reveals_nothing for each in EVENTS)
    for event in free:
        assert not any(budget.cost((event,), REPLACE, 1e-6).amounts[:1]), event
    whole = Event(ApproximateDp(0.5, 1e-9)) if kind == "approximate_dp" else Event(ZcDp(0.5))
    if kind in ("pure_dp", "gaussian_dp"):
        whole = Event(PureDp(0.5))
    pure = [each for each in free if kind != "approximate_dp" or isinstance(each.mechanism, PureDp | ApproximateDp)]
    with_nothing, alone = (budget.cost(each, REPLACE).amounts for each in ((*pure, whole), (whole,)))
    assert with_nothing == alone or (kind == "approximate_gaussian_dp" and with_nothing[:2] == alone[:2])


def test_a_tiny_step_lifts_a_sum_of_whole_units_to_the_next_one() -> None:
    """What has underflowed to 0 is not lost beside what is exact: the sum is above a whole number of units."""
    whole, tiny = Event(PureDp(1e-9), count=3), Event(Laplace(1e6), Poisson(5e-324))
    assert PureDpFilter(1.0).cost((whole,), SPECIAL).amounts == (3,)
    assert PureDpFilter(1.0).cost((whole, tiny), SPECIAL).amounts == (4,)
    assert ApproximateDpFilter(1.0, 1e-5).cost((whole, tiny), SPECIAL, 1e-6).amounts[0] == 4
    stated = RenyiDp(ORDERS, (1e-9,) * len(ORDERS))
    orders = RenyiFilter(1e9, 1e-5, ORDERS)
    assert set(orders.cost((Event(stated),), SPECIAL).amounts) == {1}
    assert set(orders.cost((Event(stated), Event(PureDp(1e-300))), SPECIAL).amounts) == {2}
    assert ZcdpFilter(1.0).cost((Event(ZcDp(1e-9)), Event(PureDp(1e-200))), SPECIAL).amounts == (2,)


def test_as_many_tiny_steps_as_a_list_may_have_cost_one_unit() -> None:
    events = (Event(PureDp(1e-300), count=MAX_COUNT),) * MAX_EVENTS
    for kind in PureDp.filters:
        if kind == "approximate_gaussian_dp":
            # Equal steps are one event of the list whose profile is computed, which has a largest count.
            with pytest.raises(InvalidValue, match="count must be in"):
                BUDGETS[kind].cost(events, REPLACE)
            continue
        assert set(BUDGETS[kind].cost(events, REPLACE).amounts[:1]) == {1}


@pytest.mark.parametrize(("q", "s"), [(1e-300, 0.03), (1e-160, 0.04), (5e-324, 0.03), (1e-300, 0.9), (1e-30, 0.2)])
@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE])
def test_moments_of_tiny_probabilities_are_not_below_the_truth(
    q: float, s: float, relation: NeighboringRelation
) -> None:
    """Little noise makes much of a tiny probability: nothing may underflow on the way."""
    orders = (2.0, 3.0, 33.0)
    amounts = renyi_dp_cost((Event(Gaussian(s), Poisson(q), MAX_COUNT),), relation, orders).amounts
    for order, amount in zip(orders, amounts, strict=True):
        truth = MAX_COUNT * least_divergence(q, s, int(order), relation)
        assert amount == SATURATED or amount >= mp.ceil(truth * NANO), order
        assert amount > 1 or truth * NANO < 1


@mp.workdps(60)
def least_divergence(q: float, s: float, order: int, relation: NeighboringRelation) -> mp.mpf:
    """Without replacement of the record the binomial sum; with it no less, as the pair dominates the other one."""
    assert relation in (ADD_REMOVE, REPLACE)
    q, s = mp.mpf(q), mp.mpf(s)
    terms = (
        mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.expm1(mp.mpf(k * (k - 1)) / (2 * s * s))
        for k in range(2, order + 1)
    )
    return mp.log1p(mp.fsum(terms)) / (order - 1)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-150, 1e-9, 0.99e-4, 1.01e-4])
def test_rho_of_a_short_range_is_within_a_millionth_of_an_eighth_of_its_square(epsilon: float) -> None:
    mechanism = Exponential(epsilon)
    loss = rules_of(mechanism).loss(mechanism, 1.0)
    assert loss.zcdp_rho <= epsilon**2 / 8 == pytest.approx(loss.zcdp_rho, rel=1e-6, abs=0.0)
