"""This module describes the attacks that a guarantee allows, and the risk of the best attack.

An attack is a test between two neighbouring data sets, with a false positive rate (fpr) and a true positive rate (tpr).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import scipy

from accounting.composition.composition import Composition
from accounting.composition.gaussian_dp import AnalyticGaussian, epsilon_of_gaussian
from accounting.conversions.converted import Target
from accounting.conversions.rounding import as_probability, enlarged, times_exp
from accounting.errors import Unreachable
from accounting.guarantees import AttackRisk
from accounting.losses.gaussian import GaussianLoss

#: The smallest mu that is computed with. Smaller numbers are replaced by it, because their squares round to 0.
_SMALLEST_MU = 1e-100


class Region(Protocol):
    """All pairs (fpr, tpr) that a guarantee leaves possible. Every number is rounded up."""

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 with tpr <= e^epsilon fpr + ``delta`` everywhere, or raise `Unreachable`."""

    def delta(self, epsilon: float) -> float:
        """Return the largest tpr - e^epsilon fpr on the region, for ``epsilon`` >= 0."""

    def true_positive_rate(self, fpr: float) -> float:
        """Return the largest true positive rate at ``fpr``."""


def attack_risk(region: Region, target: Target) -> AttackRisk:
    """Return the advantage of the best attack, its true positive rate at a false positive rate, or the Bayes risk.

    Guarantees: advantage_is_total_variation; bayes_risk_is_rounded_down.

    Source: the advantage is delta at epsilon 0. An attacker whose prior for membership is p errs with probability p (1
    - tpr) + (1 - p) fpr. This is linear on the region, so its smallest value is min(p, 1 - p) (1 - delta(|log(p / (1 -
    p))|)).
    """
    if target.fpr is not None:
        return AttackRisk(fpr=target.fpr, tpr=region.true_positive_rate(target.fpr))
    if target.prior is None:
        return AttackRisk(advantage=region.delta(0.0))
    smaller = min(target.prior, 1.0 - target.prior)
    if smaller == 0.0:
        return AttackRisk(prior=target.prior, bayes_risk=0.0)
    log_odds = math.log1p(-smaller) - math.log(smaller)
    # delta falls in epsilon, so rounding epsilon down gives an upper bound of delta.
    delta = region.delta(max(0.0, log_odds - (enlarged(log_odds, 1.0) - log_odds)))
    risk = smaller * (1.0 - delta)
    return AttackRisk(prior=target.prior, bayes_risk=max(0.0, risk - (enlarged(risk, smaller) - risk)))


@dataclass(frozen=True)
class ApproximateRegion:
    """The attacks that (epsilon, delta)-DP allows.

    These are the attacks with tpr <= e^eps fpr + delta and 1 - fpr <= e^eps (1 - tpr) + delta.

    A mechanism that reveals its input with probability delta, and answers by randomised response otherwise, reaches all
    of the region (Kairouz, Oh & Viswanath 2015).

    Guarantees: corner_mechanism_attains_all.
    """

    stated_epsilon: float
    stated_delta: float

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at delta', for a stated (eps, delta): log(e^eps - (delta' - delta) (1 + e^eps) /
        (1 - delta)).

        The answer is at least 0. If delta' is below the stated delta, no epsilon is finite.
        """
        if delta < self.stated_delta:
            raise Unreachable(
                f"no finite epsilon exists at a delta below the stated {self.stated_delta:g}, because a mechanism that "
                "reveals its input with the stated probability satisfies the guarantee; give a larger "
                "delta",
                pointer=("to", "delta"),
            )
        if delta == 1.0:
            return 0.0
        if delta == self.stated_delta:
            return self.stated_epsilon
        shrunk, known = math.exp(-self.stated_epsilon), 1.0 - self.stated_delta
        share = (delta - self.stated_delta) / known * (1.0 + shrunk)
        if share < 0.5:
            value = self.stated_epsilon + math.log1p(-share)
        else:  # The same formula, written such that 1 - delta keeps its digits.
            left = (1.0 - delta) - (delta - self.stated_delta) * shrunk
            value = self.stated_epsilon + math.log(left / known) if left > 0.0 else 0.0
        found = max(0.0, enlarged(value, self.stated_epsilon + min(2.0 * share, 1.0)))
        return min(found, self.stated_epsilon)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at eps', for a stated (eps, delta): delta + (1 - delta) (1 - e^(eps' - eps)) /
        (1 + e^-eps).
        """
        gap = self.stated_epsilon - epsilon
        if gap <= 0.0:
            return self.stated_delta
        gap = enlarged(gap, self.stated_epsilon)
        rest = -math.expm1(-gap) / (1.0 + math.exp(-self.stated_epsilon))
        return as_probability(enlarged(self.stated_delta + (1.0 - self.stated_delta) * rest))

    def true_positive_rate(self, fpr: float) -> float:
        """Return the smaller of e^eps fpr + delta and 1 - e^-eps (1 - delta - fpr)."""
        steep = times_exp(fpr, self.stated_epsilon) + self.stated_delta
        flat = 1.0 - math.exp(-self.stated_epsilon) * max(1.0 - self.stated_delta - fpr, 0.0)
        relative = 1.0 + self.stated_epsilon  # The relative error of e^eps, whose exponent is exact to half an ulp.
        return as_probability(min(enlarged(steep, steep * relative), enlarged(flat, 1.0)))


@dataclass(frozen=True)
class GaussianRegion:
    """The attacks that mu-GDP allows: those that are no better than the best tests of N(0, 1) against N(mu, 1).

    Guarantees: gaussian_mechanism_attains_all.
    """

    mu: float

    def epsilon(self, delta: float) -> float:
        """Return epsilon by the analytic profile (Balle & Wang 2018, Theorem 8)."""
        if self.mu == 0.0 or delta >= 1.0:
            return 0.0
        if delta == 0.0:
            raise Unreachable(
                "the privacy loss of the Gaussian mechanism is unbounded, so no finite epsilon exists at delta 0; give "
                "a positive delta",
                pointer=("to", "delta"),
            )
        return epsilon_of_gaussian(self.mu, delta, upward=True)

    def delta(self, epsilon: float) -> float:
        """Return delta by the analytic profile; at epsilon 0 it is 2 Phi(mu / 2) - 1."""
        if epsilon == 0.0 or self.mu == 0.0:
            return as_probability(enlarged(math.erf(self.mu / math.sqrt(8.0))))
        pair = GaussianLoss(max(self.mu, _SMALLEST_MU))
        bounds = AnalyticGaussian().delta(Composition(((pair, 1),)), epsilon)
        assert bounds is not None  # A list with a Gaussian part always has bounds.
        return bounds.upper

    def true_positive_rate(self, fpr: float) -> float:
        """Return Phi(Phi^-1(fpr) + mu)."""
        if fpr in {0.0, 1.0} or self.mu == 0.0:
            return fpr
        quantile = float(scipy.special.ndtri(fpr))
        # An error of the quantile changes Phi by the hazard rate, relatively, which is at most 1 + |quantile|.
        relative = 4.0 * (1.0 + quantile * quantile)
        # Phi is computed from its logarithm, because `ndtr` returns 0 where Phi is below every normal number.
        power = math.exp(float(scipy.special.log_ndtr(quantile + self.mu)))
        return as_probability(max(fpr, enlarged(power, power * relative)))
