"""Every direction is served or refused with a reason; what all answers have in common."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.conversions import convert
from accounting.errors import InvalidValue, Unreachable, Unsupported
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
from tests.accounting.conversions.guarantees import PHASES, SERVED, SOURCES, STATED, TARGETS, number, numbers, risk


@pytest.mark.parametrize("source", SERVED)
@pytest.mark.parametrize(("target", "parameters"), TARGETS)
def test_every_direction_is_served_or_refused_with_a_reason(
    source: str, target: str, parameters: dict[str, Any]
) -> None:
    stated = STATED[source]
    if target not in SERVED[source]:
        with pytest.raises(Unsupported, match="converts to") as refused:
            convert(stated, target, **parameters)
        assert refused.value.code == "no_such_conversion"
        assert refused.value.pointer == ("to", "kind")
        return
    converted = convert(stated, target, **parameters)
    assert converted.guarantee.kind == target
    assert converted.method
    assert converted.source
    for alternative in converted.alternatives:
        assert alternative.guarantee.kind == target
        pairs = zip(numbers(converted.guarantee), numbers(alternative.guarantee), strict=True)
        assert all(best <= other * (1 + 1e-12) for best, other in pairs)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("target", "parameters"), TARGETS)
def test_monotone_in_what_is_stated(target: str, parameters: dict[str, Any]) -> None:
    families: dict[str, list[Guarantee]] = {
        "pure_dp": [PureDpGuarantee(x) for x in (0.0, 1e-8, 0.3, 0.31, 2.0, 50.0)],
        "approximate_dp": [ApproximateDpGuarantee(x, y) for x, y in ((0.0, 0.01), (0.5, 0.01), (0.5, 0.1), (3.0, 0.2))],
        "zcdp": [ZcdpGuarantee(x) for x in (0.0, 1e-9, 0.01, 0.0101, 2.0, 90.0)],
        "truncated_zcdp": [TruncatedZcdpGuarantee(x, 8.0) for x in (0.0, 1e-9, 0.01, 0.0101, 2.0, 90.0)],
        "gaussian_dp": [GaussianDpGuarantee(x) for x in (0.0, 1e-9, 0.01, 0.0101, 2.0, 90.0)],
        "renyi_dp": [RenyiDpGuarantee((1.5, 9.0), (x, 3 * x)) for x in (0.0, 1e-9, 0.01, 0.0101, 2.0, 90.0)],
    }
    for source, family in families.items():
        if target in SERVED[source]:
            answers = [numbers(convert(stated, target, **parameters).guarantee) for stated in family]
            for less, more in pairwise(answers):
                assert all(a <= b * (1 + 1e-10) or a <= b + 1e-12 for a, b in zip(less, more, strict=True)), source


@given(stated=SOURCES, delta=st.floats(-30, -0.7).map(math.exp), fpr=st.floats(1e-12, 1))
@settings(max_examples=25, deadline=None, phases=PHASES)
def test_round_trips_never_gain(stated: Guarantee, delta: float, fpr: float) -> None:
    """By way of any third kind, an answer is never better than the direct one."""
    orders = (1.25, 1.5)
    direct = number(convert(stated, "approximate_dp", delta=delta))
    direct_risk = risk(stated, fpr=fpr)
    for kind, parameters in (
        ("zcdp", {}),
        ("gaussian_dp", {}),
        ("truncated_zcdp", {"omega": 1.5}),
        ("renyi_dp", {"orders": orders}),
        ("approximate_dp", {"delta": 0.5 * delta}),
    ):
        if kind in SERVED[stated.kind]:
            between = convert(stated, kind, **parameters).guarantee
            around = number(convert(between, "approximate_dp", delta=delta))
            assert around >= direct * (1 - 1e-9) - 1e-12, kind
            assert risk(between, fpr=fpr) >= direct_risk * (1 - 1e-9), kind


def test_delta_zero_is_pure_and_an_advantage_is_a_delta() -> None:
    assert convert(ApproximateDpGuarantee(1.0, 0.0), "zcdp") == convert(PureDpGuarantee(1.0), "zcdp")
    assert convert(AttackRisk(advantage=0.2), "approximate_dp", delta=0.2).guarantee == ApproximateDpGuarantee(0.0, 0.2)
    assert convert(AttackRisk(advantage=0.2), "attack_risk").guarantee == AttackRisk(advantage=0.2)
    assert convert(AttackRisk(advantage=0.0), "zcdp").guarantee == ZcdpGuarantee(0.0)


def test_nothing_is_lost_of_a_guarantee_without_loss() -> None:
    for stated in (
        PureDpGuarantee(0.0),
        ZcdpGuarantee(0.0),
        GaussianDpGuarantee(0.0),
        RenyiDpGuarantee((2.0,), (0.0,)),
    ):
        assert risk(stated) == 0.0
        assert number(convert(stated, "approximate_dp", delta=0.0)) == 0.0
        assert risk(stated, fpr=0.25) == pytest.approx(0.25, rel=1e-12)
        assert risk(stated, prior=0.5) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("stated", [ZcdpGuarantee(1.0), RenyiDpGuarantee((2.0,), (1.0,)), GaussianDpGuarantee(1.0)])
def test_no_epsilon_is_finite_at_delta_zero(stated: Guarantee) -> None:
    with pytest.raises(Unreachable, match="positive delta") as refused:
        convert(stated, "approximate_dp", delta=0.0)
    assert refused.value.pointer == ("to", "delta")
    assert number(convert(stated, "approximate_dp", delta=1.0)) == 0.0


def test_a_smaller_delta_than_the_stated_one_has_no_epsilon() -> None:
    with pytest.raises(Unreachable, match="reveals"):
        convert(ApproximateDpGuarantee(1.0, 1e-5), "approximate_dp", delta=9.99e-6)
    assert number(convert(ApproximateDpGuarantee(1.0, 1.0), "approximate_dp", delta=1.0)) == 0.0


@pytest.mark.parametrize(
    ("kind", "parameters", "pointer"),
    [
        ("magic", {}, ("to", "kind")),
        ("approximate_dp", {}, ("to", "delta")),
        ("approximate_dp", {"delta": 1.5}, ("to", "delta")),
        ("approximate_dp", {"delta": True}, ("to", "delta")),
        ("zcdp", {"delta": 0.1}, ("to", "delta")),
        ("renyi_dp", {}, ("to", "orders")),
        ("renyi_dp", {"orders": (3.0, 2.0)}, ("to", "orders", 1)),
        ("truncated_zcdp", {"omega": 1.0}, ("to", "omega")),
        ("attack_risk", {"fpr": 0.1, "prior": 0.1}, ("to", "prior")),
    ],
)
def test_a_target_that_makes_no_sense_is_pointed_at(
    kind: str, parameters: dict[str, Any], pointer: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidValue) as refused:
        convert(PureDpGuarantee(1.0), kind, **parameters)
    assert refused.value.pointer == pointer


@pytest.mark.parametrize("stated", [STATED["truncated_zcdp"], STATED["renyi_dp"]])
def test_orders_beyond_the_known_ones_are_refused(stated: Guarantee) -> None:
    for kind, parameters, place in (
        ("renyi_dp", {"orders": (2.0, 9.0)}, "orders"),
        ("truncated_zcdp", {"omega": 9.0}, "omega"),
    ):
        with pytest.raises(Unsupported, match="8") as refused:
            convert(stated, kind, **parameters)  # type: ignore[arg-type]  # names of a dict
        assert (refused.value.code, refused.value.pointer) == ("no_such_conversion", ("to", place))


def test_same_bits_for_the_same_numbers() -> None:
    for one in (1, np.int64(1), np.float32(1.0), np.float64(1.0)):
        for make in (PureDpGuarantee, ZcdpGuarantee, GaussianDpGuarantee):
            assert convert(make(one), "attack_risk", fpr=np.float64(0.25)) == convert(
                make(1.0), "attack_risk", fpr=0.25
            )  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e-12, 1e-3, 1e3, 1e6])
@pytest.mark.one_in(6)
def test_extremes_are_answered(size: float) -> None:
    sources: list[Guarantee] = [
        PureDpGuarantee(size),
        ApproximateDpGuarantee(size, 1e-30),
        ZcdpGuarantee(size),
        TruncatedZcdpGuarantee(size, 1.0 + 1e-6),
        TruncatedZcdpGuarantee(size, 1e7),
        GaussianDpGuarantee(size),
        RenyiDpGuarantee((1.0 + 1e-9, 1e7), (size, size)),
    ]
    for stated in sources:
        for delta in (1e-30, 1e-5, 0.5, 1.0 - 1e-12):
            assert 0.0 <= number(convert(stated, "approximate_dp", delta=delta)) < 1e13
        for at in ({}, {"fpr": 1e-30}, {"fpr": 0.5}, {"fpr": 1 - 1e-16}, {"prior": 1e-30}, {"prior": 0.5}):
            assert 0.0 <= risk(stated, **at) <= 1.0


def test_a_large_epsilon_tells_apart_at_tiny_false_positive_rates() -> None:
    """The power e^740 overflows, while its product with a tiny rate does not."""
    for fpr in (5e-324, 1e-310):
        converted = convert(PureDpGuarantee(740.0), "attack_risk", fpr=fpr)
        with mp.workdps(50):
            exact = min(mp.exp(740) * fpr, 1)
        for found in (converted.guarantee, *(each.guarantee for each in converted.alternatives)):
            assert isinstance(found, AttackRisk)
            assert found.tpr is not None
            assert exact <= found.tpr <= exact * (1 + 1e-9)


def test_the_smallest_numbers_are_rounded_up() -> None:
    with mp.workdps(700):
        for mu in (0.1, 1.0):
            tpr = convert(GaussianDpGuarantee(mu), "attack_risk", fpr=5e-324).guarantee
            quantile = mp.findroot(lambda z: mp.log(mp.ncdf(z)) - mp.log(5e-324), -38.5)
            assert isinstance(tpr, AttackRisk)
            assert tpr.tpr is not None
            assert mp.ncdf(quantile + mu) <= tpr.tpr
        for epsilon in (5e-324, 1e-300, 1e-170):
            zcdp, gaussian = (convert(PureDpGuarantee(epsilon), kind).guarantee for kind in ("zcdp", "gaussian_dp"))
            assert isinstance(zcdp, ZcdpGuarantee)
            assert isinstance(gaussian, GaussianDpGuarantee)
            assert epsilon * mp.tanh(mp.mpf(epsilon) / 2) <= zcdp.rho
            assert mp.sqrt(mp.pi / 2) * epsilon * (1 - mp.mpf(10) ** -20) <= gaussian.mu


def test_an_answer_at_a_larger_delta_is_never_above_the_statement() -> None:
    converted = convert(PureDpGuarantee(1.0), "approximate_dp", delta=1e-20)
    assert converted.guarantee == ApproximateDpGuarantee(1.0, 1e-20)
