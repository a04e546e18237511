"""This module accounts the Poisson-sampled Laplace mechanism: the pair for each relation, its profile and its moments.

l = 1 / noise multiplier, q = sampling probability, f(y) = 1 - q + q e^y; L(m) is the Laplace law of mean m and scale
1/l, and H_g(P|Q) = integral of (dP - g dQ)_+.

* add_or_remove_one, replace_special: (1-q) L(0) + q L(1) against L(0).
* replace_one: (1-q) L(0) + q L(1) against (1-q) L(0) + q L(-1).

These pairs dominate for all contributions u, v of l1 norm at most 1, in any dimension. First, L(u) against L(0) is
dominated by L(1) against L(0): moving one coordinate after the other, trade-off functions compose as under group
privacy, and those of a log-concave location family add up their shifts. Then, for g >= 1:

* P - g Q = q [L(u) - g' L(0)] with g' = 1 + (g-1)/q in the first case (the other direction in the same way).
* P - g Q = q [L(u) - b L(0) - g L(v)] with b = (1-q)(g-1)/q in the second. L(v) >= e^-l L(0) everywhere, by the
  triangle inequality, so H_g(P|Q) <= q H_(b + g e^-l)(L(u)|L(0)), which is largest at L(1). The pair attains it: there
  L(-1) = e^-l L(0) for x >= 0, and for x < 0 both integrands are zero because g >= 1. g < 1 follows from
  H_g(P|Q) = 1 - g + g H_(1/g)(Q|P) and symmetry.

And H_g(L(1)|L(0)) = 1 - sqrt(g e^-l) for e^-l <= g <= e^l gives every profile in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.events.laplace import Laplace
from accounting.events.samplings import Poisson
from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.group_laplace import laplace_group
from accounting.losses.laplace import LaplaceLoss
from accounting.losses.privacy_loss import GroupStep, Moments, PrivacyLoss, ratio_digits
from accounting.losses.ratio_quadrature import (
    ConvexExcess,
    RatioLaw,
    SymmetrizedExcess,
    log_f,
    log_integral,
)
from accounting.losses.rules import sampled
from accounting.losses.support import Support, mirrored
from accounting.losses.symmetrized_moments import least_moments_at, moments_at, symmetrized_laplace_moment, upper_moment
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]
_ULP = 2.0**-52


@dataclass(frozen=True, slots=True)
class PoissonLaplaceLoss(PrivacyLoss):
    """One step under add_or_remove_one or replace_special.

    Attributes:
        epsilon: The largest loss without sampling: l, the sensitivity over the noise's scale.
        sampling_probability: The sampling probability q, below 1.
    """

    epsilon: float
    sampling_probability: float

    symmetric = False
    has_pair = True
    moments = Moments.QUADRATURE

    @property
    def pure_epsilon(self) -> float:
        """log(1 + q (e^l - 1)), rounded up. The largest loss of the other direction is smaller, because f(l) f(-l)
        >= 1.
        """
        return _rounded_up(log_f(self.epsilon, self.sampling_probability), self.epsilon)

    def log_moment(self, tilts: Array) -> Array:
        """Return the larger of log E f^(x+1) and log E f^-x, rounded up.

        Guarantees: moment_is_an_upper_bound.
        """
        return moments_at(tilts, lambda tilt: _poisson_moment(self.epsilon, self.sampling_probability, tilt))

    def least_log_moment(self, tilts: Array) -> Array:
        return least_moments_at(tilts, self.log_moment(tilts), self.sampling_probability)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        """Return the profile of one direction, less 1 - e^eps if eps < 0. The add direction follows from remove as
        for Gaussian noise.
        """
        excess = np.empty_like(epsilons)
        positive = epsilons >= 0.0
        up, down = epsilons[positive], epsilons[~positive]
        if remove:
            excess[positive] = self._beyond(up)
            excess[~positive] = self._before(down)
        else:
            excess[positive] = np.exp(np.minimum(up, 709.0)) * self._before(-up)
            excess[~positive] = np.exp(down) * self._beyond(-down)
        return excess

    def support(self, log_mass: float, *, remove: bool) -> Support:
        q = self.sampling_probability
        lower, upper = log_f(-self.epsilon, q), log_f(self.epsilon, q)
        return Support(lower, upper, 0.0, 0.0) if remove else Support(-upper, -lower, 0.0, 0.0)

    def contour_step(self, log_count: float, *, remove: bool) -> RatioStep:
        """Return the step of one direction: its loss is log f under P = f Q, or -log f under Q.

        Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.
        """
        size, q, digits = self.epsilon, self.sampling_probability, ratio_digits(log_count)
        part = RatioPart(q, -0.5 * size - math.log(4.0), 0.0, -size, size, upward=remove)
        low, high = log_f(-size, q), log_f(size, q)
        if remove:
            atoms = ((0.5 * math.exp(low), low), (0.5 * math.exp(high - size), high))
            return RatioStep((part,), atoms, 0.0, digits, q, self.pure_epsilon)
        atoms = ((0.5, -low), (0.5 * math.exp(-size), -high))
        return RatioStep((part,), atoms, 0.0, digits, q, -low * (1.0 + 1e-14))

    def symmetrized_step(self, log_count: float) -> RatioStep:
        """Return the step of the symmetrised pair, whose loss has mass (1 - q)(1 - e^(-l/2)) at 0."""
        size, q = self.epsilon, self.sampling_probability
        log_scale, high = -0.5 * size - math.log(4.0), log_f(size, q)
        parts = tuple(RatioPart(q, log_scale, 0.0, 0.0, size, upward=upward) for upward in (True, False))
        atoms = ((0.5 * math.exp(high - size), high), (0.5 * math.exp(-size), -high))
        at_zero = -(1.0 - q) * math.expm1(-0.5 * size)
        return RatioStep(parts, atoms, at_zero, ratio_digits(log_count), q, self.pure_epsilon)

    def symmetrized_moment(self, tilt: float) -> float:
        """Return log M(tilt) of the symmetrised pair, rounded up."""
        return symmetrized_laplace_moment(self.epsilon, self.sampling_probability, tilt)

    def for_group(self, size: int) -> GroupStep:
        """Return a mixture over the number of the group's records in the batch."""
        return laplace_group(self.epsilon, self.sampling_probability, size, replaced=False)

    @property
    def distance(self) -> float:
        """The distance by which one record moves the sum, divided by the noise's scale."""
        return self.epsilon

    def at_distance(self, times: int, probability: float) -> PoissonLaplaceLoss | LaplaceLoss:
        """Return the loss of a record that is in the batch with ``probability`` and moves the sum ``times`` times as
        far.
        """
        epsilon = times * self.epsilon
        return PoissonLaplaceLoss(epsilon, probability) if probability < 1.0 else LaplaceLoss(epsilon)

    def _beyond(self, epsilons: Array) -> Array:
        """Return q (1 - sqrt(u)) for eps >= 0, where u = g e^-l and g = 1 + (e^eps - 1)/q.

        1 - u is computed as (1 - e^(eps - eps*)) f(l) e^-l / q with eps* = log f(l), so it keeps its digits near the
        largest loss.
        """
        lam, q = self.epsilon, self.sampling_probability
        end = log_f(lam, q)
        inside = np.minimum(epsilons, end)
        u = math.exp(-lam) - np.expm1(-inside) * np.exp(inside - lam - math.log(q))
        beyond: Array = -np.expm1(inside - end) * (q + (1.0 - q) * math.exp(-lam)) / (1.0 + np.sqrt(u))
        return beyond

    def _before(self, epsilons: Array) -> Array:
        """Return q sqrt(g) (sqrt(g) - e^(-l/2)) for eps < 0; zero below log f(-l)."""
        lam, q = self.epsilon, self.sampling_probability
        start = log_f(-lam, q)
        rise = math.exp(start) * np.expm1(np.maximum(epsilons, start) - start)
        root = np.sqrt(math.exp(-lam) + rise / q)
        # The denominator is 0 only where the rise is 0, too.
        before: Array = rise * root / np.maximum(root + math.exp(-0.5 * lam), 1e-300)
        return before


