"""This module accounts steps that take one of several branches at random and show which one. Their loss is a mixture of
pairs.

With probability w_i the step is the one of pair i, and i is part of the output. The branch does not depend on the data,
and outputs of different branches never coincide, so every integral adds up:

    delta(eps) = sum w_i delta_i(eps),     M(z) = sum w_i M_i(z).

A mechanism that hides the branch leaves out a part of this output, so this pair dominates it. If the branch is seen,
the pair is attained when the same neighbours attain the pairs of all branches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.mixture import MixtureStep
from accounting.fourier.steps import Step
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.privacy_loss import GroupStep, PrivacyLoss
from accounting.losses.support import Support

Array = NDArray[np.float64]
#: An allowance for the rounding of a weighted sum of moments.
_ALLOWANCE = 1e-14
#: Moments whose log is above this number are added up in logarithms.
_LARGE = 300.0
#: The most branches with which a lattice is tried, for groups.
_MOST_ON_LATTICE = 4
#: A branch of a line is only bounded, and not computed, if its share of M over all steps is below e to the minus this
#: number.
_LINE_DIGITS = 24.0


@dataclass(frozen=True, slots=True)
class VisibleMixtureLoss(PrivacyLoss):
    """Loss of a step whose branch is seen.

    Attributes:
        weights: Probabilities of the branches: positive, with a sum of 1 up to rounding.
        losses: The losses of the branches, which have pairs.

    Guarantees: profile_is_the_weighted_sum; moment_is_the_weighted_sum.
    """

    weights: tuple[float, ...]
    losses: tuple[PrivacyLoss, ...]

    has_pair = True
    is_mixture = True

    @property
    def pure_epsilon(self) -> float:
        return max(loss.pure_epsilon for loss in self.losses)

    @property
    def symmetric(self) -> bool:
        return all(loss.symmetric for loss in self.losses)

    @property
    def slow_on_lattice(self) -> bool:
        return len(self.losses) > _MOST_ON_LATTICE or any(loss.slow_on_lattice for loss in self.losses)

    def log_moment(self, tilts: Array) -> Array:
        """Return the logarithm of the weighted sum, rounded up. If the moments are small, their differences from 1 are
        summed."""
        return self._weighted(np.array([loss.log_moment(tilts) for loss in self.losses])) * (1.0 + _ALLOWANCE)

    def least_log_moment(self, tilts: Array) -> Array:
        """Return the log of the weighted sum of the branches' least moments, rounded down. It is a lower bound
        because the sum grows with each moment.
        """
        return self._weighted(np.array([loss.least_log_moment(tilts) for loss in self.losses])) * (1.0 - _ALLOWANCE)

    def _weighted(self, moments: Array) -> Array:
        weights = np.array(self.weights)[:, None]
        small = np.log1p((weights * np.expm1(np.minimum(moments, _LARGE))).sum(axis=0))
        large = np.logaddexp.reduce(np.log(weights) + moments, axis=0)
        weighted: Array = np.where(moments.max(axis=0) > _LARGE, large, small)
        return weighted

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        total = np.zeros_like(epsilons)
        for weight, loss in zip(self.weights, self.losses, strict=True):
            total += weight * loss.excess(epsilons, remove=remove)
        return total

    def support(self, log_mass: float, *, remove: bool) -> Support:
        """Return the interval that covers the supports of all branches. Branches may leave out the given mass in
        all.
        """
        share = log_mass - math.log(len(self.losses))
        supports = [
            loss.support(min(share - math.log(weight), -1.0), remove=remove)
            for weight, loss in zip(self.weights, self.losses, strict=True)
        ]

        def mass(end: str) -> float:
            return math.fsum(w * getattr(s, end) for w, s in zip(self.weights, supports, strict=True))

        return Support(
            min(support.lower for support in supports),
            max(support.upper for support in supports),
            mass("lower_mass"),
            mass("upper_mass"),
        )

    def without_rare_branches(self, mass: float) -> tuple[VisibleMixtureLoss, float]:
        """Return the loss without the rarest branches, and the probability of these branches, which is at most
        ``mass``.

        Guarantees: rare_branches_weigh_what_is_said_and_are_paid_for: rounded up.
        """
        order = sorted(range(len(self.weights)), key=self.weights.__getitem__)
        left, dropped = [], 0.0
        for place in order:
            if (dropped + self.weights[place]) * (1.0 + _ALLOWANCE) <= mass and place != order[-1]:
                dropped += self.weights[place]
            else:
                left.append(place)
        if not dropped:
            return self, 0.0
        left.sort()
        kept = math.fsum(self.weights[place] for place in left)
        weights = tuple(self.weights[place] / kept for place in left)
        return VisibleMixtureLoss(weights, tuple(self.losses[place] for place in left)), dropped * (1.0 + _ALLOWANCE)

    @property
    def branches(self) -> tuple[PrivacyLoss, ...]:
        """The losses of all branches, including those of nested mixtures.

        >>> from accounting.losses.gaussian import GaussianLoss
        >>> VisibleMixtureLoss((0.5, 0.5), (GaussianLoss(1.0), GaussianLoss(2.0))).branches
        (GaussianLoss(mu=1.0), GaussianLoss(mu=2.0))
        """
        return tuple(each for loss in self.losses for each in loss.branches)

    @property
    def unamplified_mu(self) -> float | None:
        mus = [loss.unamplified_mu for loss in self.losses]
        return max((mu for mu in mus if mu is not None), default=None) if None not in mus else None

    def contour_step(self, log_count: float, *, remove: bool) -> MixtureStep | None:
        steps: list[Step] = []
        for loss in self.losses:
            step = loss.contour_step(log_count, remove=remove)
            if step is None:
                return None
            steps.append(step)
        return MixtureStep(self.weights, tuple(steps), math.exp(-_LINE_DIGITS - log_count))

    def for_group(self, size: int) -> GroupStep | None:
        """Return the loss for a group: the mixture of the branches' losses for the group."""
        parts = [loss.for_group(size) for loss in self.losses if isinstance(loss, GaussianLoss)]
        if len(parts) < len(self.losses):
            return None
        return GroupStep(VisibleMixtureLoss(self.weights, tuple(part.loss for part in parts)), is_exact=True)
