"""This module accounts the Laplace mechanism on full batches exactly: Laplace(1, b) against Laplace(0, b)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.events.laplace import Laplace
from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.gaussian_mu import mu_of_laplace, mu_of_pure_dp
from accounting.losses.privacy_loss import GroupStep, PrivacyLoss, ratio_digits, rho_of_pure_dp
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.losses.stated import RandomizedResponseLoss
from accounting.losses.support import Support, mirrored
from accounting.units import Between, about, exact, exactly

Array = NDArray[np.float64]
#: An allowance for the rounding of the closed forms below; see `test_laplace`.
_ALLOWANCE = 1e-12
#: The largest loss of a group for which the pair of two Laplace laws is composed.
_LARGEST_FOR_GROUPS = 200.0


@dataclass(frozen=True, slots=True)
class LaplaceLoss(PrivacyLoss):
    """Loss of two Laplace laws of scale b whose centres differ by the sensitivity.

    Attributes:
        epsilon: The largest loss, which is the sensitivity over b, rounded.
    """

    epsilon: float

    symmetric = True
    has_pair = True
    end_error = 2.0**-51
    moments_within = 3.0 * _ALLOWANCE

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def log_moment(self, tilts: Array) -> Array:
        """Return log [ ((x+1) e^(x eps) + x e^(-(x+1) eps)) / (2x+1) ]  (Mironov 2017, Proposition 6, order x + 1).

        It is computed as log1p of nonnegative terms, so that small eps lose no digits.
        """
        epsilon, p = self.epsilon, tilts + 0.5
        largest = p * epsilon
        # The bracket less 1, times e^(eps/2), is 2 sinh(..) sinh(..) + (sinhc(p eps) - sinhc(eps/2)) eps / 2, with
        # sinhc(y) = sinh(y) / y.
        with np.errstate(over="ignore", invalid="ignore"):
            product = 2.0 * np.sinh(0.5 * (p + 0.5) * epsilon) * np.sinh(0.5 * (p - 0.5) * epsilon)
            quotient = 0.5 * epsilon * (_sinhc_minus_one(largest) - _sinhc_minus_one(np.full_like(p, 0.5 * epsilon)))
            small = np.log1p(math.exp(-0.5 * epsilon) * (product + quotient))
        large = tilts * epsilon + np.log(((tilts + 1.0) + tilts * np.exp(-2.0 * largest)) / (2.0 * p))
        moment: Array = np.where(largest > 300.0, large, small) * (1.0 + _ALLOWANCE)
        return moment

    @property
    def zcdp_rho(self) -> float:
        """The smallest rho of the mechanism's zCDP, which is eps + e^(-eps) - 1.

        Source: with w = order - 1/2 squared, the moment is the logarithm of an entire function of w of order 1/2 whose
        zeros are negative (eigenvalues of u'' = -theta^2 u, u(0) = 0, u'(1) = -(eps/2) u(1)), hence concave in w and
        below its tangent at order 1, whose slope is the Kullback-Leibler divergence. Harrison & Manurangsi 2025
        prove the same number in another way.
        """
        epsilon = self.epsilon
        if epsilon < 1e-2:
            # The alternating series of e^-eps - 1 + eps is cut after a positive term, which gives an upper bound.
            return epsilon**2 / 2 * (1 - epsilon / 3 * (1 - epsilon / 4 * (1 - epsilon / 5 * (1 - epsilon / 6))))
        return epsilon + math.expm1(-epsilon)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return the excess at each eps', which is 1 - e^((eps' - eps)/2) for 0 <= eps' <= eps. eps is the largest
        loss.
        """
        profile = -np.expm1(0.5 * (np.minimum(np.abs(epsilons), self.epsilon) - self.epsilon))
        return mirrored(epsilons, profile)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        return Support(-self.epsilon, self.epsilon, 0.0, 0.0)

    @property
    def gaussian_mu(self) -> float:
        return mu_of_laplace(self.epsilon)

    def contour_step(self, log_count: float, *, remove: bool) -> RatioStep:
        """Return a step whose loss has mass 1/2 at l, mass e^-l / 2 at -l, and density e^((y - l)/2) / 4 between them.
        l is ``epsilon``.

        |M(c + it)| falls slowly: compositions converge only with many steps, noise of another kind, or a window.

        Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.

        Source: Mironov 2017, Proposition 6, from the definition.
        """
        size, digits = self.epsilon, ratio_digits(log_count)
        part = RatioPart(1.0, -0.5 * size - math.log(4.0), 0.0, -size, size, upward=True)
        return RatioStep((part,), ((0.5, size), (max(0.5 * math.exp(-size), 5e-324), -size)), 0.0, digits, 1.0, size)

    def for_group(self, size: int) -> GroupStep:
        """Return the loss at ``size`` times the distance. Records that all move the sum the same way attain it."""
        group = size * self.epsilon
        if group <= _LARGEST_FOR_GROUPS:
            return GroupStep(LaplaceLoss(group), is_exact=True)
        # Beyond this largest loss, compositions of the pair are slow, and only the largest loss matters at any delta.
        return GroupStep(RandomizedResponseLoss(group), is_exact=False)


@rules_for(Laplace)
class LaplaceRules(MechanismRules[Laplace]):
    """The rules of Laplace noise. A sampled step costs at most as much as the unsampled step, and as any step with
    the same largest loss.
    """

    sums_epsilons = True

    def loss(self, mechanism: Laplace, sensitivity: float) -> LaplaceLoss:
        return LaplaceLoss(sensitivity / mechanism.noise_multiplier)

    def pure_epsilon(self, mechanism: Laplace, step: ChargedStep) -> Between:
        full = exactly(step.sensitivity / exact(mechanism.noise_multiplier))
        return full.or_less(about(step.loss.pure_epsilon)) if step.is_sampled else full

    def zcdp_rho(self, mechanism: Laplace, step: ChargedStep) -> Between:
        full = about(self.loss(mechanism, step.relation.sensitivity).zcdp_rho)
        return full.or_less(about(rho_of_pure_dp(step.loss.pure_epsilon))) if step.is_sampled else full

    def mu_squared(self, mechanism: Laplace, step: ChargedStep) -> Between:
        full = about(self.loss(mechanism, step.relation.sensitivity).gaussian_mu ** 2)
        return full.or_less(about(mu_of_pure_dp(step.loss.pure_epsilon) ** 2)) if step.is_sampled else full


def _sinhc_minus_one(y: Array) -> Array:
    """Return sinh(y)/y - 1."""
    square = y * y
    series = square / 6.0 * (1.0 + square / 20.0 * (1.0 + square / 42.0 * (1.0 + square / 72.0)))
    with np.errstate(over="ignore"):
        direct = np.sinh(np.maximum(y, 1e-300)) / np.maximum(y, 1e-300) - 1.0
    return np.where(y < 0.3, series, direct)
