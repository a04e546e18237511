"""This module proves bounds of P(Bin(n, q) >= k) and of its complement, for up to 1e13 trials.

A mass is e^-D(k) times Stirling's factors, with D(k) = k g(-b/k) + (n - k) g(b/(n - k)), b = k - nq and
g(x) = x - log(1 + x) >= 0, in which nothing cancels. The masses beyond the mean are added up one by one, or in blocks
if there are very many. They are log-concave, so within a block they lie above the geometric sequence between its ends,
and below the sequence that continues its first ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: The most blocks that are added up, and the standard deviations beyond which a geometric series bounds the rest.
_MOST_BLOCKS = 400_000
_REACH = 13.0
#: Summation ends at masses of at most this share of the first.
_LEAST = 5e-324
#: The relative rounding error of a sum. That of a mass is this number times 1 + D.
_ALLOWANCE = 2e-13
#: The factorials of numbers below this are computed exactly.
_SMALL = 16


@dataclass(frozen=True, slots=True)
class Tail:
    """Bounds of P(X >= k) and of P(X < k).

    Attributes:
        lower, upper: The bounds of the tail P(X >= k).
        rest_lower, rest_upper: The bounds of the rest P(X < k).
    """

    lower: float
    upper: float
    rest_lower: float
    rest_upper: float


@lru_cache(maxsize=4096)
def binomial_tail(trials: int, probability: float, least: int) -> Tail:
    """Bound P(Bin(trials, probability) >= least).

    Args:
        trials: 0 to 1e13.
        probability: In (0, 1].
        least: The number k, nonnegative.

    Returns:
        Bounds that are at most 1e-8 apart, relative to the tail if k is above the mean and to the rest otherwise. An
        upper bound is 0 only if the true probability is 0.

    Guarantees: ends_contain_the_tail_and_are_close.

    >>> tail = binomial_tail(2, 0.5, 1)
    >>> tail.lower <= 0.75 <= tail.upper, tail.upper - tail.lower < 1e-9
    (True, True)
    """
    if least == 0:
        return Tail(1.0, 1.0, 0.0, 0.0)
    if least > trials:
        return Tail(0.0, 0.0, 1.0, 1.0)
    if probability == 1.0:
        return Tail(1.0, 1.0, 0.0, 0.0)
    from_mean = Fraction(least) - trials * Fraction(probability)
    if from_mean >= 0:
        lower, upper = _beyond(trials, probability, least, float(from_mean), step=1)
        return Tail(lower, upper, *_complement(lower, upper))
    lower, upper = _beyond(trials, probability, least - 1, float(from_mean - 1), step=-1)
    return Tail(*_complement(lower, upper), lower, upper)


def binomial_mass(trials: int, probability: float, place: int) -> tuple[float, float]:
    """Bound P(Bin(trials, probability) = place) from both sides.

    Args:
        trials: 1 to 1e13.
        probability: In (0, 1).
        place: 0 to ``trials``.

    Returns:
        Ends within 1e-9 of each other, relatively, unless the mass is below 1e-300.

    Guarantees: a_single_mass_is_between_its_ends.

    >>> lower, upper = binomial_mass(2, 0.5, 1)
    >>> lower <= 0.5 <= upper, upper - lower < 1e-9
    (True, True)
    """
    from_mean = float(Fraction(place) - trials * Fraction(probability))
    logs, errors = _log_masses(trials, probability, np.array([float(place)]), np.array([from_mean]))
    mass, error = math.exp(float(logs[0])), math.expm1(float(errors[0]) + _ALLOWANCE)
    return max(0.0, mass * (1.0 - error)), max(mass * (1.0 + error), _LEAST)


def _complement(lower: float, upper: float) -> tuple[float, float]:
    """Return the ends of 1 less a number between two ends, rounded outward."""
    return max(0.0, math.nextafter(1.0 - upper, -1.0)), min(1.0, math.nextafter(1.0 - lower, 2.0))


def _beyond(n: int, q: float, start: int, from_mean: float, *, step: int) -> tuple[float, float]:
    """Bound the sum of the masses from ``start`` on, away from the mean, in the direction of ``step``."""
    last = n if step > 0 else 0
    deviation = math.sqrt(n * q * (1.0 - q))
    stride = max(1, int(_REACH * deviation / _MOST_BLOCKS))
    blocks = min(abs(last - start) // stride, int(_REACH * deviation / stride) + 80)
    places = start + step * stride * np.arange(blocks + 1, dtype=np.float64)
    logs, errors = _log_masses(n, q, places, from_mean + step * stride * np.arange(blocks + 1, dtype=np.float64))
    with np.errstate(under="ignore"):
        masses = np.exp(np.maximum(logs, -800.0))
    # The ratio of each place's mass to the one before falls away from the mean.
    odds = q / (1.0 - q)
    ratios = (n - places) / (places + 1.0) * odds if step > 0 else places / (n - places + 1.0) / odds
    low = high = masses[:-1]
    if stride > 1:
        low = masses[:-1] * _geometric(np.diff(logs) / stride, stride)
        high = masses[:-1] * _geometric(np.log(ratios[:-1]), stride)
    ratio = float(ratios[-1])
    rest = float(masses[-1]) * (1.0 / (1.0 - ratio) if ratio < 1.0 else abs(last - places[-1]) + 1.0)
    error = math.expm1(float(errors.max()) + _ALLOWANCE) if errors.size else 0.0
    # Ratios near 1 in a block have a rounding error of at most about 4e-16 times the length of the block.
    error += 4e-16 * stride
    lower = (float(low.sum()) + float(masses[-1])) * (1.0 - error)
    upper = (float(high.sum()) + rest) * (1.0 + error)
    return max(0.0, lower), min(1.0, max(upper, _LEAST))


def _geometric(log_ratios: Array, length: int) -> Array:
    """Return the geometric sum 1 + r + ... + r^(length - 1) for each r = e^log_ratio <= 1."""
    small = np.minimum(log_ratios, -1e-300)
    total: Array = np.expm1(length * small) / np.expm1(small)
    return total


def _log_masses(n: int, q: float, places: Array, from_mean: Array) -> tuple[Array, Array]:
    """Return the log of P(X = k) at each k of ``places``, and bounds of the errors of these logs.

    Args:
        from_mean: The difference k - nq.
    """
    inside = (places > 0.0) & (places < n)
    k = np.where(inside, places, 1.0)
    rest = np.where(inside, n - places, 1.0)
    b = np.where(inside, from_mean, 0.0)
    divergence = k * _excess(-b / k, n * q / k) + rest * _excess(b / rest, n * (1.0 - q) / rest)
    logs = _stirling(np.array([float(n)]))[0] - _stirling(k) - _stirling(rest) - divergence
    logs -= 0.5 * np.log(2.0 * math.pi * k * (rest / n))
    logs = np.where(places <= 0.0, n * math.log1p(-q), np.where(places >= n, n * math.log(q), logs))
    return logs, _ALLOWANCE * (1.0 + np.abs(divergence)) + 4e-16 * np.abs(np.where(inside, 0.0, logs))


def _excess(x: Array, one_more: Array) -> Array:
    """Return x - log(1 + x) for x > -1.

    Args:
        one_more: The number 1 + x, with the digits that x has lost near -1.
    """
    near = np.abs(x) < 0.1
    small = np.where(near, x, 0.0)
    series = np.zeros_like(small)
    for power in range(18, 1, -1):
        series = series * small + (1.0 if power % 2 == 0 else -1.0) / power
    far = np.where(near, 0.0, x)
    logs = np.where(far < -0.5, np.log(np.where(near, 1.0, one_more)), np.log1p(np.maximum(far, -0.5)))
    excess: Array = np.where(near, small * small * series, far - logs)
    return excess


def _stirling(k: Array) -> Array:
    """Return log k! less (k + 1/2) log k - k + log(2 pi)/2, within 2e-14, for k >= 1."""
    square = 1.0 / (k * k)
    series = (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))) / k
    whole = np.minimum(k, _SMALL)
    exact = np.array(_FACTORS)[whole.astype(np.int64)]
    factor: Array = np.where(k < _SMALL, exact, series)
    return factor


_FACTORS = (
    0.0,
    *(math.lgamma(k + 1.0) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2.0 * math.pi) for k in range(1, _SMALL + 1)),
)
