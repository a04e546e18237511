"""This module accounts batches of a fixed size drawn without replacement. Under replace_one, one symmetrised pair
dominates.

A step draws b of n records; q = b/n. Between two data sets that differ in one record the two batches are the same with
probability 1 - q, and differ in that one record with probability q. With (P, Q) a pair that dominates the mechanism on
one batch (sensitivity 2), the mechanism on the sampled batch is bounded by

    H_g <= H_g((1-q) Q + q P | Q)  for g >= 1,     H_g <= H_g(P | (1-q) P + q Q)  for g < 1

(Balle, Barthe & Gaboardi 2018, Theorem 9; Zhu, Dong & Wang 2022: the two halves together are the profile of
one pair, so compositions are dominated by its compositions). In epsilons: for eps >= 0 the remove profile of Poisson's
pair at sensitivity 2, and delta(-eps) = 1 - e^-eps + e^-eps delta(eps).

A single direction of Poisson's pair at sensitivity 2 is only a lower bound, which some neighbours attain: for one step
its remove profile is the bound above, but compositions of it fall below those of the symmetrised pair. A record that
becomes a null record is a record that becomes another: replace_special is charged the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.events.gaussian import Gaussian
from accounting.events.laplace import Laplace
from accounting.events.samplings import WithoutReplacement
from accounting.fourier.ratio_step import RatioStep
from accounting.losses.batch_hits import Hits, branches, hits_without_replacement
from accounting.losses.displacement import DisplacedCellsLoss, DisplacementLoss
from accounting.losses.enclosed import EnclosedLoss
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.group_batches import GroupBatchLoss
from accounting.losses.laplace import LaplaceLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss
from accounting.losses.privacy_loss import GroupStep, Moments, PrivacyLoss
from accounting.losses.rules import sampled
from accounting.losses.support import Support, mirrored
from accounting.losses.symmetrized_moments import least_moments_at, moments_at
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SymmetrizedLoss(PrivacyLoss):
    """One step on a batch of a fixed size.

    Attributes:
        pair: Poisson's pair with the noise multiplier, or the largest loss, of sensitivity 2 and q = b/n below 1.
        sampling: The sampling scheme, if the loss is to tell apart how many records of a group a batch holds.
    """

    pair: PoissonGaussianLoss | PoissonLaplaceLoss
    sampling: WithoutReplacement | None = None

    symmetric = True
    has_pair = True
    moments = Moments.QUADRATURE

    @property
    def pure_epsilon(self) -> float:
        return self.pair.pure_epsilon

    def log_moment(self, tilts: Array) -> Array:
        """Return log(1 + E_Q [(f^(x+1) + f^-x - f - 1) 1{f >= 1}]), f the sampled likelihood ratio, rounded up.

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
        """Return the interval in which the loss lies. Losses above 0 have the law of Poisson's pair; losses below 0
        have less mass.
        """
        above = self.pair.support(log_mass, remove=True)
        return Support(-above.upper, above.upper, above.upper_mass, above.upper_mass)

    @property
    def unamplified_mu(self) -> float | None:
        return self.pair.unamplified_mu

    def contour_step(self, log_count: float, *, remove: bool) -> RatioStep:
        """Return the step. Its losses above 0 have the law of Poisson's remove pair. Its losses below 0 are the
        reflection of that pair's losses under the other law.

        The rest of the mass is at 0: M(z) = 1 + E_Q [(f^(z+1) + f^-z - f - 1) 1{y >= 0}], because the profile is the
        remove pair's for eps >= 0 and delta(-eps) = 1 - e^-eps + e^-eps delta(eps).

        Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.
        """
        return self.pair.symmetrized_step(log_count)

    def for_group(self, size: int) -> GroupStep | None:
        """Return a mixture over how many of the group are in the batch, and what some groups cost at least."""
        if self.sampling is None:
            return None
        batches = self.sampling
        return replaced_group(self.pair, hits_without_replacement(batches.batch_size, batches.dataset_size, size))


def symmetrized(pair: PoissonGaussianLoss | PoissonLaplaceLoss | GaussianLoss | LaplaceLoss) -> PrivacyLoss:
    """Return the loss of a batch of a fixed size: that of Poisson's pair, symmetrised; or for a full batch that of
    the mechanism itself.
    """
    return SymmetrizedLoss(pair) if isinstance(pair, PoissonGaussianLoss | PoissonLaplaceLoss) else pair


