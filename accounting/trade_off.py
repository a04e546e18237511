"""Trade-off curves with bounds: the least false negative rate of an attacker at each false positive rate.

delta(eps) of a list is the largest hockey-stick divergence over all pairs of neighbours, in both directions; g(x) =
delta(log x). The trade-off function F of the list is the largest symmetric f for which it is f-DP: for every test of
"this data set" against "its neighbour", false negatives >= F(false positives), and no larger convex f is true of all
pairs. With a = false positive rate (Dong, Roth & Su 2022, Proposition 6 and its proof),

    F(a) = sup over x >= 1 of max(0, 1 - g(x) - x a, (1 - a - g(x)) / x).

* **Lower bound.** A larger delta makes every term smaller, and so does leaving out some x: the maximum over nodes, with
  the UPPER ends of delta, is below F. It is sound for any nodes.
* **Upper bound.** A smaller delta makes every term larger, but every x must be covered. g is convex and decreasing
  (a supremum of integrals of (p - x q)_+), and g(1/x) = 1 - 1/x + g(x)/x because both directions belong to it. Between
  two nodes g is therefore above the extensions of the chords on either side; with the LOWER end at the nearer node and
  the UPPER end at the farther one, a chord's extension is lower still. Right of the last node g is above the larger of
  the last chord's extension and 0. Under such a piecewise linear G the first term is concave and the second one
  monotone between corners, so their suprema are taken at corners.

So an upper bound of delta alone never gives an upper end here, nor a lower bound of delta a lower end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.errors import InvalidValue
from accounting.intervals import Interval

Array = NDArray[np.float64]

#: The smallest false positive rate of `false_positive_rates`. The largest is 1 less this number.
SMALLEST_RATE = 1e-6
#: An allowance of more than the rounding of sums of numbers of size 1.
_ROUNDING = 1e-14


def false_positive_rates(points: int) -> list[float]:
    """Return rates from 1e-6 to 1 - 1e-6, evenly spaced in normal quantiles: a Gaussian's curve is a line there.

    >>> [round(rate, 6) for rate in false_positive_rates(3)]
    [1e-06, 0.5, 0.999999]
    """
    if points == 1:
        return [0.5]
    return [float(rate) for rate in scipy.special.ndtr(np.linspace(-4.753424308822899, 4.753424308822899, points))]


def largest_useful_epsilon(smallest_rate: float = SMALLEST_RATE) -> float:
    """Return the epsilon beyond which 1 - e^eps a is negative for every rate a >= ``smallest_rate``."""
    return -math.log(smallest_rate)


def trade_off(epsilons: Sequence[float], deltas: Sequence[Interval], rates: Sequence[float]) -> list[Interval]:
    """Return the false negative rate F at each false positive rate, as intervals.

    Args:
        epsilons: At least two increasing nodes, the first of them 0.
        deltas: The certified delta at each node.
        rates: False positive rates in [0, 1].

    Returns:
        One interval for each rate. More nodes make it narrower, quadratically in their distance.

    Guarantees:
        contains_the_trade_off_function: lower <= F <= upper, whatever the nodes.
        never_above_the_diagonal: upper <= 1 - rate.

    Requires:
        Intervals that contain delta of both directions, as `accountant.delta_for_epsilon` gives them.

    Raises:
        InvalidValue: If the nodes do not increase from 0.

    Source: Dong, Roth & Su 2022, Propositions 3 and 6; Zhu, Dong & Wang 2022, Lemma 10 (both directions).

    >>> nothing = trade_off([0.0, 1.0], [Interval(0.0, 0.0, 0.0), Interval(0.0, 0.0, 0.0)], [0.25])
    >>> round(nothing[0].lower, 9), nothing[0].upper
    (0.75, 0.75)
    """
    nodes = np.asarray(epsilons, dtype=np.float64)
    if len(nodes) < 2 or len(nodes) != len(deltas) or nodes[0] != 0.0 or not np.all(np.diff(nodes) > 0.0):
        raise InvalidValue(
            "a trade-off curve needs two nodes or more, increasing from epsilon 0", pointer=("epsilons",)
        )
    lower, estimate, upper = (
        np.array([getattr(delta, end) for delta in deltas], dtype=np.float64) for end in ("lower", "estimate", "upper")
    )
    alphas = np.asarray(rates, dtype=np.float64)
    least = np.maximum(_supremum(np.exp(nodes), upper, alphas) - _ROUNDING, 0.0)
    most = _supremum(*_corners(nodes, lower, upper), alphas)
    most = np.maximum(np.minimum(most + _ROUNDING, 1.0 - alphas), least)
    middle = np.clip(_supremum(np.exp(nodes), estimate, alphas), least, most)
    return [Interval(float(a), float(b), float(c)) for a, b, c in zip(least, middle, most, strict=True)]


def _supremum(points: Array, values: Array, alphas: Array) -> Array:
    """Return max over (x, G) of max(0, 1 - G - x a, (1 - a - G) / x), for each a."""
    x, g, a = points[None, :], values[None, :], alphas[:, None]
    terms = np.maximum(1.0 - g - x * a, (1.0 - a - g) / x)
    largest: Array = np.maximum(np.max(terms, axis=1), 0.0)
    return largest


def _corners(nodes: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return corners (x, G) of a piecewise linear function below g on x >= 1."""
    x = np.exp(nodes)
    mirrored = math.exp(-float(nodes[1]))
    # The node 1/x_1, left of x = 1.
    before_x = np.concatenate([[mirrored], x])
    before_up = np.concatenate([[1.0 - mirrored + mirrored * upper[1]], upper])
    gaps = np.diff(before_x)
    # Slopes of the chords that end at a node from the left, and of those that begin at it to the right; g decreases.
    from_left = np.minimum((lower - before_up[:-1]) / gaps, 0.0)
    from_right = np.minimum((upper[1:] - lower[:-1]) / gaps[1:], 0.0)
    from_right = np.append(from_right, 0.0)
    # On [x_i, x_i+1]: the line through node i with the slope from its left, and through node i+1 from its right.
    a, b, width = lower[:-1], lower[1:], np.diff(x)
    falling, rising = from_left[:-1], from_right[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = (b - rising * width - a) / (falling - rising)
    inside = np.isfinite(crossing) & (crossing > 0.0) & (crossing < width)
    shift = np.where(inside, crossing, 0.0)
    at_crossing = np.maximum(a + falling * shift, b - rising * (width - shift))
    at_left = np.maximum(a, b - rising * width)
    at_right = np.maximum(b, a + falling * width)
    slack = _ROUNDING * (1.0 + (np.abs(falling) + np.abs(rising)) * x[1:])
    last = _beyond(float(x[-1]), float(lower[-1]), float(from_left[-1]))
    points = np.concatenate([x[:-1], x[1:], x[:-1] + shift, last[0]])
    values = np.concatenate([at_left - slack, at_right - slack, at_crossing - slack, last[1]])
    return points, values


def _beyond(x: float, value: float, slope: float) -> tuple[Array, Array]:
    """Return the last node, and where the last chord's extension reaches 0."""
    if slope == 0.0:
        return np.array([x]), np.array([value])
    # If it is nearly flat, a steeper line to a far point is valid, too, and keeps the numbers finite.
    return np.array([x, min(x - value / slope, 1e300)]), np.array([value, 0.0])
