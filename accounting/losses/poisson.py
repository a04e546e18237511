"""This module accounts the Poisson-sampled Gaussian mechanism: the pair for each relation, its profile and the place of
its loss.

s = noise multiplier, q = sampling probability, f(x) = 1 - q + q e^((2x-1)/(2 s^2)), x ~ N(0, s^2).

* add_or_remove_one, replace_special: (1-q) N(0, s^2) + q N(1, s^2) against N(0, s^2).
* replace_one: (1-q) N(0, s^2) + q N(1, s^2) against (1-q) N(0, s^2) + q N(-1, s^2). It dominates every pair of
  contributions u, v of norm at most 1. Proof: for alpha >= 1, P - alpha Q = q [N(u) - beta N(0) - alpha N(v)] with beta
  >= 0. So the hockey stick is q E (1 - beta Y_1 - alpha Y_2)_+ with Y_i log-normal of mean one. Gaussian interpolation
  shows that it grows with each of the covariances |u|^2, |u - v|^2 and <u, u - v>. Their maxima 1, 4 and 2 are attained
  together by u = 1, v = -1. The case alpha < 1 follows from H_alpha(P||Q) = 1 - alpha + alpha H_(1/alpha)(Q||P) and
  symmetry. The case v = 0 is the first pair, so this pair dominates it, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.events.gaussian import Gaussian
from accounting.events.samplings import Poisson
from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.group_poisson import group_step, probability_of_some
from accounting.losses.mills import scaled_mills_difference
from accounting.losses.poisson_moments import least_remove_moment, least_replace_moment, remove_moment, replace_moment
from accounting.losses.privacy_loss import GroupStep, Moments, PrivacyLoss, line_digits, ratio_digits
from accounting.losses.rules import sampled
from accounting.losses.support import Support, mirrored
from accounting.losses.symmetrized_moments import symmetrized_gaussian_moment
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PoissonGaussianLoss(PrivacyLoss):
    """One step under add_or_remove_one or replace_special.

    Attributes:
        noise_multiplier: The noise multiplier s, the standard deviation over the sensitivity.
        sampling_probability: The sampling probability q, below 1.
    """

    noise_multiplier: float
    sampling_probability: float

    pure_epsilon = math.inf
    symmetric = False
    has_pair = True
    moments = Moments.BINOMIAL_SUM

    def log_moment(self, tilts: Array) -> Array:
        """Return K(x) of the remove direction, which is the larger one (see `poisson_moments.remove_moment`)."""
        return remove_moment(self.noise_multiplier, self.sampling_probability, tilts)

    def least_log_moment(self, tilts: Array) -> Array:
        return least_remove_moment(self.noise_multiplier, self.sampling_probability, tilts)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        """Return the profile of one direction in closed form, less 1 - e^eps where eps < 0.

        Let f(x*) = e^eps and v = (x* - 1)/s. The hockey stick of the remove direction is the integral of P - e^eps Q
        over x > x*. For eps < 0 its excess is the integral of e^eps Q - P over x < x*. The add direction follows from
        delta_add(eps) = 1 - e^eps + e^eps delta_remove(-eps).
        """
        excess = np.empty_like(epsilons)
        positive = epsilons >= 0.0
        up, down = epsilons[positive], epsilons[~positive]
        if remove:
            excess[positive] = self._beyond(up)
            excess[~positive] = self._before(down, times_exp=np.zeros_like(down))
        else:
            excess[positive] = self._before(-up, times_exp=up)
            excess[~positive] = np.exp(down) * self._beyond(-down)
        return excess

    def support(self, log_mass: float, *, remove: bool) -> Support:
        s, q = self.noise_multiplier, self.sampling_probability
        reach, mass = -float(scipy.special.ndtri_exp(log_mass)), math.exp(log_mass)
        floor = math.log1p(-q)
        if remove:
            return Support(floor, max(0.0, self._loss(1.0 + s * reach)), 0.0, mass)
        return Support(min(-self._loss(s * reach), 0.0), -floor, mass, 0.0)

    @property
    def unamplified_mu(self) -> float:
        return 1.0 / self.noise_multiplier

    def contour_step(self, log_count: float, *, remove: bool) -> GaussianPairStep:
        pair = Pair.REMOVE if remove else Pair.ADD
        pairs = GaussianPair(pair, self.noise_multiplier, self.sampling_probability)
        return GaussianPairStep(pairs, line_digits(log_count))

    def symmetrized_step(self, log_count: float) -> RatioStep:
        """Return the step of the symmetrised pair, for contour integrals.

        y = (2x - 1) / (2 s^2) is N(-1/(2 s^2), 1/s^2) under Q, and the loss has mass (1 - q) P(|N(0, 1)| < 1/(2s)) at
        0.
        """
        s, q = self.noise_multiplier, self.sampling_probability
        log_scale = math.log(s) - 0.5 * math.log(2.0 * math.pi) - 0.125 / s**2
        parts = tuple(RatioPart(q, log_scale, s * s, 0.0, math.inf, upward=upward) for upward in (True, False))
        at_zero = (1.0 - q) * math.erf(0.5 / s * math.sqrt(0.5))
        pair = GaussianPair(Pair.REMOVE, s, q)
        return RatioStep(parts, (), at_zero, ratio_digits(log_count), q, math.inf, pair=pair)

    def symmetrized_moment(self, tilt: float) -> float:
        """Return log M(tilt) of the symmetrised pair, rounded up."""
        return symmetrized_gaussian_moment(self.noise_multiplier, self.sampling_probability, tilt)

    def for_group(self, size: int) -> GroupStep:
        """Return the loss of a group: a mixture over the number of its records in the batch.

        If there are too many numbers to tell apart, the group counts as a single record that moves the sum ``size``
        times as far.
        """
        mixture = group_step(self.noise_multiplier, self.sampling_probability, size, replaced=False)
        if mixture is not None:
            return mixture
        # If the batch holds records of the group, they move the sum by at most ``size`` times the distance of one
        # record.
        probability = probability_of_some(self.sampling_probability, size)
        return GroupStep(self.at_distance(size, probability), is_exact=False)

    @property
    def distance(self) -> float:
        """The distance by which one record moves the sum, divided by the noise's standard deviation."""
        return 1.0 / self.noise_multiplier

    def at_distance(self, times: int, probability: float) -> PoissonGaussianLoss | GaussianLoss:
        """Return the loss of a record that is in the batch with ``probability`` and moves the sum ``times`` times as
        far.
        """
        noise = self.noise_multiplier / times
        return PoissonGaussianLoss(noise, probability) if probability < 1.0 else GaussianLoss(1.0 / noise)

    def _loss(self, x: float) -> float:
        """Return log f(x)."""
        return _log_f(x, self.noise_multiplier, self.sampling_probability)

    def _beyond(self, epsilons: Array) -> Array:
        """Return P(x > x*) - e^eps Q(x > x*), eps >= 0."""
        s, q = self.noise_multiplier, self.sampling_probability
        v = s * _log1p_expm1_over(epsilons, q) - 0.5 / s
        beyond: Array = q * scaled_mills_difference(v, 1.0 / s)
        return beyond

    def _before(self, epsilons: Array, *, times_exp: Array) -> Array:
        """Return e^eps Q(x < x*) - P(x < x*), eps <= 0, times e^times_exp; zero below log(1 - q)."""
        s, q = self.noise_multiplier, self.sampling_probability
        before = np.zeros_like(epsilons)
        ratio = np.expm1(epsilons) / q
        inside = ratio > -1.0
        # These are log(1 + ratio). If the ratio is near -1, the logarithm is computed from the parts of 1 + ratio,
        # whose difference keeps its digits.
        logs = np.log1p(ratio[inside])
        near = ratio[inside] < -0.5
        logs[near] = np.log((np.exp(epsilons[inside][near]) - (1.0 - q)) / q)
        v = s * logs - 0.5 / s
        before[inside] = q * _from_right(v, 1.0 / s, times_exp[inside])
        return before


