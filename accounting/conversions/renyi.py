"""Conversions of Renyi DP at given orders.

`renyi_region` bounds the attacks; a mechanism with one bit of output attains these bounds. Bounds at other orders
follow from the convexity of (order - 1) times the divergence; no mechanism attains them between the stated orders.
"""

from __future__ import annotations

from accounting.conversions.converted import Alternative, Converted, Target, refusal
from accounting.conversions.divergence_bounds import ListedBounds
from accounting.conversions.regions import ApproximateRegion, Region, attack_risk
from accounting.conversions.renyi_region import RenyiRegion
from accounting.conversions.single_order import (
    LogMoments,
    canonne_kamath_steinke,
    mironov,
    pinsker,
    preserved_probability,
)
from accounting.conversions.zcdp import REGION_METHOD, REGION_SOURCE, SMALLEST_DIVERGENCE
from accounting.guarantees import (
    ApproximateDpGuarantee,
    AttackRisk,
    RenyiDpGuarantee,
    TruncatedZcdpGuarantee,
)

_CONVEXITY = "van Erven & Harremoes 2014, Corollary 2"


def to_approximate(stated: RenyiDpGuarantee, target: Target) -> Converted:
    """Return epsilon at the target's delta: the largest log((p - delta) / q) over two-outcome laws within the stated
    bounds.

    p and q are the probabilities of one outcome under the two laws.
    """
    assert target.delta is not None
    exact = ApproximateDpGuarantee(_region(stated).epsilon(target.delta), target.delta)
    return Converted(exact, REGION_METHOD, True, REGION_SOURCE, _textbook_epsilons(stated, target.delta))


def to_renyi(stated: RenyiDpGuarantee, target: Target) -> Converted:
    """Return bounds at other orders, up to the largest stated order."""
    assert target.orders is not None
    if target.orders[-1] > stated.orders[-1]:
        why = f"divergences of orders above the largest stated order, {stated.orders[-1]:g}, are not bounded"
        raise refusal(stated.kind, target.kind, why, ["renyi_dp up to that order"], "orders")
    moments = LogMoments(stated.orders, stated.epsilons)
    epsilons = tuple(_at(stated, moments, order) for order in target.orders)
    return Converted(RenyiDpGuarantee(target.orders, epsilons), "convexity", False, _CONVEXITY)


def to_truncated_zcdp(stated: RenyiDpGuarantee, target: Target) -> Converted:
    """Return rho, the largest ratio of divergence to order, for orders up to omega."""
    assert target.omega is not None
    if target.omega > stated.orders[-1]:
        why = f"divergences of orders above the largest stated order, {stated.orders[-1]:g}, are not bounded"
        raise refusal(stated.kind, target.kind, why, ["truncated_zcdp up to that order"], "omega")
    rho = LogMoments(stated.orders, stated.epsilons).rho(target.omega)
    return Converted(TruncatedZcdpGuarantee(rho, target.omega), "convexity", False, _CONVEXITY)


def to_attack_risk(stated: RenyiDpGuarantee, target: Target) -> Converted:
    """Return the risk of the best test between two-outcome laws whose divergences obey the stated bounds."""
    risk = attack_risk(_region(stated), target)
    return Converted(risk, REGION_METHOD, True, REGION_SOURCE, _textbook_risks(stated, target))


def _region(stated: RenyiDpGuarantee) -> Region:
    if min(stated.epsilons) == 0.0:  # A divergence of 0 means that both neighbours have the same law.
        return ApproximateRegion(0.0, 0.0)
    epsilons = tuple(max(epsilon, SMALLEST_DIVERGENCE) for epsilon in stated.epsilons)
    return RenyiRegion(ListedBounds(stated.orders, epsilons))


def _at(stated: RenyiDpGuarantee, moments: LogMoments, order: float) -> float:
    known = [epsilon for at, epsilon in zip(stated.orders, stated.epsilons, strict=True) if at >= order]
    return min(*known, moments.divergence(order))


def _textbook_epsilons(stated: RenyiDpGuarantee, delta: float) -> tuple[Alternative, ...]:
    if delta in {0.0, 1.0}:
        return ()
    points = list(zip(stated.orders, stated.epsilons, strict=True))
    best = min(canonne_kamath_steinke(order, epsilon, delta) for order, epsilon in points)
    textbook = min(mironov(order, epsilon, delta) for order, epsilon in points)
    return (
        Alternative("canonne_kamath_steinke_2020_proposition_12", ApproximateDpGuarantee(best, delta)),
        Alternative("mironov_2017_proposition_3", ApproximateDpGuarantee(textbook, delta)),
    )


def _textbook_risks(stated: RenyiDpGuarantee, target: Target) -> tuple[Alternative, ...]:
    if target.prior is not None:
        return ()
    if target.fpr is None:
        return (Alternative("pinsker", AttackRisk(advantage=pinsker(min(stated.epsilons)))),)
    points = zip(stated.orders, stated.epsilons, strict=True)
    tpr = min(preserved_probability(order, epsilon, target.fpr) for order, epsilon in points)
    return (Alternative("mironov_2017_proposition_10", AttackRisk(fpr=target.fpr, tpr=tpr)),)


CONVERSIONS = {
    "approximate_dp": to_approximate,
    "renyi_dp": to_renyi,
    "truncated_zcdp": to_truncated_zcdp,
    "attack_risk": to_attack_risk,
}
_HIGH_ORDERS = "divergences of orders above the largest stated order are not bounded"
REFUSED = {
    "pure_dp": _HIGH_ORDERS,
    "zcdp": _HIGH_ORDERS,
    "gaussian_dp": _HIGH_ORDERS + ", so at small false positive rates an attack may have a larger true positive rate "
    "than under any Gaussian mechanism",
}
