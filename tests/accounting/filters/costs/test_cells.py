"""One test per cell of the table of costs, under a relation of each sensitivity: six filters, and every row.

The rest of this folder has more about single cells: other numbers, other relations, mixed lists, extremes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.composition.gaussian_dp import mu_of_gaussian
from accounting.conversions.single_order import canonne_kamath_steinke, smallest_over_orders
from accounting.errors import NoCostInFilter, Unsupported
from accounting.events import (
    MECHANISMS,
    ApproximateDp,
    Blocks,
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
    RandomAllocation,
    RandomizedResponse,
    RenyiDp,
    ReportNoisyMax,
    ShuffledEpochs,
    ShuffleModel,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
    ZcDp,
    prefix_of_events,
)
from accounting.events.schedules import is_sampled
from accounting.filters import (
    FILTERS,
    NO_AMPLIFICATION,
    ApproximateDpFilter,
    ApproximateGaussianDpFilter,
    GaussianDpFilter,
    PrivacyFilter,
    PureDpFilter,
    RenyiFilter,
    ZcdpFilter,
)
from accounting.filters.costs import SAME_RANDOMIZER_REQUIRED, without_failures
from accounting.relations import NeighboringRelation
from accounting.units import ATTO, NANO, SATURATED
from tests.accounting.filters.costs.cells import KINDS, ORDERS, RATE, REPLACE, SPECIAL, largest_sampled_laplace_loss, up
from tests.accounting.filters.costs.truths import (
    allocated_moment,
    displaced_moment,
    largest_bounded_range_moment,
    mu_through,
    sampled_laplace_moment,
    symmetrized_moment,
)
from tests.accounting.losses import discrete_laws
from tests.accounting.references import gaussian_epsilon, mixture_epsilon, poisson_moment

DELTA = 1e-6
COLUMNS: dict[str, PrivacyFilter] = {
    "pure_dp": PureDpFilter(1.0),
    "approximate_dp": ApproximateDpFilter(1.0, 1e-5),
    "approximate_gaussian_dp": ApproximateGaussianDpFilter(1.0, 1e-5, delta_per_mu_squared=float(RATE)),
    "zcdp": ZcdpFilter(1.0),
    "gaussian_dp": GaussianDpFilter(1.0),
    "renyi_dp": RenyiFilter(20.0, 1e-5, ORDERS),
}
T = 6
#: The branch of least noise is the Gaussian of the other rows.
MIXTURE = GaussianMixture((0.75, 0.25), (8.0, 4.0))
ALLOCATED = Event(Gaussian(4.0), RandomAllocation(20, 1), 20 * T - 3)
ROWS = {
    "gaussian, full batch": Event(Gaussian(4.0), count=T),
    "gaussian, shuffled epochs": Event(Gaussian(4.0), ShuffledEpochs(4), 4 * T - 1),
    "gaussian, disjoint batches": Event(Gaussian(4.0), DisjointBatches("by_position"), T),
    "gaussian, poisson": Event(Gaussian(4.0), Poisson(0.05), T),
    "gaussian, fixed size": Event(Gaussian(4.0), WithoutReplacement(5, 100), T),
    "gaussian_mixture": Event(MIXTURE, count=T),
    "gaussian_mixture, shuffled epochs": Event(MIXTURE, ShuffledEpochs(4), 4 * T - 1),
    "gaussian_mixture, disjoint batches": Event(MIXTURE, DisjointBatches("by_position"), T),
    "gaussian_mixture, poisson": Event(MIXTURE, Poisson(0.05), T),
    "gaussian, random allocation": ALLOCATED,
    "gaussian, with replacement": Event(Gaussian(8.0), WithReplacement(1, 50), T),
    "gaussian, truncated poisson": Event(Gaussian(4.0), TruncatedPoisson(0.05, 40, 100), T),
    "pure_dp, shuffle model": Event(PureDp(0.5), ShuffleModel(1024, 0.5, 0.0), T),
    "approximate_dp, shuffle model": Event(ApproximateDp(0.5, 1e-15), ShuffleModel(1024, 0.5, 1e-15), T),
    "laplace, with replacement": Event(Laplace(1e6), WithReplacement(1, 50), T),
    "laplace, truncated poisson": Event(Laplace(1e6), TruncatedPoisson(0.05, 40, 100), T),
    "laplace": Event(Laplace(4.0), count=T),
    "laplace, shuffled epochs": Event(Laplace(4.0), ShuffledEpochs(4), 4 * T - 1),
    "laplace, disjoint batches": Event(Laplace(4.0), DisjointBatches("by_position"), T),
    "laplace, poisson": Event(Laplace(4.0), Poisson(0.05), T),
    "laplace, fixed size": Event(Laplace(4.0), WithoutReplacement(5, 100), T),
    "generalized_gaussian": Event(GeneralizedGaussian(1.5, 100, 2.0, 4.0), count=T),
    "generalized_gaussian, shuffled epochs": Event(
        GeneralizedGaussian(1.5, 100, 2.0, 4.0), ShuffledEpochs(4), 4 * T - 1
    ),
    "generalized_gaussian, disjoint batches": Event(
        GeneralizedGaussian(1.5, 100, 2.0, 4.0), DisjointBatches("by_position"), T
    ),
    # Two trees of five leaves: the first leaf of each is under three nodes.
    "tree_aggregation": Event(TreeAggregation(4.0, 5, 1), count=T),
    "randomized_response": Event(RandomizedResponse(4, 0.8), count=T),
    "discrete_laplace": Event(DiscreteLaplace(4.0, 0.5), count=T),
    "discrete_laplace, shuffled epochs": Event(DiscreteLaplace(4.0, 0.5), ShuffledEpochs(4), 4 * T - 1),
    "discrete_laplace, disjoint batches": Event(DiscreteLaplace(4.0, 0.5), DisjointBatches("by_position"), T),
    "discrete_gaussian": Event(DiscreteGaussian(4.0, 0.5), count=T),
    "discrete_gaussian, shuffled epochs": Event(DiscreteGaussian(4.0, 0.5), ShuffledEpochs(4), 4 * T - 1),
    "discrete_gaussian, disjoint batches": Event(DiscreteGaussian(4.0, 0.5), DisjointBatches("by_position"), T),
    "exponential": Event(Exponential(0.5), count=T),
    "report_noisy_max, gumbel": Event(ReportNoisyMax(0.5, "gumbel"), count=T),
    "report_noisy_max, laplace": Event(ReportNoisyMax(0.5, "laplace"), count=T),
    "pure_dp": Event(PureDp(0.5), count=T),
    "zcdp": Event(ZcDp(0.1), count=T),
    "renyi_dp": Event(RenyiDp(ORDERS, (0.1, 0.2, 0.3, 0.4)), count=T),
    "approximate_dp": Event(ApproximateDp(0.1, 1e-9), count=T),
}

#: Smallest and largest integer that an amount may be; one pair per amount.
Amounts = list[tuple[int, int]]


def exactly(*numbers: Fraction) -> Amounts:
    return [(math.ceil(number * NANO),) * 2 for number in numbers]


def about(*numbers: object) -> Amounts:
    """Of numbers that are not rational: one unit more at most."""
    return [(up(number), up(number) + 1) for number in numbers]


def between(low: object, high: object) -> tuple[int, int]:
    return up(low), up(high)


def at_delta(price: tuple[int, int]) -> Amounts:
    return [price, (round(DELTA * ATTO),) * 2]


def sens(relation: NeighboringRelation) -> Fraction:
    return Fraction(relation.sensitivity)


def eps(relation: NeighboringRelation) -> mp.mpf:
    """Of the row's Laplace step without sampling."""
    return mp.mpf(relation.sensitivity) / 4