@dataclass(frozen=True, slots=True)
class PoissonReplaceLoss(PrivacyLoss):
    """One step under replace_one, with the attributes of `PoissonGaussianLoss`. The pair is its own mirror image."""

    noise_multiplier: float
    sampling_probability: float

    pure_epsilon = math.inf
    symmetric = True
    has_pair = True
    moments = Moments.QUADRATURE

    def log_moment(self, tilts: Array) -> Array:
        return replace_moment(self.noise_multiplier, self.sampling_probability, tilts)

    def least_log_moment(self, tilts: Array) -> Array:
        return least_replace_moment(self.noise_multiplier, self.sampling_probability, tilts)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return delta at each epsilon.

        For eps >= 0 the threshold x* solves log f(x) - log f(-x) = eps, which is a quadratic equation in e^(x/s^2). At
        x* the densities satisfy N(1) = beta N(0) + alpha N(-1). Let w0 and w2 = 1 - w0 be the shares of the two terms
        on the right, and x1 = (x* - 1)/s. Then the hockey stick is q phi(x1) [w0 (m(x1) - m(x1 + 1/s)) + w2 (m(x1) -
        m(x1 + 2/s))] with the Mills ratio m. All terms are positive.
        """
        s, q = self.noise_multiplier, self.sampling_probability
        size = np.abs(epsilons)
        log_argument = _log_sinh(0.5 * size) + math.log1p(-q) - math.log(q) + 0.5 / s**2
        half_gap = _asinh_of_exp(log_argument)
        threshold = s * (0.5 * size + half_gap) - 1.0 / s
        near, far = -np.expm1(-2.0 * half_gap), np.exp(-2.0 * half_gap)
        stick = near * scaled_mills_difference(threshold, 1.0 / s)
        stick = q * (stick + far * scaled_mills_difference(threshold, 2.0 / s))
        return mirrored(epsilons, stick)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        s, q = self.noise_multiplier, self.sampling_probability
        reach, mass = -float(scipy.special.ndtri_exp(log_mass)), math.exp(log_mass)
        x = 1.0 + s * reach
        loss = _log_f(x, s, q) - _log_f(-x, s, q)
        return Support(-loss, loss, mass, mass)

    @property
    def unamplified_mu(self) -> float:
        return 2.0 / self.noise_multiplier

    def contour_step(self, log_count: float, *, remove: bool) -> GaussianPairStep:
        pairs = GaussianPair(Pair.REPLACE, self.noise_multiplier, self.sampling_probability)
        return GaussianPairStep(pairs, line_digits(log_count))

    def for_group(self, size: int) -> GroupStep:
        """Return a group's loss as `PoissonGaussianLoss.for_group` does. If hits are not told apart, the loss is
        that of a full batch.
        """
        mixture = group_step(self.noise_multiplier, self.sampling_probability, size, replaced=True)
        return mixture or GroupStep(GaussianLoss(2.0 * size / self.noise_multiplier), is_exact=False)


@sampled(Gaussian, Poisson)
def poisson_gaussian(
    mechanism: Gaussian, sampling: Poisson, relation: NeighboringRelation, sensitivity: float
) -> PoissonGaussianLoss | PoissonReplaceLoss:
    """Return the loss. Under replace_one, the two records of its pair contribute vectors of length 1 in opposite
    directions.
    """
    noise, probability = mechanism.noise_multiplier, sampling.sampling_probability
    if relation is NeighboringRelation.REPLACE_ONE:
        return PoissonReplaceLoss(noise, probability)
    return PoissonGaussianLoss(noise / sensitivity, probability)


def _log_f(x: float, s: float, q: float) -> float:
    a = (2.0 * x - 1.0) / (2.0 * s * s)
    if math.log(q) + a < 0.0:
        change = q * math.expm1(a)
        # If the change is near -1, log1p would lose the digits of 1 - q, which is then nearly all of f.
        return math.log1p(change) if change > -0.5 else math.log((1.0 - q) + q * math.exp(a))
    return math.log(q) + a + math.log1p((1.0 - q) / q * math.exp(-a))


def _log1p_expm1_over(epsilons: Array, q: float) -> Array:
    """Return log(1 + (e^eps - 1)/q) for eps >= 0, without overflow."""
    with np.errstate(
        over="ignore", divide="ignore"
    ):  # The warnings concern only the branch that `where` does not choose.
        small = np.log1p(np.expm1(epsilons) / q)
        large = epsilons - math.log(q) + np.log1p(-(1.0 - q) * np.exp(-epsilons))
    return np.where(epsilons > 30.0, large, small)


def _from_right(v: Array, d: float, times_exp: Array) -> Array:
    """Return phi(b) (m(b - d) - m(b)) times e^times_exp, where b = -v.

    The first factor is e^(-d (b - d/2)) G(b - d, d), with G from `mills`. Everything is computed in logarithms.
    """
    b = -v
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        value: Array = np.exp(np.log(scaled_mills_difference(b - d, d)) - d * (b - 0.5 * d) + times_exp)
    return value


def _log_sinh(y: Array) -> Array:
    """Return log sinh(y) for y >= 0."""
    with np.errstate(divide="ignore", over="ignore"):
        small = np.log(np.sinh(np.minimum(y, 20.0)))
    return np.where(y > 20.0, y - math.log(2.0) + np.log1p(-np.exp(-2.0 * np.maximum(y, 20.0))), small)


def _asinh_of_exp(log_y: Array) -> Array:
    """Return asinh(e^log_y)."""
    small = np.arcsinh(np.exp(np.minimum(log_y, 20.0)))
    return np.where(log_y > 20.0, log_y + math.log(2.0), small)
