"""Exact Gaussian compositions, and Gaussian pairs as bounds of others.

Full-batch Gaussians alone: the closed form. Otherwise a lower bound: dropping steps is post-processing, so the
full-batch part of a list costs no more than the list; and a stated zCDP guarantee is attained by the Gaussian with
mu^2 = 2 rho, so the guarantee taken as stated costs at least that. Bounds of one mechanism's moments are not.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.composition.composition import Composition
from accounting.intervals import Bounds
from accounting.losses.gaussian import GaussianLoss, delta_at_threshold
from accounting.losses.mills import scaled_mills_difference
from accounting.losses.stated import ZcdpLoss

Array = NDArray[np.float64]
Number = TypeVar("Number", float, Array)

_ULP = 2.0**-52
#: Of an interval that are looked at together when it is narrowed.
_PLACES = 63
#: Relative allowance for mu, a sum of squares and a square root.
_MU_ALLOWANCE = 8.0 * _ULP


class AnalyticGaussian:
    """Guarantees: exact_for_full_batch (upper and lower within 1e-10 relative in delta); below_the_truth otherwise."""

    name = "analytic_gaussian"
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        mu = _gaussian_part(composition)
        if mu == 0.0:
            return None
        lower = _delta(mu * (1.0 - _MU_ALLOWANCE), epsilon, -1.0)
        if composition.gaussian_only is None:
            return Bounds(lower=lower)
        upper = _delta(mu * (1.0 + _MU_ALLOWANCE), epsilon, 1.0)
        return Bounds(lower, max(lower, upper), lower, {"rounding": max(0.0, upper - lower)})

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        mu = _gaussian_part(composition)
        if mu == 0.0:
            return None
        lower = epsilon_of_gaussian(mu * (1.0 - _MU_ALLOWANCE), delta, upward=False)
        if composition.gaussian_only is None:
            return Bounds(lower=lower)
        upper = epsilon_of_gaussian(mu * (1.0 + _MU_ALLOWANCE), delta, upward=True)
        return Bounds(lower, max(lower, upper), lower, {"rounding": max(0.0, upper - lower)})


def epsilon_of_gaussian(mu: float, delta: float, *, upward: bool) -> float:
    """Smallest eps >= 0 with delta_mu(eps) <= delta, rounded up or down.

    The unknown is a = eps/mu - mu/2, in which delta is well conditioned for every mu.

    Args:
        mu: positive.
        delta: in (0, 1).

    >>> round(epsilon_of_gaussian(1.0, 1e-5, upward=True), 9)
    4.377178096
    """
    sign = 1.0 if upward else -1.0

    def within(a: Array) -> NDArray[np.bool_]:
        met: NDArray[np.bool_] = scaled_mills_difference(a, mu) * (1.0 + sign * _relative_error(a)) <= delta
        return met

    low, high = -0.5 * mu, 1.0
    if within(np.array([low]))[0]:
        return 0.0
    while not within(np.array([high]))[0]:
        low, high = high, 2.0 * high
    # Many places at a time cost little more than one.
    while (between := _between(low, high)).size:
        first = int(np.argmax(np.append(within(between), True)))
        low, high = [low, *between.tolist(), high][first : first + 2]
    a = high if upward else low
    slack = 4.0 * _ULP * mu * (abs(a) + 0.5 * mu)
    return max(0.0, mu * (a + 0.5 * mu) + sign * slack)


def mu_of_gaussian(epsilon: float, delta: float) -> float:
    """The mu at which the Gaussian pair has this delta at ``epsilon``, about; it is never rounded outward.

    Args:
        epsilon: at least 0.
        delta: in (0, 1).

    >>> round(mu_of_gaussian(1.0, 0.126936737507), 9)
    1.0
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        found = float(scaled_mills_difference(np.array([epsilon / mu - 0.5 * mu]), mu)[0])
        return math.log(max(found, 1e-300)) - math.log(delta)

    low, high = -30.0, 8.0
    if excess(low) >= 0.0 or excess(high) <= 0.0:
        return math.exp(low if excess(low) >= 0.0 else high)
    return math.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-12))


def _between(low: float, high: float) -> Array:
    """Up to `_PLACES` numbers inside an interval, increasing; none where its ends are neighbours."""
    places = np.linspace(low, high, _PLACES + 2)
    if high - low < _PLACES * 8.0 * np.spacing(max(abs(low), abs(high))):
        places = np.unique(np.append(places, 0.5 * (low + high)))
    return places[(places > low) & (places < high)]


def _delta(mu: float, epsilon: float, sign: float) -> float:
    """delta_mu(eps), rounded up (sign 1) or down (sign -1)."""
    a = epsilon / mu - 0.5 * mu
    a -= sign * 2.0 * _ULP * (epsilon / mu + 0.5 * mu)
    value = delta_at_threshold(a, mu) * (1.0 + sign * _relative_error(a))
    if sign > 0.0:
        return min(1.0, max(value, 5e-324))
    return max(0.0, value)


def _relative_error(a: Number) -> Number:
    """Return the documented relative error of `delta_at_threshold`, 1e-14 (1 + a^2)."""
    return 1e-14 * (1.0 + a * a)


def _gaussian_part(composition: Composition) -> float:
    """mu of everything in the list that is, or is attained by, a full-batch Gaussian."""
    mu_squared = 0.0
    for loss, count in composition.steps:
        if isinstance(loss, GaussianLoss):
            mu_squared += count * loss.mu * loss.mu
        elif isinstance(loss, ZcdpLoss):
            mu_squared += 2.0 * count * loss.rho
    return math.sqrt(mu_squared)
