"""Implications of zCDP and of truncated zCDP.

Tests are bounded by `renyi_region`, whose maxima a mechanism with one bit of output attains; that mechanism satisfies
the stated guarantee at all orders, so the conversions are tight. A Gaussian of the same rho is safer: anybody who knows
that the mechanism is Gaussian should state gaussian_dp.
"""

from __future__ import annotations

import math
from fractions import Fraction

from accounting.conversions.converted import Alternative, Converted, Target, refusal
from accounting.conversions.divergence_bounds import LinearBounds
from accounting.conversions.regions import ApproximateRegion, Region, attack_risk
from accounting.conversions.renyi_region import RenyiRegion
from accounting.conversions.rounding import enlarged, rounded_up
from accounting.conversions.single_order import (
    canonne_kamath_steinke,
    pinsker,
    preserved_probability,
    smallest_over_orders,
)
from accounting.guarantees import (
    ApproximateDpGuarantee,
    AttackRisk,
    RenyiDpGuarantee,
    TruncatedZcdpGuarantee,
    ZcdpGuarantee,
)

Stated = ZcdpGuarantee | TruncatedZcdpGuarantee
REGION_METHOD = "renyi_region"
REGION_SOURCE = "Riess, Gomez, Calmon, Schnabel & Kaissis 2026 (intersection of the regions of single orders)"
#: Smaller bounds of divergences are enlarged to this one, below which probabilities differ by less than 1e-14.
SMALLEST_DIVERGENCE = 1e-30


def to_same(stated: Stated, _: Target) -> Converted:
    """Return the guarantee itself."""
    return Converted(stated, "as_stated", True, "the same statement")


def to_truncated_zcdp(stated: Stated, target: Target) -> Converted:
    """Return the same rho for fewer orders."""
    assert target.omega is not None
    _check_order(stated, target, target.omega, "omega")
    return Converted(TruncatedZcdpGuarantee(stated.rho, target.omega), "as_stated", True, "fewer orders")


def to_renyi(stated: Stated, target: Target) -> Converted:
    """Return rho times the order: attained by the Gaussian mechanism."""
    assert target.orders is not None
    _check_order(stated, target, target.orders[-1], "orders")
    epsilons = tuple(rounded_up(Fraction(stated.rho) * Fraction(order)) for order in target.orders)
    definition = "Bun & Steinke 2016, Definition 1.1 and Proposition 1.6"
    return Converted(RenyiDpGuarantee(target.orders, epsilons), "definition", True, definition)


def to_approximate(stated: Stated, target: Target) -> Converted:
    """Return the largest log((p - delta) / q) over laws on two outcomes whose divergences obey the stated bounds."""
    assert target.delta is not None
    exact = ApproximateDpGuarantee(region(stated.rho, _omega(stated)).epsilon(target.delta), target.delta)
    alternatives = textbook_epsilons(stated.rho, target.delta, _omega(stated))
    return Converted(exact, REGION_METHOD, True, REGION_SOURCE, alternatives)


def to_attack_risk(stated: Stated, target: Target) -> Converted:
    """Return the advantage t with 2 t artanh(t) = rho, or the true positive rate of such laws with two outcomes."""
    risk = attack_risk(region(stated.rho, _omega(stated)), target)
    alternatives = textbook_risks(stated.rho, target, _omega(stated))
    return Converted(risk, REGION_METHOD, True, REGION_SOURCE, alternatives)


def region(rho: float, omega: float) -> Region:
    """Return the tests that rho-zCDP, truncated at ``omega``, leaves possible."""
    if rho == 0.0:
        return ApproximateRegion(0.0, 0.0)
    return RenyiRegion(LinearBounds(max(rho, SMALLEST_DIVERGENCE), omega))


def textbook_epsilons(rho: float, delta: float, omega: float = math.inf) -> tuple[Alternative, ...]:
    """Return epsilon at the best single order by Canonne, Kamath & Steinke, and rho + 2 sqrt(rho ln(1 / delta)) by Bun
    & Steinke."""
    if delta in {0.0, 1.0} or rho == 0.0:
        return ()
    largest = min(omega, 1e12)
    order = min(1.0 + math.sqrt(-math.log(delta) / rho), largest)
    best = smallest_over_orders(
        lambda order: canonne_kamath_steinke(order, enlarged(rho * order), delta), order, largest
    )
    penalty = -math.log(delta) / (order - 1.0)
    if order < omega:
        name, textbook = "bun_steinke_2016_proposition_1_3", rho + 2.0 * math.sqrt(-rho * math.log(delta))
    else:
        name, textbook = "mironov_2017_proposition_3", rho * order + penalty
    return (
        Alternative("canonne_kamath_steinke_2020_proposition_12", ApproximateDpGuarantee(best, delta)),
        Alternative(name, ApproximateDpGuarantee(enlarged(textbook), delta)),
    )


def textbook_risks(rho: float, target: Target, omega: float = math.inf) -> tuple[Alternative, ...]:
    """Return Pinsker's sqrt(rho / 2), and probability preservation at the best order."""
    if target.prior is not None:
        return ()
    if target.fpr is None:
        return (Alternative("pinsker", AttackRisk(advantage=pinsker(rho))),)
    fpr = target.fpr
    if fpr in {0.0, 1.0} or rho == 0.0:
        return ()
    order = min(max(math.sqrt(-math.log(fpr) / rho), 1.0 + 1e-9), omega, 1e12)
    tpr = preserved_probability(order, enlarged(rho * order), fpr)
    return (Alternative("mironov_2017_proposition_10", AttackRisk(fpr=fpr, tpr=tpr)),)


def _omega(stated: Stated) -> float:
    return stated.omega if isinstance(stated, TruncatedZcdpGuarantee) else math.inf


def _check_order(stated: Stated, target: Target, order: float, name: str) -> None:
    if order > _omega(stated):
        why = f"its divergences are bounded up to order {_omega(stated):g} alone, and {name} goes up to {order:g}"
        raise refusal(stated.kind, target.kind, why, [f"{target.kind} up to that order"], name)


CONVERSIONS = {
    "zcdp": to_same,
    "truncated_zcdp": to_truncated_zcdp,
    "approximate_dp": to_approximate,
    "renyi_dp": to_renyi,
    "attack_risk": to_attack_risk,
}
TRUNCATED_CONVERSIONS = {kind: conversion for kind, conversion in CONVERSIONS.items() if kind != "zcdp"}
_NOT_PURE = "the Gaussian mechanism satisfies it, and its privacy loss is unbounded"
REFUSED = {
    "pure_dp": _NOT_PURE,
    "gaussian_dp": "it is weaker than Gaussian DP with mu = sqrt(2 rho): a mechanism with one bit of output satisfies "
    "it and has a larger advantage than that Gaussian, and no larger mu is proved here",
}
TRUNCATED_REFUSED = {
    "pure_dp": _NOT_PURE,
    "zcdp": "orders above omega are not bounded",
    "gaussian_dp": "orders above omega are not bounded, so that small false positive rates may have larger true "
    "positive rates than under any Gaussian",
}
