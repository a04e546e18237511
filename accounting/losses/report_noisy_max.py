"""This module accounts report noisy max: every score gets noise, and only the name of the candidate with the largest
noisy score is released.

Scores of neighbours differ by at most Delta, and the noise has scale 2 Delta / epsilon. The proved cost depends on the
noise:

* Gumbel noise: exactly the exponential mechanism with weights e^(epsilon score / (2 Delta)), a bounded range.
* Laplace noise: epsilon-DP (Dwork & Roth 2014, section 3.3).
* Exponential noise, which is permute-and-flip (McKenna & Sheldon 2020; Ding et al. 2021): epsilon-DP. The losses do
  not lie in an interval of length epsilon: if two candidates with scores 0 and -Delta swap, they reach 1.6636 for
  epsilon = 1.

**Laplace noise tells neighbours apart with an advantage of epsilon / 3 at most.** Let S be a set of candidates. Let A
and B be the largest noisy scores in S and outside of S, divided by the noise's scale. The worst neighbour has lower
scores in S and higher scores outside. So the winner is in S with probability P(A > B) for one data set and P(A > B +
epsilon) for the other. The advantage is the integral of f_A(y + s) f_B(y) over y and over s from 0 to epsilon, hence at
most epsilon ||f_A||_2 ||f_B||_2. The distribution function v of such a largest score is a product of Laplace
distribution functions e^-w_k. The density f is v times the sum of m(w_k) with m(w) = min(e^w - 1, 1). m is convex up to
log 2 and constant beyond, so the sum is largest if all w_k but one are log 2 or 0. Its largest value is n + e^w / 2^n -
1 for w = -log v and n = floor(w / log 2). So f <= (n - 1) v + 2^-n. The integral of f^2 over y equals the integral of f
over v. It is at most the sum over n of 4^-n (3 n + 1) / 8 = 1/3. A profile is convex in e^x and 0 at epsilon, so it
lies below its chord. This chord is the profile of epsilon-randomised response that is carried out with probability
(epsilon / 3) / tanh(epsilon / 2). The bound is void if this is not less than 1.

The largest integral of a squared density that is known is 7/24, for the largest of two candidates. No candidates are
known whose profile is a chord.

Exponential noise is charged like any epsilon-DP step. The charge may exceed its true cost.

**From below.** With either noise, a crowd of many candidates with equal scores acts in the limit like one candidate
with Gumbel noise. So two crowds are the exponential mechanism. They attain any pair of losses t, t - epsilon of a
bounded range, with an advantage of epsilon / 4 for small epsilon. With Laplace noise and many steps, a few candidates
of equal scores against a few others cost more than crowds. Two against two have an advantage of 7/24 epsilon, and two
against three cost a little more. With exponential noise, two single candidates cost more than crowds. Let the first
candidate be ahead by g, in units of the noise's scale, 0 <= g <= epsilon, and behind by epsilon - g for the neighbour.
It is named with probability 1 - e^-g / 2 in one data set and e^(g - epsilon) / 2 in the other. At g = 0 one loss is
epsilon. At g = epsilon / 2 both losses have the absolute value log(2 e^g - 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from accounting.events.report_noisy_max import GUMBEL, LAPLACE, ReportNoisyMax
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.enclosed import EnclosedLoss
from accounting.losses.exponential import bounded_range
from accounting.losses.privacy_loss import GroupStep, PrivacyLoss
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.losses.stated import RandomizedResponseLoss
from accounting.units import Between, exact, exactly

Array = NDArray[np.float64]


#: The groups that are tried for Laplace noise: the numbers of candidates on either side, and the lead of the first side
#: as a share of epsilon.
_NUMBERS, _SHARES = ((1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)), tuple(np.linspace(0.1, 0.9, 9).tolist())
#: The range of epsilon in which these groups of candidates are tried.
_FEW_FROM, _FEW_UP_TO = 1e-6, 30.0
#: The largest noise that integrals include, the number of panels in each of three parts, and the quadrature rule of a
#: panel.
_FARTHEST, _PANELS = 60.0, 12
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
#: An allowance for the rounding of an integral of positive terms.
_INWARD = 1e-12


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
    """The loss with Laplace or exponential noise, between two pairs. Its moments and its profile are those of any pure
    step."""

    noise: str

    is_enclosed = True
    is_tight = False

    @property
    def dominating(self) -> RandomizedResponseLoss | RareResponseLoss:
        response = RandomizedResponseLoss(self.epsilon)
        if self.noise != LAPLACE or self.epsilon == 0.0:
            return response
        half = 0.5 * self.epsilon
        # For smaller epsilon, half / tanh(half) differs from 1 by less than a rounding error.
        ratio = half / math.tanh(half) if half > 1e-9 else 1.0
        carried_out = ratio / 1.5 * (1.0 + 1e-14)
        return RareResponseLoss(self.epsilon, carried_out) if carried_out < 1.0 else response

    @property
    def attained(self) -> PrivacyLoss:
        """A loss that some candidates attain. If the tilt is known, `attained_near` finds better candidates.

        >>> NoisyMaxLoss(1.0, "laplace").attained
        BoundedRangeLoss(epsilon=1.0)
        """
        return bounded_range(self.epsilon) if self.noise == LAPLACE else self.attained_near(None)

    def attained_near(self, tilt: float | None) -> PrivacyLoss:
        """Return candidates whose moment at ``tilt`` is the largest.

        With exponential noise there are two candidates. With Laplace noise they are crowds, or a few candidates of
        equal scores against a few others.
        """
        if self.epsilon == 0.0:
            return RandomizedResponseLoss(0.0)
        if self.noise == LAPLACE:
            return self._crowds_near(tilt)
        ahead = [0.5 * self.epsilon] if tilt is None else (self.epsilon * np.linspace(0.0, 0.5, 26)).tolist()
        pairs = [TwoCandidatesLoss(self.epsilon, each) for each in ahead]
        at = np.array([tilt or 1.0])
        return max(pairs, key=lambda pair: float(pair.log_moment(at)[0]))

    def _crowds_near(self, tilt: float | None) -> PrivacyLoss:
        crowds = bounded_range(self.epsilon)
        if tilt is None or not _FEW_FROM <= self.epsilon <= _FEW_UP_TO:
            return crowds
        few = [
            FewCandidatesLoss(self.epsilon, self.epsilon * share, first, others)
            for first, others in _NUMBERS
            for share in _SHARES
        ]
        at = np.array([tilt])
        # If moments are equal, max takes the first, which is crowds: their loss t can be chosen anew at every step.
        return max([crowds, *few], key=lambda loss: float(loss.log_moment(at)[0]))

    def for_group(self, size: int) -> GroupStep:
        """Return the mechanism with k times epsilon: any move of the scores by k Delta may be split among k records.

        The upper bound is that of any pure step or the one from the advantage: the one with the smaller moment of order
        2.
        """
        whole = NoisyMaxLoss(size * self.epsilon, self.noise)
        candidates = [RandomizedResponseLoss(self.epsilon).for_group(size).loss, whole.dominating]
        above = min(candidates, key=lambda loss: float(loss.log_moment(np.ones(1))[0]))
        return GroupStep(EnclosedLoss(above, whole, above), is_exact=True)


@dataclass(frozen=True, slots=True)
class RareResponseLoss(AtomicLoss):
    """Epsilon-randomised response that is carried out with a certain probability. It is seen whether it is carried out.

    Attributes:
        epsilon: Above 0.
        carried_out: The probability, below 1.
    """

    epsilon: float
    carried_out: float

    symmetric = True

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def find_atoms(self) -> Atoms:
        high = math.log(self.carried_out) - math.log1p(math.exp(-self.epsilon))
        masses = np.array([high - self.epsilon, math.log1p(-self.carried_out), high])
        return Atoms(masses, self.epsilon * np.array([-1.0, 0.0, 1.0]))


@dataclass(frozen=True, slots=True)
class TwoCandidatesLoss(AtomicLoss):
    """The loss of two candidates with exponential noise. The first is ahead by ``ahead``, and behind by the rest of
    epsilon for the neighbour.

    Attributes:
        epsilon: Above 0.
        ahead: The lead in units of the noise's scale, between 0 and epsilon / 2.
    """

    epsilon: float
    ahead: float

    symmetric = False

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def find_atoms(self) -> Atoms:
        """Return the pair of two outcomes: the first has probability 1 - e^-g / 2 against e^(g - eps) / 2.

        Rounding moves the two losses towards each other.
        """
        # The logarithms of the masses are used, because the masses themselves may underflow.
        rare, rarer = -self.ahead - math.log(2.0), self.ahead - self.epsilon - math.log(2.0)
        often, oftener = math.log1p(-math.exp(rare)), math.log1p(-math.exp(rarer))
        inward = 1.0 - 1e-14
        return Atoms(np.array([rare, often]), inward * np.array([rare - oftener, often - rarer]))


@dataclass(frozen=True, slots=True)
class FewCandidatesLoss(AtomicLoss):
    """The loss of two groups of candidates with equal scores and Laplace noise. The first group is ahead for one
    neighbour and behind for the other.

    Only the side of the winner is seen, which reveals less than the winner.

    Attributes:
        epsilon: Above 0.
        ahead: The lead in units of the noise's scale, between 0 and epsilon.
        first, others: The numbers of candidates.

    Guarantees: attained_by_candidates.
    """

    epsilon: float
    ahead: float
    first: int
    others: int

    symmetric = False

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def find_atoms(self) -> Atoms:
        """Return the pair of atoms for the winning side. Rounding moves the chances of the first group under both
        laws towards each other.
        """
        likely = _chance(self.first, self.others, -self.ahead) * (1.0 - _INWARD)
        unlikely = _chance(self.first, self.others, self.epsilon - self.ahead) * (1.0 + _INWARD)
        low = math.log1p(-likely) - math.log1p(-unlikely)
        return Atoms(np.log([1.0 - likely, likely]), np.array([low, math.log(likely / unlikely)]))


@lru_cache(maxsize=4096)
def _chance(first: int, others: int, behind: float) -> float:
    """Return the chance that the largest of ``first`` Laplace variables exceeds the largest of the others plus
    ``behind``.

    Args:
        behind: A number of at most `_FEW_UP_TO` in absolute value.
    """
    parts = [-_FARTHEST, min(-behind, 0.0), max(-behind, 0.0), _FARTHEST]
    edges = np.concatenate([np.linspace(*ends, _PANELS + 1) for ends in pairwise(parts) if ends[0] < ends[1]])
    low, high = edges[:-1, None], edges[1:, None]
    half = 0.5 * (high - low)
    y = low + half * (1.0 + _NODES)
    # The largest of the others is at y, and some of the first is above y + behind.
    density = others * _below(y) ** (others - 1) * 0.5 * np.exp(-np.abs(y))
    with np.errstate(divide="ignore"):
        some = -np.expm1(first * np.log1p(-_below(-(y + behind))))
    return float(np.sum(half * _WEIGHTS * density * some))


def _below(y: Array) -> Array:
    """Return the distribution function of the standard Laplace law at each y."""
    tail = 0.5 * np.exp(-np.abs(y))
    return np.where(y < 0.0, tail, 1.0 - tail)