def seen_hits(pair: PoissonGaussianLoss | PoissonLaplaceLoss, hits: Hits) -> VisibleMixtureLoss:
    """Return a loss for several replaced records, of which a batch holds the given numbers (`losses.batch_hits`).

    Args:
        pair: Poisson's pair of one record, at sensitivity 2 and any probability.
    """
    found = branches(hits, pair.distance, bounded=isinstance(pair, PoissonLaplaceLoss))
    losses = tuple(symmetrized(pair.at_distance(each.hits, each.probability)) for each in found)
    return VisibleMixtureLoss(tuple(each.share for each in found), losses)


def replaced_group(pair: PoissonGaussianLoss | PoissonLaplaceLoss, hits: Hits) -> GroupStep:
    """Return the loss of a replaced group in one step of a batch of a fixed size. The arguments are those of
    `seen_hits`."""
    below = GroupBatchLoss(2.0 / pair.distance, hits, laplace=isinstance(pair, PoissonLaplaceLoss))
    above = seen_hits(pair, hits)
    return GroupStep(EnclosedLoss(above, below, None), is_exact=True)


@dataclass(frozen=True, slots=True)
class NullRecordLoss(EnclosedLoss):
    """The loss of one step of Gaussian noise under replace_special, between the two pairs of `losses.displacement`.

    Attributes:
        noise_multiplier: The noise multiplier s.
        sampling: The batches.
    """

    noise_multiplier: float
    sampling: WithoutReplacement

    @classmethod
    def of(cls, noise_multiplier: float, sampling: WithoutReplacement) -> NullRecordLoss:
        """Return the loss of one record that becomes null. It is at most the loss of a record that becomes another
        record.
        """
        probability = sampling.sampling_probability
        above = DisplacementLoss(noise_multiplier, probability)
        below = DisplacedCellsLoss(noise_multiplier, probability)
        replaced = SymmetrizedLoss(PoissonGaussianLoss(noise_multiplier / 2.0, probability))
        return cls(above, below, replaced, noise_multiplier, sampling)

    def for_group(self, size: int) -> GroupStep:
        """Return a mixture over how many of the group are in the batch, and what some groups cost at least.

        h places that become null count as one place whose contribution is h times as long.
        """
        hits = hits_without_replacement(self.sampling.batch_size, self.sampling.dataset_size, size)
        found, s = branches(hits, 2.0 / self.noise_multiplier), self.noise_multiplier
        losses = tuple(
            DisplacementLoss(s / each.hits, each.probability) if each.probability < 1.0 else GaussianLoss(each.hits / s)
            for each in found
        )
        above = VisibleMixtureLoss(tuple(each.share for each in found), losses)
        # For a lower bound, numbers of hits without a weight are left out for both data sets.
        return GroupStep(
            EnclosedLoss(above, GroupBatchLoss(s, hits, to_null=True), None), is_exact=True, rare=hits.beyond
        )


@sampled(Gaussian, WithoutReplacement)
def gaussian_without_replacement(
    mechanism: Gaussian, sampling: WithoutReplacement, relation: NeighboringRelation, _sensitivity: float
) -> SymmetrizedLoss | NullRecordLoss:
    """Return the loss of Gaussian noise on batches of a fixed size. A null record costs less than another record."""
    if relation is not NeighboringRelation.REPLACE_ONE:
        return NullRecordLoss.of(mechanism.noise_multiplier, sampling)
    noise = mechanism.noise_multiplier / NeighboringRelation.REPLACE_ONE.sensitivity
    return SymmetrizedLoss(PoissonGaussianLoss(noise, sampling.sampling_probability), sampling)


@sampled(Laplace, WithoutReplacement)
def laplace_without_replacement(
    mechanism: Laplace, sampling: WithoutReplacement, _relation: NeighboringRelation, sensitivity: float
) -> SymmetrizedLoss:
    """Return the loss of Laplace noise on batches of a fixed size."""
    largest = sensitivity / mechanism.noise_multiplier
    return SymmetrizedLoss(PoissonLaplaceLoss(largest, sampling.sampling_probability), sampling)
