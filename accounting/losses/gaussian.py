"""This module accounts the Gaussian mechanism on full batches exactly: N(mu, 1) against N(0, 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.events.gaussian import Gaussian
from accounting.fourier.mixture import GaussianStep
from accounting.losses.mills import scaled_mills_difference
from accounting.losses.privacy_loss import GroupStep, PrivacyLoss
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.losses.support import Support, mirrored
from accounting.units import Between, exact, exactly

Array = NDArray[np.float64]
_ULP = 2.0**-52


@dataclass(frozen=True, slots=True)
class GaussianLoss(PrivacyLoss):
    """Loss of N(mu, 1) against N(0, 1): normal with mean mu^2 / 2 and standard deviation mu.

    Compositions of such pairs are such pairs again, and mu^2 adds up (Dong, Roth & Su 2022, Corollary 3.3).

    Attributes:
        mu: sqrt(count) times sensitivity over the noise's standard deviation; no unit.
    """

    mu: float

    pure_epsilon = math.inf
    symmetric = True
    has_pair = True
    moments_within = 1e-14

    def log_moment(self, tilts: Array) -> Array:
        """Return the log-moment K(x) = x (x + 1) mu^2 / 2."""
        moment: Array = 0.5 * self.mu * self.mu * tilts * (tilts + 1.0) * (1.0 + 8.0 * _ULP)
        return moment

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) for eps >= 0  (Balle & Wang 2018, Theorem 8)."""
        size = np.abs(epsilons)
        profile = scaled_mills_difference(size / self.mu - 0.5 * self.mu, self.mu)
        return mirrored(epsilons, profile)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        reach = -float(scipy.special.ndtri_exp(log_mass))
        centre, mass = 0.5 * self.mu * self.mu, math.exp(log_mass)
        return Support(centre - reach * self.mu, centre + reach * self.mu, mass, mass)

    def contour_step(self, log_count: float, *, remove: bool) -> GaussianStep:
        return GaussianStep(self.mu)

    def for_group(self, size: int) -> GroupStep:
        """Return the loss at ``size`` times the distance. Records that all move the sum the same way attain it."""
        return GroupStep(GaussianLoss(size * self.mu), is_exact=True)

    @property
    def unamplified_mu(self) -> float:
        return self.mu


@rules_for(Gaussian)
class GaussianRules(MechanismRules[Gaussian]):
    """The rules of Gaussian noise. Costs are rational numbers. If no amplified cost is known, a sampled step costs
    as much as a full batch.
    """

    linear_in_order = True
    amplified_sums = False

    def loss(self, mechanism: Gaussian, sensitivity: float) -> GaussianLoss:
        return GaussianLoss(sensitivity / mechanism.noise_multiplier)

    def zcdp_rho(self, mechanism: Gaussian, step: ChargedStep) -> Between:
        return exactly(self.mu_squared(mechanism, step).most / 2)

    def mu_squared(self, mechanism: Gaussian, step: ChargedStep) -> Between:
        return exactly((step.sensitivity / exact(mechanism.noise_multiplier)) ** 2)
