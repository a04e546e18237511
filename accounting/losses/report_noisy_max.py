"""Report noisy max: noise on every score, and the name of the largest noisy score; nothing else is released.

Scores of neighbours differ by at most Delta, the noise has scale 2 Delta / epsilon. What is proved depends on it:

* Gumbel noise: exactly the exponential mechanism with weights e^(epsilon score / (2 Delta)), a bounded range.
* Laplace noise: epsilon-DP (Dwork & Roth 2014, section 3.3).
* Exponential noise, which is permute-and-flip (McKenna & Sheldon 2020; Ding et al. 2021): epsilon-DP. The losses do
  not lie in an interval of length epsilon: of two candidates with scores 0 and -Delta that swap, they reach 1.6636 for
  epsilon = 1.

**Laplace noise tells neighbours apart with an advantage of epsilon / 3 at most.** Let S be a set of candidates, A and
B the largest noisy scores in S and outside, over the noise's scale. The worst neighbour has S lower and the others
higher, so that the chance of S is P(A > B) for one and P(A > B + epsilon) for the other. The advantage is the
integral over s from 0 to epsilon of that of f_A(y + s) f_B(y) over y, hence at most epsilon ||f_A||_2 ||f_B||_2. The
distribution function v of such a largest score is a product of Laplace ones. With w_k minus their logarithms, the
density f is v times the sum of m(w_k), m(w) = min(e^w - 1, 1). m is convex up to log 2 and constant beyond, so that
the sum is largest where all w_k but one are log 2 or 0: it is n + e^w / 2^n - 1 for w = -log v and n = floor(w / log
2). So f <= (n - 1) v + 2^-n, and the integral of f^2 over y, which is that of f over v, is at most the sum over n of
4^-n (3 n + 1) / 8 = 1/3. A profile is convex in e^x and 0 at epsilon, hence below the chord. That is the profile of
epsilon-randomised response which is carried out with probability (epsilon / 3) / tanh(epsilon / 2), where this is
less than 1, and says nothing otherwise.

Exponential noise is charged as any epsilon-DP step, which is not claimed to be what it costs.

**From below.** Many candidates of equal scores are one whose largest noise has Gumbel's law, in the limit, for either
noise. So two such crowds are the exponential mechanism: any pair of losses t, t - epsilon of a bounded range, which is
what is attained with Laplace noise. With exponential noise two single candidates cost more. Let the first be ahead by
g of the noise's scales, 0 <= g <= epsilon, and behind by epsilon - g at the neighbour: it is named with probability
1 - e^-g / 2, and e^(g - epsilon) / 2. At g = 0 one loss is epsilon, at g = epsilon / 2 both are log(2 e^g - 1) in size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.events.report_noisy_max import GUMBEL, LAPLACE, ReportNoisyMax
from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.enclosed import EnclosedLoss
from accounting.losses.exponential import bounded_range
from accounting.losses.privacy_loss import GroupStep, PrivacyLoss
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.losses.stated import RandomizedResponseLoss
from accounting.units import Between, exact, exactly


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
    """The loss with Laplace or exponential noise, between two pairs. Moments and profile are those of any pure step."""

    noise: str

    is_enclosed = True
    is_tight = False

    @property
    def dominating(self) -> RandomizedResponseLoss | RareResponseLoss:
        response = RandomizedResponseLoss(self.epsilon)
        if self.noise != LAPLACE or self.epsilon == 0.0:
            return response
        half = 0.5 * self.epsilon
        # Below, the ratio of an angle to its tanh is 1 and less than a rounding error.
        ratio = half / math.tanh(half) if half > 1e-9 else 1.0
        carried_out = ratio / 1.5 * (1.0 + 1e-14)
        return RareResponseLoss(self.epsilon, carried_out) if carried_out < 1.0 else response

    @property
    def attained(self) -> PrivacyLoss:
        """A loss that some candidates attain, whatever is asked; a tilt finds better candidates.

        >>> NoisyMaxLoss(1.0, "laplace").attained
        BoundedRangeLoss(epsilon=1.0)
        """
        return bounded_range(self.epsilon) if self.noise == LAPLACE else self.attained_near(None)

    def attained_near(self, tilt: float | None) -> PrivacyLoss:
        """Return two candidates whose moment at ``tilt`` is the largest; with exponential noise."""
        if self.epsilon == 0.0:
            return RandomizedResponseLoss(0.0)
        ahead = [0.5 * self.epsilon] if tilt is None else (self.epsilon * np.linspace(0.0, 0.5, 26)).tolist()
        pairs = [TwoCandidatesLoss(self.epsilon, each) for each in ahead]
        at = np.array([tilt or 1.0])
        return max(pairs, key=lambda pair: float(pair.log_moment(at)[0]))

    def for_group(self, size: int) -> GroupStep:
        """Return the mechanism with k times epsilon: any move of the scores by k Delta may be split among k records.

        From above that of any pure step, or by the advantage, whichever has the smaller moment of order 2.
        """
        whole = NoisyMaxLoss(size * self.epsilon, self.noise)
        candidates = [RandomizedResponseLoss(self.epsilon).for_group(size).loss, whole.dominating]
        above = min(candidates, key=lambda loss: float(loss.log_moment(np.ones(1))[0]))
        return GroupStep(EnclosedLoss(above, whole.attained, above), is_exact=True)


@dataclass(frozen=True, slots=True)
class RareResponseLoss(AtomicLoss):
    """epsilon-randomised response that is carried out with a probability; whether it is, is seen.

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
    """Two candidates and exponential noise: the first is ahead by so much, and behind by what is left of epsilon.

    Attributes:
        epsilon: Above 0.
        ahead: In the noise's scales, between 0 and epsilon / 2.
    """

    epsilon: float
    ahead: float

    symmetric = False

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def find_atoms(self) -> Atoms:
        """1 - e^-g / 2 against e^(g - eps) / 2, and the rest; rounding moves the losses towards each other."""
        likely, unlikely = -0.5 * math.exp(-self.ahead), 0.5 * math.exp(self.ahead - self.epsilon)
        high = math.log1p(likely) - math.log(unlikely)
        low = math.log(-likely) - math.log1p(-unlikely)
        inward = 1.0 - 1e-14
        return Atoms(np.array([math.log(-likely), math.log1p(likely)]), inward * np.array([low, high]))
