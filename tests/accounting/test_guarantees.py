from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.errors import AccountingError, InvalidValue
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
    guarantee_from_json,
)

EXAMPLES: list[Guarantee] = [
    PureDpGuarantee(1.5),
    ApproximateDpGuarantee(1.0, 1e-5),
    ZcdpGuarantee(0.1),
    TruncatedZcdpGuarantee(0.1, 12.0),
    GaussianDpGuarantee(0.3),
    RenyiDpGuarantee((2.0, 3.5), (0.1, 0.4)),
    AttackRisk(advantage=0.2),
    AttackRisk(fpr=0.01, tpr=0.02),
    AttackRisk(prior=0.5, bayes_risk=0.4),
]


@pytest.mark.parametrize("guarantee", EXAMPLES, ids=lambda guarantee: guarantee.kind)
def test_json_reads_back_to_an_equal_guarantee(guarantee: Guarantee) -> None:
    written = guarantee.to_json()
    assert written["kind"] == guarantee.kind
    assert None not in written.values()
    assert guarantee_from_json(written) == guarantee


def test_every_kind_has_an_example() -> None:
    assert {guarantee.kind for guarantee in EXAMPLES} == set(GUARANTEES)


def test_int_float_and_numpy_scalars_are_the_same_guarantee() -> None:
    assert ZcdpGuarantee(1) == ZcdpGuarantee(np.float32(1.0)) == ZcdpGuarantee(np.int64(1)) == ZcdpGuarantee(1.0)  # type: ignore[arg-type]  # on purpose
    assert RenyiDpGuarantee([2, 4], [np.float64(1), 2]) == RenyiDpGuarantee((2.0, 4.0), (1.0, 2.0))  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"kind": "pure_dp", "epsilon": -1.0}, ("epsilon",)),
        ({"kind": "pure_dp", "epsilon": math.inf}, ("epsilon",)),
        ({"kind": "pure_dp", "epsilon": True}, ("epsilon",)),
        ({"kind": "pure_dp", "epsilon": "1"}, ("epsilon",)),
        ({"kind": "pure_dp"}, ("epsilon",)),
        ({"kind": "pure_dp", "epsilon": 1.0, "delta": 0.0}, ("delta",)),
        ({"kind": "approximate_dp", "epsilon": 1.0, "delta": 1.1}, ("delta",)),
        ({"kind": "zcdp", "rho": math.nan}, ("rho",)),
        ({"kind": "truncated_zcdp", "rho": 1.0, "omega": 1.0}, ("omega",)),
        ({"kind": "gaussian_dp", "mu": 1e7}, ("mu",)),
        ({"kind": "renyi_dp", "orders": [1.0], "epsilons": [1.0]}, ("orders", 0)),
        ({"kind": "renyi_dp", "orders": [2.0, 2.0], "epsilons": [1.0, 1.0]}, ("orders", 1)),
        ({"kind": "renyi_dp", "orders": [], "epsilons": []}, ("orders",)),
        ({"kind": "renyi_dp", "orders": "23", "epsilons": [1.0]}, ("orders",)),
        ({"kind": "renyi_dp", "orders": list(range(2, 67)), "epsilons": [1.0] * 65}, ("orders",)),
        ({"kind": "renyi_dp", "orders": [2.0], "epsilons": [1.0, 2.0]}, ("epsilons",)),
        ({"kind": "renyi_dp", "orders": [2.0], "epsilons": [-1.0]}, ("epsilons", 0)),
        ({"kind": "attack_risk"}, ()),
        ({"kind": "attack_risk", "fpr": 0.1}, ()),
        ({"kind": "attack_risk", "advantage": 0.1, "fpr": 0.1, "tpr": 0.2}, ()),
        ({"kind": "attack_risk", "advantage": 1.5}, ("advantage",)),
        ({"kind": "magic"}, ("kind",)),
        ({}, ("kind",)),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_stands(
    value: dict[str, object], pointer: tuple[str | int, ...]
) -> None:
    with pytest.raises(InvalidValue) as refused:
        guarantee_from_json(value)
    assert isinstance(refused.value, AccountingError)
    assert refused.value.pointer == pointer
