"""Logistic noise on full batches: the law with its centre at l against that with its centre at 0, in units of scale.

With u = e^-x the likelihood ratio is e^l ((1 + u) / (1 + e^l u))^2, which grows with x from e^-l to e^l. It is e^eps at
u = (1 - r) / (r e^l - 1), r = e^((eps - l)/2), where the tails' difference P - e^eps Q comes to

    delta(eps) = (1 - r)^2 / (1 - e^-l),    |eps| <= l,

without cancellation. The law is log-concave, so that the largest shift is worst.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.events.logistic import Logistic
from accounting.losses.privacy_loss import GroupStep, PrivacyLoss
from accounting.losses.rules import MechanismRules, rules_for
from accounting.losses.stated import RandomizedResponseLoss
from accounting.losses.support import Support, mirrored

Array = NDArray[np.float64]


@rules_for(Logistic)
class LogisticRules(MechanismRules[Logistic]):
    """Costs in budgets are those of every mechanism with the same largest loss."""

    def loss(self, mechanism: Logistic, sensitivity: float) -> LogisticLoss:
        return LogisticLoss(sensitivity / mechanism.noise_multiplier)


@dataclass(frozen=True, slots=True)
class LogisticLoss(PrivacyLoss):
    """Loss of two logistic laws.

    Attributes:
        epsilon: Distance of the centres over the scale, the largest loss.
    """

    epsilon: float

    symmetric = True
    has_pair = True

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def log_moment(self, tilts: Array) -> Array:
        """The moment of randomised response, which bounds that of every mechanism with this largest loss."""
        return RandomizedResponseLoss(self.epsilon).log_moment(tilts)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        missed = np.expm1(0.5 * np.minimum(np.abs(epsilons) - self.epsilon, 0.0))
        return mirrored(epsilons, missed * missed / -np.expm1(-self.epsilon))

    def support(self, log_mass: float, *, remove: bool) -> Support:
        return Support(-self.epsilon, self.epsilon, 0.0, 0.0)

    def for_group(self, size: int) -> GroupStep:
        """At k times the distance, which k records that agree attain."""
        return GroupStep(LogisticLoss(size * self.epsilon), is_exact=True)
