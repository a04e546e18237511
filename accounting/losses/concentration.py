"""This module finds the smallest rho of a mechanism's zCDP from its moments: sup over x > 0 of K(x) / (x (x + 1)),
rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.losses.privacy_loss import PrivacyLoss

Array = NDArray[np.float64]

_SMALLEST_TILT = 1e-9
_RATIO = 1.25
_PARTS = 8
_ROUNDS = 7
_WIDTH = 1e-6


def rho_of(loss: PrivacyLoss) -> float:
    """Return the smallest rho of the zCDP that the moments of a loss imply, rounded up."""
    return _rho_of(loss)[1]


def least_rho_of(loss: PrivacyLoss) -> float:
    """Return the smallest rho of `rho_of`, rounded down. The loss must say how far its moments are rounded up.

    K at any one tilt bounds rho from below. The true K is at least the computed K less the relative amount
    `PrivacyLoss.moments_within`.
    """
    assert loss.moments_within is not None, "a lower bound of rho needs moments of known accuracy"
    return _rho_of(loss)[0] * (1.0 - loss.moments_within)


@lru_cache(maxsize=256)
def _rho_of(loss: PrivacyLoss) -> tuple[float, float]:
    return smallest_rho(loss.log_moment, loss.pure_epsilon)


def smallest_rho(log_moment: Callable[[Array], Array], pure_epsilon: float) -> tuple[float, float]:
    """Return bounds of the smallest rho with K(x) <= rho x (x + 1) for every x > 0, about 1e-6 apart relatively.

    The lower bound is attained at some tilt.

    K is convex with K(0) = 0, so K is below its chords. The ratio of a chord to x (x + 1) has one maximum. Below the
    first tilt a the ratio is at most K(a) / a. Beyond the last tilt it is at most epsilon / (x + 1). Cells whose bound
    is above the attained value are cut into smaller cells.

    Args:
        log_moment: K at positive tilts, rounded up, relatively accurate.
        pure_epsilon: The largest loss, finite.
    """
    if pure_epsilon == 0.0:
        return 0.0, 0.0
    # Beyond the last tilt the bound by the largest loss suffices, since rho is at least K(1) / 2.
    last = 2.0 + 4.0 * pure_epsilon / float(log_moment(np.ones(1))[0])
    steps = math.ceil(math.log(last / _SMALLEST_TILT) / math.log(_RATIO))
    edges = np.geomspace(_SMALLEST_TILT, last, steps + 1)
    moments = log_moment(edges)
    known, attained = max(float(moments[0] / edges[0]), pure_epsilon / (last + 1.0)), 0.0
    left, right, low, high = edges[:-1], edges[1:], moments[:-1], moments[1:]
    for _ in range(_ROUNDS):
        ends = np.append(high / (right * (right + 1.0)), low / (left * (left + 1.0)))
        attained = max(attained, float(np.max(ends)))
        bounds = _largest_on_chords(left, right, low, high)
        open_cells = bounds > max(known, attained) * (1.0 + _WIDTH)
        known = max(known, attained, float(np.max(bounds[~open_cells], initial=0.0)))
        left, right, low, high = (part[open_cells] for part in (left, right, low, high))
        if left.size == 0:
            return attained, known
        shares = np.arange(_PARTS + 1) / _PARTS
        points = left[:, None] + (right - left)[:, None] * shares
        inner = log_moment(points.reshape(-1)).reshape(points.shape)
        left, right = points[:, :-1].reshape(-1), points[:, 1:].reshape(-1)
        low, high = inner[:, :-1].reshape(-1), inner[:, 1:].reshape(-1)
    return attained, max(known, float(np.max(_largest_on_chords(left, right, low, high))))


def _largest_on_chords(left: Array, right: Array, low: Array, high: Array) -> Array:
    """Return the largest value of the chord from (left, low) to (right, high) over x (x + 1), on each cell."""
    slope = (high - low) / (right - left)
    # The chord is slope x - drop. K is convex with K(0) = 0, so drop >= 0 up to rounding.
    drop = np.maximum(slope * left - low, 0.0)
    best = np.clip((drop + np.sqrt(drop * (drop + slope))) / slope, left, right)
    ends = np.maximum(low / (left * (left + 1.0)), high / (right * (right + 1.0)))
    chord = low + slope * (best - left)
    return np.maximum(ends, chord / (best * (best + 1.0)))
