"""This module accounts the exponential mechanism. Its loss has bounded range, and every bound here follows from this
fact.

Candidate r is released with probability in proportion to e^(epsilon score(r) / (2 Delta)), where scores of neighbours
differ by at most Delta. Log-likelihoods move by at most epsilon / 2, apart from a common constant, so the losses of two
neighbours lie in an interval of length epsilon, [t - epsilon, t] with 0 <= t <= epsilon (Durfee & Rogers 2019). Given
t, the pair with the two losses at the ends dominates (convexity), P-mass p_t = (e^eps - e^t) / (e^eps - 1) at t; such
pairs are attained, in the limit, by exponential mechanisms (Dong, Durfee & Rogers 2020).

* One step: the largest profile over t is at t = (eps + x) / 2,

      delta(x) = (1 - e^((x - eps)/2))^2 / (1 - e^-eps),   |x| <= eps.

  As a function of e^x this profile is convex, so it is the profile of one pair. The pair's loss has the density e^(l/2)
  / (4 sinh(eps/2)) on (-eps, eps) under P. The pair dominates each of the mechanisms, so compositions of the pair
  dominate every adaptive composition of them (Zhu, Dong & Wang 2022, Theorem 10). Adaptive compositions need not attain
  this bound, because t cannot depend on x.
* Moments: the largest over t has a closed form (`log_moment`); it is below eps^2 x (x + 1) / 8, because K'' is at most
  eps^2 / 4 and K(-1) = K(0) = 0. Divergences add up under adaptive composition.
* From below: (eps/2)-randomised response (t = eps/2), in every step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.events.exponential import Exponential
from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.concentration import least_rho_of, rho_of
from accounting.losses.privacy_loss import GroupStep, PrivacyLoss, ratio_digits
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.losses.stated import RandomizedResponseLoss
from accounting.losses.support import Support, mirrored
from accounting.units import Between, exact, exactly

Array = NDArray[np.float64]

#: An allowance for the rounding of the closed forms below; see `test_exponential`.
_ALLOWANCE = 1e-12
#: The range below which the smallest rho is eps^2 / 8, up to a relative error of 1e-9.
_SMALL_RANGE = 1e-4
#: The range beyond which a quadrature over the losses would take too many nodes.
_LARGEST_RANGE = 1000.0


def bounded_range(epsilon: float) -> BoundedRangeLoss | RandomizedResponseLoss:
    """Return the loss of a mechanism whose losses lie in an interval of this length."""
    return BoundedRangeLoss(epsilon) if epsilon > 0.0 else RandomizedResponseLoss(0.0)


@rules_for(Exponential)
class ExponentialRules(MechanismRules[Exponential]):
    def loss(self, mechanism: Exponential, sensitivity: float) -> BoundedRangeLoss | RandomizedResponseLoss:
        return bounded_range(mechanism.epsilon)

    def pure_epsilon(self, mechanism: Exponential, step: ChargedStep) -> Between:
        return exactly(exact(mechanism.epsilon))


@dataclass(frozen=True, slots=True)
class BoundedRangeLoss(PrivacyLoss):
    """One step of a mechanism whose losses lie in an interval of length ``epsilon``, above 0."""

    epsilon: float

    symmetric = True
    has_pair = True
    is_enclosed = True
    moments_within = 3.0 * _ALLOWANCE

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    @property
    def dominating(self) -> BoundedRangePairLoss:
        return BoundedRangePairLoss(self.epsilon)

    @property
    def attained(self) -> RandomizedResponseLoss:
        return RandomizedResponseLoss(0.5 * self.epsilon)

    def log_moment(self, tilts: Array) -> Array:
        """Return the log-moment: x (S(x h + h) - S(x h)) + S(h + x h) - S(h), with S(y) = log(sinh(y) / y) and h = eps
        / 2.

        Source: E e^(x L) = u^x (A - B u) / (e^eps - 1) with u = e^t, A = e^eps - e^(-x eps), B = 1 - e^(-x eps), is
        largest at u = x A / ((x + 1) B).
        """
        half = 0.5 * self.epsilon
        moment: Array = tilts * _growth(tilts * half, np.full_like(tilts, half))
        moment = moment + _growth(np.full_like(tilts, half), tilts * half)
        return moment * (1.0 + _ALLOWANCE)

    @property
    def zcdp_rho(self) -> float:
        """Smallest rho of the zCDP that a bounded range implies, rounded up; at most eps^2 / 8."""
        largest = self.epsilon**2 / 8.0
        return largest if self.epsilon < _SMALL_RANGE else min(rho_of(self), largest)

    @property
    def least_zcdp_rho(self) -> float:
        """Return a lower bound of the rho, which some tilt attains. For a short range it is eps^2 / 8, less a little
        more than the next term of the series.
        """
        if self.epsilon < _SMALL_RANGE:
            return self.zcdp_rho * (1.0 - self.epsilon**2)
        return least_rho_of(self)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return the excess at each x: (1 - e^((|x| - eps)/2))^2 / (1 - e^-eps), where eps is the range."""
        return self.dominating.excess(epsilons, remove=remove)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        return Support(-self.epsilon, self.epsilon, 0.0, 0.0)

    def for_group(self, size: int) -> GroupStep:
        """Return the loss with ``size`` times the range, because a move of the scores may be split among ``size``
        records.
        """
        return GroupStep(BoundedRangeLoss(size * self.epsilon), is_exact=True)