def sampled_eps(relation: NeighboringRelation, sampling: str) -> mp.mpf:
    return largest_sampled_laplace_loss(0.05, 4.0, relation, sampling)


def gaussian_row(steps: int) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    """Full batches, or a schedule that comes to so many of them."""

    def tight(relation: NeighboringRelation) -> Amounts:
        epsilon = gaussian_epsilon(float(sens(relation)) * math.sqrt(steps) / 4, DELTA)
        return at_delta((up(epsilon), up(epsilon) + 2))

    return {
        "approximate_dp": tight,
        "zcdp": lambda relation: exactly(sens(relation) ** 2 * steps / 32),
        "gaussian_dp": lambda relation: exactly(sens(relation) ** 2 * steps / 16),
        "renyi_dp": lambda relation: exactly(*(Fraction(order) * sens(relation) ** 2 * steps / 32 for order in ORDERS)),
    }


def mixture_row(steps: int) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    """Branches outcome by outcome; what is linear in the order is that of the branch of least noise."""

    def tight(relation: NeighboringRelation) -> Amounts:
        epsilon = mixture_epsilon([(0.75, 8.0), (0.25, 4.0)], steps, float(sens(relation)), DELTA)
        return at_delta(between(epsilon * (1 - mp.mpf("1e-8")), epsilon * (1 + mp.mpf("1e-8"))))

    def divergences(relation: NeighboringRelation) -> Amounts:
        found = []
        for order in ORDERS:
            a, square = mp.mpf(order), mp.mpf(relation.sensitivity) ** 2
            mixed = sum(w * mp.exp(a * (a - 1) * square / (2 * s * s)) for w, s in ((0.75, 8), (0.25, 4)))
            found.append(steps * mp.log(mixed) / (a - 1))
        return [between(truth, truth * (1 + mp.mpf("1e-9"))) for truth in found]

    return {**gaussian_row(steps), "approximate_dp": tight, "renyi_dp": divergences}


