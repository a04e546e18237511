"""This module converts zCDP and truncated zCDP.

`renyi_region` bounds the attacks. A mechanism with one bit of output attains these bounds and satisfies the stated
guarantee at all orders, so the conversions are tight. A Gaussian mechanism with the same rho is safer. Anybody who
knows that the mechanism is Gaussian should state gaussian_dp.
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
#: Smaller bounds of divergences are enlarged to this number. Laws with a smaller divergence differ by less than 1e-14
#: in every probability.
SMALLEST_DIVERGENCE = 1e-30


def to_same(stated: Stated, _: Target) -> Converted:
    """Return the guarantee itself."""
    return Converted(stated, "as_stated", True, "the same statement")


def to_truncated_zcdp(stated: Stated, target: Target) -> Converted:
    """Return the same rho, stated for fewer orders."""
    assert target.omega is not None
    _check_order(stated, target, target.omega, "omega")
    return Converted(TruncatedZcdpGuarantee(stated.rho, target.omega), "as_stated", True, "fewer orders")


def to_renyi(stated: Stated, target: Target) -> Converted:
    """Return rho times the order at each order. The Gaussian mechanism attains these divergences."""
    assert target.orders is not None
    _check_order(stated, target, target.orders[-1], "orders")
    epsilons = tuple(rounded_up(Fraction(stated.rho) * Fraction(order)) for order in target.orders)
    definition = "Bun & Steinke 2016, Definition 1.1 and Proposition 1.6"
    return Converted(RenyiDpGuarantee(target.orders, epsilons), "definition", True, definition)


def to_approximate(stated: Stated, target: Target) -> Converted:
    """Return epsilon at the target's delta: the largest log((p - delta) / q) over two-outcome laws within the stated
    bounds.

    p and q are the probabilities of one outcome under the two laws.
    """
    assert target.delta is not None
    exact = ApproximateDpGuarantee(region(stated.rho, _omega(stated)).epsilon(target.delta), target.delta)
    alternatives = textbook_epsilons(stated.rho, target.delta, _omega(stated))
    return Converted(exact, REGION_METHOD, True, REGION_SOURCE, alternatives)


def to_attack_risk(stated: Stated, target: Target) -> Converted:
    """Return the advantage t with 2 t artanh(t) = rho, or the largest true positive rate over two-outcome laws
    within the bounds.
    """
    risk = attack_risk(region(stated.rho, _omega(stated)), target)
    alternatives = textbook_risks(stated.rho, target, _omega(stated))
    return Converted(risk, REGION_METHOD, True, REGION_SOURCE, alternatives)


def region(rho: float, omega: float) -> Region:
    """Return the attacks that rho-zCDP, truncated at ``omega``, leaves possible."""
    if rho == 0.0:
        return ApproximateRegion(0.0, 0.0)
    return RenyiRegion(LinearBounds(max(rho, SMALLEST_DIVERGENCE), omega))


def textbook_epsilons(rho: float, delta: float, omega: float = math.inf) -> tuple[Alternative, ...]:
    """Return two textbook bounds of epsilon: that of Canonne, Kamath & Steinke at the best single order, and rho + 2
    sqrt(rho ln(1 / delta)) of Bun & Steinke.
    """
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
    """Return the textbook bounds of the attack risk: Pinsker's sqrt(rho / 2), or probability preservation at the
    best order.
    """
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
        why = f"the guarantee bounds divergences up to order {_omega(stated):g}, and {name} goes up to {order:g}"
        raise refusal(stated.kind, target.kind, why, [f"{target.kind} up to that order"], name)


CONVERSIONS = {
    "zcdp": to_same,
    "truncated_zcdp": to_truncated_zcdp,
    "approximate_dp": to_approximate,
    "renyi_dp": to_renyi,
    "attack_risk": to_attack_risk,
}
TRUNCATED_CONVERSIONS = {kind: conversion for kind, conversion in CONVERSIONS.items() if kind != "zcdp"}
_NOT_PURE = "the Gaussian mechanism satisfies the guarantee and has an unbounded privacy loss"
REFUSED = {
    "pure_dp": _NOT_PURE,
    "gaussian_dp": "zCDP is weaker than Gaussian DP with mu = sqrt(2 rho), because a mechanism with one bit of output "
    "satisfies the guarantee and has a larger advantage than that Gaussian; no larger mu is proved",
}
TRUNCATED_REFUSED = {
    "pure_dp": _NOT_PURE,
    "zcdp": "divergences of orders above omega are not bounded",
    "gaussian_dp": "divergences of orders above omega are not bounded, so at small false positive rates an attack may "
    "have a larger true positive rate than under any Gaussian mechanism",
}
