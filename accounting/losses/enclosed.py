"""This module defines the loss of a step that lies between two pairs: one that dominates it, and one that some
neighbours attain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.support import Support

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EnclosedLoss(PrivacyLoss):
    """The loss of a step that costs at most as much as ``above`` and at least as much as ``below``, also in
    compositions.

    Attributes:
        above: A loss that dominates the step.
        below: A loss that the same neighbours attain in every step.
        farther: Another loss that dominates the step and is not a mixture; None if no other is known.
    """

    above: PrivacyLoss
    below: PrivacyLoss
    farther: PrivacyLoss | None

    has_pair = True
    is_enclosed = True
    has_own_moments = False
    is_mixture = True
    is_tight = False

    @property
    def pure_epsilon(self) -> float:
        return self.above.pure_epsilon

    @property
    def symmetric(self) -> bool:
        return self.above.symmetric

    @property
    def dominating(self) -> PrivacyLoss:
        return self.above

    @property
    def simpler(self) -> PrivacyLoss | None:
        return self.farther

    @property
    def attained(self) -> PrivacyLoss:
        return self.below

    @property
    def unamplified_mu(self) -> float | None:
        return self.above.unamplified_mu

    @property
    def slow_on_lattice(self) -> bool:
        return self.above.slow_on_lattice

    def log_moment(self, tilts: Array) -> Array:
        return self.above.log_moment(tilts)

    def least_log_moment(self, tilts: Array) -> Array:
        return self.above.least_log_moment(tilts)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        return self.above.excess(epsilons, remove=remove)

    def support(self, log_mass: float, *, remove: bool) -> Support:
        return self.above.support(log_mass, remove=remove)

    def without_rare_branches(self, mass: float) -> tuple[PrivacyLoss, float]:
        """Leave out rare branches of the dominating pair. The attained pair is kept, because a list never costs
        less.
        """
        above, dropped = self.above.without_rare_branches(mass)
        return replace(self, above=above), dropped
