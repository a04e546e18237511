"""Random allocation: each record takes part in k of every t consecutive steps, chosen at random for it alone.

k = 1. With Y_i the likelihood ratio of step i with the record against without, given what was seen before, the ratio of
an allocation is X = (Y_1 + ... + Y_t) / t under the law Q without the record, and the hockey sticks are E_Q (X - g)_+
and E_Q (1 - g X)_+: means of convex functions of every Y_i. Where the pair (P1, Q1) dominates each step, Y_i is, given
the past, below dP1/dQ1 in convex order; exchanged for independent copies of it from the last step to the first, both
hockey sticks only grow (the function that is left after each exchange is again convex in each earlier ratio). So

    P = mean over i of N(e_i, s^2 I),  Q = N(0, s^2 I)  in t dimensions

dominates one allocation, adaptive steps included, and compositions of it dominate several (Feldman & Shenfeld 2025;
Chua et al. 2024, "balls and bins"). All steps of an allocation are one release: nothing is proved here about a part.

k > 1. A random set of k of t steps is made by cutting the steps at random into k parts of floor(t/k) (and a rest that
is not used), and choosing one step in each. Given the parts, which do not depend on data, X is the product of k means
over disjoint sets of steps, convex in every Y_i: the same exchange shows that k allocations to floor(t/k) bins
dominate. The parts average out by joint convexity.

From below. What an allocation costs at least: for k = 1 a law below X in convex order; for k > 1, to one who sees one
of its steps, Poisson's pair with q = k/t, or to one who sees the sum of all its steps, in which the record is k times
among t noises, a Gaussian with mu = k / (s sqrt(t)). A last allocation that is cut short is charged as a whole one, and
counts from below as one step of it.

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
from accounting.events.samplings import RandomAllocation
from accounting.losses.allocation_law import RatioAtoms, grouped_law, spread_law
from accounting.losses.allocation_moments import allocation_moment, least_allocation_moment
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import SamplingRules, sampled, sampling_rules_for
from accounting.losses.stated import RandomizedResponseLoss
from accounting.losses.support import Support
from accounting.relations import NeighboringRelation

Array = NDArray[np.float64]

#: Below it the laws' values leave the range of doubles, and t steps hide next to nothing: mu^2 / 2 is above 200. The
#: unsampled step stands for an allocation there, and nothing is known from below.
LEAST_NOISE = 0.05


Shown = GaussianLoss | PoissonGaussianLoss | RandomizedResponseLoss
_NOTHING = RandomizedResponseLoss(0.0)


@dataclass(frozen=True, slots=True)
class AllocationLoss(PrivacyLoss):
    """One record's one step among ``bins``; it lies between two pairs.

    Attributes:
        noise_multiplier: s, over the sensitivity.
        bins: t.
        shown: What stands for it from below: None for the whole of it, else the loss of the part that is seen.
    """

    noise_multiplier: float
    bins: int
    shown: Shown | None = None

    pure_epsilon = math.inf
    symmetric = False
    has_pair = True
    is_enclosed = True
    is_tight = False

    @property
    def _is_amplified(self) -> bool:
        return self.bins > 1 and self.noise_multiplier >= LEAST_NOISE

    @property
    def dominating(self) -> GaussianLoss | RatioLoss:
        if not self._is_amplified:
            return GaussianLoss(1.0 / self.noise_multiplier)
        return RatioLoss(self.noise_multiplier, self.bins, upward=True)

    @property
    def attained(self) -> Shown | RatioLoss:
        if self.noise_multiplier < LEAST_NOISE:
            return _NOTHING
        if self.shown is not None:
            return self.shown
        return RatioLoss(self.noise_multiplier, self.bins, upward=False) if self.bins > 1 else self.dominating

    def log_moment(self, tilts: Array) -> Array:
        return self.dominating.log_moment(tilts)

    def least_log_moment(self, tilts: Array) -> Array:
        """Of little noise nothing is known, as its moments are not tried."""
        is_tried = self._is_amplified or self.bins == 1
        return self.dominating.least_log_moment(tilts) if is_tried else np.zeros_like(tilts)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        return self.dominating.excess(epsilons, remove=remove)

    def support(self, log_mass: float, *, remove: bool) -> Support:
        return self.dominating.support(log_mass, remove=remove)


@dataclass(frozen=True)
class RatioLoss(PrivacyLoss):
    """The pair of a law that bounds X in convex order.

    Attributes:
        noise_multiplier, bins: s and t.
        upward: Whether the law is above X's; its profiles are rounded the same way.
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
        """Return the log-moment of the allocation itself; it bounds that of the law from below, too."""
        return allocation_moment(self.noise_multiplier, self.bins, tilts)

    def least_log_moment(self, tilts: Array) -> Array:
        return least_allocation_moment(self.noise_multiplier, self.bins, tilts)

    def excess(self, epsilons: Array, *, remove: bool) -> Array:
        """Guarantees: profile_is_rounded_outward: above the allocation's where ``upward``, else below it."""
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
def one_participation(
    mechanism: Gaussian, sampling: RandomAllocation, _relation: NeighboringRelation, sensitivity: float
) -> AllocationLoss:
    """The loss of one participation; `allocation_steps` has how many there are."""
    return AllocationLoss(mechanism.noise_multiplier / sensitivity, sampling.num_bins // sampling.participations)


@sampling_rules_for(RandomAllocation)
class RandomAllocationRules(SamplingRules[RandomAllocation]):
    def steps(
        self, mechanism: Mechanism, sampling: RandomAllocation, count: int
    ) -> tuple[tuple[AllocationLoss, int], ...]:
        """Event by event: a last allocation that is cut short is not one that goes on."""
        assert isinstance(mechanism, Gaussian)  # No other mechanism has this sampling.
        return allocation_steps(mechanism.noise_multiplier, sampling, count)


def allocation_steps(
    noise_multiplier: float, sampling: RandomAllocation, count: int
) -> tuple[tuple[AllocationLoss, int], ...]:
    """The losses of ``count`` steps and how often each is met, the last allocation as a whole.

    >>> [(loss.bins, number) for loss, number in allocation_steps(1.0, RandomAllocation(100, 1), 250)]
    [(100, 2), (100, 1)]
    """
    bins, chosen = sampling.num_bins // sampling.participations, sampling.participations
    whole, rest = divmod(count, sampling.num_bins)
    one_step = PoissonGaussianLoss(noise_multiplier, chosen / sampling.num_bins)
    seen = None if chosen == 1 else _sum_or_step(noise_multiplier, sampling, one_step)
    steps = [
        (AllocationLoss(noise_multiplier, bins, seen), whole),
        (AllocationLoss(noise_multiplier, bins, one_step), 1 if rest else 0),
        (AllocationLoss(noise_multiplier, bins, _NOTHING), (chosen - 1) * (whole + (1 if rest else 0))),
    ]
    return tuple((loss, number) for loss, number in steps if number)


def _sum_or_step(noise_multiplier: float, sampling: RandomAllocation, one_step: PoissonGaussianLoss) -> Shown:
    """Whichever has the larger second moment: t mu^2 against e^(mu^2) - 1, both over (t/k)^2, mu = 1/s."""
    bins, square = sampling.num_bins, noise_multiplier**-2
    if square < 700.0 and bins * square <= math.expm1(square):
        return one_step
    return GaussianLoss(sampling.participations / (noise_multiplier * math.sqrt(bins)))
