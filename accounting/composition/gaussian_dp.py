"""This module composes Gaussian steps exactly, and bounds other lists by Gaussian pairs.

Lists of full-batch Gaussians alone have a closed form. Other lists get a lower bound: dropping steps is
post-processing, so the full-batch part of a list costs no more than the list; and a stated zCDP guarantee is attained
by the Gaussian with mu^2 = 2 rho, so the guarantee taken as stated costs at least that. Bounds of one mechanism's
moments are not attained in this way.

With a = eps / mu - mu / 2 the profile is delta = phi(a) (m(a) - m(a + mu)), m the Mills ratio. It falls in a, is at
most Phi(-a), and has relative accuracy for a <= 40.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from accounting.composition.composition import Composition
from accounting.intervals import Bounds
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.mills import mills_difference
from accounting.losses.stated import ZcdpLoss

_ULP = 2.0**-52
#: A relative allowance for the rounding of mu, which is the root of a sum of squares.
_MU_ALLOWANCE = 8.0 * _ULP
#: Relative error of the profile over 1 + a^2: that of `mills_difference`, and of e^(a^2 / 2) at a rounded a.
_ERROR = 7e-15
#: For a below this number the profile is at least 1 - 1e-18, hence above every delta below 1.
_SMALLEST = -9.0
#: For a above this number the profile is below the smallest positive number.
_LARGEST = 40.0
#: For upper bounds, a smaller mu is replaced by this one, because its profile has no relative accuracy.
_SMALLEST_MU = 1e-250
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_LOG_SQRT_TWO_PI = math.log(_SQRT_TWO_PI)
#: A step of Halley's iteration below this size leaves an error below the rounding of the profile.
_SMALL_STEP = 1e-5
_MOST_STEPS = 60
#: A bound is bisected if the error of the profile moves it by more than this relative amount.
_COARSE = 1e-6
_NORMAL = NormalDist()


class AnalyticGaussian:
    """The evaluator for full-batch Gaussians.

    Guarantees: exact_for_full_batch (upper and lower within 1e-10 relative in delta); below_the_truth otherwise.
    """

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
        near = _root(mu, delta)
        lower = _certified(mu * (1.0 - _MU_ALLOWANCE), delta, near, -1.0)
        if composition.gaussian_only is None:
            return Bounds(lower=lower)
        upper = _certified(mu * (1.0 + _MU_ALLOWANCE), delta, near, 1.0)
        return Bounds(lower, max(lower, upper), lower, {"rounding": max(0.0, upper - lower)})


def epsilon_of_gaussian(mu: float, delta: float, *, upward: bool) -> float:
    """Return the smallest eps >= 0 at which the Gaussian pair with ``mu`` has at most ``delta``, rounded up or down.

    Args:
        mu: positive.
        delta: in (0, 1).

    Guarantees: gaussian_epsilon_is_enclosed.

    >>> round(epsilon_of_gaussian(1.0, 1e-5, upward=True), 9)
    4.377178096
    """
    return _certified(mu, delta, _root(mu, delta), 1.0 if upward else -1.0)


def delta_of_gaussian(mu: float, epsilon: float, *, upward: bool) -> float:
    """Return delta at ``epsilon`` of the Gaussian pair with ``mu``, rounded up or down.

    Args:
        mu, epsilon: at least 0.

    Guarantees: gaussian_delta_is_enclosed.

    >>> round(delta_of_gaussian(1.0, 1.0, upward=True), 9)
    0.126936738
    """
    return _delta(mu, epsilon, 1.0 if upward else -1.0)


def mu_of_gaussian(epsilon: float, delta: float) -> float:
    """Return approximately the mu at which the Gaussian pair has this delta at ``epsilon``; it is not rounded outward.

    Args:
        epsilon: at least 0.
        delta: in (0, 1).

    >>> round(mu_of_gaussian(1.0, 0.126936737507), 9)
    1.0
    """

    beyond = -_NORMAL.inv_cdf(delta)
    root = math.sqrt(beyond * beyond + 2.0 * epsilon)
    # Start with a mu that is too small, from two bounds: the profile is at most Phi(-a) and at most mu phi(0).
    mu = max(_SQRT_TWO_PI * delta, 2.0 * epsilon / (beyond + root) if beyond > 0.0 else root - beyond)
    log_delta = math.log(delta) + _LOG_SQRT_TWO_PI
    for _ in range(_MOST_STEPS):
        # Newton's iteration solves for log mu. The slope of the profile's logarithm in log mu is mu / (m(a) - m(a +
        # mu)).
        centre = epsilon / mu
        a = centre - 0.5 * mu
        if not _SMALLEST <= a <= _LARGEST:
            break
        difference = mills_difference(centre, mu)[0]
        step = (log_delta + 0.5 * a * a - math.log(difference)) * difference / mu
        mu *= math.exp(min(step, 1.0))
        if abs(step) < _SMALL_STEP * _SMALL_STEP:
            break
    return mu


def _root(mu: float, delta: float) -> tuple[float, float]:
    """Return approximately the a at which the profile is delta, and the absolute slope of the profile's logarithm
    there.

    The method is Halley's iteration for the logarithm of the profile, inside a bracket that is halved where a step
    leaves it. The slope is mu m(a + mu) / (m(a) - m(a + mu)); with m' = x m - 1 it gives the second derivative.

    Returns:
        Both numbers. If the profile is above delta nowhere, a is -mu / 2, where epsilon is 0.
    """
    half = 0.5 * mu
    low, high = max(0.0, half + _SMALLEST), half + _LARGEST
    log_delta = math.log(delta) + _LOG_SQRT_TWO_PI
    centre, slope = min(max(_start(mu, delta, log_delta), low), high), 1.0
    for _ in range(_MOST_STEPS):
        a = centre - half
        difference, farther = mills_difference(centre, mu)
        excess = math.log(difference) - 0.5 * a * a - log_delta
        if excess <= 0.0 and centre == low:
            break
        low, high = (centre, high) if excess > 0.0 else (low, centre)
        slope = mu * farther / difference
        bend = mu * (1.0 - mu * farther) / difference - slope * slope
        before, centre = centre, centre + excess / (slope - 0.5 * excess * bend / slope)
        if not low <= centre <= high:
            centre = before + excess / slope
        if not low <= centre <= high:
            centre = low if low == 0.0 < before else 0.5 * (low + high)
        if abs(centre - before) * (1.0 + slope) < _SMALL_STEP:
            break
    return centre - half, slope


def _start(mu: float, delta: float, log_delta: float) -> float:
    """Return a centre c = eps / mu near the root. The profile is at most Phi(-a), and near mu phi(c) / (1 + c +
    c^2).
    """
    beyond = 0.5 * mu - _NORMAL.inv_cdf(delta)
    excess = math.log(mu) - log_delta
    if mu > 1.0 or excess <= 0.0:
        return max(beyond, 0.0)
    first = math.sqrt(2.0 * excess)
    return min(beyond, math.sqrt(max(0.0, 2.0 * (excess - math.log1p(0.7 * first + 0.49 * first * first)))))


def _certified(mu: float, delta: float, near: tuple[float, float], sign: float) -> float:
    """Return an epsilon at which the profile is certified to be at most delta (sign 1) or above it (sign -1).

    With sign -1 the answer is 0 if nothing better is certified.

    Args:
        near: An approximate a at which the profile equals delta, and the slope of the profile's logarithm there. They
            decide how narrow the bound is.
    """
    if sign > 0.0:
        mu = max(mu, _SMALLEST_MU)
    elif mu < _SMALLEST_MU:
        return 0.0
    a, slope = near
    half = 0.5 * mu
    middle = max(0.0, half + a)
    margin = (_ERROR * (1.0 + a * a) + _MU_ALLOWANCE) / slope + _ULP * middle
    least, most = max(0.0, half + _SMALLEST), half + _LARGEST
    if sign > 0.0 and middle <= margin and least == 0.0 and _is_certified(0.0, mu, delta, sign):
        return 0.0
    bound = most if sign > 0.0 else least
    while least < (centre := middle + sign * margin) < most:
        if _is_certified(centre, mu, delta, sign):
            bound = centre
            break
        margin *= 1.2
    if margin > _COARSE:
        # If delta is nearly 1, the profile's logarithm is not linear over such a distance, so the bound is bisected.
        while abs(bound - middle) > _COARSE * bound:
            centre = 0.5 * (middle + bound)
            if _is_certified(centre, mu, delta, sign):
                bound = centre
            else:
                middle = centre
    return max(0.0, math.nextafter(mu * bound, sign * math.inf))


def _is_certified(centre: float, mu: float, delta: float, sign: float) -> bool:
    """Return whether the profile at epsilon = mu * centre is certainly at most delta (sign 1) or above (sign -1)."""
    a = centre - 0.5 * mu
    growth = math.exp(0.25 * a * a)
    scaled = delta * growth * growth * _SQRT_TWO_PI
    difference = mills_difference(centre, mu)[0] * (1.0 + sign * _ERROR * (1.0 + a * a))
    return difference <= scaled if sign > 0.0 else difference > scaled


def _delta(mu: float, epsilon: float, sign: float) -> float:
    """Return delta_mu(eps), rounded up (sign 1) or down (sign -1)."""
    if sign > 0.0:
        mu = max(mu, _SMALLEST_MU)
    elif mu < _SMALLEST_MU:
        return 0.0
    centre = epsilon / mu * (1.0 - sign * _ULP)
    a = centre - 0.5 * mu
    value = _profile(centre, mu)
    if a >= _SMALLEST:
        value *= 1.0 + sign * _ERROR * (1.0 + a * a)
    return min(1.0, math.nextafter(value, math.inf)) if sign > 0.0 else max(0.0, math.nextafter(value, 0.0))


def _profile(centre: float, mu: float) -> float:
    """Return the profile at epsilon = mu * centre; 1 if it is within 1e-18 of 1, and 0 if it is below every positive
    number.
    """
    a = centre - 0.5 * mu
    if a < _SMALLEST:
        return 1.0
    if a > _LARGEST:
        return 0.0
    decay = math.exp(-0.25 * a * a)
    return decay * (decay * (mills_difference(centre, mu)[0] / _SQRT_TWO_PI))


def _gaussian_part(composition: Composition) -> float:
    """Return mu of all steps together that are full-batch Gaussians or that full-batch Gaussians attain."""
    sizes = [0.0]
    for loss, count in composition.steps:
        if isinstance(loss, GaussianLoss):
            sizes.append(math.sqrt(count) * loss.mu)
        elif isinstance(loss, ZcdpLoss):
            sizes.append(math.sqrt(2.0 * count * loss.rho))
    return math.hypot(*sizes)
