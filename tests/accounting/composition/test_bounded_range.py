"""Equal steps of bounded range: the recursion against a fine search, closed forms, and an adaptive choice by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition import bounded_range
from accounting.composition.bounded_range import METHOD, EqualSteps
from accounting.events import Event, Exponential
from accounting.relations import NeighboringRelation
from tests.accounting.discrete_referee import bounded_range_delta

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


def largest_delta(size: float, steps: int, x: float) -> float:
    """D_k(x) by a search over t at every node, without a lattice; of one step in closed form."""
    if steps == 1:
        if abs(x) >= size:
            return max(0.0, -math.expm1(x))
        return math.expm1(0.5 * (x - size)) ** 2 / -math.expm1(-size)

    def mean(t: float) -> float:
        likely = (math.exp(size) - math.exp(t)) / math.expm1(size)
        return likely * largest_delta(size, steps - 1, x - t) + (1.0 - likely) * largest_delta(
            size, steps - 1, x - t + size
        )

    best = 0.0
    for start in np.linspace(0.0, size, 5)[:-1]:
        bounds = (float(start), float(start) + size / 4)
        best = max(best, -minimize_scalar(lambda t: -mean(t), bounds=bounds, method="bounded").fun)
    return best


@pytest.mark.parametrize(("size", "steps"), [(0.3, 2), (8.0, 2), (0.7, 3)])
def test_delta_is_the_largest_of_all_adaptive_choices(size: float, steps: int) -> None:
    for share in (0.05, 0.7):
        epsilon = share * size * steps
        truth = largest_delta(size, steps, epsilon)
        bounds = EqualSteps(size, steps).delta(epsilon)
        assert bounds.lower <= truth * (1.0 + 1e-7)
        assert truth <= bounds.upper * (1.0 + 1e-7)
        assert bounds.width <= 2e-3 * truth
        back = EqualSteps(size, steps).epsilon(truth)
        assert back.lower <= epsilon * (1.0 + 1e-6)
        assert epsilon <= back.upper * (1.0 + 1e-6)
        assert back.width <= 1e-4 * size


def test_a_choice_that_depends_on_what_was_seen_costs_more() -> None:
    """More than every t that is fixed in advance, and the answer says so."""
    size, steps, epsilon = 0.5, 6, 1.5
    fixed = bounded_range_delta(size, steps, epsilon)
    answer = delta_for_epsilon([Event(Exponential(size), count=steps)], ADD_REMOVE, epsilon)
    assert 1.05 * fixed < answer.value.lower <= answer.value.upper
    assert answer.value.width < 1e-3 * answer.value.upper
    assert answer.method == METHOD


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("size", "steps", "delta"), [(0.1, 20, 1e-6), (0.02, 60, 1e-3), (1e-6, 8, 1e-7), (30.0, 5, 0.1)]
)
def test_epsilon_and_delta_are_each_others_inverse(size: float, steps: int, delta: float) -> None:
    bounds = EqualSteps(size, steps).epsilon(delta)
    assert bounds.lower <= bounds.upper <= size * steps
    assert EqualSteps(size, steps).delta(bounds.upper).lower <= delta * (1.0 + 1e-6)
    assert EqualSteps(size, steps).delta(bounds.lower).upper >= delta * (1.0 - 1e-6)
    assert bounds.width <= 1e-3 * max(1.0, bounds.upper)


def test_a_coarser_lattice_is_wider_and_still_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = EqualSteps(0.6, 5).epsilon(1e-5)
    widths = []
    for parts in (12, 24, 48):
        monkeypatch.setattr(bounded_range, "_FINEST", parts)
        coarse = EqualSteps(0.6, 5).epsilon(1e-5)
        assert coarse.lower <= fine.upper
        assert fine.lower <= coarse.upper
        widths.append(coarse.upper - fine.lower)
    # Of second order in the lattice's step.
    assert widths[2] < 0.35 * widths[1] < 0.35 * 0.35 * widths[0] * 1.2


@pytest.mark.parametrize(
    ("size", "steps", "delta"),
    [(1e-6, 50, 1e-12), (1e3, 7, 1e-6), (0.01, 10**6, 1e-6), (100.0, 2, 0.5), (0.5, 3, 1e-30), (2.0, 2, 0.99)],
)
def test_extremes_end_in_numbers(size: float, steps: int, delta: float) -> None:
    value = epsilon_for_delta([Event(Exponential(size), count=steps)], ADD_REMOVE, delta).value
    assert 0.0 <= value.lower <= value.estimate <= value.upper <= size * steps * (1.0 + 1e-12)


@pytest.mark.parametrize("size", [1e-30, 1e-15, 1e-12])
def test_neighbours_on_the_lattice_of_a_tiny_range_do_not_fall_together(size: float) -> None:
    """Far below 1 delta over the size is one function of epsilon over the size."""
    for share in (0.0, 0.3, 0.9, 0.999999):
        tiny, small = EqualSteps(size, 2).delta(share * 2.0 * size), EqualSteps(1e-7, 2).delta(share * 2.0e-7)
        assert tiny.upper / size == pytest.approx(small.upper / 1e-7, rel=3e-6)
        assert tiny.lower / size <= small.upper / 1e-7
