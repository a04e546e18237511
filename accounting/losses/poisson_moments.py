"""This module computes the Renyi moments of the Poisson-subsampled Gaussian mechanism, rounded up.

s = noise multiplier, q = sampling probability, f(x) = 1 - q + q e^((2x-1)/(2 s^2)), x ~ N(0, s^2); the tilt x of a
moment is the Renyi order minus 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Every moment is enlarged by this relative amount. It exceeds the rounding of the sums below, whose terms are positive
#: and have logarithms of less than 2e5 in absolute value, each wrong by at most 4 ulp.
ALLOWANCE = 1e-9
#: The largest order of a binomial sum, and the most nodes of a quadrature. Beyond these limits the moment is reported
#: as inf, which is sound.
MAX_BINOMIAL_ORDER = 65_536
MAX_NODES = 200_000
#: The most terms of binomial sums that are added up at once.
MAX_TERMS = 1 << 17
#: Up to this number, moments at fractional tilts are integrated. Above it, the chord between neighbouring integers is
#: tight enough.
MAX_FRACTIONAL_TILT = 8.0

_SHARES = np.geomspace(1e-4, 0.98, 96)
_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def remove_moment(s: float, q: float, tilts: Array) -> Array:
    """Return log E_N(0,s^2) f^(x+1) for every tilt x > 0, rounded up; it bounds both directions.

    Guarantees:
        moment_is_an_upper_bound: exact up to `ALLOWANCE` at integer tilts and below `MAX_FRACTIONAL_TILT`, on the chord
            between neighbouring integers elsewhere: the moment is convex in the tilt.
        remove_dominates_add: the other direction's moment is not larger.

    Source: Mironov, Talwar & Zhang 2019, "Renyi Differential Privacy of the Sampled Gaussian Mechanism", Theorem 5
    (direction) and section 3.3, equation (6) (binomial sum).
    """
    below = np.floor(tilts)
    tried = tilts + 1.0 <= MAX_BINOMIAL_ORDER
    integers = np.unique(np.concatenate([below[tried], below[tried & (tilts > below)] + 1.0])).astype(np.int64)
    known = dict(zip(integers.tolist(), _binomial_moments(s, q, tuple(integers.tolist())), strict=True))
    moments = np.full(tilts.shape, math.inf)
    for index, tilt in np.ndenumerate(tilts):
        if not tried[index]:
            continue
        chord = _chord(known, float(tilt))
        fractional = tilt < MAX_FRACTIONAL_TILT and tilt != math.floor(tilt)
        moments[index] = min(chord, _integrated_ends(s, q, float(tilt))[1]) if fractional else chord
    return moments


def least_remove_moment(s: float, q: float, tilts: Array) -> Array:
    """Return lower bounds of log E f^(x+1), for every tilt x > 0.

    At integers this is the binomial sum, within `ALLOWANCE` on either side. K is convex and K(0) = 0, so K(x) / x does
    not fall: beyond an integer n, K(x) >= x K(n) / n. Between integers it is the integral, if `remove_moment`
    integrates there.
    """
    below = np.minimum(np.floor(tilts), MAX_BINOMIAL_ORDER - 1.0)
    integers = np.unique(below[below > 0.0]).astype(np.int64)
    known = dict(zip(integers.tolist(), _binomial_moments(s, q, tuple(integers.tolist())), strict=True))
    moments = np.zeros(tilts.shape)
    for index, tilt in np.ndenumerate(tilts):
        whole = int(below[index])
        if whole:
            moments[index] = known[whole] * (1.0 - 2.1 * ALLOWANCE) * (float(tilt) / whole) * (1.0 - 1e-15)
        if tilt < MAX_FRACTIONAL_TILT and tilt != whole:
            moments[index] = max(float(moments[index]), _integrated_ends(s, q, float(tilt))[0])
    return moments


def _chord(known: Mapping[int, float], tilt: float) -> float:
    below = math.floor(tilt)
    share = tilt - below
    if share == 0.0:
        return known[below]
    return (known[below] * (1.0 - share) + known[below + 1] * share) * (1.0 + 4e-16)


@lru_cache(maxsize=4096)
def _binomial_moments(s: float, q: float, tilts: tuple[int, ...]) -> tuple[float, ...]:
    """Return log sum_k C(a, k) (1-q)^(a-k) q^k e^(k(k-1)/(2 s^2)), a = tilt + 1, for every tilt, increasing.

    The binomial weights add up to 1, and the exponential is 1 for k = 0 and 1. So the sum less 1 is a sum over k >= 2
    in which the exponential is replaced by the exponential less 1. Its terms are positive, so no digit is lost if the
    moment is tiny.
    """
    positive = tilts[1:] if tilts[:1] == (0,) else tilts
    moments: list[float] = [0.0] * (len(tilts) - len(positive))
    if not positive:
        return tuple(moments)
    largest = np.arange(positive[-1] + 2, dtype=np.float64)
    log_gain = np.full(largest.size, -math.inf)
    log_gain[2:] = _log_expm1(largest[2:] * (largest[2:] - 1.0) / (2.0 * s * s)) + largest[2:] * math.log(q)
    for group in _groups(positive):
        k, rest, log_choose, starts = _binomials(group)
        terms = log_choose + rest * math.log1p(-q) + log_gain[k]
        peaks = np.maximum.reduceat(terms, starts)
        sizes = np.diff(np.append(starts, terms.size))
        sums = np.add.reduceat(np.exp(terms - np.repeat(peaks, sizes)), starts)
        log_sums = peaks + np.log(sums)
        moments += (np.logaddexp(0.0, log_sums) * (1.0 + ALLOWANCE)).tolist()
    return tuple(moments)


def _groups(tilts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the tilts in groups whose sums have at most `MAX_TERMS` terms together, or of one tilt each."""
    start, terms = 0, 0
    for end, tilt in enumerate(tilts):
        terms += tilt
        if terms > MAX_TERMS and end > start:
            yield tilts[start:end]
            start, terms = end, tilt
    yield tilts[start:]


