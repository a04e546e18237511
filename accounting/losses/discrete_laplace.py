"""The discrete Laplace mechanism on full batches: scalar sums on a grid, with noise of mass tanh(a/2) e^(-a |y|).

Let a = grid / noise multiplier, and let k = sensitivity / grid, an integer. The losses are a (k - 2 i), i = 0, ..., k.
The largest loss, a k, has mass 1 / (1 + e^-a). The smallest loss, -a k, has this mass times e^(-a k). The losses
between them have mass tanh(a/2) e^(-a i). At these losses the profile is that of the continuous Laplace mechanism with
the same noise multiplier. Between them it is linear in e^eps, so it is above the continuous profile. The law is
log-concave, so the largest shift costs most. Both directions agree.

Source: Ghosh, Roughgarden & Sundararajan 2012 (the geometric mechanism).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.events.discrete_laplace import DiscreteLaplace
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.concentration import least_rho_of, rho_of
from accounting.losses.gaussian_mu import less_rounding, mu_of_discrete_laplace
from accounting.losses.privacy_loss import GroupStep
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.units import Between, exact, exactly

#: The largest shift of a group, in grid steps, for which every loss is kept apart.
_MOST_ATOMS = 50_000


@dataclass(frozen=True, slots=True)
class DiscreteLaplaceLoss(AtomicLoss):
    """Loss of two discrete Laplace laws.

    Attributes:
        epsilon: The largest loss, a k.
        shift: The distance k of the centres, in grid steps.
    """

    epsilon: float
    shift: int

    symmetric = True

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def find_atoms(self) -> Atoms:
        k = self.shift
        a = self.epsilon / k
        i = np.arange(k, -1.0, -1.0)
        log_masses = math.log(math.tanh(0.5 * a)) - a * i
        log_masses[-1] = -math.log1p(math.exp(-a))
        log_masses[0] = log_masses[-1] - self.epsilon
        return Atoms(log_masses, self.epsilon * (1.0 - 2.0 * i / k))

    @property
    def zcdp_rho(self) -> float:
        """The smallest rho of the mechanism's zCDP, rounded up."""
        return rho_of(self)

    @property
    def least_zcdp_rho(self) -> float:
        return least_rho_of(self)

    @property
    def gaussian_mu(self) -> float:
        return mu_of_discrete_laplace(self.epsilon, self.shift)

    @property
    def least_gaussian_mu(self) -> float:
        return less_rounding(self.gaussian_mu)

    def for_group(self, size: int) -> GroupStep:
        """Return the loss of a group of ``size`` records, which can shift the sum ``size`` times as far as one record.

        The pair consists of the law and its shift by ``size`` times the distance. The law is log-concave, so no smaller
        shift costs more. Records that all move the sum the same way attain this loss.

        If the shift has more than `_MOST_ATOMS` grid steps, a pair with fewer losses bounds the group instead. It has
        the same largest loss, and its losses are a part of the group's true losses. At these losses both profiles
        agree. Between two of them, the profile of the bound is linear in e^eps, and the true profile is convex, so the
        bound is never lower.
        """
        exact = size * self.shift <= _MOST_ATOMS
        shift = size * self.shift if exact else self.shift
        return GroupStep(DiscreteLaplaceLoss(size * self.epsilon, shift), is_exact=exact)


@rules_for(DiscreteLaplace)
class DiscreteLaplaceRules(MechanismRules[DiscreteLaplace]):
    def loss(self, mechanism: DiscreteLaplace, sensitivity: float) -> DiscreteLaplaceLoss:
        shift = round(sensitivity) * mechanism.steps_per_bound
        return DiscreteLaplaceLoss(sensitivity / mechanism.noise_multiplier, shift)

    def pure_epsilon(self, mechanism: DiscreteLaplace, step: ChargedStep) -> Between:
        return exactly(step.sensitivity / exact(mechanism.noise_multiplier))
