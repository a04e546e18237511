"""The trade-off curve's interval contains the trade-off function, whatever the nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import norm

from accounting.accountant import deltas_for_epsilons
from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian, Laplace, Poisson
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from accounting.trade_off import SMALLEST_RATE, false_positive_rates, largest_useful_epsilon, trade_off

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
RATES = false_positive_rates(41)


def curve(event: Event, nodes: NDArray[np.float64], widen: float = 0.0) -> list[Interval]:
    deltas = [answer.value for answer in deltas_for_epsilons([event], ADD_REMOVE, [float(node) for node in nodes])]
    wide = [Interval(delta.lower * (1 - widen), delta.estimate, delta.upper * (1 + widen)) for delta in deltas]
    return trade_off([float(node) for node in nodes], wide, RATES)


def laplace_truth(alpha: float, epsilon: float) -> float:
    """Dong, Roth & Su 2022: the shift of a Laplace law by epsilon scales."""
    if alpha < math.exp(-epsilon) / 2:
        return 1 - math.exp(epsilon) * alpha
    return math.exp(-epsilon) / (4 * alpha) if alpha <= 0.5 else math.exp(-epsilon) * (1 - alpha)


def contains(found: list[Interval], truths: list[float]) -> bool:
    return all(v.lower <= truth + 1e-13 and truth <= v.upper + 1e-13 for v, truth in zip(found, truths, strict=True))


NODES = [np.array([0.0, 0.7]), np.linspace(0, 4, 5), np.linspace(0, 12, 200), np.array([0.0, 0.01, 0.02, 5.0, 5.1])]


@pytest.mark.parametrize("nodes", NODES, ids=len)
@pytest.mark.parametrize("widen", [0.0, 0.3])
def test_contains_the_trade_off_function(nodes: NDArray[np.float64], widen: float) -> None:
    for noise in (0.4, 1.0, 20.0):
        gaussian = [float(norm.cdf(norm.isf(alpha) - 1 / noise)) for alpha in RATES]
        assert contains(curve(Event(Gaussian(noise)), nodes, widen), gaussian)
        laplace = [laplace_truth(alpha, 1 / noise) for alpha in RATES]
        assert contains(curve(Event(Laplace(noise)), nodes, widen), laplace)


@pytest.mark.parametrize("first", [0, 1])
def test_a_chord_is_extended_from_the_lower_end_of_one_node_with_the_upper_end_of_the_other(first: int) -> None:
    """Every other node has a wide interval: a chord between two lower ends would cut into the curve."""
    nodes = np.linspace(0, 4, 9)
    deltas = [answer.value for answer in deltas_for_epsilons([Event(Gaussian(1.0))], ADD_REMOVE, list(nodes))]
    for wide in (0.3, 0.9, 0.999):
        jagged = [
            Interval((1 - wide) * delta.lower, delta.estimate, delta.upper) if index % 2 == first else delta
            for index, delta in enumerate(deltas)
        ]
        truths = [float(norm.cdf(norm.isf(alpha) - 1.0)) for alpha in RATES]
        assert contains(trade_off(list(nodes), jagged, RATES), truths)


def sampled_truth(noise: float, probability: float) -> list[float]:
    """The symmetric convex envelope of a sampled Gaussian's two trade-off functions, from their points."""
    x = np.linspace(-8 * noise, 1 + 8 * noise, 4001)
    positives = norm.sf(x / noise)
    negatives = (1 - probability) * norm.cdf(x / noise) + probability * norm.cdf((x - 1) / noise)
    # The best test of one direction, and of the other one with the two errors in each other's place.
    points = np.concatenate([np.stack([positives, negatives]), np.stack([negatives, positives])], axis=1)
    truths = []
    for alpha in RATES:
        # The lowest point above alpha in the convex hull.
        best = linprog(points[1], A_eq=[np.ones(points.shape[1]), points[0]], b_eq=[1.0, alpha], bounds=(0, None))
        truths.append(float(best.fun))
    return truths


@pytest.mark.thorough
def test_both_directions_of_a_sampled_pair_make_one_curve() -> None:
    noise, probability = 0.6, 0.3
    found = curve(Event(Gaussian(noise), Poisson(probability)), np.linspace(0, 8, 120))
    for value, truth in zip(found, sampled_truth(noise, probability), strict=True):
        # The truth's points are chords of the curve: a little above it.
        assert value.lower <= truth + 1e-9
        assert truth <= value.upper + 1e-5
        assert value.width < 2e-3


def test_more_nodes_make_it_narrower() -> None:
    top = largest_useful_epsilon()
    widths = [max(v.width for v in curve(Event(Gaussian(1.0)), np.linspace(0, top, n))) for n in (10, 40, 160)]
    assert widths[1] < widths[0] / 5
    assert widths[2] < widths[1] / 5
    assert widths[2] < 2e-3


def test_never_above_the_diagonal() -> None:
    vague = [Interval(0.0, 0.5, 1.0)] * 3
    for value, alpha in zip(trade_off([0.0, 1.0, 2.0], vague, RATES), RATES, strict=True):
        assert (value.lower, value.upper) == (0.0, 1 - alpha)


def test_a_wider_delta_never_makes_the_curve_narrower() -> None:
    nodes = np.linspace(0, 5, 30)
    for narrow, wide in zip(curve(Event(Gaussian(1.0)), nodes), curve(Event(Gaussian(1.0)), nodes, 0.2), strict=True):
        assert wide.lower <= narrow.lower
        assert narrow.upper <= wide.upper


def test_extreme_inputs_stay_finite() -> None:
    for events, top in ((Event(Gaussian(1e6)), 1e-9), (Event(Gaussian(1e-3)), 13.8), (Event(Laplace(0.05)), 13.8)):
        deltas = [answer.value for answer in deltas_for_epsilons([events], ADD_REMOVE, [0.0, top / 2, top])]
        for value in trade_off([0.0, top / 2, top], deltas, [0.0, *RATES, 1.0]):
            assert 0 <= value.lower <= value.estimate <= value.upper <= 1


@pytest.mark.parametrize("nodes", [[0.0], [0.1, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0]])
def test_nodes_that_are_not_increasing_from_zero_are_refused(nodes: list[float]) -> None:
    with pytest.raises(InvalidValue, match="nodes"):
        trade_off(nodes, [Interval(0.0, 0.0, 0.0)] * 3, RATES)


def test_rates_are_symmetric_and_reach_the_smallest() -> None:
    for points in (2, 3, 100):
        rates = np.array(false_positive_rates(points))
        assert rates[0] == pytest.approx(SMALLEST_RATE)
        np.testing.assert_allclose(rates + rates[::-1], 1.0, atol=1e-15)
        assert np.all(np.diff(rates) > 0)
    assert false_positive_rates(1) == [0.5]
