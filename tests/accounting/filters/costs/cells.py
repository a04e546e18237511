"""Events of every row of the table of costs, and what prices them in every column."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import mpmath as mp

from accounting.events import (
    ApproximateDp,
    DiscreteGaussian,
    DiscreteLaplace,
    DisjointBatches,
    Event,
    Exponential,
    Gaussian,
    GaussianMixture,
    GeneralizedGaussian,
    Laplace,
    Poisson,
    PureDp,
    RandomizedResponse,
    RenyiDp,
    ReportNoisyMax,
    Sampling,
    ShuffledEpochs,
    TreeAggregation,
    WithoutReplacement,
    ZcDp,
)
from accounting.filters import (
    Cost,
    approximate_dp_cost,
    approximate_gaussian_dp_cost,
    gaussian_dp_cost,
    pure_dp_cost,
    renyi_dp_cost,
    zcdp_cost,
)
from accounting.relations import NeighboringRelation
from accounting.units import NANO

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
FULL = Event(Gaussian(4.0), count=8)
SAMPLED = Event(Gaussian(5.346), Poisson(0.02), 5000)
ORDERS = (1.5, 2.0, 8.0, 32.0)
#: delta per unit of mu squared.
RATE = Fraction(1, 10**5)
KINDS = ("pure_dp", "approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
ONE_OF_EACH = {
    "gaussian": Event(Gaussian(4.0)),
    "gaussian_mixture": Event(GaussianMixture((0.5, 0.5), (4.0, 8.0))),
    "laplace": Event(Laplace(4.0)),
    "generalized_gaussian": Event(GeneralizedGaussian(1.5, 100, 2.0, 4.0)),
    "tree_aggregation": Event(TreeAggregation(4.0, 5, 1)),
    "randomized_response": Event(RandomizedResponse(4, 0.8)),
    "discrete_laplace": Event(DiscreteLaplace(4.0, 0.5)),
    "discrete_gaussian": Event(DiscreteGaussian(4.0, 0.5)),
    "exponential": Event(Exponential(0.1)),
    "report_noisy_max": Event(ReportNoisyMax(0.1, "laplace")),
    "pure_dp": Event(PureDp(0.1)),
    "approximate_dp": Event(ApproximateDp(0.1, 1e-9)),
    "zcdp": Event(ZcDp(0.1)),
    "renyi_dp": Event(RenyiDp(ORDERS, (0.1, 0.2, 0.3, 0.4))),
}
SAMPLINGS: dict[str, Sampling] = {
    "poisson": Poisson(0.25),
    "without_replacement": WithoutReplacement(25, 100),
    "shuffled_epochs": ShuffledEpochs(4),
    "disjoint_batches": DisjointBatches("by_position"),
}


def cost_in(kind: str, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float = 1e-6) -> Cost:
    events = tuple(events)
    if kind == "renyi_dp":
        return renyi_dp_cost(events, relation, ORDERS)
    if kind == "approximate_dp":
        return approximate_dp_cost(events, relation, charge_delta)
    if kind == "approximate_gaussian_dp":
        return approximate_gaussian_dp_cost(events, relation, RATE)
    return {"pure_dp": pure_dp_cost, "zcdp": zcdp_cost, "gaussian_dp": gaussian_dp_cost}[kind](events, relation)


@mp.workdps(60)
def up(value: object) -> int:
    return int(mp.ceil(mp.mpf(value) * NANO))


@mp.workdps(60)
def largest_sampled_laplace_loss(q: float, b: float, relation: NeighboringRelation, sampling: str) -> mp.mpf:
    """Poisson: of the attained pair. Fixed size: Balle, Barthe & Gaboardi 2018, or no amplification where better."""
    near, far = mp.mpf(1) / b, mp.mpf(2) / b
    if sampling == "without_replacement":
        return min(mp.log1p(q * mp.expm1(far)), near if relation is SPECIAL else far)
    if relation is REPLACE:
        return mp.log((1 - mp.mpf(q) + q * mp.exp(near)) / (1 - mp.mpf(q) + q * mp.exp(-near)))
    return mp.log1p(q * mp.expm1(near))


SAMPLED_LAPLACE = [
    (Event(Laplace(b), sampling, 7), relation, largest_sampled_laplace_loss(q, b, relation, sampling.kind))
    for b in (0.3, 2.0, 50.0)
    for q, sampling, relations in (
        (0.25, Poisson(0.25), (ADD_REMOVE, SPECIAL, REPLACE)),
        (0.25, WithoutReplacement(25, 100), (SPECIAL, REPLACE)),
        (0.75, WithoutReplacement(75, 100), (SPECIAL, REPLACE)),
    )
    for relation in relations
]
