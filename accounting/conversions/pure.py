"""This module converts epsilon-DP. Randomised response on one bit dominates every epsilon-DP mechanism, so all
conversions are tight.

Source of the domination: Kairouz, Oh & Viswanath 2015.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from accounting.conversions.converted import Alternative, Converted, Target
from accounting.conversions.regions import ApproximateRegion, attack_risk
from accounting.conversions.rounding import as_probability, enlarged, rounded_up, times_exp
from accounting.guarantees import (
    ApproximateDpGuarantee,
    AttackRisk,
    GaussianDpGuarantee,
    Guarantee,
    PureDpGuarantee,
    RenyiDpGuarantee,
    TruncatedZcdpGuarantee,
    ZcdpGuarantee,
)
from accounting.losses.gaussian_mu import mu_of_pure_dp
from accounting.losses.stated import RandomizedResponseLoss

_METHOD = "randomized_response"
_DOMINATION = "Kairouz, Oh & Viswanath 2015"
_SMALLEST_TILT = 1e-2
#: The smallest epsilon that is computed with. Smaller numbers have no relative accuracy.
_SMALLEST_EPSILON = 1e-300


def to_pure(stated: PureDpGuarantee, _: Target) -> Converted:
    """Return the guarantee itself."""
    return Converted(stated, "as_stated", True, "the same statement")


def to_approximate(stated: PureDpGuarantee, target: Target) -> Converted:
    """Return the epsilon at the target's delta: log(e^eps - delta (1 + e^eps)), or 0 if that is negative."""
    assert target.delta is not None
    epsilon = ApproximateRegion(stated.epsilon, 0.0).epsilon(target.delta)
    as_stated = Alternative("as_stated", ApproximateDpGuarantee(stated.epsilon, target.delta))
    return Converted(ApproximateDpGuarantee(epsilon, target.delta), _METHOD, True, _DOMINATION, (as_stated,))


def zcdp_rho(epsilon: float) -> float:
    """Return eps tanh(eps/2), rounded up. The proof is at `RandomizedResponseLoss.zcdp_rho`."""
    # The square of a tiny epsilon rounds to 0, so rho is at least the smallest positive number.
    return max(enlarged(RandomizedResponseLoss(epsilon).zcdp_rho), 5e-324 if epsilon > 0.0 else 0.0)


def to_zcdp(stated: PureDpGuarantee, _: Target) -> Converted:
    """Return rho = eps tanh(eps/2). The textbook formula is eps^2/2."""
    return _zcdp(ZcdpGuarantee(zcdp_rho(stated.epsilon)), ZcdpGuarantee(_half_square(stated.epsilon)))


def to_truncated_zcdp(stated: PureDpGuarantee, target: Target) -> Converted:
    """Return the rho that `to_zcdp` returns. Randomised response attains it at orders near 1, which truncation does
    not exclude.
    """
    assert target.omega is not None
    exact = TruncatedZcdpGuarantee(zcdp_rho(stated.epsilon), target.omega)
    return _zcdp(exact, TruncatedZcdpGuarantee(_half_square(stated.epsilon), target.omega))


def _zcdp(exact: Guarantee, textbook: Guarantee) -> Converted:
    source = "concavity of the moment of randomised response (accounting/losses/stated.py)"
    return Converted(exact, _METHOD, True, source, (Alternative("bun_steinke_2016_proposition_3_3", textbook),))


def _half_square(epsilon: float) -> float:
    return rounded_up(Fraction(epsilon) ** 2 / 2)


def renyi_divergence(epsilon: float, order: float) -> float:
    """Return the Renyi divergence of order a of randomised response, rounded up: log(cosh((a - 1/2) eps) /
    cosh(eps/2)) / (a - 1).
    """
    tilt = order - 1.0
    # At smaller tilts the moment's digits cancel. The moment is convex and 0 at tilt 0, so a chord from there bounds
    # it.
    moment = float(RandomizedResponseLoss(epsilon).log_moment(np.array([max(tilt, _SMALLEST_TILT)]))[0])
    return min(epsilon, enlarged(moment / max(tilt, _SMALLEST_TILT)))


def to_renyi(stated: PureDpGuarantee, target: Target) -> Converted:
    """Return the divergence of randomised response at each order."""
    assert target.orders is not None
    exact = tuple(renyi_divergence(stated.epsilon, order) for order in target.orders)
    linear = _half_square(stated.epsilon)
    textbook = tuple(min(stated.epsilon, rounded_up(Fraction(linear) * Fraction(order))) for order in target.orders)
    return Converted(
        RenyiDpGuarantee(target.orders, exact),
        _METHOD,
        True,
        "Mironov 2017, Proposition 5",
        (Alternative("bun_steinke_2016_proposition_3_3", RenyiDpGuarantee(target.orders, textbook)),),
    )


def to_gaussian(stated: PureDpGuarantee, _: Target) -> Converted:
    """Return mu = 2 Phi^-1(e^eps / (1 + e^eps)).

    The trade-off function of randomised response consists of two lines that meet at fpr = fnr = 1 / (1 + e^eps). A
    convex trade-off function through its three corners lies below it, and at this mu the Gaussian one passes through
    the middle corner.
    """
    mu = mu_of_pure_dp(max(stated.epsilon, _SMALLEST_EPSILON) if stated.epsilon > 0.0 else 0.0)
    source = "convexity of trade-off functions (Dong, Roth & Su 2022, Proposition 2.2)"
    return Converted(GaussianDpGuarantee(enlarged(mu, 4.0 * mu)), _METHOD, True, source)


def to_attack_risk(stated: PureDpGuarantee, target: Target) -> Converted:
    """Return the risk of the best attack: the advantage tanh(eps/2), or the true positive rate min(e^eps fpr, 1 -
    e^-eps (1 - fpr)).
    """
    risk = attack_risk(ApproximateRegion(stated.epsilon, 0.0), target)
    return Converted(risk, _METHOD, True, _DOMINATION, textbook_risk(stated.epsilon, 0.0, target))


def textbook_risk(epsilon: float, delta: float, target: Target) -> tuple[Alternative, ...]:
    """Return the risk directly from the definition: e^eps fpr + delta, or e^eps - 1 + delta (Yeom et al. 2018)."""
    if target.prior is not None:
        return ()
    if target.fpr is not None:
        steep = times_exp(target.fpr, epsilon)
        tpr = as_probability(enlarged(steep + delta, steep * (1.0 + epsilon)))
        return (Alternative("definition", AttackRisk(fpr=target.fpr, tpr=tpr)),)
    advantage = as_probability(enlarged(math.expm1(min(epsilon, 700.0)) + delta))
    return (Alternative("definition", AttackRisk(advantage=advantage)),)


CONVERSIONS = {
    "pure_dp": to_pure,
    "approximate_dp": to_approximate,
    "zcdp": to_zcdp,
    "truncated_zcdp": to_truncated_zcdp,
    "gaussian_dp": to_gaussian,
    "renyi_dp": to_renyi,
    "attack_risk": to_attack_risk,
}
REFUSED: dict[str, str] = {}
