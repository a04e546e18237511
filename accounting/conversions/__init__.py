"""This package converts a guarantee to the guarantees that follow from it. There is one file for each kind of given
guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accounting.conversions import approximate, gaussian, pure, renyi, zcdp
from accounting.conversions.converted import Alternative, Converted, Target, refusal
from accounting.errors import Unsupported, inside
from accounting.guarantees import ApproximateDpGuarantee, AttackRisk, Guarantee, PureDpGuarantee

__all__ = ["Alternative", "Converted", "Target", "convert"]

#: A conversion takes a guarantee of the kind under which it is listed.
_Conversions = Mapping[str, Callable[[Any, Target], Converted]]
_TABLE: Mapping[str, tuple[_Conversions, Mapping[str, str]]] = {
    "pure_dp": (pure.CONVERSIONS, pure.REFUSED),
    "approximate_dp": (approximate.CONVERSIONS, approximate.REFUSED),
    "zcdp": (zcdp.CONVERSIONS, zcdp.REFUSED),
    "truncated_zcdp": (zcdp.TRUNCATED_CONVERSIONS, zcdp.TRUNCATED_REFUSED),
    "gaussian_dp": (gaussian.CONVERSIONS, gaussian.REFUSED),
    "renyi_dp": (renyi.CONVERSIONS, renyi.REFUSED),
    "attack_risk": (approximate.CONVERSIONS, approximate.REFUSED),
}
_ONE_POINT = (
    "an attack risk at one false positive rate or one prior says too little about other attacks to be converted; state "
    "the advantage instead, because an advantage t is (0, t)-DP"
)


def convert(
    guarantee: Guarantee,
    target_kind: str,
    *,
    delta: float | None = None,
    orders: Sequence[float] | None = None,
    omega: float | None = None,
    fpr: float | None = None,
    prior: float | None = None,
) -> Converted:
    """Convert ``guarantee`` to what it implies in another kind of guarantee.

    Args:
        guarantee: The given guarantee, under any neighbouring relation. The answer holds under the same relation.
        target_kind: The kind that is wanted.
        delta: In [0, 1]; needed for ``approximate_dp``.
        orders: 1 to 64, increasing; needed for ``renyi_dp``.
        omega: The largest order; needed for ``truncated_zcdp``.
        fpr, prior: At most one of them, for ``attack_risk``: the true positive rate at ``fpr`` is wanted, or the Bayes
            risk at ``prior``. Without either, the advantage is wanted.

    Returns:
        The best guarantee of the new kind that is known to follow, and the textbook forms beside it.

    Guarantees:
        never_less_loss_than_there_is: the answer holds for every mechanism with the stated guarantee.
        attained_where_tight: some mechanism with the stated guarantee has no better one.
        round_trips_never_gain: a conversion by way of a third kind is never better.
        same_bits_for_the_same_numbers: int, float and NumPy scalars agree.

    Raises:
        Unsupported: With code ``no_such_conversion``, if no finite guarantee of that kind follows or none is proved
            here.
        Unreachable: If no epsilon is finite at this delta.
        InvalidValue: If a parameter is missing, is out of range, or does not belong to this kind.

    Source: docs/concepts/conversions.md has the table with a theorem for each direction.

    >>> from accounting.guarantees import GaussianDpGuarantee, ZcdpGuarantee
    >>> convert(GaussianDpGuarantee(1.0), "zcdp").guarantee
    ZcdpGuarantee(rho=0.5)
    >>> round(convert(ZcdpGuarantee(0.5), "approximate_dp", delta=1e-5).guarantee.epsilon, 6)
    4.728386
    """
    with inside("to"):
        target = Target(target_kind, delta, None if orders is None else tuple(orders), omega, fpr, prior)
    stated = _stronger_form(guarantee)
    conversions, refused = _TABLE[stated.kind]
    if target.kind not in conversions:
        raise refusal(guarantee.kind, target.kind, refused[target.kind], list(conversions))
    return conversions[target.kind](stated, target)


def _stronger_form(guarantee: Guarantee) -> Guarantee:
    """Return the same statement in its strongest kind: delta 0 is pure DP, and an advantage t is (0, t)-DP."""
    if isinstance(guarantee, AttackRisk):
        if guarantee.advantage is None:
            raise Unsupported(_ONE_POINT, code="no_such_conversion", pointer=("from",))
        guarantee = ApproximateDpGuarantee(0.0, guarantee.advantage)
    if isinstance(guarantee, ApproximateDpGuarantee) and guarantee.delta == 0.0:
        return PureDpGuarantee(guarantee.epsilon)
    return guarantee
