"""This module accounts Gaussian noise whose scale is drawn at random: with probability w_i the noise multiplier is s_i.

The draw does not depend on the data. The charged pair reveals the draw: N(mu_i, 1) against N(0, 1) with probability
w_i, mu_i = sensitivity / s_i. So profile and moments are weighted sums (`accounting.losses.visible_mixture`). This is
exact for a mechanism that publishes its scale, and a bound for one that does not: leaving out the scale is a
post-processing, and no saving from hiding it is claimed. Poisson batches mix the sampled pairs in the same way, because
the scale is drawn independently of the batch.

This is not dp-accounting's `MixtureOfGaussiansDpEvent`: there one scale of noise is fixed and the SENSITIVITY is drawn,
N(c_i, s^2) with hidden probabilities p_i against N(0, s^2), as in a sum over a random number of contributions. Neither
is a special case of the other, except that with one branch both are the Gaussian mechanism.
"""

from __future__ import annotations

from accounting.events.gaussian import Gaussian
from accounting.events.gaussian_mixture import GaussianMixture
from accounting.events.samplings import Poisson
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for, sampled, sampled_loss
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.relations import NeighboringRelation
from accounting.units import Between, exact, exactly


@rules_for(GaussianMixture)
class GaussianMixtureRules(MechanismRules[GaussianMixture]):
    """The rules of mixtures. Divergences at large orders depend on the branch with the least noise, even if it is
    rare. The Gaussian with this noise dominates the mixture.
    """

    amplified_sums = False

    def loss(self, mechanism: GaussianMixture, sensitivity: float) -> PrivacyLoss:
        """Return the mixture's loss. If all branches have the same noise, it is the loss of the Gaussian mechanism."""
        if len(set(mechanism.noise_multipliers)) == 1:
            return GaussianLoss(sensitivity / mechanism.least_noise)
        return VisibleMixtureLoss(
            mechanism.probabilities, tuple(GaussianLoss(sensitivity / scale) for scale in mechanism.noise_multipliers)
        )

    def zcdp_rho(self, mechanism: GaussianMixture, step: ChargedStep) -> Between:
        return exactly(self.mu_squared(mechanism, step).most / 2)

    def mu_squared(self, mechanism: GaussianMixture, step: ChargedStep) -> Between:
        return exactly((step.sensitivity / exact(mechanism.least_noise)) ** 2)


@sampled(GaussianMixture, Poisson)
def poisson_mixture(
    mechanism: GaussianMixture, sampling: Poisson, relation: NeighboringRelation, sensitivity: float
) -> VisibleMixtureLoss:
    """Return the mixture of the sampled pairs. The scale is drawn independently of the batch and is seen."""
    branches = [sampled_loss(Gaussian(scale), sampling, relation, sensitivity) for scale in mechanism.noise_multipliers]
    return VisibleMixtureLoss(mechanism.probabilities, tuple(branches))
