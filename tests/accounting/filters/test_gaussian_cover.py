"""Covers of lists: proved at every epsilon, and no larger than what the list attains asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
import scipy
from scipy.special import log_ndtr, ndtr, ndtri_exp

from accounting.accountant import deltas_for_epsilons, epsilon_for_delta
from accounting.composition.gaussian_dp import delta_of_gaussian
from accounting.events import (
    DiscreteLaplace,
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
    ReportNoisyMax,
    TruncatedPoisson,
    WithoutReplacement,
    ZcDp,
)
from accounting.filters import ApproximateGaussianDpFilter
from accounting.filters.gaussian_cover import _missing, _Node, cover, failure_of
from accounting.relations import NeighboringRelation
from accounting.units import ATTO, NANO, SATURATED
from tests.accounting.filters.budgets import ADD_REMOVE, REPLACE, SPECIAL
from tests.accounting.references import poisson_delta, randomized_response_delta

#: The search stops at so much above what some node asks for.
TOLERANCE = 2.1e-4


def rate_of(epsilon: float, delta: float, share: float = 0.1) -> Fraction:
    budget = ApproximateGaussianDpFilter(epsilon, delta, failure_share=share)
    return Fraction(repr(budget.delta_per_mu_squared))


RATE = rate_of(1.0, 1e-5)
LISTS: dict[str, tuple[list[Event], NeighboringRelation]] = {
    "many participations": ([Event(Gaussian(4.69), Poisson(0.05), 600)], ADD_REMOVE),
    "few participations": ([Event(Gaussian(0.7), Poisson(0.0001), 10_000)], ADD_REMOVE),
    "one step": ([Event(Gaussian(1.0), Poisson(0.1))], ADD_REMOVE),
    "replaced": ([Event(Gaussian(3.0), Poisson(0.02), 400)], REPLACE),
    "fixed size": ([Event(Gaussian(6.0), WithoutReplacement(5, 100), 50)], REPLACE),
    "truncated": ([Event(Gaussian(4.0), TruncatedPoisson(0.05, 40, 100), 30)], SPECIAL),
    "allocation": ([Event(Gaussian(4.0), RandomAllocation(4, 1), 4)], ADD_REMOVE),
    "pure": ([Event(PureDp(0.1), count=20)], ADD_REMOVE),
    "one pure": ([Event(PureDp(1.0))], ADD_REMOVE),
    "laplace": ([Event(Laplace(3.0))], ADD_REMOVE),
    "discrete laplace": ([Event(DiscreteLaplace(4.0, 0.5), count=6)], ADD_REMOVE),
    "response": ([Event(RandomizedResponse(4, 0.8), count=6)], REPLACE),
    "exponential": ([Event(Exponential(0.3), count=6), Event(ReportNoisyMax(0.2, "laplace"), count=3)], ADD_REMOVE),
    "mixture": ([Event(GaussianMixture((0.5, 0.5), (4.0, 8.0)), Poisson(0.05), 40)], ADD_REMOVE),
    "stated": ([Event(ZcDp(0.05)), Event(GeneralizedGaussian(1.5, 100, 2.0, 9.0))], ADD_REMOVE),
    "mixed": ([Event(Gaussian(2.0), Poisson(0.01), 500), Event(PureDp(0.05), count=4), Event(Gaussian(9.0))], SPECIAL),
}


def is_covered(
    events: Sequence[Event], relation: NeighboringRelation, amount: int, rate: Fraction, epsilons: Sequence[float]
) -> bool:
    """(1) with the engine's upper ends on the left and the Gaussian's lower ones on the right."""
    d, mu = failure_of(amount, rate) / ATTO, math.sqrt(amount / NANO)
    answers = deltas_for_epsilons(events, relation, epsilons)
    return all(
        answer.value.upper <= (d + (1.0 - d) * delta_of_gaussian(mu, epsilon, upward=False)) * (1 + 1e-12)
        for answer, epsilon in zip(answers, epsilons, strict=True)
    )


def places(
    events: Sequence[Event], relation: NeighboringRelation, rate: Fraction, amount: int, count: int
) -> list[float]:
    """Random epsilons from 0 to where the profile is far below d, half of them near 0."""
    far = epsilon_for_delta(events, relation, max(0.01 * failure_of(amount, rate) / ATTO, 1e-18)).value.upper
    rng = np.random.default_rng(count)
    return sorted([*(far * rng.random(count - count // 2)), *(far * rng.random(count // 2) ** 3)])


@pytest.mark.thorough
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LISTS)
def test_a_cover_is_above_the_list_at_random_epsilons(name: str) -> None:
    events, relation = LISTS[name]
    found = cover(events, relation, RATE)
    assert 0 < found.least <= found.most < SATURATED
    count = 1000 if name in ("many participations", "one pure") else 60
    assert is_covered(events, relation, found.most, RATE, places(events, relation, RATE, found.most, count))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ["many participations", "replaced", "pure", "mixed"])
@pytest.mark.parametrize("share", [0.03, 0.3])
def test_a_cover_is_no_larger_than_what_is_attained_asks_for(name: str, share: float) -> None:
    events, relation = LISTS[name]
    rate = rate_of(1.0, 1e-5, share)
    found = cover(events, relation, rate)
    assert found.most <= found.least * (1.0 + TOLERANCE) + 2
    below = math.floor(found.least * (1.0 - 1e-3)) - 1
    assert not is_covered(events, relation, below, rate, places(events, relation, rate, found.most, 500))


# -- against profiles that are computed elsewhere ---------------------------------------------------------------------


def asked_for(profile: Callable[[float], float], rate: Fraction, epsilons: Sequence[float]) -> float:
    """The largest mu squared that a profile asks for at some epsilon, by bisection, less what rounding may add."""
    most = 0.0
    for epsilon in epsilons:
        delta = float(profile(epsilon))

        def missing(m: float, delta: float = delta, epsilon: float = epsilon) -> float:
            mu, d = math.sqrt(m), min(float(rate) * m, 1.0)
            tail = ndtr(mu / 2 - epsilon / mu)
            gaussian = tail * (1.0 + 1e-12) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
            return float(delta - d - (1.0 - d) * gaussian)

        if most > 0.0 and missing(most) <= 0.0:
            continue
        low, high = most, max(most, 1e-9)
        while missing(high) > 0.0:
            high *= 4.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if missing(middle) > 0.0 else (low, middle)
        most = low
    return most * (1.0 - 1e-9)


def single_steps(count: int) -> list[tuple[float, float, float, float]]:
    """Noise, sampling probability, epsilon and delta of a budget."""
    rng = np.random.default_rng(5)
    return [
        (
            float(np.exp(rng.uniform(np.log(0.5), np.log(8.0)))),
            float(np.exp(rng.uniform(np.log(1e-3), np.log(0.9)))),
            float(np.exp(rng.uniform(np.log(0.3), np.log(8.0)))),
            float(10 ** rng.uniform(-9, -3)),
        )
        for _ in range(count)
    ]


@pytest.mark.one_in(1000)
@pytest.mark.parametrize(("noise", "q", "epsilon", "delta"), single_steps(4))
def test_no_step_costs_less_than_its_own_profile_asks_for(noise: float, q: float, epsilon: float, delta: float) -> None:
    """The closed forms of one sampled Gaussian, both directions."""
    events, rate = [Event(Gaussian(noise), Poisson(q))], rate_of(epsilon, delta)
    found = cover(events, ADD_REMOVE, rate)
    grid = places(events, ADD_REMOVE, rate, found.most, 80)
    attained = max(
        asked_for(lambda e, way=way: float(poisson_delta(noise, q, e, way)), rate, grid)  # type: ignore[misc]  # bound now
        for way in ("remove", "add")
    )
    assert attained * NANO <= found.most
    assert attained * NANO >= found.least * 0.95 - 2


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 30), (0.8, 3), (2.0, 1)])
def test_no_responses_cost_less_than_their_binomial_sum_asks_for(epsilon: float, count: int) -> None:
    found = cover([Event(PureDp(epsilon), count=count)], ADD_REMOVE, RATE)
    grid = np.linspace(0.0, epsilon * count, 61)[:-1]
    attained = asked_for(lambda e: float(randomized_response_delta(epsilon, count, e)), RATE, [float(e) for e in grid])
    assert attained * NANO <= found.most
    assert attained * NANO >= found.least * 0.95 - 2


@pytest.mark.parametrize("name", ["many participations", "one step"])
@pytest.mark.one_in(1000)
def test_no_plan_costs_less_than_the_optimistic_end_of_another_library(name: str) -> None:
    """dp-accounting's privacy loss distributions, discretised from below, in both directions at once."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    (event,), relation = LISTS[name]
    assert isinstance(event.mechanism, Gaussian)
    assert isinstance(event.sampling, Poisson)
    law = pld.from_gaussian_mechanism(
        event.mechanism.noise_multiplier,
        sampling_prob=event.sampling.sampling_probability,
        pessimistic_estimate=False,
        value_discretization_interval=1e-4,
        use_connect_dots=False,
    ).self_compose(event.count)
    found = cover([event], relation, RATE)
    grid = places([event], relation, RATE, found.most, 40)
    attained = asked_for(lambda e: float(law.get_delta_for_epsilon(e)), RATE, grid)
    assert attained * NANO <= found.most
    assert attained * NANO >= 0.9 * found.least


