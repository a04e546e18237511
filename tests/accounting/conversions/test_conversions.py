"""Every direction: against long-precision laws that attain it, round trips, refusals."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from accounting.composition.renyi import RenyiBound
from accounting.conversions import Converted, convert
from accounting.conversions.single_order import LogMoments, canonne_kamath_steinke, smallest_over_orders
from accounting.errors import InvalidValue, Unreachable, Unsupported
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
from accounting.mechanisms.plain import ZcdpLoss
from accounting.privacy_loss import Composition
from tests.accounting.conversions.trade_offs import Trade, both, corner_trade, gaussian_trade
from tests.accounting.references import gaussian_delta, gaussian_epsilon, normal_cdf

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


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-3, 0.4])
def test_corner_mechanism_attains_all(epsilon: float, delta: float) -> None:
    """Epsilon at another delta, advantage, true positive rate and Bayes risk of (epsilon, delta), by its worst law."""
    stated = ApproximateDpGuarantee(epsilon, delta)
    with mp.workdps(60):
        tpr = corner_trade(epsilon, delta)
        kinks = [(1 - mp.mpf(delta)) / (1 + mp.exp(mp.mpf(epsilon))), 1 - mp.mpf(delta)]
        assert_close(risk(stated), max(tpr(x) - x for x in [mp.mpf(0), *kinks]))
        for fpr in (0.0, 1e-9, 0.003, 0.2, 0.7, 1.0):
            assert_close(risk(stated, fpr=fpr), tpr(mp.mpf(fpr)))
        for prior in (0.0, 1e-6, 0.2, 0.5, 0.9, 1.0):
            p = mp.mpf(prior)
            bayes = min(p * (1 - tpr(x)) + (1 - p) * x for x in [mp.mpf(0), *kinks, mp.mpf(1)])
            found = risk(stated, prior=prior)
            assert bayes * (1 - mp.mpf(10) ** -13) - mp.mpf(10) ** -14 <= found <= bayes
        for wanted in (delta, delta + 1e-14, delta + 1e-4, delta + 0.3, 1.0):
            found = number(convert(stated, "approximate_dp", delta=wanted))
            assert max(tpr(x) - mp.exp(mp.mpf(found)) * x for x in [mp.mpf(0), *kinks]) <= wanted
            if found > 1e-9:  # less is not enough
                less = mp.mpf(found) - mp.mpf(10) ** -13 * max(1, epsilon)
                assert max(tpr(x) - mp.exp(less) * x for x in [mp.mpf(0), *kinks]) > wanted or wanted == delta


def assert_close(found: float, exact: mp.mpf, *, relative: float = 1e-13) -> None:
    """Rounded up, and not by much."""
    assert exact <= found <= exact * (1 + mp.mpf(relative)) + mp.mpf(10) ** -300


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
def test_pure_dp_is_converted_as_randomised_response(epsilon: float) -> None:
    stated = PureDpGuarantee(epsilon)
    with mp.workdps(60):
        e = mp.mpf(epsilon)
        p = 1 / (1 + mp.exp(-e))
        assert_close(number(convert(stated, "zcdp")), e * mp.tanh(e / 2))
        orders = (1.001, 1.5, 2.0, 17.0, 1e4)
        answer = convert(stated, "renyi_dp", orders=orders)
        for order, found in zip(orders, numbers(answer.guarantee), strict=True):
            assert_close(found, both(order, p, 1 - p), relative=0.01 if order < 1.01 else 5e-12)
        mu = number(convert(stated, "gaussian_dp"))
        assert_close(mu, 2 * mp.sqrt(2) * mp.erfinv(2 * p - 1), relative=1e-14 * 3)
        gaussian, response = gaussian_trade(mu), corner_trade(epsilon, 0)
        for fpr in (mp.mpf(10) ** -20, 1 - p, mp.mpf("0.3"), p, mp.mpf("0.97")):
            assert gaussian(fpr) >= response(fpr)
        assert gaussian_trade(mu * (1 - 1e-12))(1 - p) < response(1 - p)


@pytest.mark.parametrize("mu", [1e-9, 0.01, 0.3, 1.0, 7.0, 60.0])
def test_gaussian_mechanism_attains_all(mu: float) -> None:
    stated = GaussianDpGuarantee(mu)
    with mp.workdps(60):
        m = mp.mpf(mu)
        assert_close(number(convert(stated, "zcdp")), m * m / 2)
        assert_close(numbers(convert(stated, "renyi_dp", orders=(3.7,)).guarantee)[0], mp.mpf(3.7) * m * m / 2)
        assert_close(risk(stated), 2 * normal_cdf(m / 2) - 1)
        tpr = gaussian_trade(mu)
        for fpr in (1e-20, 0.003, 0.2, 0.7):
            assert_close(risk(stated, fpr=fpr), tpr(mp.mpf(fpr)), relative=1e-11)
        for prior in (0.5, 0.1, 0.97):
            p = mp.mpf(min(prior, 1 - prior))
            bayes = p * (1 - gaussian_delta(mu, mp.log((1 - p) / p)))
            assert bayes - mp.mpf(10) ** -13 <= risk(stated, prior=prior) <= bayes
        assert number(convert(stated, "approximate_dp", delta=1e-6)) == pytest.approx(
            float(gaussian_epsilon(mu, 1e-6)), rel=1e-9, abs=1e-15
        )


@pytest.mark.parametrize("stated", [ZcdpGuarantee(0.3), TruncatedZcdpGuarantee(0.3, 50.0)])
def test_zcdp_at_an_order_is_rho_times_the_order(stated: Guarantee) -> None:
    found = numbers(convert(stated, "renyi_dp", orders=(1.1, 2.0, 50.0)).guarantee)
    for order, bound in zip((1.1, 2.0, 50.0), found, strict=True):
        assert_close(bound, mp.mpf(0.3) * mp.mpf(order))
    assert convert(stated, "truncated_zcdp", omega=7.0).guarantee == TruncatedZcdpGuarantee(0.3, 7.0)


def test_known_numbers() -> None:
    answer = convert(ZcdpGuarantee(0.5), "approximate_dp", delta=1e-5)
    cks, textbook = (numbers(alternative.guarantee)[0] for alternative in answer.alternatives)
    assert (cks, textbook) == (pytest.approx(4.7283869849, abs=1e-9), pytest.approx(5.298526, abs=1e-6))
    assert number(answer) == pytest.approx(4.728385649, abs=1e-8)
    assert number(convert(GaussianDpGuarantee(1), "approximate_dp", delta=1e-5)) == pytest.approx(
        4.3771780957, abs=1e-9
    )


@given(rho=st.floats(-16, 9).map(math.exp), delta=st.floats(-60, -1).map(math.exp))
@settings(max_examples=60, deadline=None)
def test_canonne_kamath_steinke_is_what_the_engine_has(rho: float, delta: float) -> None:
    """The single-order form stands here once more, for lists of orders: both must stay the same theorem."""
    bounds = RenyiBound().epsilon(Composition(((ZcdpLoss(rho), 1),)), delta)
    assert bounds is not None
    order = 1 + math.sqrt(-math.log(delta) / rho)
    here = smallest_over_orders(lambda order: canonne_kamath_steinke(order, rho * order, delta), order)
    assert here == pytest.approx(bounds.upper, rel=1e-9, abs=1e-13)


#: One example takes a tenth of a second, so that shrinking a failure would take minutes.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
#: Numbers that are told from 0: among those of 1e-130 a bound is sound, but no longer the tightest.
SOURCES = st.one_of(
    st.floats(1e-6, 6).map(PureDpGuarantee),
    st.floats(1e-6, 4).map(GaussianDpGuarantee),
    st.floats(1e-6, 4).map(ZcdpGuarantee),
    st.builds(TruncatedZcdpGuarantee, st.floats(1e-6, 4), st.floats(1.5, 40)),
)


@given(stated=SOURCES, delta=st.floats(-30, -0.7).map(math.exp), fpr=st.floats(1e-12, 1))
@settings(max_examples=50, deadline=None, phases=PHASES)
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


@given(stated=SOURCES, delta=st.floats(-30, -0.7).map(math.exp))
@settings(max_examples=40, deadline=None, phases=PHASES)
def test_never_less_loss_than_there_is(stated: Guarantee, delta: float) -> None:
    """Against mechanisms that satisfy the stated guarantee: a Gaussian, a randomised response, a bit."""
    epsilon = number(convert(stated, "approximate_dp", delta=delta))
    trades: list[Trade] = []
    if isinstance(stated, PureDpGuarantee):
        trades = [corner_trade(stated.epsilon, 0)]
    elif isinstance(stated, GaussianDpGuarantee):
        trades = [gaussian_trade(stated.mu)]
    elif isinstance(stated, ZcdpGuarantee | TruncatedZcdpGuarantee):
        root = (
            mp.findroot(lambda s: s * mp.tanh(s / 2) - stated.rho, mp.sqrt(2 * stated.rho) + stated.rho)
            if stated.rho
            else 0
        )
        trades = [gaussian_trade(mp.sqrt(2 * mp.mpf(stated.rho))), corner_trade(root * (1 - mp.mpf(10) ** -30), 0)]
    for tpr in trades:
        for x in range(-40, 0, 3):
            fpr = mp.exp(mp.mpf(x) / 2)
            assert tpr(fpr) <= mp.exp(epsilon) * fpr + delta * (1 + mp.mpf(10) ** -12)
            assert tpr(fpr) <= risk(stated, fpr=float(fpr)) * (1 + 1e-12)


def test_zcdp_does_not_imply_the_gaussian_of_the_same_rho() -> None:
    """Why that direction is refused: randomised response with the same rho has the larger advantage."""
    for rho in (1e-6, 0.5, 5.0):
        assert risk(ZcdpGuarantee(rho)) > 1.02 * risk(GaussianDpGuarantee(math.sqrt(2 * rho))) or rho > 1
        assert risk(ZcdpGuarantee(rho)) > risk(GaussianDpGuarantee(math.sqrt(2 * rho)))


def test_other_orders_follow_from_convexity() -> None:
    """The moments of a randomised response are below the bound from a few of its orders, and equal at these."""
    stated = convert(PureDpGuarantee(2.0), "renyi_dp", orders=(1.5, 3.0, 10.0)).guarantee
    assert isinstance(stated, RenyiDpGuarantee)
    orders = (1.1, 1.5, 2.0, 3.0, 6.0, 10.0)
    found = numbers(convert(stated, "renyi_dp", orders=orders).guarantee)
    p = 1 / (1 + mp.exp(-2))
    for order, bound in zip(orders, found, strict=True):
        exact = both(order, p, 1 - p)
        assert exact <= bound <= 1.35 * exact
    assert [found[1], found[3], found[5]] == pytest.approx(list(stated.epsilons), rel=1e-12)
    rho = number(convert(stated, "truncated_zcdp", omega=10.0))
    moments = LogMoments(stated.orders, stated.epsilons)
    ratios = [moments.divergence(order) / order for order in np.linspace(1.0001, 10, 4000)]
    assert max(ratios) <= rho <= max(ratios) * (1 + 1e-3)


def test_an_order_that_bounds_nothing_is_passed_over() -> None:
    """Divergences rise in their order: a larger one at a smaller order is useless."""
    stated = RenyiDpGuarantee((2.0, 3.0), (5.0, 1.0))
    assert numbers(convert(stated, "renyi_dp", orders=(2.0,)).guarantee)[0] <= 1.0 * (1 + 1e-12)
    alone = RenyiDpGuarantee((3.0,), (1.0,))
    for target, parameters in (
        ("approximate_dp", {"delta": 1e-3}),
        ("attack_risk", {}),
        ("truncated_zcdp", {"omega": 2.5}),
    ):
        with_both = number(convert(stated, target, **parameters))  # type: ignore[arg-type]  # names of a dict
        assert with_both == pytest.approx(number(convert(alone, target, **parameters)), rel=1e-9)  # type: ignore[arg-type]  # names of a dict


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