def mixed_moment(moment: Callable[[float], mp.mpf]) -> mp.mpf:
    """Of the mixture, from that of a noise multiplier."""
    return mp.log(mp.mpf(3) / 4 * mp.exp(moment(8.0)) + mp.exp(moment(4.0)) / 4)


def generalized_gaussian_row(steps: int) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    """kappa 2 at p = 1.5: twice the rho of a Gaussian, without its trade-off curve."""

    def tight(relation: NeighboringRelation) -> Amounts:
        rho = float(sens(relation)) ** 2 * steps / 16
        most = smallest_over_orders(lambda order: canonne_kamath_steinke(order, rho * order, DELTA), 5.0)
        return at_delta(between(gaussian_epsilon((2 * rho) ** 0.5, DELTA), most * (1 + 1e-9)))

    return {
        "approximate_dp": tight,
        "zcdp": lambda relation: exactly(sens(relation) ** 2 * steps / 16),
        "renyi_dp": lambda relation: exactly(*(Fraction(order) * sens(relation) ** 2 * steps / 16 for order in ORDERS)),
    }


def sampled_gaussian_row(
    event: Event, moment: Callable[[float, NeighboringRelation], mp.mpf]
) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    def tight(relation: NeighboringRelation) -> Amounts:
        certified = epsilon_for_delta([event], relation, DELTA).value
        unsampled = gaussian_epsilon(float(sens(relation)) * math.sqrt(T) / 4, DELTA)
        assert certified.upper < unsampled / 2
        return at_delta(between(certified.lower, certified.upper))

    def divergences(relation: NeighboringRelation) -> Amounts:
        truths = [T * moment(order - 1, relation) / (mp.mpf(order) - 1) for order in ORDERS]
        full = [order * relation.sensitivity**2 * T / 32 for order in ORDERS]
        assert all(truth < most for truth, most in zip(truths, full, strict=True))
        return [between(truth, truth * (1 + mp.mpf("1e-6"))) for truth in truths]

    unamplified = gaussian_row(T)
    return {**unamplified, "approximate_dp": tight, "renyi_dp": divergences}


def allocated_divergences(_: NeighboringRelation) -> Amounts:
    """Of the remove direction; the bound of the other one may lie a little above it.

    At order 1.5 between Poisson's moment, which one step attains, and the chord to order 2.
    """
    chord = allocated_moment(4.0, 20, 1.0) / 2
    truths = [between(T * poisson_moment(4.0, 0.05, 0.5, "remove") / 0.5, T * chord / 0.5)]
    for order in ORDERS[1:]:
        truth = T * allocated_moment(4.0, 20, order - 1) / (mp.mpf(order) - 1)
        truths.append(between(truth, truth * (1 + mp.mpf("1e-3"))))
    return truths


def priced_alone(event: Event) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    """Schemes with one certified epsilon and no cost besides."""
    return {"approximate_dp": certified(event)}


