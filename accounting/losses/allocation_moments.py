"""This module computes the Renyi moments of one random allocation, rounded up: K(x) = log E_Q X^(x+1) (remove) and log
E_Q X^-x (add).

X = (Y_1 + ... + Y_t) / t with Y_i log-normal of mean 1 and E Y^k = e^(mu^2 k (k - 1) / 2).

* remove, at integer orders a = x + 1, exactly: E (Y_1 + ... + Y_t)^a = a! [u^a] (sum of E Y^k u^k / k!)^t, the
  multinomial theorem; powers of the series are computed in logarithms, and all terms are positive. At some small
  fractions the bound is found as in the other direction. Elsewhere K is below its chord.
* add: a mean is at least the geometric mean, so E X^-x <= (E Y^(-x/t))^t = e^(mu^2 (x + x^2/t) / 2). And v^-x is
  convex, so the law from above bounds it too, except at the ends: below that law's first point v_0, the tangent
  replaces v^-x, and the rest is at most (E X^-(px))^(1/p) P(X < v_0)^(1 - 1/p) for every p > 1 (Hoelder), where P(X <
  v_0) <= E (v - X)_+ / (v - v_0) for every v above.

Neither bound is above the unsampled step's mu^2 x (x + 1) / 2: divergences are jointly quasi-convex.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.losses.allocation_law import RatioAtoms, spread_law

Array = NDArray[np.float64]

#: The largest order that is computed. Beyond it, the bound is that of the unsampled step.
LARGEST_ORDER = 256
#: Allowances for rounding: one absolute, one relative to the largest logarithm in a sum.
_ALLOWANCE = 1e-12
_PER_LOGARITHM = 1e-14
_FRACTIONS = np.array([1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 5 / 4, 3 / 2, 7 / 4, 5 / 2, 7 / 2])
_POWERS = 1.0 + np.geomspace(1e-2, 1e3, 60)


def allocation_moment(noise_multiplier: float, bins: int, tilts: Array) -> Array:
    """Return K of the worse direction for every x > 0 in ``tilts``.

    Args:
        noise_multiplier: The noise multiplier s, from 0.05; mu = 1/s.
        bins: The number t of steps, at least 2.

    Guarantees: moment_is_an_upper_bound; remove_is_exact_at_integer_orders.
    """
    (places, moments), mu = _moments(noise_multiplier, bins), 1.0 / noise_multiplier
    unsampled = 0.5 * mu * mu * tilts * (tilts + 1.0) * (1.0 + 1e-14)
    chords = np.interp(tilts, places, moments, right=math.inf)
    bound: Array = np.minimum(chords * (1.0 + 1e-14), unsampled)
    return bound


def least_allocation_moment(noise_multiplier: float, bins: int, tilts: Array) -> Array:
    """Return lower bounds of K at each x. They follow from K in the remove direction at the largest integer below x,
    because K(x) / x does not fall.
    """
    whole = np.minimum(np.floor(tilts), LARGEST_ORDER - 1.0).astype(np.int64)
    least = _remove_ends(noise_multiplier, bins)[0][whole]
    moments: Array = least * (tilts / np.maximum(whole, 1)) * (1.0 - 1e-14)
    return moments


@lru_cache(maxsize=256)
def _moments(noise_multiplier: float, bins: int) -> tuple[Array, Array]:
    """Return tilts, beginning with 0, and K at each."""
    integers = np.arange(float(LARGEST_ORDER))
    exact = remove_moments(noise_multiplier, bins)
    between = remove_moments_between(noise_multiplier, bins, exact)
    removes = np.concatenate([exact, np.minimum(between, np.interp(_FRACTIONS, integers, exact))])
    tilts = np.concatenate([integers, _FRACTIONS])
    adds = add_moments(noise_multiplier, bins, tilts)
    adds = np.minimum(adds, np.interp(tilts, integers, adds[: integers.size]))
    order = np.argsort(tilts)
    return tilts[order], np.maximum(removes, adds)[order]


def remove_moments(noise_multiplier: float, bins: int) -> Array:
    """Return log E_Q X^(x+1) at x = 0, 1, ..., `LARGEST_ORDER` - 1."""
    return _remove_ends(noise_multiplier, bins)[1]


@lru_cache(maxsize=256)
def _remove_ends(noise_multiplier: float, bins: int) -> tuple[Array, Array]:
    """Return `remove_moments`, rounded down and rounded up."""
    orders, mu = np.arange(LARGEST_ORDER + 1.0), 1.0 / noise_multiplier
    base = 0.5 * mu * mu * orders * (orders - 1.0) - scipy.special.gammaln(orders + 1.0)
    power, remaining = None, bins
    while True:
        if remaining & 1:
            power = base if power is None else _product(power, base)
        remaining >>= 1
        if not remaining:
            break
        base = _product(base, base)
    assert power is not None
    logs = power + scipy.special.gammaln(orders + 1.0) - orders * math.log(bins)
    sizes = np.abs(power) + scipy.special.gammaln(orders + 1.0) + orders * math.log(bins)
    rounding = (1.0 + math.log2(bins)) * (_ALLOWANCE + _PER_LOGARITHM * sizes)
    least: Array = np.maximum(logs - rounding, 0.0)[1:]
    moments: Array = np.maximum(logs + rounding, 0.0)[1:]
    # Order 2 has a closed form that keeps its digits.
    second = math.log1p(math.expm1(min(mu * mu, 700.0)) / bins)
    least[0], least[1] = 0.0, second * (1.0 - 1e-14)
    moments[0], moments[1] = 0.0, second * (1.0 + 1e-14)
    return least, moments


def _product(left: Array, right: Array) -> Array:
    """Multiply two power series up to `LARGEST_ORDER`, with coefficients in logarithms."""
    index = np.arange(left.size)
    gaps = index[:, None] - index
    terms = np.where(gaps >= 0, left + right[np.maximum(gaps, 0)], -math.inf)
    product: Array = scipy.special.logsumexp(terms, axis=1)
    return product


def remove_moments_between(noise_multiplier: float, bins: int, exact: Array) -> Array:
    """Return upper bounds of log E_Q X^(x+1) at `_FRACTIONS`, from the moments at integers and the law that bounds X
    from above.
    """
    law = spread_law(noise_multiplier, bins)
    highest, orders = float(law.logs[-1]), _FRACTIONS + 1.0
    at_infinity = math.log(law.infinity) + np.log(orders) + _FRACTIONS * highest
    # Above the law's last point v, Hoelder's inequality with the integer orders from 6 on gives a bound, with P(X > v)
    # <= E (X - c)_+ / (v - c).
    integers = np.arange(6.0, 40.0)
    share = orders[:, None] / integers
    left_out = (share * exact[5:39] + (1.0 - share) * _log_above(law)).min(axis=1)
    return _with_ends(law.atoms.log_moment(_FRACTIONS), law, at_infinity, left_out)


def add_moments(noise_multiplier: float, bins: int, tilts: Array) -> Array:
    """Return the upper bounds of log E_Q X^-x at x in ``tilts``, the first of which is 0."""
    mu = 1.0 / noise_multiplier
    geometric = _geometric(mu, bins, tilts)
    law = spread_law(noise_multiplier, bins)
    lowest = float(law.logs[0])
    # The mass at 0 counts with the tangent's value there. ``left_out`` bounds the excess of the power over the tangent.
    at_zero = (
        math.log(law.zero) - tilts * lowest + np.log1p(tilts) if law.zero > 0.0 else np.full_like(tilts, -math.inf)
    )
    left_out = _geometric(mu, bins, tilts[:, None] * _POWERS) / _POWERS + (1.0 - 1.0 / _POWERS) * _log_below(law)
    left_out = left_out.min(axis=1)
    numeric = _with_ends(law.atoms.swapped.log_moment(tilts), law, at_zero, left_out)
    moments: Array = np.minimum(geometric, numeric)
    moments[0] = 0.0
    return moments


def _with_ends(moments: Array, law: RatioAtoms, *log_rests: Array) -> Array:
    """Return an upper bound of log(e^moments + e^log_rests), enlarged by the relative error of the law."""
    with np.errstate(over="ignore"):
        rests = sum(np.exp(rest) for rest in log_rests)
    bound: Array = moments * (1.0 + 2.0 * law.relative_error + 1e-11) + rests
    return bound


def _log_below(law: RatioAtoms) -> float:
    """Return a bound of log P(X < v_0), v_0 the first point of a law above X in convex order."""
    values = np.exp(law.logs)
    puts = values * (law.zero + np.cumsum(law.masses)) - np.cumsum(law.masses * values)
    gaps = values[1:] - values[0]
    return math.log(float(np.min(puts[1:] / gaps))) + 1e-6


def _log_above(law: RatioAtoms) -> float:
    """Return a bound of log P(X > v), v the last point of a law above X in convex order."""
    values = np.exp(law.logs - law.logs[-1])
    masses, terms = np.cumsum(law.masses[::-1])[::-1], np.cumsum((law.masses * values)[::-1])[::-1]
    calls = terms - values * masses + law.infinity * math.exp(-float(law.logs[-1]))
    return math.log(float(np.min(calls[:-1] / (1.0 - values[:-1])))) + 1e-6


def _geometric(mu: float, bins: int, tilts: Array) -> Array:
    bound: Array = 0.5 * mu * mu * (tilts + tilts * tilts / bins) * (1.0 + 1e-14)
    return bound
