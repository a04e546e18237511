"""Euclidean projections onto the domains: the nearest point of the domain, which is public if the point is.

Sorting and cumulative sums give the l1 ball and the simplex exactly (Duchi, Shalev-Shwartz, Singer & Chandra 2008); an
l_p ball needs the multiplier of its constraint, which is found by Newton's method.
"""

from __future__ import annotations

import math

from calibrators.geometry import Box, Domain, L1Ball, L2Ball, LpBall, Simplex
from trainer.arrays import Array, Namespace

#: The most steps of an iteration, and the change of a logarithm that ends it.
_STEPS = 200
_ENOUGH = 1e-14


def project(domain: Domain | None, xp: Namespace, point: Array) -> Array:
    """Return the point of the domain that is nearest in l2, or the point itself if there is no domain.

    Args:
        point: The point, shape (d,), float64. If it is not finite, neither is the result.

    Guarantees:
        - projections_are_in_the_domain: up to rounding of 1e-12.
        - projections_are_nearest: <y - P(y), x - P(y)> <= 0 for every x of the domain, up to rounding.
        - points_of_the_domain_stay: up to rounding.

    >>> import numpy as np
    >>> project(L1Ball(1.0), np, np.array([1.5, -1.0])).tolist()
    [0.75, -0.25]
    """
    match domain:
        case None:
            return point
        case L2Ball():
            length = float(xp.sqrt(xp.sum(point * point)))
            return point if length <= domain.radius else point * (domain.radius / length)
        case L1Ball():
            sizes = xp.abs(point)
            return (
                point if float(xp.sum(sizes)) <= domain.radius else xp.sign(point) * _simplex(xp, sizes, domain.radius)
            )
        case Simplex():
            return _simplex(xp, point, domain.scale)
        case Box():
            return xp.clip(point, domain.lower, domain.upper)
        case LpBall():
            return _lp_ball(xp, point, domain.norm_order, domain.radius)


def _simplex(xp: Namespace, point: Array, scale: float) -> Array:
    """Return max(0, y - t), with t such that the entries sum to ``scale``."""
    descending = -xp.sort(-point)
    counts = xp.astype(xp.arange(1, point.shape[0] + 1), xp.float64)
    thresholds = (xp.cumulative_sum(descending) - scale) / counts
    kept = max(1, int(xp.sum(xp.astype(descending > thresholds, xp.int64))))
    return xp.maximum(point - thresholds[kept - 1], xp.zeros_like(point))


def _lp_ball(xp: Namespace, point: Array, p: float, radius: float) -> Array:
    """Return x with x_i + a x_i^(p - 1) = y_i (for y_i >= 0), with the multiplier a by which |x|_p is the radius.

    The computation is in units of the radius and in logarithms, so that points of any size work. It finds ln a by
    Newton's method, and by bisection if that would leave the interval known to hold it.
    """
    sizes = xp.abs(point) / radius
    largest = float(xp.max(sizes))
    if largest == 0.0 or not math.isfinite(largest):
        return point
    if math.log(largest) + math.log(float(xp.sum((sizes / largest) ** p))) / p <= 0.0:
        return point
    counts = sizes > 0.0
    logs = xp.log(xp.where(counts, sizes, xp.ones_like(sizes)))
    low, high, multiplier, found, excess = -math.inf, math.inf, 0.0, logs, 0.0
    for _ in range(_STEPS):
        found, shares = _stationary(xp, logs, p, multiplier, found)
        powers = xp.where(counts, p * found, xp.full_like(found, -math.inf))
        top = float(xp.max(powers))
        masses = xp.exp(powers - top)
        total = float(xp.sum(masses))
        excess = top + math.log(total)  # ln of the sum of x_i^p, which should be 0
        low, high = (multiplier, high) if excess > 0.0 else (low, multiplier)
        slope = -p * float(xp.sum(masses * shares / (1.0 - shares + (p - 1.0) * shares))) / total
        following = multiplier - excess / slope if slope < 0.0 else math.nan
        if not low < following < high:
            following = 0.5 * (low + high) if math.isfinite(low + high) else multiplier + math.copysign(8.0, excess)
        if abs(excess) <= _ENOUGH or following == multiplier:
            break
        multiplier = following
    scale = radius * math.exp(-excess / p)
    return xp.where(counts, xp.sign(point) * scale * xp.exp(found), xp.zeros_like(point))


def _stationary(xp: Namespace, logs: Array, p: float, multiplier: float, start: Array) -> tuple[Array, Array]:
    """Return ln x with x + e^multiplier x^(p - 1) = y, given ln y; and the share of the second term in the sum.

    The logarithm of the sum is convex and increases with ln x, so that Newton's method converges from any start.
    """
    found, shares = start, xp.zeros_like(start)
    for _ in range(_STEPS):
        second = multiplier + (p - 1.0) * found
        sums = xp.logaddexp(found, second)
        shares = xp.exp(second - sums)
        change = (sums - logs) / (1.0 - shares + (p - 1.0) * shares)
        found = found - change
        if float(xp.max(xp.abs(change))) <= _ENOUGH:
            break
    return found, shares