def laplace_divergence(epsilon: mp.mpf, order: float) -> mp.mpf:
    a = mp.mpf(order)
    inside = (a * mp.exp((a - 1) * epsilon) + (a - 1) * mp.exp(-a * epsilon)) / (2 * a - 1)
    return mp.log(inside) / (a - 1)


def laplace_row(steps: int) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    return {
        "pure_dp": lambda relation: exactly(steps * sens(relation) / 4),
        "approximate_dp": lambda relation: [*exactly(steps * sens(relation) / 4), (0, 0)],
        "zcdp": lambda relation: about(steps * (eps(relation) + mp.exp(-eps(relation)) - 1)),
        "gaussian_dp": lambda relation: about(steps * mu_through(mp.exp(-eps(relation) / 2) / 2) ** 2),
        "renyi_dp": lambda relation: about(*(steps * laplace_divergence(eps(relation), order) for order in ORDERS)),
    }


def sampled_laplace_row(
    sampling: str, attained: Callable[[float, NeighboringRelation], mp.mpf], slack: float | None
) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    """``slack``: how far the Renyi cost may be above what is attained; None: up to the unsampled step's cost."""

    def best_rho(relation: NeighboringRelation) -> mp.mpf:
        sampled = sampled_eps(relation, sampling)
        return min(eps(relation) + mp.exp(-eps(relation)) - 1, sampled * mp.tanh(sampled / 2))

    def best_mu(relation: NeighboringRelation) -> mp.mpf:
        full, sampled = mp.exp(-eps(relation) / 2) / 2, 1 / (1 + mp.exp(sampled_eps(relation, sampling)))
        return min(mu_through(full), mu_through(sampled))

    def divergences(relation: NeighboringRelation) -> Amounts:
        found = []
        for order in ORDERS:
            truth = attained(order - 1, relation) / (mp.mpf(order) - 1)
            most = laplace_divergence(eps(relation), order) if slack is None else truth * (1 + mp.mpf(slack))
            found.append(between(T * truth, T * most))
        return found

    return {
        "pure_dp": lambda relation: about(T * sampled_eps(relation, sampling)),
        "approximate_dp": lambda relation: [*about(T * sampled_eps(relation, sampling)), (0, 0)],
        "zcdp": lambda relation: about(T * best_rho(relation)),
        "gaussian_dp": lambda relation: about(T * best_mu(relation) ** 2),
        "renyi_dp": divergences,
    }


def response_divergence(order: float) -> mp.mpf:
    a, half = mp.mpf(order), mp.mpf(1) / 4
    return mp.log(mp.cosh((2 * a - 1) * half) / mp.cosh(half)) / (a - 1)


def certified(event: Event) -> Callable[[NeighboringRelation], Amounts]:
    """Tight at d: the interval's upper end, which other tests compare with the truth; one unit where that is 0."""

    def price(relation: NeighboringRelation) -> Amounts:
        value = epsilon_for_delta([event], relation, DELTA).value
        low, high = between(value.lower, value.upper)
        return at_delta((low, max(high, 1)))

    return price


def law_row(
    row: str, steps: int, law: Callable[[NeighboringRelation], tuple[discrete_laws.Law, discrete_laws.Law]]
) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    """From the two laws, outcome by outcome."""

    def epsilon(relation: NeighboringRelation) -> Amounts:
        largest = max(abs(mp.log(p / q)) for p, q in zip(*law(relation), strict=True))
        return about(steps * largest) if row == "randomized_response" else exactly(steps * sens(relation) / 4)

    def rho(relation: NeighboringRelation) -> Amounts:
        tilts = [mp.mpf(10) ** (mp.mpf(k) / 4) for k in range(-16, 12)]
        largest = max(discrete_laws.log_moment(*law(relation), tilt) / (tilt * (tilt + 1)) for tilt in tilts)
        return [between(steps * largest * (1 - mp.mpf("1e-20")), steps * largest * (1 + mp.mpf("0.01")))]

    def mu(relation: NeighboringRelation) -> Amounts:
        squared = steps * discrete_laws.largest_mu(*law(relation)) ** 2
        return [between(squared, squared * (1 + mp.mpf("1e-9")))]

    def divergences(relation: NeighboringRelation) -> Amounts:
        truths = [discrete_laws.log_moment(*law(relation), order - 1) / (mp.mpf(order) - 1) for order in ORDERS]
        return [between(steps * truth, steps * truth * (1 + mp.mpf("1e-8"))) for truth in truths]

    return {
        "pure_dp": epsilon,
        "approximate_dp": certified(ROWS[row]),
        "zcdp": rho,
        "gaussian_dp": mu,
        "renyi_dp": divergences,
    }


