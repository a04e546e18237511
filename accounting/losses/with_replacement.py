"""This module accounts batches of a fixed size drawn with replacement, under replace_one. The loss is a mixture over
the number of times that a record is drawn.

A step makes b independent draws of one of n records, so a record may be in the batch several times, and counts that
many times. It is drawn h times with binomial probability w_h. The theorem of `accounting.losses.batch_hits` is about
the h places that the record has in the batch: it bounds the step by a mixture, whose branch h is seen, of the
symmetrised pairs of `accounting.losses.without_replacement` at h times the distance, and it holds for groups of records
as well. Compositions are dominated by its compositions (Zhu, Dong & Wang 2022).

A record that is null in its place is another record: replace_special is charged the same. A batch of one draw is a
batch of one record without replacement.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.events.gaussian import Gaussian
from accounting.events.laplace import Laplace
from accounting.events.samplings import WithReplacement
from accounting.losses.batch_hits import hits_with_replacement
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss
from accounting.losses.privacy_loss import GroupStep
from accounting.losses.rules import sampled
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.losses.without_replacement import replaced_group, seen_hits
from accounting.relations import NeighboringRelation


@dataclass(frozen=True, slots=True)
class DrawsLoss(VisibleMixtureLoss):
    """The loss of one step. Its branch is the number of times that the record is drawn.

    Attributes:
        pair: Poisson's pair of one draw, at sensitivity 2 and the probability of a draw.
        sampling: The sampling scheme with the number of draws and of records.
    """

    pair: PoissonGaussianLoss | PoissonLaplaceLoss
    sampling: WithReplacement

    @classmethod
    def of(cls, pair: PoissonGaussianLoss | PoissonLaplaceLoss, sampling: WithReplacement) -> DrawsLoss:
        """Return the loss of one record."""
        mixture = seen_hits(pair, hits_with_replacement(sampling.batch_size, sampling.dataset_size, 1))
        return cls(mixture.weights, mixture.losses, pair, sampling)

    def for_group(self, size: int) -> GroupStep:
        """Return a mixture over the number of draws from the group, and a lower bound that some groups attain."""
        batches = self.sampling
        return replaced_group(self.pair, hits_with_replacement(batches.batch_size, batches.dataset_size, size))


@sampled(Gaussian, WithReplacement)
def gaussian_draws(
    mechanism: Gaussian, sampling: WithReplacement, _relation: NeighboringRelation, sensitivity: float
) -> DrawsLoss:
    """Return the loss with Gaussian noise. ``sensitivity`` is the change of the sum if one place of the batch is
    replaced.
    """
    pair = PoissonGaussianLoss(mechanism.noise_multiplier / sensitivity, 1.0 / sampling.dataset_size)
    return DrawsLoss.of(pair, sampling)


@sampled(Laplace, WithReplacement)
def laplace_draws(
    mechanism: Laplace, sampling: WithReplacement, _relation: NeighboringRelation, sensitivity: float
) -> DrawsLoss:
    """Return the loss with Laplace noise. ``sensitivity`` is the change of the sum if one place of the batch is
    replaced.
    """
    pair = PoissonLaplaceLoss(sensitivity / mechanism.noise_multiplier, 1.0 / sampling.dataset_size)
    return DrawsLoss.of(pair, sampling)
