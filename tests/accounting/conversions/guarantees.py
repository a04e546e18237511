"""Guarantees to convert, which kinds follow from which, and the numbers in an answer."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase
from hypothesis import strategies as st

from accounting.conversions import Converted, convert
from accounting.guarantees import (
    GUARANTEES,
    ApproximateDpGuarantee,
    AttackRisk,
    GaussianDpGuarantee,
    Guarantee,
    PureDpGuarantee,
    RenyiDpGuarantee,
    TruncatedZcdpGuarantee,
    ZcdpGuarantee,
)

STATED: dict[str, Guarantee] = {
    "pure_dp": PureDpGuarantee(1.0),
    "approximate_dp": ApproximateDpGuarantee(1.0, 1e-5),
    "zcdp": ZcdpGuarantee(0.5),
    "truncated_zcdp": TruncatedZcdpGuarantee(0.5, 8.0),
    "gaussian_dp": GaussianDpGuarantee(1.0),
    "renyi_dp": RenyiDpGuarantee((2.0, 4.0, 8.0), (1.0, 2.0, 4.0)),
    "attack_risk": AttackRisk(advantage=0.2),
}
TARGETS: list[tuple[str, dict[str, Any]]] = [
    ("pure_dp", {}),
    ("approximate_dp", {"delta": 0.25}),
    ("zcdp", {}),
    ("truncated_zcdp", {"omega": 8.0}),
    ("gaussian_dp", {}),
    ("renyi_dp", {"orders": (2.0, 3.0)}),
    ("attack_risk", {}),
    ("attack_risk", {"fpr": 0.01}),
    ("attack_risk", {"prior": 0.3}),
]
#: Which kinds follow from which; everything else is refused.
SERVED = {
    "pure_dp": set(GUARANTEES),
    "approximate_dp": {"approximate_dp", "attack_risk"},
    "zcdp": {"approximate_dp", "zcdp", "truncated_zcdp", "renyi_dp", "attack_risk"},
    "truncated_zcdp": {"approximate_dp", "truncated_zcdp", "renyi_dp", "attack_risk"},
    "gaussian_dp": set(GUARANTEES) - {"pure_dp"},
    "renyi_dp": {"approximate_dp", "truncated_zcdp", "renyi_dp", "attack_risk"},
    "attack_risk": {"approximate_dp", "attack_risk"},
}
EPSILONS = [0.0, 1e-9, 0.01, 1.0, 5.0, 40.0]


def numbers(guarantee: Guarantee) -> list[float]:
    """What may be large in a guarantee: more of it is less privacy (the Bayes risk is counted from below)."""
    if isinstance(guarantee, RenyiDpGuarantee):
        return list(guarantee.epsilons)
    if isinstance(guarantee, AttackRisk):
        found = (guarantee.advantage, guarantee.tpr, guarantee.bayes_risk and -guarantee.bayes_risk)
        return [next(number for number in found if number is not None)]
    if isinstance(guarantee, GaussianDpGuarantee):
        return [guarantee.mu]
    return [guarantee.rho if isinstance(guarantee, ZcdpGuarantee | TruncatedZcdpGuarantee) else guarantee.epsilon]


def number(converted: Converted) -> float:
    (only,) = numbers(converted.guarantee)
    return only


def risk(stated: Guarantee, **at: float) -> float:
    return abs(number(convert(stated, "attack_risk", **at)))


#: One example takes a tenth of a second, so that shrinking a failure would take minutes.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
#: Numbers that are told from 0: among those of 1e-130 a bound is sound, but no longer the tightest.
SOURCES = st.one_of(
    st.floats(1e-6, 6).map(PureDpGuarantee),
    st.floats(1e-6, 4).map(GaussianDpGuarantee),
    st.floats(1e-6, 4).map(ZcdpGuarantee),
    st.builds(TruncatedZcdpGuarantee, st.floats(1e-6, 4), st.floats(1.5, 40)),
)