def response_laws(relation: NeighboringRelation) -> tuple[discrete_laws.Law, discrete_laws.Law]:
    return discrete_laws.randomized_response(4, 0.8, relation is SPECIAL)


def discrete_laplace_laws(relation: NeighboringRelation) -> tuple[discrete_laws.Law, discrete_laws.Law]:
    return discrete_laws.discrete_laplace(0.125, 2 * round(relation.sensitivity))


def discrete_gaussian_row(row: str, steps: int) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    """The Gaussian's moments, and no Gaussian DP."""
    gaussian = gaussian_row(steps)
    return {
        "approximate_dp": certified(ROWS[row]),
        "zcdp": gaussian["zcdp"],
        "renyi_dp": gaussian["renyi_dp"],
    }


def bounded_range_row(row: str) -> dict[str, Callable[[NeighboringRelation], Amounts]]:
    half = mp.mpf(1) / 4
    rho = mp.log(mp.sinh(half) / half) + half * mp.coth(half) - 1
    return {
        "pure_dp": lambda _: exactly(Fraction(T, 2)),
        "approximate_dp": certified(ROWS[row]),
        "zcdp": lambda _: [between(T * rho, T * rho * (1 + mp.mpf("1e-5")))],
        "gaussian_dp": lambda _: about(T * mu_through(1 / (1 + mp.exp(mp.mpf(1) / 2))) ** 2),
        "renyi_dp": lambda _: [
            between(T * truth, T * truth * (1 + mp.mpf("1e-8")))
            for truth in (largest_bounded_range_moment(0.5, order - 1) / (mp.mpf(order) - 1) for order in ORDERS)
        ],
    }


def zcdp_at_delta(_: NeighboringRelation) -> Amounts:
    """Between the Gaussian that has this rho and the best single order."""
    rho = 0.1 * T
    most = smallest_over_orders(lambda order: canonne_kamath_steinke(order, rho * order, DELTA), 5.0)
    return at_delta(between(gaussian_epsilon((2 * rho) ** 0.5, DELTA), most * (1 + 1e-9)))


def renyi_at_delta(_: NeighboringRelation) -> Amounts:
    stated = zip(ORDERS, (0.1, 0.2, 0.3, 0.4), strict=True)
    return at_delta(between(0.1, min(canonne_kamath_steinke(order, T * size, DELTA) for order, size in stated)))


