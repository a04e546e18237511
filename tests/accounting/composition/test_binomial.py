"""Lists of pure guarantees: exact sums."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import pytest

from accounting.composition.binomial import BinomialComposition
from accounting.composition.composition import Composition, compose
from accounting.composition.fourier import FourierInversion
from accounting.events import ApproximateDp, Event, Laplace, PureDp
from accounting.relations import NeighboringRelation

LISTS: tuple[tuple[tuple[float, int], ...], ...] = (
    ((0.1, 100),),
    ((1.46, 33),),
    ((0.003, 800),),
    ((2.0, 5),),
    ((0.1, 20), (0.37, 7), (3.0, 2)),
    ((30.0, 3), (1e-6, 10)),
)
EVERY_LIST = pytest.mark.parametrize("groups", LISTS)


def composition_of(groups: tuple[tuple[float, int], ...]) -> Composition:
    events = [Event(PureDp(size), count=count) for size, count in groups]
    return compose(events, NeighboringRelation.ADD_OR_REMOVE_ONE)


def true_delta(groups: tuple[tuple[float, int], ...], epsilon: float) -> mp.mpf:
    with mp.workdps(50):
        total = mp.mpf(0)
        for ks in itertools.product(*(range(count + 1) for _, count in groups)):
            mass, loss = mp.mpf(1), mp.mpf(0)
            for k, (size, count) in zip(ks, groups, strict=True):
                p = 1 / (1 + mp.exp(-mp.mpf(size)))
                mass *= mp.binomial(count, k) * p**k * (1 - p) ** (count - k)
                loss += mp.mpf(size) * (2 * k - count)
            total += mass * max(mp.mpf(0), 1 - mp.exp(epsilon - loss))
        return total


@pytest.mark.one_in(3)
@EVERY_LIST
def test_exact_for_pure_guarantees(groups: tuple[tuple[float, int], ...]) -> None:
    largest = sum(size * count for size, count in groups)
    for share in (0.0, 0.1, 0.5, 0.97):
        bounds = BinomialComposition().delta(composition_of(groups), share * largest)
        assert bounds is not None
        truth = true_delta(groups, share * largest)
        assert mp.mpf(bounds.lower) <= truth <= mp.mpf(bounds.upper)
        assert bounds.width <= 1e-8 * bounds.upper + 1e-318


@pytest.mark.one_in(4)
@EVERY_LIST
def test_epsilon_is_where_delta_falls_below(groups: tuple[tuple[float, int], ...]) -> None:
    for delta in (1e-2, 1e-6):
        bounds = BinomialComposition().epsilon(composition_of(groups), delta)
        assert bounds is not None
        assert true_delta(groups, bounds.upper) <= delta
        assert bounds.lower == 0.0 or true_delta(groups, bounds.lower) >= delta
        assert bounds.width <= 1e-7 * max(1.0, bounds.upper)


def test_a_delta_above_the_total_variation_costs_nothing() -> None:
    bounds = BinomialComposition().epsilon(composition_of(((0.1, 2),)), 0.2)
    assert bounds is not None
    assert bounds.upper == 0.0


def test_equal_sizes_of_different_guarantees_add_up() -> None:
    """A step that may fail is a pure one where it does not."""
    events = [Event(PureDp(0.1), count=4), Event(ApproximateDp(0.1, 1e-9), count=3)]
    mixed = compose(events, NeighboringRelation.ADD_OR_REMOVE_ONE)
    assert len(mixed.steps) == 2
    there, here = BinomialComposition().delta(composition_of(((0.1, 7),)), 0.2), BinomialComposition().delta(mixed, 0.2)
    assert here == there
    assert here is not None
    assert mp.mpf(here.lower) <= true_delta(((0.1, 7),), 0.2) <= mp.mpf(here.upper)


def test_agrees_with_the_contour() -> None:
    composition = composition_of(((0.1, 100),))
    exact, contour = BinomialComposition().epsilon(composition, 1e-5), FourierInversion().epsilon(composition, 1e-5)
    assert exact is not None
    assert contour is not None
    assert max(exact.lower, contour.lower) <= min(exact.upper, contour.upper)
    assert math.isclose(exact.upper, contour.upper, rel_tol=1e-8)


def test_other_steps_and_very_long_lists_are_left_to_others() -> None:
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    for events in ([Event(PureDp(0.1)), Event(Laplace(1.0))], [Event(PureDp(0.1), count=10**6)]):
        assert BinomialComposition().delta(compose(events, relation), 1.0) is None
        assert BinomialComposition().epsilon(compose(events, relation), 1e-5) is None