@lru_cache(maxsize=16)
def _binomials(tilts: tuple[int, ...]) -> tuple[NDArray[np.int64], Array, Array, NDArray[np.int64]]:
    """Return k, a - k and log C(a, k) for every term of every tilt's sum, in one array each, and the index at which
    each sum starts.
    """
    k = np.concatenate([np.arange(2, tilt + 2) for tilt in tilts])
    order = np.repeat(np.array(tilts) + 1.0, tilts)
    log_choose = (
        scipy.special.gammaln(order + 1.0) - scipy.special.gammaln(k + 1.0) - scipy.special.gammaln(order - k + 1.0)
    )
    starts = np.concatenate([[0], np.cumsum(tilts)[:-1]]).astype(np.int64)
    return k, order - k, log_choose, starts


@lru_cache(maxsize=4096)
def _integrated_ends(s: float, q: float, tilt: float) -> tuple[float, float]:
    """Return both ends of the moment at any tilt, from 1 + E [f^p - 1 - p (f - 1)], p = tilt + 1. The bracket is convex
    in f, hence positive.

    The trapezoid rule's error is bounded as in `_replace_ends`; |f(u+iy)| <= f(u) makes the L1 norm on the line
    Im x = y at most e^(y^2/(2 s^2)) (M + 1 + 2p). The bracket is at most f^p on the right, where the logarithm of the
    integrand falls like (p - x)/s^2 beyond x = p, and at most p q on the left. From below, no tail is added: every term
    of the sum is positive, so the sum without its tails is at most the integral plus the rule's error.
    """
    p = tilt + 1.0
    y = min(s, 1.5 * s * s)
    accuracy = 60.0 + 2.0 * math.log1p(s) - 2.0 * math.log(q)
    spacing = 2.0 * math.pi * y / accuracy
    if (p + 28.0 * s) / spacing > MAX_NODES:
        return 0.0, math.inf
    x = spacing * np.arange(math.floor(-14.0 * s / spacing), math.ceil((p + 14.0 * s) / spacing) + 1, dtype=np.float64)
    log_f = _log_f(x, s, q)
    log_density = -0.5 * (x / s) ** 2 - _LOG_SQRT_TWO_PI - math.log(s)
    log_terms = log_density + _log_convex_excess(log_f, p)
    width = s * math.sqrt(math.pi / 2.0) * float(scipy.special.erfcx(14.0 / math.sqrt(2.0))) + spacing
    right = float(log_density[-1] + p * log_f[-1]) + math.log(width)
    left = math.log(p * width) + math.log(q) + float(log_density[0])
    log_sum = float(scipy.special.logsumexp(log_terms)) + math.log(spacing)
    moment = _log_plus_one(float(scipy.special.logsumexp([log_sum, right, left])))
    log_error = 0.5 * (y / s) ** 2 + math.log(2.0 * (math.exp(-moment) * (1.0 + 2.0 * p) + 1.0)) + moment - accuracy
    return _least(log_sum, log_error), _plus_log(moment, log_error) * (1.0 + ALLOWANCE)


