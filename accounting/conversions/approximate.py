"""This module converts (epsilon, delta)-DP with a positive delta, and an attack's advantage t, which is (0, t)-DP."""

from __future__ import annotations

from accounting.conversions.converted import Alternative, Converted, Target
from accounting.conversions.pure import textbook_risk
from accounting.conversions.regions import ApproximateRegion, attack_risk
from accounting.guarantees import ApproximateDpGuarantee

_METHOD = "trade_off_function"
_SOURCE = "Kairouz, Oh & Viswanath 2015; Dong, Roth & Su 2022, Proposition 2.4"


def to_approximate(stated: ApproximateDpGuarantee, target: Target) -> Converted:
    """Return the smallest epsilon at another delta that (epsilon, delta)-DP implies. For a smaller delta no finite
    epsilon exists.
    """
    assert target.delta is not None
    epsilon = ApproximateRegion(stated.epsilon, stated.delta).epsilon(target.delta)
    as_stated = Alternative("as_stated", ApproximateDpGuarantee(stated.epsilon, target.delta))
    return Converted(ApproximateDpGuarantee(epsilon, target.delta), _METHOD, True, _SOURCE, (as_stated,))


def to_attack_risk(stated: ApproximateDpGuarantee, target: Target) -> Converted:
    """Return the risk of the best attack: the advantage delta + (1 - delta) tanh(eps/2), or the true positive rate
    min(e^eps fpr + delta, 1 - e^-eps (1 - delta - fpr)).
    """
    risk = attack_risk(ApproximateRegion(stated.epsilon, stated.delta), target)
    return Converted(risk, _METHOD, True, _SOURCE, textbook_risk(stated.epsilon, stated.delta, target))


CONVERSIONS = {"approximate_dp": to_approximate, "attack_risk": to_attack_risk}
_REVEALS = "a mechanism that reveals its input with probability delta satisfies the guarantee, and such a mechanism "
REFUSED = {
    "pure_dp": _REVEALS + "is not epsilon-DP for any finite epsilon",
    "zcdp": _REVEALS + "has infinite Renyi divergences",
    "truncated_zcdp": _REVEALS + "has infinite Renyi divergences",
    "renyi_dp": _REVEALS + "has infinite Renyi divergences",
    "gaussian_dp": _REVEALS + "allows an attack without false positives, which no Gaussian mechanism does",
}
