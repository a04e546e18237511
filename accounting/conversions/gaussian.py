"""This module converts mu-GDP. The Gaussian mechanism attains mu-GDP, so all conversions are tight."""

from __future__ import annotations

import math
from fractions import Fraction

from accounting.conversions import zcdp
from accounting.conversions.converted import Alternative, Converted, Target
from accounting.conversions.regions import GaussianRegion, attack_risk
from accounting.conversions.rounding import enlarged, rounded_up
from accounting.guarantees import (
    ApproximateDpGuarantee,
    GaussianDpGuarantee,
    RenyiDpGuarantee,
    TruncatedZcdpGuarantee,
    ZcdpGuarantee,
)

_METHOD = "gaussian_pair"
_RENYI = "Dong, Roth & Su 2022, Corollary B.6 (the Gaussian's divergence, and processing)"


def to_gaussian(stated: GaussianDpGuarantee, _: Target) -> Converted:
    """Return the guarantee itself."""
    return Converted(stated, "as_stated", True, "the same statement")


def to_approximate(stated: GaussianDpGuarantee, target: Target) -> Converted:
    """Return epsilon by the analytic profile. Beside it stand two textbook bounds: mu sqrt(2 ln(1.25 / delta)) if
    this is below 1, and the bound by way of zCDP.
    """
    assert target.delta is not None
    delta = target.delta
    exact = ApproximateDpGuarantee(GaussianRegion(stated.mu).epsilon(delta), delta)
    alternatives = zcdp.textbook_epsilons(_half_square(stated.mu), delta)
    if 0.0 < delta < 1.0:
        classical = enlarged(stated.mu * math.sqrt(2.0 * (math.log(1.25) - math.log(delta))))
        if classical < 1.0:
            textbook = ApproximateDpGuarantee(classical, delta)
            alternatives = (*alternatives, Alternative("dwork_roth_2014_theorem_a_1", textbook))
    return Converted(exact, "analytic_gaussian", True, "Balle & Wang 2018, Theorem 8", alternatives)


def to_zcdp(stated: GaussianDpGuarantee, _: Target) -> Converted:
    """Return rho = mu^2 / 2."""
    return Converted(ZcdpGuarantee(_half_square(stated.mu)), _METHOD, True, _RENYI)


def to_truncated_zcdp(stated: GaussianDpGuarantee, target: Target) -> Converted:
    """Return rho = mu^2 / 2, which holds up to every order."""
    assert target.omega is not None
    return Converted(TruncatedZcdpGuarantee(_half_square(stated.mu), target.omega), _METHOD, True, _RENYI)


def to_renyi(stated: GaussianDpGuarantee, target: Target) -> Converted:
    """Return the Renyi divergence at each order, which is the order times mu^2 / 2."""
    assert target.orders is not None
    epsilons = tuple(rounded_up(Fraction(stated.mu) ** 2 * Fraction(order) / 2) for order in target.orders)
    return Converted(RenyiDpGuarantee(target.orders, epsilons), _METHOD, True, _RENYI)


def to_attack_risk(stated: GaussianDpGuarantee, target: Target) -> Converted:
    """Return the risk of the best attack: the advantage 2 Phi(mu/2) - 1, or the true positive rate Phi(Phi^-1(fpr) +
    mu).
    """
    risk = attack_risk(GaussianRegion(stated.mu), target)
    source = "Dong, Roth & Su 2022, Definition 2.6 (the trade-off function of two normals)"
    return Converted(risk, _METHOD, True, source, zcdp.textbook_risks(_half_square(stated.mu), target))


def _half_square(mu: float) -> float:
    return rounded_up(Fraction(mu) ** 2 / 2)


CONVERSIONS = {
    "gaussian_dp": to_gaussian,
    "approximate_dp": to_approximate,
    "zcdp": to_zcdp,
    "truncated_zcdp": to_truncated_zcdp,
    "renyi_dp": to_renyi,
    "attack_risk": to_attack_risk,
}
REFUSED = {"pure_dp": "the Gaussian mechanism satisfies the guarantee and has an unbounded privacy loss"}
