"""This module has the code that pairs share whose log-moments are integrals over likelihood ratios."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.losses.ratio_quadrature import RatioLaw, SymmetrizedExcess, log_integral

Array = NDArray[np.float64]

#: Every moment is enlarged by this relative amount, which is more than the rounding of the sums.
ALLOWANCE = 1e-9
#: Below the first tilt a moment is bounded by its chord from 0; beyond the second it is reported as inf, which is
#: sound.
MIN_TILT, MAX_TILT = 1e-3, 1e5
#: The smallest probability and tilt for which `log_integral` is guaranteed to be close.
_CLOSE_FROM_TILT, _CLOSE_FROM_PROBABILITY = 0.01, 1e-12


def moments_at(tilts: Array, moment: Callable[[float], float]) -> Array:
    """Return ``moment`` at every tilt from `MIN_TILT` to `MAX_TILT`; below, the chord from 0 (K is convex and K(0) =
    0); above, inf.
    """
    moments = np.full(tilts.shape, math.inf)
    for index, tilt in np.ndenumerate(tilts):
        if tilt < MIN_TILT:
            moments[index] = moment(MIN_TILT) * (float(tilt) / MIN_TILT) * (1.0 + 1e-15)
        elif tilt <= MAX_TILT:
            moments[index] = moment(float(tilt))
    return moments


def least_moments_at(tilts: Array, moments: Array, probability: float) -> Array:
    """Return lower bounds of the moments that `upper_moment` bounds from above, from the same `log_integral`.

    For probabilities of at least 1e-12 and tilts of at least 0.01, the moments are lowered by a relative 4e-9. This
    covers three amounts of 1e-9: the error of `log_integral`, the rounding of its summation, and the allowance that was
    added. Elsewhere the lower bound is 0.
    """
    is_known = (tilts >= _CLOSE_FROM_TILT) & (tilts <= MAX_TILT) & (probability >= _CLOSE_FROM_PROBABILITY)
    is_known &= np.isfinite(moments)
    least: Array = np.where(is_known, moments, 0.0) * (1.0 - 4.0 * ALLOWANCE)
    return least


def upper_moment(log_excess: float) -> float:
    """Return log(1 + e^log_excess), rounded up; a moment below every float is reported as the smallest normal one."""
    moment = float(np.logaddexp(0.0, log_excess)) if log_excess > -30.0 else math.exp(log_excess)
    return max(moment * (1.0 + ALLOWANCE), 2.3e-308)


@lru_cache(maxsize=4096)
def symmetrized_gaussian_moment(s: float, q: float, tilt: float) -> float:
    """Return log M(tilt) with M(z) = 1 + E[(f^(z+1) + f^-z - f - 1) 1{x >= 1/2}] and x ~ N(0, s^2).

    f is the sampled likelihood ratio with sampling probability q; s is the noise over the sensitivity.
    """
    return upper_moment(log_integral(RatioLaw.gaussian_above_zero(s), math.log(q), SymmetrizedExcess(tilt)))


@lru_cache(maxsize=4096)
def symmetrized_laplace_moment(lam: float, q: float, tilt: float) -> float:
    """Bound the moment for Laplace noise of scale 1/lam, as `symmetrized_gaussian_moment` does for Gaussian noise."""
    return upper_moment(log_integral(RatioLaw.laplace(lam, above_zero=True), math.log(q), SymmetrizedExcess(tilt)))
