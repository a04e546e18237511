"""What an inner step is charged: above what an analyst can see, near the least that is possible; worked numbers."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.wang_erm.inner_steps import ORDERS, InnerSteps, step_divergence

REPLACE_ONE, REPLACE_SPECIAL = NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL


def charged(s: float, q: float, order: float, relation: NeighboringRelation = REPLACE_ONE) -> float:
    orders, found = step_divergence(s, q, relation)
    return float(np.interp(order, orders, found))


@pytest.mark.parametrize("s", [9.0, 300.0])
def test_with_everybody_in_the_batch_a_step_costs_what_gradient_descent_does(s: float) -> None:
    """The snapshot's gradients cancel: a sum of n gradients with noise s 2 G, moved by 2 G, or by G."""
    for relation in (REPLACE_ONE, REPLACE_SPECIAL):
        orders, found = step_divergence(s, 1.0, relation)
        np.testing.assert_allclose(found, np.array(orders) * (relation.sensitivity / (2.0 * s)) ** 2 / 2.0, rtol=1e-12)


@pytest.mark.parametrize(("n", "b", "sigma", "most"), [(10_000, 111, 0.178, 1.19), (10_000, 1000, 0.165, 1.01)])
def test_a_step_costs_little_more_than_the_full_gradients_part(n: int, b: int, sigma: float, most: float) -> None:
    """Replacing a record moves the mean direction by 2 G/n: no bound can be below that one's divergence."""
    for order in (2.0, 8.0, 16.0):
        found, least = charged(sigma * b / 2.0, b / n, order), order * (2.0 / (n * sigma)) ** 2 / 2.0
        assert least <= found <= most * least


def test_more_noise_costs_less_and_a_null_record_less_than_another_one() -> None:
    s, q = 9.0, 0.02
    found = np.array(step_divergence(s, q, REPLACE_ONE)[1])
    assert len(ORDERS) == 64
    assert np.all(np.array(step_divergence(1.1 * s, q, REPLACE_ONE)[1]) < found)
    assert np.all(np.array(step_divergence(s, q, REPLACE_SPECIAL)[1]) < 0.5 * found)
    # Larger batches with as much noise on their sum.
    assert np.all(np.array(step_divergence(s, 1.1 * q, REPLACE_ONE)[1])[:40] > found[:40])
    # Divergences grow with the order.
    assert np.all(np.diff(found) >= 0.0)


def test_the_worked_number_of_an_event() -> None:
    """n = 1e4, 32657 steps at delta 1e-6: epsilon 1 at sigma = .1683, where charging both parts apart asks for .498."""
    event = InnerSteps(10_000, 32_657, REPLACE_ONE)(0.1684 * 222 / 2.0, 17, 222)
    epsilon = epsilon_for_delta([event], REPLACE_ONE, 1e-6).value.upper
    assert 0.995 <= epsilon <= 1.0


def test_noise_without_a_known_divergence_is_refused() -> None:
    with pytest.raises(InvalidValue) as refused:
        step_divergence(1e-3, 0.5, REPLACE_ONE)
    assert refused.value.pointer == ("noise_multiplier",)


@pytest.mark.parametrize(
    ("s", "q", "order"),
    [(3.0, 0.05, 2.0), (6.0, 0.3, 3.0), (1.5, 0.01, 1.5), (40.0, 0.9, 8.0), (10.0, 0.011, 16.0), (2.0, 0.5, 4.0)],
)
@pytest.mark.parametrize("relation", [REPLACE_ONE, REPLACE_SPECIAL])
def test_what_records_on_one_line_do_to_a_step_is_within_the_charge(
    s: float, q: float, order: float, relation: NeighboringRelation
) -> None:
    """The law of v itself, in units of sigma: gradients of 0 and +-1 at x and at x~, of either record and others."""
    nodes = np.linspace(-16.0, 16.0 + 4.0 * order / s, 4001)
    unit = 0.5 / s

    def law(g: float, h: float, rest: float) -> np.ndarray:
        """Record j's gradients, and the change of the one whose place it takes."""
        absent, present = q * h + rest, q * h + g - h
        density: np.ndarray = (1.0 - q) * stats.norm.pdf(nodes, absent * unit) + q * stats.norm.pdf(
            nodes, present * unit
        )
        return np.maximum(density, 1e-300)

    bound, largest = charged(s, q, order, relation), 0.0
    values = [(g, h) for g in (-1.0, 0.0, 1.0) for h in (-1.0, 0.0, 1.0)]
    for rest in (-2.0, 0.0, 2.0):
        laws = {value: law(*value, rest) for value in values}
        for one in values:
            for other in values if relation is REPLACE_ONE else [(0.0, 0.0)]:
                for first, second in ((laws[one], laws[other]), (laws[other], laws[one])):
                    integral = np.trapezoid(np.exp(order * np.log(first) - (order - 1.0) * np.log(second)), nodes)
                    largest = max(largest, math.log(integral) / (order - 1.0))
    assert 0.25 * bound <= largest <= bound


@pytest.mark.parametrize("relation", [REPLACE_ONE, REPLACE_SPECIAL])
@pytest.mark.parametrize(("n", "b"), [(4, 1), (5, 2), (6, 4), (3, 3)])
def test_a_step_on_a_tiny_data_set_is_within_the_charge_for_all_its_batches(
    n: int, b: int, relation: NeighboringRelation
) -> None:
    """Every batch is enumerated; gradients of all records at both points are random or extreme."""
    rng, sigma, order = np.random.default_rng(n), 3.0, 6.0
    bound = charged(sigma * b / 2.0, b / n, order, relation)
    nodes, largest = np.linspace(-20.0, 20.0, 2001), 0.0

    def law(gradients: np.ndarray) -> np.ndarray:
        """Of v / sigma: gradients at x and at x~, shape (2, n)."""
        here, there = gradients / sigma
        means = [np.mean((here - there)[list(batch)]) + np.mean(there) for batch in combinations(range(n), b)]
        density: np.ndarray = np.mean(stats.norm.pdf(nodes[:, None], np.array(means)), axis=1)
        return np.maximum(density, 1e-300)

    for trial in range(120):
        one = rng.uniform(-1.0, 1.0, (2, n)) if trial % 3 == 0 else rng.choice([-1.0, 1.0], (2, n))
        other = one.copy()
        other[:, 0] = 0.0 if relation is REPLACE_SPECIAL else -one[:, 0] if trial % 2 else rng.uniform(-1.0, 1.0, 2)
        first, second = law(one), law(other)
        for p, q in ((first, second), (second, first)):
            integral = np.trapezoid(np.exp(order * np.log(p) - (order - 1.0) * np.log(q)), nodes)
            largest = max(largest, math.log(integral) / (order - 1.0))
    assert 0.2 * bound <= largest <= bound
