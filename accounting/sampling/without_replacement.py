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

from accounting.mechanisms.support import Support, mirrored
from accounting.sampling.laplace import PoissonLaplaceLoss
from accounting.sampling.poisson import PoissonGaussianLoss
from accounting.sampling.symmetrized_moments import (
    moments_at,
    symmetrized_gaussian_moment,
    symmetrized_laplace_moment,
)

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SymmetrizedLoss:
    """One step on a batch of a fixed size.

    Attributes:
        pair: Poisson's pair with the noise multiplier, or the largest loss, of sensitivity 2 and q = b/n below 1.
    """

    pair: PoissonGaussianLoss | PoissonLaplaceLoss

    symmetric = True
    has_pair = True

    @property
    def pure_epsilon(self) -> float:
        return self.pair.pure_epsilon

    def log_moment(self, tilts: Array) -> Array:
        """log(1 + E_Q [(f^(x+1) + f^-x - f - 1) 1{f >= 1}]), f the sampled likelihood ratio, rounded up.

        Guarantees: moment_is_an_upper_bound; moment_belongs_to_the_profile.

        Source: M(x) = 1 + x (x+1) int (e^(x eps) + e^(-(x+1) eps)) delta(eps) d eps over eps > 0, with the remove
        profile delta(eps) = E_Q (f - e^eps)_+; both integrals over eps are elementary.
        """
        pair = self.pair
        q = pair.sampling_probability
        if isinstance(pair, PoissonLaplaceLoss):
            return moments_at(tilts, lambda tilt: symmetrized_laplace_moment(pair.epsilon, q, tilt))
        return moments_at(tilts, lambda tilt: symmetrized_gaussian_moment(pair.noise_multiplier, q, tilt))

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        return mirrored(epsilons, self.pair.excess(np.abs(epsilons), remove=True))

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        """Losses above 0 have the law they have in Poisson's pair; those below 0 weigh less."""
        above = self.pair.support(log_mass, remove=True)
        return Support(-above.upper, above.upper, above.upper_mass, above.upper_mass)
