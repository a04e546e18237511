"""This module bounds the tails of the logarithm of a sum of equal log-normal variables, and finds the ends of its
range.

Y_1, ..., Y_n are independent, Y_i = e^(mu Z_i - mu^2 / 2) with Z_i normal, and S is their sum, of mean n. Bounds are
Chernoff's: of integer moments of S, whose generating series has positive terms; of exponential moments, where those
from above leave out variables too large to occur; and of the geometric mean, which is at most S/n.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: log of the smallest mass for which the exponential moments of the lower tail are used.
_LOG_LEAST = -170.0
#: The orders of the integer moments that are tried for the tails.
_ORDERS = np.arange(65.0)
#: The number of cells of one variable in which exponential moments are bounded, and the tilts of these moments.
_CELLS, _TILTS = 1201, 2.0 ** np.linspace(-14.0, 1.0, 46)


def log_below(mu: float, count: int, logs: Array) -> Array:
    """Return the log of a bound of P(log(Y_1 + ... + Y_n) < l) at each l.

    The bound is the smaller of two. One is Chernoff's bound for the geometric mean, which is below the mean. The other
    is Chernoff's bound for the sum itself, with exponential moments.
    """
    means = logs - math.log(count)
    distance = np.maximum(-means / mu - 0.5 * mu, 0.0)
    geometric = -0.5 * count * distance * distance
    if count == 1:
        return geometric
    tilts, exponential = _exponential_moments(mu, count, _LOG_LEAST, upward=False)
    short = -np.expm1(np.minimum(means, 0.0))
    below: Array = np.minimum(geometric, (count * (exponential - np.multiply.outer(short, tilts))).min(axis=1))
    return np.minimum(below, 0.0)


def lower_end(mu: float, count: int, log_mass: float) -> float:
    """Return a number l such that P(log S < l) <= e^log_mass, where S is the sum."""
    low = high = math.log(count) - 0.5 * mu * mu - mu * math.sqrt(-2.0 * log_mass / count)
    if count > 1:
        tilts, exponential = _exponential_moments(mu, count, _LOG_LEAST, upward=False)
        short = float(((exponential - log_mass / count) / tilts).min())
        if short < 1.0:
            high = math.log(count) + math.log1p(-short)
    return max(low, high)


def upper_end(mu: float, count: int, log_mass: float) -> float:
    """Return a number l >= log n such that the part of E S/n where log S > l is at most e^log_mass.

    The bound is by integer moments or, if no variable is large, by exponential moments, since X is at most e^(X - 1).
    """
    if count == 1:
        return mu * math.sqrt(-2.0 * log_mass) + 0.5 * mu * mu
    moments = float(((_log_moments(mu, count)[2:] - math.log(count) - log_mass) / _ORDERS[1:-1]).min())
    tilts, exponential = _exponential_moments(mu, count, log_mass, upward=True)
    steep = tilts > 1.5 / count
    above = float(((exponential - (log_mass - 1.0) / count)[steep] / (tilts[steep] - 1.0 / count)).min(initial=1e300))
    return min(moments, math.log(count) + math.log1p(above)) + 1e-6


@lru_cache(maxsize=256)
def _exponential_moments(mu: float, count: int, log_mass: float, *, upward: bool) -> tuple[Array, Array]:
    """Return tilts x, and the logs of bounds of E e^(-x (Y - 1)); if ``upward``, of E e^(x (Y - 1)) without the largest
    Y.

    The part of E S/n in which such a variable occurs is at most e^(log_mass - 1): E Y of that variable, plus n - 1
    times its probability.
    """
    half_mass = log_mass - 1.0 - math.log(2.0)
    reach = -float(scipy.special.ndtri_exp(half_mass - math.log(count))) + 1e-6
    if upward:
        reach = max(reach, mu - float(scipy.special.ndtri_exp(half_mass)) + 1e-6)
    # The cubic term makes the cells smallest in the middle.
    z = np.linspace(-1.0, 1.0, _CELLS)
    z = reach * (0.25 * z + 0.75 * z**3)
    below = scipy.special.log_ndtr(z[: _CELLS // 2 + 1])
    half = below[1:] + np.log(-np.expm1(below[:-1] - below[1:]))
    if not upward:
        half[0] = below[1]
    log_masses = np.concatenate([half, half[::-1]])
    values = np.expm1(mu * z - 0.5 * mu * mu)
    tilts = math.sqrt(-2.0 * log_mass / (count * math.expm1(mu * mu))) * _TILTS
    if upward:
        exponents = np.multiply.outer(tilts, values[1:])
    else:
        values[0] = -1.0
        exponents = -np.multiply.outer(tilts, values[:-1])
    moments: Array = _log_of_sums(log_masses + exponents) + 1e-9
    return tilts, moments


def _log_moments(mu: float, count: int) -> Array:
    """Return log E (Y_1 + ... + Y_n)^p at each of `_ORDERS`, rounded up."""
    moments: Array = _log_series(mu, count) + scipy.special.gammaln(_ORDERS + 1.0) + 1e-9
    return moments


@lru_cache(maxsize=256)
def _log_series(mu: float, count: int) -> Array:
    """Return log E (Y_1 + ... + Y_n)^p / p!: a power of the series of one variable, whose terms are positive."""
    if count == 1:
        base: Array = 0.5 * mu * mu * _ORDERS * (_ORDERS - 1.0) - scipy.special.gammaln(_ORDERS + 1.0)
        return base
    left, right = _log_series(mu, count // 2), _log_series(mu, count - count // 2)
    gaps = np.subtract.outer(np.arange(_ORDERS.size), np.arange(_ORDERS.size))
    return _log_of_sums(np.where(gaps >= 0, left + right[np.maximum(gaps, 0)], -math.inf))


def _log_of_sums(logs: Array) -> Array:
    """Return log of the sum of the exponentials of each row."""
    largest = logs.max(axis=1)
    sums: Array = largest + np.log(np.exp(logs - largest[:, None]).sum(axis=1))
    return sums