@dataclass(frozen=True, slots=True)
class PoissonLaplaceReplaceLoss(PrivacyLoss):
    """One step under replace_one, with the attributes of `PoissonLaplaceLoss`. The pair is its own mirror image."""

    epsilon: float
    sampling_probability: float

    symmetric = True
    has_pair = True
    moments = Moments.QUADRATURE

    @property
    def pure_epsilon(self) -> float:
        """log f(l) - log f(-l), rounded up."""
        return _rounded_up(self._end, self.epsilon)

    @property
    def _end(self) -> float:
        lam, q = self.epsilon, self.sampling_probability
        return log_f(lam, q) - log_f(-lam, q)

    def contour_step(self, log_count: float, *, remove: bool) -> RatioStep:
        """Return the step: its loss is log g on one half of the outcomes and -log g on the other, with g = f / f(-l) at
        y in [-l, l].

        g is a sampled ratio of v = y + l in [0, 2 l], of probability q e^-l / f(-l); v has the density
        f(-l) e^(-v/2) / 4 and the mass f(-l) e^-l / 2 at the end, of the law under which the second half weighs.

        Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.
        """
        size, q = self.epsilon, self.sampling_probability
        low, high = log_f(-size, q), log_f(size, q)
        odds, log_scale = q * math.exp(-size - low), low - math.log(4.0)
        parts = tuple(RatioPart(odds, log_scale, 0.0, 0.0, 2.0 * size, upward=upward) for upward in (True, False))
        atoms = ((0.5 * math.exp(high - size), high - low), (0.5 * math.exp(low - size), low - high))
        return RatioStep(parts, atoms, 0.0, ratio_digits(log_count), q, self.pure_epsilon)

    def log_moment(self, tilts: Array) -> Array:
        """Return log(1 + E f(-l) [g^(x+1) + g^-x - g - 1] over x > 0), g = f / f(-l), rounded up.

        The loss is log g where x > 0, and -log g at the mirror image. g is itself a sampled ratio: it has the sampling
        probability q e^-l / f(-l) and the unsampled log-ratio y + l in [0, 2 l].

        Guarantees: moment_is_an_upper_bound.
        """
        return moments_at(tilts, lambda tilt: _replace_moment(self.epsilon, self.sampling_probability, tilt))

    def least_log_moment(self, tilts: Array) -> Array:
        """Return lower bounds of the moments. The sampled ratio in `_replace_moment` has a smaller probability than
        the sampling probability.
        """
        log_floor = log_f(-self.epsilon, self.sampling_probability)
        probability = self.sampling_probability * math.exp(-self.epsilon - log_floor)
        return least_moments_at(tilts, self.log_moment(tilts), probability)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return q (1 - sqrt(u)), u = e^-l (1-q)(e^eps - 1)/q + e^(eps - 2 l), for eps >= 0."""
        lam, q = self.epsilon, self.sampling_probability
        end = self._end
        inside = np.minimum(np.abs(epsilons), end)
        odds = math.log1p(-q) - math.log(q)
        u = -np.expm1(-inside) * np.exp(inside - lam + odds) + np.exp(inside - 2.0 * lam)
        profile = -np.expm1(inside - end) * (q + (1.0 - q) * math.exp(-lam)) / (1.0 + np.sqrt(u))
        return mirrored(epsilons, profile)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        return Support(-self._end, self._end, 0.0, 0.0)

    def for_group(self, size: int) -> GroupStep:
        """Return a mixture as `PoissonLaplaceLoss.for_group` does; the group is replaced by another one."""
        return laplace_group(self.epsilon, self.sampling_probability, size, replaced=True)


@lru_cache(maxsize=4096)
def _poisson_moment(lam: float, q: float, tilt: float) -> float:
    law, log_q = RatioLaw.laplace(lam, above_zero=False), math.log(q)
    remove = upper_moment(log_integral(law, log_q, ConvexExcess(tilt + 1.0)))
    return max(remove, upper_moment(log_integral(law, log_q, ConvexExcess(-tilt))))


@lru_cache(maxsize=4096)
def _replace_moment(lam: float, q: float, tilt: float) -> float:
    log_floor = log_f(-lam, q)
    log_q = math.log(q) - lam - log_floor
    law = RatioLaw.laplace(2.0 * lam, above_zero=True)
    # The law of g over that of the ratio: f(-l) e^-y/4 dy against e^(-y/2 - l)/4 dy.
    return upper_moment(log_integral(law, log_q, SymmetrizedExcess(tilt)) + log_floor + lam)


def _rounded_up(loss: float, lam: float) -> float:
    """Return an allowance for two rounding errors: that of l, which its exponential magnifies, and that of the
    logarithm.
    """
    return loss * (1.0 + (6.0 + lam) * _ULP) + 5e-324


@sampled(Laplace, Poisson)
def poisson_laplace(
    mechanism: Laplace, sampling: Poisson, relation: NeighboringRelation, sensitivity: float
) -> PoissonLaplaceLoss | PoissonLaplaceReplaceLoss:
    """Return the loss. Under replace_one, the two records of its pair contribute vectors of length 1 in opposite
    directions.
    """
    noise, probability = mechanism.noise_multiplier, sampling.sampling_probability
    if relation is NeighboringRelation.REPLACE_ONE:
        return PoissonLaplaceReplaceLoss(1.0 / noise, probability)
    return PoissonLaplaceLoss(sensitivity / noise, probability)
