"""This module accounts random allocation: each record takes part in one of every t consecutive steps, chosen at random
and independently for each record.

With Y_i the likelihood ratio of step i with the record against without, given what was seen before, the ratio of an
allocation is X = (Y_1 + ... + Y_t) / t under the law Q without the record, and the hockey sticks are E_Q (X - g)_+
and E_Q (1 - g X)_+: means of convex functions of every Y_i. If the pair (P1, Q1) dominates each step, Y_i is, given the
past, below dP1/dQ1 in convex order. If the Y_i are replaced by independent copies of it, from the last step to the
first, both hockey sticks only grow, because the remaining function is again convex in each earlier ratio. So

    P = mean over i of N(e_i, s^2 I),  Q = N(0, s^2 I)  in t dimensions

dominates one allocation, adaptive steps included, and compositions of it dominate several (Feldman & Shenfeld 2025;
Chua et al. 2024, "balls and bins"). It is attained by constant gradients.

**A part.** For the first j < t steps, X = (t - j) / t + (Y_1 + ... + Y_j) / t, and the same proof gives their pair. The
first step alone has Poisson's pair with q = 1/t.

**Blocks.** An epoch is cut into k consecutive blocks, of floor(t / k) or one more steps, and each record takes part in
one step of each: k allocations, exactly.

**A set of k steps**, all sets equally likely: X is the elementary symmetric polynomial of degree k over its number of
terms, affine in every Y_i. So sets have a pair of their own, but its law is not known. Let t = k f + r. Cut the steps
at random into r parts of f + 1 steps and k - r parts of f steps, and choose one step in each part. This gives a uniform
set. Given the parts, X is a product of means over disjoint steps, so r allocations to f + 1 bins and k - r allocations
to f bins dominate. There are two lower bounds. If only the sum of all steps is seen, it holds the record k times and
the noise t times, which is a Gaussian with mu = k / (s sqrt(t)). If only one step is seen, the pair is Poisson's with q
= k/t. A set that is cut short is charged as a whole set, and its lower bound is that of one step.

Contour integrals of the density of log X (`fourier.allocation_step`) bound compositions from both sides. If that takes
too long, the laws that bound X in convex order are used. If the noise is less than `LEAST_NOISE`, one step on all
records stands for an allocation.

add_or_remove_one and replace_special have the same pair: no other record moves. replace_one is refused: the two
records' steps are drawn separately, and no pair for that is proved here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from accounting.events.gaussian import Gaussian
from accounting.events.mechanism import Mechanism
from accounting.events.samplings import Blocks, RandomAllocation
from accounting.fourier.allocation_step import AllocationStep, allocation_step
from accounting.losses import set_statistic
from accounting.losses.allocation_law import RatioAtoms, grouped_law, spread_law
from accounting.losses.allocation_moments import allocation_moment, least_allocation_moment
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import SamplingRules, sampled, sampling_rules_for
from accounting.losses.set_statistic import SetStatisticLoss
from accounting.losses.stated import RandomizedResponseLoss
from accounting.losses.support import Support
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]

#: The least noise for which allocations are evaluated. With less noise, mu^2 / 2 is above 200: the values of the laws
#: leave the range of doubles, and t steps hide next to nothing. The unsampled step then stands for an allocation, and
#: there is no lower bound.
LEAST_NOISE = 0.05

_NOTHING = RandomizedResponseLoss(0.0)


@dataclass(frozen=True, slots=True)
class AllocationLoss(PrivacyLoss):
    """The loss of a record's one step among ``bins`` steps, of which the first ``seen`` are seen; two laws enclose it.

    Attributes:
        noise_multiplier: The noise multiplier s, over the sensitivity.
        bins: The number t of bins.
        seen: The number j of steps that are seen, from 2; by default t.
    """

    noise_multiplier: float
    bins: int
    seen: int = 0

    pure_epsilon = math.inf
    symmetric = False
    has_pair = True
    is_enclosed = True
    is_tight = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", self.seen or self.bins)

    @property
    def is_inverted(self) -> bool:
        return self._is_amplified

    @property
    def _is_amplified(self) -> bool:
        return self.bins > 1 and self.noise_multiplier >= LEAST_NOISE

    @property
    def dominating(self) -> GaussianLoss | RatioLoss:
        if not self._is_amplified:
            return GaussianLoss(1.0 / self.noise_multiplier)
        return RatioLoss(self.noise_multiplier, self.bins, upward=True)

    @property
    def attained(self) -> GaussianLoss | PoissonGaussianLoss | RandomizedResponseLoss | RatioLoss:
        if self.noise_multiplier < LEAST_NOISE:
            return _NOTHING
        if self.seen < self.bins:
            return PoissonGaussianLoss(self.noise_multiplier, 1.0 / self.bins)
        return RatioLoss(self.noise_multiplier, self.bins, upward=False) if self.bins > 1 else self.dominating

    def cut_step(self, log_count: float, log_mass: float, *, remove: bool) -> tuple[AllocationStep, float]:
        return allocation_step(self.noise_multiplier, self.bins, self.seen, log_count, log_mass, remove=remove)

    def log_moment(self, tilts: Array) -> Array:
        return self.dominating.log_moment(tilts)

    def least_log_moment(self, tilts: Array) -> Array:
        """Return lower bounds of the log-moment; 0 if the noise is below `LEAST_NOISE`, where moments are not
        computed.
        """
        is_tried = self._is_amplified or self.bins == 1
        return self.dominating.least_log_moment(tilts) if is_tried else np.zeros_like(tilts)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        return self.dominating.excess(epsilons, remove=remove)

    def support(self, log_mass: float, *, remove: bool) -> Support:
        return self.dominating.support(log_mass, remove=remove)


@dataclass(frozen=True, slots=True)
class PartLoss(PrivacyLoss):
    """A part of a random set of steps.

    From above, the part is one step among its bins. From below, one of the parts stands for the whole set, and the
    others count as nothing.

    Attributes:
        above: A loss that dominates the part.
        shown: The loss that stands for the whole set from below. It belongs to one of the parts, and is None in the
            others.
    """

    above: AllocationLoss | GaussianLoss
    shown: PrivacyLoss

    pure_epsilon = math.inf
    symmetric = False
    has_pair = True
    is_enclosed = True
    is_tight = False

    @property
    def dominating(self) -> AllocationLoss | GaussianLoss:
        return self.above

    @property
    def attained(self) -> PrivacyLoss:
        return self.shown

    def log_moment(self, tilts: Array) -> Array:
        return self.above.log_moment(tilts)

    def least_log_moment(self, tilts: Array) -> Array:
        return self.above.least_log_moment(tilts)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        return self.above.excess(epsilons, remove=remove)

    def support(self, log_mass: float, *, remove: bool) -> Support:
        return self.above.support(log_mass, remove=remove)


@dataclass(frozen=True)
class RatioLoss(PrivacyLoss):
    """The loss of a pair that bounds an allocation. It comes from a law that bounds X in convex order.

    Attributes:
        noise_multiplier, bins: s and t.
        upward: Whether the law is above that of X. Its profiles are rounded in the same direction.
    """

    noise_multiplier: float
    bins: int
    upward: bool

    pure_epsilon = math.inf
    symmetric = False
    has_pair = True

    @cached_property
    def law(self) -> RatioAtoms:
        make = spread_law if self.upward else grouped_law
        return make(self.noise_multiplier, self.bins)

    def log_moment(self, tilts: Array) -> Array:
        """Return the log-moment of the allocation itself. It is also an upper bound for the law that bounds X from
        below.
        """
        return allocation_moment(self.noise_multiplier, self.bins, tilts)

    def least_log_moment(self, tilts: Array) -> Array:
        return least_allocation_moment(self.noise_multiplier, self.bins, tilts)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        """Return delta(eps) - max(0, 1 - e^eps) of one direction.

        Guarantees: profile_is_rounded_outward: it is above the allocation's profile if ``upward``, and below it
        otherwise.
        """
        here = self.law.atoms if remove else self.law.atoms.swapped
        infinite, other = (self.law.infinity, self.law.zero) if remove else (self.law.zero, self.law.infinity)
        positive = here.profile(np.maximum(epsilons, 0.0)) + infinite
        negative = np.exp(np.minimum(epsilons, 0.0)) * (here.swapped.profile(np.maximum(-epsilons, 0.0)) + other)
        factor = 1.0 + self.law.relative_error * (1.0 if self.upward else -1.0)
        excess: Array = np.where(epsilons >= 0.0, positive, negative) * factor
        return excess

    def support(self, log_mass: float, *, remove: bool) -> Support:
        atoms = self.law.atoms if remove else self.law.atoms.swapped
        infinite = self.law.infinity if remove else self.law.zero
        mass, losses = math.exp(log_mass), atoms.losses
        below = np.cumsum(np.exp(atoms.log_masses))
        start = int(np.searchsorted(below, mass))
        beyond = atoms.profile(np.maximum(losses, 0.0)) + infinite
        end = min(int(np.count_nonzero(beyond > max(mass, infinite))), losses.size - 1)
        lower = min(0.0, float(losses[min(start, end)]))
        return Support(lower, max(0.0, float(losses[end])), mass, max(mass, float(beyond[end])))


@sampled(Gaussian, RandomAllocation)
@sampled(Gaussian, Blocks)
def one_participation(
    mechanism: Gaussian, sampling: RandomAllocation | Blocks, _relation: NeighboringRelation, sensitivity: float
) -> AllocationLoss:
    """Return the loss of the participation that costs most. The rules of the samplings return the losses of all
    participations.
    """
    return AllocationLoss(mechanism.noise_multiplier / sensitivity, sampling.num_bins // sampling.participations)


@sampling_rules_for(RandomAllocation)
class RandomAllocationRules(SamplingRules[RandomAllocation]):
    def steps(
        self, mechanism: Mechanism, sampling: RandomAllocation, count: int
    ) -> tuple[tuple[PrivacyLoss, int], ...]:
        """Return the losses of one event. Events are not counted together, because an incomplete last allocation
        does not continue in the next event.
        """
        assert isinstance(mechanism, Gaussian)  # No other mechanism has this sampling.
        if sampling.participations == 1:
            return block_steps(mechanism.noise_multiplier, sampling.num_bins, 1, count)
        return set_steps(mechanism.noise_multiplier, sampling, count)


@sampling_rules_for(Blocks)
class BlocksRules(SamplingRules[Blocks]):
    def steps(self, mechanism: Mechanism, sampling: Blocks, count: int) -> tuple[tuple[PrivacyLoss, int], ...]:
        """Return the losses of one event, as `RandomAllocationRules` does."""
        assert isinstance(mechanism, Gaussian)  # No other mechanism has this sampling.
        return block_steps(mechanism.noise_multiplier, sampling.num_bins, sampling.participations, count)


def block_steps(noise_multiplier: float, bins: int, blocks: int, count: int) -> tuple[tuple[PrivacyLoss, int], ...]:
    """Return the losses of ``count`` steps and how often each occurs, if each record takes part in one step of every
    block.

    Block b of an epoch begins at its step floor(b bins / blocks), counted from 0.

    >>> for loss, number in block_steps(1.0, 7, 2, 7 + 4):
    ...     print(number, loss)
    2 AllocationLoss(noise_multiplier=1.0, bins=3, seen=3)
    1 AllocationLoss(noise_multiplier=1.0, bins=4, seen=4)
    1 PoissonGaussianLoss(noise_multiplier=1.0, sampling_probability=0.25)
    """
    epochs, rest = divmod(count, bins)
    size, longer = divmod(bins, blocks)
    numbers: dict[PrivacyLoss, int] = {}

    def meet(length: int, seen: int, number: int) -> None:
        loss = _seen_part(noise_multiplier, length, seen)
        if number:
            numbers[loss] = numbers.get(loss, 0) + number

    # An incomplete epoch consists of some whole blocks and the first steps of the next block.
    begun = -(-rest * blocks // bins) if rest else 0
    whole = begun if begun * bins // blocks <= rest else begun - 1
    longer_seen = whole * bins // blocks - whole * size
    meet(size, size, (blocks - longer) * epochs + whole - longer_seen)
    meet(size + 1, size + 1, longer * epochs + longer_seen)
    first = whole * bins // blocks
    if rest > first:
        meet((whole + 1) * bins // blocks - first, rest - first, 1)
    return tuple(numbers.items())


def _seen_part(noise_multiplier: float, bins: int, seen: int) -> PrivacyLoss:
    if bins == 1:
        return GaussianLoss(1.0 / noise_multiplier)
    return (
        AllocationLoss(noise_multiplier, bins, seen) if seen > 1 else PoissonGaussianLoss(noise_multiplier, 1.0 / bins)
    )


def set_steps(noise_multiplier: float, sampling: RandomAllocation, count: int) -> tuple[tuple[PrivacyLoss, int], ...]:
    """Return the losses of ``count`` steps with random sets of several steps, and how often each loss occurs. An
    incomplete last set counts as a whole one.

    >>> [(loss.above.bins, number) for loss, number in set_steps(1.0, RandomAllocation(7, 3), 14)]
    [(2, 2), (2, 2), (3, 2)]
    """
    bins, chosen = sampling.num_bins, sampling.participations
    whole, rest = divmod(count, bins)
    begun = whole + (1 if rest else 0)
    size, longer = divmod(bins, chosen)
    one_step = PoissonGaussianLoss(noise_multiplier, chosen / bins)
    shorter = GaussianLoss(1.0 / noise_multiplier) if size == 1 else AllocationLoss(noise_multiplier, size)
    parts = [
        (PartLoss(shorter, _shown_by(noise_multiplier, sampling, one_step)), whole),
        (PartLoss(shorter, one_step), begun - whole),
        (PartLoss(shorter, _NOTHING), (chosen - longer - 1) * begun),
        (PartLoss(AllocationLoss(noise_multiplier, size + 1), _NOTHING), longer * begun),
    ]
    return tuple((loss, number) for loss, number in parts if number)


def _shown_by(noise_multiplier: float, sampling: RandomAllocation, one_step: PoissonGaussianLoss) -> PrivacyLoss:
    """Return a lower bound of the loss of a set. It is the loss if only a sum over the steps in cells is seen.

    If the cells would be coarse, it is the loss if only the sum of the steps, or only one step, is seen. Of these two,
    the one with the larger second moment is taken: t mu^2 against e^(mu^2) - 1, both divided by (t/k)^2, with mu = 1/s.
    """
    bins, square = sampling.num_bins, noise_multiplier**-2
    if bins <= set_statistic.MOST_BINS and noise_multiplier >= set_statistic.LEAST_NOISE:
        return SetStatisticLoss(noise_multiplier, bins, sampling.participations)
    if square < 700.0 and bins * square <= math.expm1(square):
        return one_step
    return GaussianLoss(sampling.participations / (noise_multiplier * math.sqrt(bins)))