# -- lists ------------------------------------------------------------------------------------------------------------


def random_list(rng: np.random.Generator) -> list[Event]:
    events = []
    for _ in range(rng.integers(1, 4)):
        noise, q = float(np.exp(rng.uniform(0.0, 2.5))), float(np.exp(rng.uniform(-6.0, -1.0)))
        count = int(np.exp(rng.uniform(3.5, 7.0)))
        events.append(
            [
                Event(Gaussian(noise), Poisson(q), count),
                Event(Gaussian(5.0 * noise), count=int(rng.integers(1, 9))),
                Event(PureDp(0.2 / noise), count=int(rng.integers(1, 9))),
            ][rng.choice(3, p=(0.6, 0.2, 0.2))]
        )
    return events


def check_concatenation(seed: int) -> tuple[float, float]:
    """Check two random lists and both together, each against (1) and against one another.

    Returns:
        What both together cost, over the sum of both prices; and the largest price over its lower end, in excess of 1.
    """
    rng = np.random.default_rng(seed)
    lists = [random_list(rng) for _ in range(2)]
    rate = rate_of(
        float(np.exp(rng.uniform(-1.0, 2.0))), float(10 ** rng.uniform(-8, -4)), float(rng.choice((0.1, 0.3)))
    )
    parts = [cover(events, SPECIAL, rate) for events in lists]
    together = cover(lists[0] + lists[1], SPECIAL, rate)
    apart = sum(part.most for part in parts)
    assert together.most <= apart * (1.0 + TOLERANCE) + 2
    excess = 0.0
    for events, found in (*zip(lists, parts, strict=True), (lists[0] + lists[1], together)):
        assert found.least <= found.most
        assert is_covered(events, SPECIAL, found.most, rate, places(events, SPECIAL, rate, found.most, 20))
        excess = max(excess, (found.most - 2) / found.least - 1.0)
    return together.most / apart, excess


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.one_in(15)
def test_a_concatenation_costs_no_more_than_its_parts(seed: int) -> None:
    assert check_concatenation(seed)[1] <= TOLERANCE


