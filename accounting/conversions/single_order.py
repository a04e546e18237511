"""This module converts the Renyi divergence of one order by the formulas of textbooks and libraries.

Each formula gives a bound at every order, so the smallest over all orders is a bound, too. Answers give the exact
conversion of `renyi_region` and show these formulas beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from accounting.conversions.rounding import as_probability, enlarged

#: The next number after 1: orders are larger than 1, and an order that a search finds may round to 1.
_LEAST_ORDER = math.nextafter(1.0, 2.0)


def mironov(order: float, divergence: float, delta: float) -> float:
    """Return epsilon at ``delta``: divergence + log(1 / delta) / (order - 1).

    Source: Mironov 2017, Proposition 3.

    >>> round(mironov(6.0, 3.0, 1e-5), 6)
    5.302585
    """
    return enlarged(divergence - math.log(delta) / (order - 1.0))


def canonne_kamath_steinke(order: float, divergence: float, delta: float) -> float:
    """Return epsilon at ``delta``: divergence + log(1 / (order delta)) / (order - 1) + log(1 - 1 / order), at least 0.

    Source: Canonne, Kamath & Steinke 2020, Proposition 12.

    >>> round(canonne_kamath_steinke(5.43184967, 0.5 * 5.43184967, 1e-5), 9)
    4.728386985
    """
    tilt = order - 1.0
    log_order, log_delta, share = math.log(order), math.log(delta), math.log(tilt / order)
    value = divergence - (log_order + log_delta) / tilt + share
    return max(0.0, enlarged(value, divergence + (log_order - log_delta) / tilt - share))


def preserved_probability(order: float, divergence: float, fpr: float) -> float:
    """Return the largest true positive rate at ``fpr``: (e^divergence fpr)^((order - 1) / order).

    Source: probability preservation, Mironov 2017, Proposition 10.

    >>> round(preserved_probability(2.0, 0.5, 0.01), 6)
    0.128403
    """
    if fpr == 0.0:
        return 0.0
    exponent = (divergence + math.log(fpr)) * (1.0 - 1.0 / order)
    return as_probability(math.exp(min(enlarged(exponent, divergence - math.log(fpr)), 0.0)))


def pinsker(divergence: float) -> float:
    """Return the largest advantage: sqrt(divergence / 2), for any order of at least 1.

    Source: Pinsker's inequality; divergences do not fall as the order grows.

    >>> pinsker(0.5)
    0.5000000000000009
    """
    return as_probability(enlarged(math.sqrt(0.5 * divergence)))


def smallest_over_orders(bound: Callable[[float], float], start: float, largest: float = 1e12) -> float:
    """Return the smallest of ``bound`` over orders between 1 and ``largest``, searched from the order ``start``.

    The bound is sound at every order, so the search need not be exact: it refines a grid around ``start``.
    """
    centre, width = math.log(start - 1.0), 3.0
    best = min(bound(start), bound(largest)) if largest < 1e12 else bound(start)
    for _ in range(12):
        points = [centre + width * (index - 8) / 8 for index in range(17)]
        values = [(bound(min(max(1.0 + math.exp(x), _LEAST_ORDER), largest)), x) for x in points]
        value, centre = min(values)
        best, width = min(best, value), 0.25 * width
    return best


class LogMoments:
    """An upper bound of K(a) = a times the divergence of order a + 1, from bounds of the divergence at some orders.

    K is convex and K(0) = 0, so between known orders it lies below the chords. The bound is the lower convex hull of
    the points.

    Source: van Erven & Harremoes 2014, Corollary 2 (convexity) and Theorem 3 (monotonicity in the order).
    """

    def __init__(self, orders: Sequence[float], epsilons: Sequence[float]) -> None:
        hull: list[tuple[float, float]] = [(0.0, 0.0)]
        for order, epsilon in zip(orders, epsilons, strict=True):
            point = (order - 1.0, (order - 1.0) * epsilon)
            while len(hull) > 1 and _above_chord(hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        self._hull = hull

    def divergence(self, order: float) -> float:
        """Return a bound of the divergence of ``order``, which is at most the largest known order."""
        tilt = order - 1.0
        for (a, low), (b, high) in pairwise(self._hull):
            if tilt <= b:
                share = (tilt - a) / (b - a)
                return enlarged(((1.0 - share) * low + share * high) / tilt, max(low, high) / tilt)
        raise ValueError("no bound is known at this order or above; the order must be at most the largest known one")

    def rho(self, omega: float) -> float:
        """Return a bound of the ratio of divergence to order for 1 < order <= ``omega``, by the largest ratio on
        each chord.
        """
        largest = 0.0
        for (a, low), (b, high) in pairwise(self._hull):
            if a >= omega - 1.0:
                break
            slope = (high - low) / (b - a)
            intercept = low - slope * a  # This is at most 0, because the hull is convex and begins at 0.
            if a == 0.0:
                largest = max(
                    largest, slope
                )  # On a chord through 0 the ratio is slope / (x + 1), which is largest near x = 0.
                continue
            # (c + m x) / (x (x + 1)) rises up to the root of m x^2 + 2 c x + c and falls beyond.
            root = (math.sqrt(max(intercept * (intercept - slope), 0.0)) - intercept) / slope if slope > 0.0 else a
            x = min(max(root, a), b, omega - 1.0)
            largest = max(largest, enlarged((intercept + slope * x) / (x * (x + 1.0)), high / (x * (x + 1.0))))
        return enlarged(largest)


def _above_chord(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    """Return whether the middle point lies on or above the chord, so that it bounds nothing."""
    return (middle[1] - first[1]) * (last[0] - first[0]) >= (last[1] - first[1]) * (middle[0] - first[0])