CELLS: dict[str, dict[str, Callable[[NeighboringRelation], Amounts]]] = {
    "gaussian, full batch": gaussian_row(T),
    "gaussian, shuffled epochs": gaussian_row(T),
    "gaussian, disjoint batches": gaussian_row(1),
    "gaussian, poisson": sampled_gaussian_row(
        ROWS["gaussian, poisson"],
        lambda tilt, relation: poisson_moment(4.0, 0.05, tilt, "replace" if relation is REPLACE else "remove"),
    ),
    "gaussian, fixed size": sampled_gaussian_row(
        ROWS["gaussian, fixed size"],
        lambda tilt, relation: (symmetrized_moment if relation is REPLACE else displaced_moment)(4.0, 0.05, tilt),
    ),
    "gaussian_mixture": mixture_row(T),
    "gaussian_mixture, shuffled epochs": mixture_row(T),
    "gaussian_mixture, disjoint batches": mixture_row(1),
    "gaussian_mixture, poisson": sampled_gaussian_row(
        ROWS["gaussian_mixture, poisson"],
        lambda tilt, relation: mixed_moment(
            lambda s: poisson_moment(s, 0.05, tilt, "replace" if relation is REPLACE else "remove")
        ),
    ),
    "gaussian, random allocation": {
        **sampled_gaussian_row(
            Event(Gaussian(4.0), RandomAllocation(20, 1), 20 * T), lambda tilt, _: allocated_moment(4.0, 20, tilt)
        ),
        "renyi_dp": allocated_divergences,
    },
    **{
        row: priced_alone(ROWS[row])
        for row in ROWS
        if row.endswith(("with replacement", "truncated poisson", "shuffle model"))
    },
    "laplace": laplace_row(T),
    "laplace, shuffled epochs": laplace_row(T),
    "laplace, disjoint batches": laplace_row(1),
    "laplace, poisson": sampled_laplace_row(
        "poisson",
        lambda tilt, relation: sampled_laplace_moment(4.0, 0.05, tilt, "replace" if relation is REPLACE else "remove"),
        1e-6,
    ),
    "laplace, fixed size": sampled_laplace_row(
        "without_replacement",
        lambda tilt, relation: sampled_laplace_moment(2.0 if relation is REPLACE else 4.0, 0.05, tilt, "remove"),
        None,
    ),
    "generalized_gaussian": generalized_gaussian_row(T),
    "generalized_gaussian, shuffled epochs": generalized_gaussian_row(T),
    "generalized_gaussian, disjoint batches": generalized_gaussian_row(1),
    "tree_aggregation": gaussian_row(6 * T),
    "randomized_response": law_row("randomized_response", T, response_laws),
    "discrete_laplace": law_row("discrete_laplace", T, discrete_laplace_laws),
    "discrete_laplace, shuffled epochs": law_row("discrete_laplace, shuffled epochs", T, discrete_laplace_laws),
    "discrete_laplace, disjoint batches": law_row("discrete_laplace, disjoint batches", 1, discrete_laplace_laws),
    "discrete_gaussian": discrete_gaussian_row("discrete_gaussian", T),
    "discrete_gaussian, shuffled epochs": discrete_gaussian_row("discrete_gaussian, shuffled epochs", T),
    "discrete_gaussian, disjoint batches": discrete_gaussian_row("discrete_gaussian, disjoint batches", 1),
    "exponential": bounded_range_row("exponential"),
    "report_noisy_max, gumbel": bounded_range_row("report_noisy_max, gumbel"),
    "report_noisy_max, laplace": {
        "pure_dp": lambda _: exactly(Fraction(T, 2)),
        "approximate_dp": certified(ROWS["report_noisy_max, laplace"]),
        "zcdp": lambda _: about(T * mp.tanh(mp.mpf(1) / 4) / 2),
        "gaussian_dp": lambda _: about(T * mu_through(1 / (1 + mp.exp(mp.mpf(1) / 2))) ** 2),
        "renyi_dp": lambda _: about(*(T * response_divergence(order) for order in ORDERS)),
    },
    "pure_dp": {
        "pure_dp": lambda _: exactly(Fraction(T, 2)),
        "approximate_dp": lambda _: [*exactly(Fraction(T, 2)), (0, 0)],
        "zcdp": lambda _: about(T * mp.tanh(mp.mpf(1) / 4) / 2),
        "gaussian_dp": lambda _: about(T * mu_through(1 / (1 + mp.exp(mp.mpf(1) / 2))) ** 2),
        "renyi_dp": lambda _: about(*(T * response_divergence(order) for order in ORDERS)),
    },
    "zcdp": {
        "approximate_dp": zcdp_at_delta,
        "zcdp": lambda _: exactly(Fraction(T, 10)),
        "renyi_dp": lambda _: exactly(*(Fraction(T, 10) * Fraction(order) for order in ORDERS)),
    },
    "renyi_dp": {
        "approximate_dp": renyi_at_delta,
        "renyi_dp": lambda _: exactly(*(Fraction(T * size, 10) for size in (1, 2, 3, 4))),
    },
    "approximate_dp": {"approximate_dp": lambda _: [*exactly(Fraction(T, 10)), (T * 10**9,) * 2]},
}