def test_nothing_has_no_cover_and_what_has_no_bound_none_that_is_finite() -> None:
    assert cover([Event(PureDp(0.0))], ADD_REMOVE, RATE).most == 0
    assert cover([Event(PureDp(1e-30))], ADD_REMOVE, RATE).most == 1
    assert cover([Event(Gaussian(1e-3), Poisson(0.5), 1000)], ADD_REMOVE, RATE).most == SATURATED
    # No epsilon of it is known to be finite at a delta below that with which the cover fails.
    rare = Event(Gaussian(1e6), TruncatedPoisson(1e-12, 1, 10**9))
    assert cover([rare], ADD_REMOVE, RATE).most == SATURATED


def test_failures_are_rounded_down_to_whole_units() -> None:
    assert failure_of(1, Fraction(1, 10**9)) == 1
    assert failure_of(2, Fraction(1, 3 * 10**9)) == 0
    assert failure_of(9, Fraction(1, 3 * 10**9)) == 3


@pytest.mark.parametrize("off", [-0.05, 0.0, 0.05])
def test_a_chord_is_bounded_wherever_it_is_compared(off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that is not quite the nearest one proves no more than there is."""
    monkeypatch.setattr(scipy.special, "ndtri_exp", lambda log: ndtri_exp(log) + off)
    d, mu = 1e-3, 0.8
    for low, high in ((0.3, 0.5), (0.3, 1.1), (1.0, 2.5)):
        ends = [1.1 * delta_of_gaussian(mu, epsilon, upward=True) for epsilon in (low, high)]
        left, right = (_Node(epsilon, delta, 0.0, 0.0) for epsilon, delta in zip((low, high), ends, strict=True))
        epsilons = np.linspace(low, high, 2001)
        shares = (np.exp(high) - np.exp(epsilons)) / (math.exp(high) - math.exp(low))
        gaussian = np.array([delta_of_gaussian(mu, epsilon, upward=False) for epsilon in epsilons.tolist()])
        truth = float((ends[1] + (ends[0] - ends[1]) * shares - d - (1.0 - d) * gaussian).max())
        found, _ = _missing(left, right, d, mu)
        assert truth - 1e-9 <= found
        assert off or found <= truth + 1e-6
