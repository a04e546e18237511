"""Batches of a fixed size without replacement under replace_one: one symmetrised dominating pair.

A step draws b of n records; q = b/n. Between two data sets that differ in one record the two batches are the same with
probability 1 - q, and differ in that one record with probability q. With (P, Q) a pair that dominates the mechanism on
one batch (sensitivity 2), the mechanism on the sampled batch is bounded by

    H_g <= H_g((1-q) Q + q P | Q)  for g >= 1,     H_g <= H_g(P | (1-q) P + q Q)  for g < 1

(Balle, Barthe & Gaboardi 2018, Theorem 9; Zhu, Dong & Wang 2022: the two halves together are the profile of
one pair, so compositions are dominated by its compositions). In epsilons: for eps >= 0 the remove profile of Poisson's
pair at sensitivity 2, and delta(-eps) = 1 - e^-eps + e^-eps delta(eps).

Either direction of Poisson's pair alone at sensitivity 2 is only what some neighbours attain: for one step its remove
profile is the bound above, but compositions of it fall below those of the symmetrised pair. A record that becomes a
null record is one that becomes another: replace_special is charged the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.events.gaussian import Gaussian
from accounting.events.laplace import Laplace
from accounting.events.samplings import WithoutReplacement
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.displacement import DisplacedCellsLoss, DisplacementLoss
from accounting.losses.enclosed import EnclosedLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss
from accounting.losses.privacy_loss import GroupStep, Moments, PrivacyLoss
from accounting.losses.rules import sampled
from accounting.losses.support import Support, mirrored
from accounting.losses.symmetrized_moments import least_moments_at, moments_at
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SymmetrizedLoss(PrivacyLoss):
    """One step on a batch of a fixed size.

    Attributes:
        pair: Poisson's pair with the noise multiplier, or the largest loss, of sensitivity 2 and q = b/n below 1.
    """

    pair: PoissonGaussianLoss | PoissonLaplaceLoss

    symmetric = True
    has_pair = True
    moments = Moments.QUADRATURE

    @property
    def pure_epsilon(self) -> float:
        return self.pair.pure_epsilon

    def log_moment(self, tilts: Array) -> Array:
        """log(1 + E_Q [(f^(x+1) + f^-x - f - 1) 1{f >= 1}]), f the sampled likelihood ratio, rounded up.

        Guarantees: moment_is_an_upper_bound; moment_belongs_to_the_profile.

        Source: M(x) = 1 + x (x+1) int (e^(x eps) + e^(-(x+1) eps)) delta(eps) d eps over eps > 0, with the remove
        profile delta(eps) = E_Q (f - e^eps)_+; both integrals over eps are elementary.
        """
        return moments_at(tilts, self.pair.symmetrized_moment)

    def least_log_moment(self, tilts: Array) -> Array:
        return least_moments_at(tilts, self.log_moment(tilts), self.pair.sampling_probability)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        return mirrored(epsilons, self.pair.excess(np.abs(epsilons), remove=True))

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        """Losses above 0 have the law they have in Poisson's pair; those below 0 weigh less."""
        above = self.pair.support(log_mass, remove=True)
        return Support(-above.upper, above.upper, above.upper_mass, above.upper_mass)

    @property
    def unamplified_mu(self) -> float | None:
        return self.pair.unamplified_mu

    def contour_step(self, log_count: float, *, remove: bool) -> RatioStep:
        """The loss has on l > 0 the law of Poisson's remove pair, on l < 0 the reflection of that pair's other law.

        The rest of the mass is at 0: M(z) = 1 + E_Q [(f^(z+1) + f^-z - f - 1) 1{y >= 0}], because the profile is the
        remove pair's for eps >= 0 and delta(-eps) = 1 - e^-eps + e^-eps delta(eps).

        Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.
        """
        return self.pair.symmetrized_step(log_count)

    def for_group(self, size: int) -> GroupStep:
        """Return the loss at ``size`` times the distance; a full batch if some of the group is always in it."""
        farther = self.pair.farther(size, fixed_size=True)
        if isinstance(farther, PoissonGaussianLoss | PoissonLaplaceLoss):
            return GroupStep(SymmetrizedLoss(farther), is_exact=False)
        return GroupStep(farther, is_exact=False)


@sampled(Gaussian, WithoutReplacement)
def gaussian_without_replacement(
    mechanism: Gaussian, sampling: WithoutReplacement, relation: NeighboringRelation, _sensitivity: float
) -> SymmetrizedLoss | EnclosedLoss:
    """Gaussian noise on batches of a fixed size; a null record has a pair below that of another record."""
    noise, probability = mechanism.noise_multiplier, sampling.sampling_probability
    replaced = SymmetrizedLoss(PoissonGaussianLoss(noise / NeighboringRelation.REPLACE_ONE.sensitivity, probability))
    if relation is NeighboringRelation.REPLACE_ONE:
        return replaced
    displaced, seen = DisplacementLoss(noise, probability), DisplacedCellsLoss(noise, probability)
    return EnclosedLoss(displaced, seen, replaced, bounds_groups=True)


@sampled(Laplace, WithoutReplacement)
def laplace_without_replacement(
    mechanism: Laplace, sampling: WithoutReplacement, _relation: NeighboringRelation, sensitivity: float
) -> SymmetrizedLoss:
    """Laplace noise on batches of a fixed size."""
    largest = sensitivity / mechanism.noise_multiplier
    return SymmetrizedLoss(PoissonLaplaceLoss(largest, sampling.sampling_probability))