def _log_convex_excess(log_f: Array, p: float) -> Array:
    """Return log [ f^p - 1 - p (f - 1) ] for p > 1; -inf at f = 1."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        y = np.expm1(log_f)
        direct = np.log(np.expm1(p * log_f) - p * y)
        tail = 1.0 + (p - 4.0) / 5.0 * y * (1.0 + (p - 5.0) / 6.0 * y)
        series = 1.0 + (p - 2.0) / 3.0 * y * (1.0 + (p - 3.0) / 4.0 * y * tail)
        near = np.log(0.5 * p * (p - 1.0) * y * y * series)
        far = p * log_f + np.log1p(-p * np.exp((1.0 - p) * log_f) + (p - 1.0) * np.exp(-p * log_f))
    result = np.where(np.abs(y) < 1e-3, near, direct)
    return np.where((log_f * p > 300.0) & (log_f * (p - 1.0) > 3.0), far, result)


def replace_moment(s: float, q: float, tilts: Array) -> Array:
    """Return log E f(x)^(c+1) f(-x)^(-c) for every tilt c > 0, rounded up. This is the moment of the replace_one pair
    in either direction.

    Guarantees: moment_is_an_upper_bound.

    Source: the pair of `poisson`; quadrature as in `_replace_ends`.
    """
    return np.array([_replace_ends(s, q, float(tilt))[1] for tilt in tilts.ravel()]).reshape(tilts.shape)


def least_replace_moment(s: float, q: float, tilts: Array) -> Array:
    """Return lower bounds of the moments of `replace_moment`: the integrals without their tails, less the rule's
    errors.
    """
    return np.array([_replace_ends(s, q, float(tilt))[0] for tilt in tilts.ravel()]).reshape(tilts.shape)


@lru_cache(maxsize=4096)
def _replace_ends(s: float, q: float, c: float) -> tuple[float, float]:
    """Return both ends of the moment: less 1, it is 4 int_0^inf phi_s(x) m(x) sinh((c+1) D/2) sinh(c D/2) dx.

    Here m^2 = f(x) f(-x) and D = log f(x) - log f(-x). The formula follows by adding the integrand's mirror image and
    using E f = 1. The integrand is positive, even and analytic for |Im x| < pi s^2. So the trapezoid rule of spacing h
    errs by at most 2 N(y) / (e^(2 pi y/h) - 1), where N(y) is the L1 norm on the line Im x = y.

    On this line f(u) cos(y/(2 s^2)) <= |f(u+iy)| <= f(u). So N(y) <= e^(y^2/(2 s^2)) [cos(y/(2 s^2))^(-c) M + 1], where
    M is the moment. Both tails of the sum are added in closed form: for x >= 2c+1 the logarithm of the integrand falls
    at least like (2c+1-x)/s^2.
    """
    y, growth = _best_line(s, c, 60.0 + 2.0 * math.log1p(s) - 2.0 * math.log(q))
    accuracy = 60.0 + 2.0 * math.log1p(s) - 2.0 * math.log(q) + growth
    spacing = 2.0 * math.pi * y / accuracy
    end = 2.0 * c + 1.0 + 14.0 * s
    if end / spacing > MAX_NODES:
        return 0.0, math.inf
    x = spacing * np.arange(1, math.ceil(end / spacing) + 1, dtype=np.float64)
    log_right, log_left = _log_f(x, s, q), _log_f(-x, s, q)
    gap = _log_ratio(x, s, q, log_right - log_left)
    log_terms = 0.5 * (log_right + log_left) + _log_sinh(0.5 * (c + 1.0) * gap) + _log_sinh(0.5 * c * gap)
    log_terms += math.log(4.0) - 0.5 * (x / s) ** 2 - _LOG_SQRT_TWO_PI - math.log(s)
    tail = float(log_terms[-1]) + math.log(
        s * math.sqrt(math.pi / 2.0) * float(scipy.special.erfcx(14.0 / math.sqrt(2.0))) + spacing
    )
    log_sum = float(scipy.special.logsumexp(log_terms)) + math.log(spacing)
    moment = _log_plus_one(float(np.logaddexp(log_sum, tail)))
    log_error = growth + moment + math.log(4.0) - accuracy
    return _least(log_sum, log_error), _plus_log(moment, log_error) * (1.0 + ALLOWANCE)


def _best_line(s: float, c: float, accuracy: float) -> tuple[float, float]:
    """Return the y that allows the widest spacing, 2 pi y / (accuracy + growth), and the log-growth of N(y) on the
    line Im x = y.
    """
    half_angles = 0.5 * math.pi * _SHARES
    y = 2.0 * s * s * half_angles
    growth = 0.5 * (y / s) ** 2 - c * np.log(np.cos(half_angles))
    best = int(np.argmax(y / (accuracy + growth)))
    return float(y[best]), float(growth[best])


def _log_plus_one(log_excess: float) -> float:
    """Return an upper bound of log(1 + e^log_excess). If it is tiny, the bound is e^log_excess."""
    return float(np.logaddexp(0.0, log_excess)) if log_excess > -30.0 else math.exp(log_excess)


def _least(log_excess: float, log_error: float) -> float:
    """Return a lower bound of log(1 + e^log_excess - e^log_error), and its rounding; 0 if there is no better one.

    -log(1 - u) <= 2 u for u up to 1/2, with u = e^log_error / (1 + e^log_excess).
    """
    moment = _log_plus_one(log_excess)
    relative = math.exp(min(log_error - moment, 0.0))
    if relative > 0.5:
        return 0.0
    # For a tiny excess x, log(1 + x) is at least x (1 - x), and the allowance is more than x.
    return max(0.0, moment * (1.0 - ALLOWANCE) - 2.0 * relative)


def _plus_log(moment: float, log_error: float) -> float:
    """Return an upper bound of log(e^moment + e^log_error)."""
    return moment + math.exp(min(log_error - moment, 700.0))


def _log_f(x: Array, s: float, q: float) -> Array:
    a = (2.0 * x - 1.0) / (2.0 * s * s)
    change = q * np.expm1(np.minimum(a, -math.log(q)))
    # If the change is near -1, log1p would lose the digits of 1 - q, which is then nearly all of f.
    rest = np.log((1.0 - q) + q * np.exp(np.minimum(a, 0.0)))
    small = np.where(change > -0.5, np.log1p(np.maximum(change, -0.5)), rest)
    large = math.log(q) + a + np.log1p((1.0 - q) / q * np.exp(-np.maximum(a, 0.0)))
    return np.where(math.log(q) + a < 0.0, small, large)


def _log_ratio(x: Array, s: float, q: float, difference: Array) -> Array:
    """Return log f(x) - log f(-x). Where the logarithms would cancel, it is computed from f(x) - f(-x)."""
    inside = np.minimum(x / s**2, 20.0)
    excess = 2.0 * q * math.exp(-0.5 / s**2) * np.sinh(inside)
    small = np.log1p(excess / (1.0 - q + q * np.exp(-inside - 0.5 / s**2)))
    return np.where(x / s**2 < 20.0, small, difference)


def _log_expm1(y: Array) -> Array:
    """Return log(e^y - 1) for y > 0."""
    with np.errstate(over="ignore"):
        small = np.log(np.expm1(np.minimum(y, 40.0)))
    return np.where(y > 40.0, y + np.log1p(-np.exp(-np.maximum(y, 40.0))), small)


def _log_sinh(y: Array) -> Array:
    """Return log sinh(y) for y >= 0; -inf at 0."""
    with np.errstate(divide="ignore"):
        log_sinh: Array = y - math.log(2.0) + np.log(-np.expm1(-2.0 * y))
    return log_sinh
