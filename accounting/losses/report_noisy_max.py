"""Report noisy max: noise on every score, and the name of the largest noisy score; nothing else is released.

Scores of neighbours differ by at most Delta, the noise has scale 2 Delta / epsilon. What is proved depends on it:

* Gumbel noise: exactly the exponential mechanism with weights e^(epsilon score / (2 Delta)), a bounded range.
* Laplace noise: epsilon-DP (Dwork & Roth 2014, section 3.3).
* Exponential noise, which is permute-and-flip (McKenna & Sheldon 2020; Ding et al. 2021): epsilon-DP. The losses do
  not lie in an interval of length epsilon: of two candidates with scores 0 and -Delta that swap, they reach 1.6636 for
  epsilon = 1.

The last two are charged as any epsilon-DP step, which is not claimed to be what they cost. From below, two candidates
whose scores are one apart and swap, h = epsilon / 2 and F the chance that the lower one is named:

* Laplace: scores -Delta / 2 and Delta / 2, F = (2 + h) e^-h / 4, the tail at h of a difference of two Laplace draws;
* exponential: F = e^-h / 2, the tail at h of a Laplace draw, which is a difference of two exponential ones.

The loss is +-log(1 / F - 1) then: randomised response. Single losses come as near to epsilon as one likes: where one
candidate is far behind and gains 2 Delta on the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.events.report_noisy_max import GUMBEL, LAPLACE, ReportNoisyMax
from accounting.losses.exponential import bounded_range
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.losses.stated import RandomizedResponseLoss
from accounting.units import Between, exact, exactly


@rules_for(ReportNoisyMax)
class ReportNoisyMaxRules(MechanismRules[ReportNoisyMax]):
    def loss(self, mechanism: ReportNoisyMax, sensitivity: float) -> PrivacyLoss:
        """Return the loss; with Gumbel noise the mechanism is the exponential one."""
        epsilon, noise = mechanism.epsilon, mechanism.noise
        return bounded_range(epsilon) if noise == GUMBEL else NoisyMaxLoss(epsilon, noise)

    def pure_epsilon(self, mechanism: ReportNoisyMax, step: ChargedStep) -> Between:
        return exactly(exact(mechanism.epsilon))


@dataclass(frozen=True, slots=True)
class NoisyMaxLoss(RandomizedResponseLoss):
    """The loss with Laplace or exponential noise, between two pairs. Moments and profile are the dominating pair's."""

    noise: str

    is_enclosed = True
    is_tight = False

    @property
    def dominating(self) -> RandomizedResponseLoss:
        return RandomizedResponseLoss(self.epsilon)

    @property
    def attained(self) -> RandomizedResponseLoss:
        """Two candidates that swap their scores, rounded down.

        >>> attained = NoisyMaxLoss(1.0, "exponential").attained
        >>> round(attained.epsilon, 4)
        0.8318
        """
        half = 0.5 * self.epsilon
        # log(1 / F - 1) is h + log(2 - e^-h), or h + log(4 / (2 + h) - e^-h).
        beyond = -math.expm1(-half)
        if self.noise == LAPLACE:
            beyond -= 2.0 * half / (2.0 + half)
        return RandomizedResponseLoss((half + math.log1p(beyond)) * (1.0 - 1e-14))