def covered(row: str) -> Callable[[NeighboringRelation], Amounts]:
    """At least the Gaussian that the certified epsilon at some deltas asks for, at most the best sum of steps' costs.

    Beside it the pure epsilon. Its own tests compare covers with whole profiles.
    """
    event, cells = ROWS[row], CELLS[row]

    def price(relation: NeighboringRelation) -> Amounts:
        if event.mechanism == Gaussian(4.0) and "gaussian_dp" in cells and not is_sampled(event):
            return [*cells["gaussian_dp"](relation), (0, 0), (SATURATED,) * 2]
        pure = cells["pure_dp"](relation)[0] if "pure_dp" in cells else (SATURATED,) * 2
        as_pure, stated = without_failures((event,))
        rate, low = float(RATE), 0.0
        for delta in (0.02, 1e-3, 1e-5):
            epsilon = epsilon_for_delta(as_pure, relation, delta).value.lower
            if epsilon > 0.0:
                # With the delta of the answer where it is largest, and nothing for rounding.
                low = max(low, mu_of_gaussian(epsilon, max(delta - rate * 10.0, 0.5 * delta)) ** 2)
        most = cells["gaussian_dp"](relation)[0][1] if "gaussian_dp" in cells else 3 * up(10.0)
        failure = round(stated * ATTO)
        return [(up(0.9 * low), most), (failure, failure + math.ceil(most * RATE * NANO)), pure]

    return price


for _row, _prices in CELLS.items():
    _prices["approximate_gaussian_dp"] = covered(_row)
UNAMPLIFIED = {
    (row, kind)
    for row in ("gaussian, poisson", "gaussian, fixed size", "gaussian_mixture, poisson", "gaussian, random allocation")
    for kind in ("zcdp", "gaussian_dp")
}


def cell(row: str, kind: str) -> object:
    """A cell as a case; where one epsilon takes long, a cover takes seconds, and a minute for allocations."""
    marks = []
    if kind == "approximate_gaussian_dp" and row.endswith(("shuffle model", "allocation")):
        marks = [pytest.mark.soak]
    elif kind == "approximate_gaussian_dp" and (
        row.startswith("laplace") or row.endswith(("with replacement", "fixed size"))
    ):
        marks = [pytest.mark.thorough]
    return pytest.param(row, kind, marks=marks, id=f"{row}-{kind}")


@pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
@pytest.mark.parametrize(("row", "kind"), [cell(row, kind) for row in ROWS for kind in KINDS])
@pytest.mark.one_in(30)
def test_cell(row: str, kind: str, relation: NeighboringRelation) -> None:
    event, budget, prices = ROWS[row], COLUMNS[kind], CELLS[row]
    if kind in prices and relation not in event.sampling.relations:
        with pytest.raises(Unsupported):
            budget.cost([event], relation, DELTA)
        return
    if kind not in prices:
        with pytest.raises(NoCostInFilter) as refused:
            budget.cost([event], relation, DELTA)
        assert refused.value.code == "no_cost_in_filter"
        assert refused.value.pointer in {("events", 0, "mechanism"), ("events", 0, "sampling")}
        assert set(re.findall(r"\w+_dp|zcdp", refused.value.detail.split("it has one in")[1])) == set(prices)
        return
    cost = budget.cost([event], relation, DELTA)
    expected = prices[kind](relation)
    assert len(cost.amounts) == len(expected) == len(budget.caps)
    least = budget.least_cost([event], relation, DELTA)
    for amount, at_least, (low, high) in zip(cost.amounts, least, expected, strict=True):
        assert low <= amount <= high
        assert high > 0 or amount == 0
        assert 0 <= at_least <= min(amount, high)
    expected_codes = [NO_AMPLIFICATION] * ((row, kind) in UNAMPLIFIED)
    expected_codes += [SAME_RANDOMIZER_REQUIRED] * isinstance(event.sampling, ShuffleModel)
    assert [warning.code for warning in cost.warnings] == expected_codes