@dataclass(frozen=True, slots=True)
class BoundedRangePairLoss(PrivacyLoss):
    """The pair whose profile is the largest that a bounded range allows."""

    epsilon: float

    symmetric = True
    has_pair = True

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def log_moment(self, tilts: Array) -> Array:
        """Return the log-moment: log [ sinh((2 x + 1) h) / ((2 x + 1) sinh h) ], with h = eps / 2."""
        half = 0.5 * self.epsilon
        return _growth(np.full_like(tilts, half), 2.0 * tilts * half) * (1.0 + _ALLOWANCE)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        below = np.expm1(0.5 * np.minimum(np.abs(epsilons) - self.epsilon, 0.0))
        return mirrored(epsilons, below * below / -math.expm1(-self.epsilon))

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        return Support(-self.epsilon, self.epsilon, 0.0, 0.0)

    def contour_step(self, log_count: float, *, remove: bool) -> RatioStep | None:
        """Return a step whose loss has the density e^(y/2) / (4 sinh(l/2)) between -l and l, without atoms. l is the
        range.

        Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.
        """
        size = self.epsilon
        if size > _LARGEST_RANGE:
            return None
        log_scale = -0.5 * size - math.log(2.0) - math.log(-math.expm1(-size))
        part = RatioPart(1.0, log_scale, 0.0, -size, size, upward=True)
        return RatioStep((part,), (), 0.0, ratio_digits(log_count), 1.0, size)


def _growth(start: Array, length: Array) -> Array:
    """Return S(start + length) - S(start), relatively accurate. It is integrated from S', Langevin's function, which
    is positive and rising.
    """
    nodes, weights = _nodes()
    places = start[..., None] + np.minimum(length, 1.0)[..., None] * nodes
    short = length * (_langevin(places) @ weights)
    direct = _log_sinhc(start + length) - _log_sinhc(start)
    far = length - np.log1p(length / np.maximum(start, 1.0))
    return np.where(length <= 1.0, short, np.where(start > 30.0, far, direct))


def _langevin(y: Array) -> Array:
    """Return coth(y) - 1 / y."""
    square = y * y
    series = y / 3.0 * (1.0 - square / 15.0 * (1.0 - square * (2.0 / 21.0) * (1.0 - 0.1 * square)))
    safe = np.maximum(y, 0.05)
    return np.where(y < 0.05, series, 1.0 / np.tanh(safe) - 1.0 / safe)


def _log_sinhc(y: Array) -> Array:
    """Return log(sinh(y) / y)."""
    nodes, weights = _nodes()
    near = np.minimum(y, 1.0)
    small = near * (_langevin(near[..., None] * nodes) @ weights)
    large = np.maximum(y, 1.0)
    log_sinhc: Array = np.where(y <= 1.0, small, large - np.log(2.0 * large) + np.log1p(-np.exp(-2.0 * large)))
    return log_sinhc


@lru_cache(maxsize=1)
def _nodes() -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes on (0, 1). Twelve suffice for lengths up to 1, because the poles of S' are
    multiples of i pi.
    """
    nodes, weights = np.polynomial.legendre.leggauss(12)
    return 0.5 * (nodes + 1.0), 0.5 * weights
