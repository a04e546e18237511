"""The discrete Gaussian mechanism on full batches: scalar sums on a grid, with noise whose mass on it is in proportion
to e^(-y^2 / (2 s^2)).

In grid steps, the deviation is s = noise multiplier / grid, and the shift is k = sensitivity / grid, an integer. For a
shift by k, the loss of noise y is (k / s^2) (y + k/2), where y has the law itself. This holds in either direction. The
law is log-concave, so the largest shift costs most. Moments: K(x) <= x (x + 1) k^2 / (2 s^2), with equality where x k
is an integer (Canonne, Kamath & Steinke 2020, Theorem 4). Vectors of such noise have other pairs, since their
neighbours differ in several coordinates at once.

Up to s = `MOST_ENUMERATED` the atoms are enumerated. Beyond, two Gaussian pairs enclose the law (`FineGaussianLoss`):

* With N(0, c^2) noise added to y, a post-processing, the density is that of N(0, s^2 + c^2) times 1 + theta(y),
  |theta| <= r = 2 sum over j > 0 of e^(-2 pi^2 v j^2), v = s^2 c^2 / (s^2 + c^2): completing the square leaves a sum
  of e^(-(y - t)^2 / (2 v)) over integers y, which by Poisson summation is sqrt(2 pi v) (1 + theta). So the mechanism
  costs at least as much as the Gaussian with deviation sqrt(s^2 + c^2).
* Released together with an independent Gaussian of deviation c and shift k c^2 / s^2, which only adds to the loss,
  the likelihood ratio depends on the sum of the two noises alone, whose density is as before. So the mechanism costs at
  most as much as the Gaussian with mu = (k / s) sqrt(1 + c^2 / s^2).

With c = 3/2 and s > 2000, r < 2e-19, far below the rounding of everything else.

Repeated n times, the likelihood ratio depends on the sum of the noises alone, and a sum of discrete Gaussians is one,
of deviation s sqrt(n), up to a factor of at most 1 + 8 n e^(-pi^2 s^2) (completing the square leaves the same sums
over integers; Kairouz, Liu & Steinke 2021, Theorem 9). From s = 3 on, that is 1 + n 1e-37: n steps are one step with
deviation s sqrt(n) and shift n k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accounting.events.discrete_gaussian import DiscreteGaussian
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.privacy_loss import GroupStep, PrivacyLoss
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.losses.support import Support
from accounting.units import Between, exact, exactly

Array = NDArray[np.float64]

#: The largest deviation, in grid steps, at which the atoms are enumerated.
MOST_ENUMERATED = 2000.0
#: The smallest deviation, in grid steps, at which sums of discrete Gaussians count as discrete Gaussians.
LEAST_SUMMED = 3.0
#: The deviation c of the added Gaussian noise, in grid steps (see the module's docstring).
_SMOOTHING = 1.5
#: The number of standard deviations beyond which the law has no mass in double precision.
_REACH = 38.7
_ULP = 2.0**-52


@rules_for(DiscreteGaussian)
class DiscreteGaussianRules(MechanismRules[DiscreteGaussian]):
    """The rules of discrete Gaussians. They have a Gaussian's rho but are less private, so they have no cost in
    gaussian_dp budgets.
    """

    linear_in_order = True

    def loss(self, mechanism: DiscreteGaussian, sensitivity: float) -> DiscreteGaussianLoss | FineGaussianLoss:
        steps = mechanism.steps_per_bound
        return _loss(mechanism.noise_multiplier * steps, round(sensitivity) * steps)

    def zcdp_rho(self, mechanism: DiscreteGaussian, step: ChargedStep) -> Between:
        return exactly((step.sensitivity / exact(mechanism.noise_multiplier)) ** 2 / 2)


@dataclass(frozen=True, slots=True)
class DiscreteGaussianLoss(AtomicLoss):
    """Loss of two discrete Gaussian laws.

    Attributes:
        deviation: The deviation s, in grid steps.
        shift: The distance k of the centres, in grid steps.
    """

    deviation: float
    shift: int

    pure_epsilon = math.inf
    symmetric = True
    moments_within = None
    atom_error = 4.0 * _ULP

    def find_atoms(self) -> Atoms:
        """Return the atoms that have mass in double precision."""
        s, k = self.deviation, self.shift
        y = np.arange(-math.ceil(_REACH * s) - 1.0, math.ceil(_REACH * s) + 2.0)
        exponents = -0.5 * (y / s) ** 2
        log_total = math.log(math.fsum(np.exp(exponents).tolist()))
        return Atoms(exponents - log_total, k * (y + 0.5 * k) / s**2)

    def repeated(self, count: int) -> tuple[PrivacyLoss, int]:
        """Return ``count`` steps as one step if sums of such noise have the same kind of law; otherwise return them
        unchanged.
        """
        if self.deviation < LEAST_SUMMED:
            return self, count
        return _loss(self.deviation * math.sqrt(count), self.shift * count), 1

    def log_moment(self, tilts: Array) -> Array:
        """Return x (x + 1) k^2 / (2 s^2)."""
        return _log_moment(self.deviation, self.shift, tilts)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        """Return the interval in which the loss lies. The law is subgaussian: P(y >= m) <= e^(-m^2 / (2 s^2))."""
        reach = math.sqrt(-2.0 * log_mass) * self.deviation
        centre, mass = 0.5 * self.shift, math.exp(log_mass)
        scale = self.shift / self.deviation**2
        return Support(scale * (centre - reach), scale * (centre + reach), mass, mass)

    def for_group(self, size: int) -> GroupStep:
        """Return the loss of a group of ``size`` records, which can shift the sum ``size`` times as far as one record.

        The law is log-concave, so no smaller shift costs more. Records that all move the sum the same way attain it.
        """
        return GroupStep(replace(self, shift=size * self.shift), is_exact=True)


@dataclass(frozen=True, slots=True)
class FineGaussianLoss(PrivacyLoss):
    """The loss of discrete Gaussian noise whose grid is far finer than the noise. Two Gaussian pairs bound it, from
    above and below.

    Attributes:
        deviation, shift: As in `DiscreteGaussianLoss`.
    """

    deviation: float
    shift: int

    pure_epsilon = math.inf
    symmetric = True
    has_pair = True
    is_enclosed = True
    is_tight = False

    def repeated(self, count: int) -> tuple[PrivacyLoss, int]:
        """Return one step that stands for ``count`` steps."""
        return _loss(self.deviation * math.sqrt(count), self.shift * count), 1

    @property
    def dominating(self) -> GaussianLoss:
        mu = self.shift / self.deviation
        return GaussianLoss(mu * math.sqrt(1.0 + (_SMOOTHING / self.deviation) ** 2) * (1.0 + 4.0 * _ULP))

    @property
    def attained(self) -> GaussianLoss:
        return GaussianLoss(self.shift / math.hypot(self.deviation, _SMOOTHING) * (1.0 - 4.0 * _ULP))

    def log_moment(self, tilts: Array) -> Array:
        """Return x (x + 1) k^2 / (2 s^2)."""
        return _log_moment(self.deviation, self.shift, tilts)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """Return the excess of the dominating pair."""
        return self.dominating.excess(epsilons, remove=remove)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        """Return the support of the dominating pair's loss."""
        return self.dominating.support(log_mass, remove=remove)

    def for_group(self, size: int) -> GroupStep:
        """Return the loss of a group of ``size`` records, which can shift the sum ``size`` times as far as one record.

        The law is log-concave, so no smaller shift costs more. Records that all move the sum the same way attain it.
        """
        return GroupStep(replace(self, shift=size * self.shift), is_exact=True)


def _loss(deviation: float, shift: int) -> DiscreteGaussianLoss | FineGaussianLoss:
    if deviation > MOST_ENUMERATED:
        return FineGaussianLoss(deviation, shift)
    return DiscreteGaussianLoss(deviation, shift)


def _log_moment(deviation: float, shift: int, tilts: Array) -> Array:
    moment: Array = 0.5 * (shift / deviation) ** 2 * tilts * (tilts + 1.0) * (1.0 + 12.0 * _ULP)
    return moment