@pytest.mark.parametrize(("row", "kind"), [cell(row, kind) for row, prices in CELLS.items() for kind in prices])
@pytest.mark.one_in(20)
def test_the_price_of_a_prefix_leaves_that_of_the_rest(row: str, kind: str) -> None:
    """Where a prefix may depend on outputs, what is charged for it and for the rest is what the whole costs."""
    event, budget = ROWS[row], COLUMNS[kind]
    relation = event.sampling.relations[-1]
    whole = budget.cost([event], relation, DELTA).amounts
    first = prefix_of_events([event], event.count // 3)
    rest = [Event(event.mechanism, event.sampling, event.count - first[0].count)]
    parts = budget.add(*(budget.cost(part, relation, DELTA).amounts for part in (first, rest)))
    fixed_schedule = isinstance(event.sampling, ShuffledEpochs | DisjointBatches | RandomAllocation)
    tight = kind == "approximate_dp" and parts[1] == 2 * round(DELTA * ATTO)
    assert budget.prefix_may_depend_on_outputs == (kind not in ("approximate_dp", "approximate_gaussian_dp"))
    if kind != "approximate_gaussian_dp" or not isinstance(event.mechanism, ZcDp | RenyiDp | GeneralizedGaussian):
        # Of a guarantee of moments the whole list's profile is a bound, which is not that of a product of pairs.
        assert all(left * (1.0 + budget.price_tolerance) >= right for left, right in zip(parts, whole, strict=True))
    if not fixed_schedule and not tight and kind != "approximate_gaussian_dp":
        assert all(left <= right + 1 for left, right in zip(parts, whole, strict=True))


def test_the_page_shows_the_same_table() -> None:
    """Dashes where a cell is refused, "unamplified" where there is a warning."""
    page = (Path(__file__).parents[4] / "docs/concepts/filters.md").read_text()
    table = page.split("## The table")[1].split("\n| event |")[1].split("\n\n")[0].splitlines()[2:]
    shown = {}
    for line in table:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        shown[name] = dict(zip(KINDS, cells, strict=True))
    rows_of = {
        "gaussian, full batch, shuffled epochs, disjoint batches": [
            f"gaussian, {schedule}" for schedule in ("full batch", "shuffled epochs", "disjoint batches")
        ],
        "gaussian, Poisson or fixed size": ["gaussian, poisson", "gaussian, fixed size"],
        "gaussian_mixture": [
            f"gaussian_mixture{schedule}" for schedule in ("", ", shuffled epochs", ", disjoint batches")
        ],
        "gaussian_mixture, Poisson": ["gaussian_mixture, poisson"],
        "laplace": ["laplace", "laplace, shuffled epochs", "laplace, disjoint batches"],
        "discrete_laplace": [
            f"discrete_laplace{schedule}" for schedule in ("", ", shuffled epochs", ", disjoint batches")
        ],
        "discrete_gaussian": [
            f"discrete_gaussian{schedule}" for schedule in ("", ", shuffled epochs", ", disjoint batches")
        ],
        "exponential; report_noisy_max, gumbel": ["exponential", "report_noisy_max, gumbel"],
        "report_noisy_max, laplace or exponential": ["report_noisy_max, laplace"],
        "generalized_gaussian": [
            f"generalized_gaussian{schedule}" for schedule in ("", ", shuffled epochs", ", disjoint batches")
        ],
        "laplace, Poisson or fixed size": ["laplace, poisson", "laplace, fixed size"],
        "pure_dp or approximate_dp, shuffle model": ["pure_dp, shuffle model", "approximate_dp, shuffle model"],
        "gaussian or laplace, with replacement or truncated Poisson": [
            f"{noise}, {sampling}"
            for noise in ("gaussian", "laplace")
            for sampling in ("with replacement", "truncated poisson")
        ],
    }
    covered = [row for name in shown for row in rows_of.get(name, [name])]
    assert sorted(covered) == sorted(ROWS)
    for name, cells in shown.items():
        for row in rows_of.get(name, [name]):
            assert {kind for kind, cell in cells.items() if cell != "-"} == set(CELLS[row])
            assert {kind for kind, cell in cells.items() if "unamplified" in cell} == {
                kind for of, kind in UNAMPLIFIED if of == row
            }


def test_no_row_and_no_column_is_missing() -> None:
    """A mechanism of the table has all its rows; the costs of one that is not there are in its own file of tests."""
    assert list(CELLS) == list(ROWS)
    assert list(COLUMNS) == list(FILTERS)
    shown = {type(event.mechanism) for event in ROWS.values()}
    assert {(type(event.mechanism), type(event.sampling)) for event in ROWS.values()} == {
        (mechanism, sampling) for mechanism in shown for sampling in mechanism.samplings if sampling is not Blocks
    }, "blocks are allocations, and priced as these"
    for mechanism in {*MECHANISMS.values()} - shown:
        name = mechanism.__module__.rpartition(".")[2]
        assert "_cost(" in (Path(__file__).parents[2] / f"losses/test_{name}.py").read_text()
