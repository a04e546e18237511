"""Conversions against long-precision laws that attain them, and numbers known from elsewhere."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.composition.composition import Composition
from accounting.composition.renyi import RenyiBound
from accounting.conversions import convert
from accounting.conversions.single_order import LogMoments, canonne_kamath_steinke, smallest_over_orders
from accounting.guarantees import (
    ApproximateDpGuarantee,
    GaussianDpGuarantee,
    Guarantee,
    PureDpGuarantee,
    RenyiDpGuarantee,
    TruncatedZcdpGuarantee,
    ZcdpGuarantee,
)
from accounting.losses.stated import ZcdpLoss
from tests.accounting.conversions.guarantees import EPSILONS, PHASES, SOURCES, number, numbers, risk
from tests.accounting.conversions.trade_offs import Trade, both, corner_trade, gaussian_trade
from tests.accounting.references import gaussian_delta, gaussian_epsilon, normal_cdf


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
@pytest.mark.one_in(9)
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
@settings(max_examples=30, deadline=None)
def test_canonne_kamath_steinke_is_what_the_engine_has(rho: float, delta: float) -> None:
    """The single-order form stands here once more, for lists of orders: both must stay the same theorem."""
    bounds = RenyiBound().epsilon(Composition(((ZcdpLoss(rho), 1),)), delta)
    assert bounds is not None
    order = 1 + math.sqrt(-math.log(delta) / rho)
    here = smallest_over_orders(lambda order: canonne_kamath_steinke(order, rho * order, delta), order)
    assert here == pytest.approx(bounds.upper, rel=1e-9, abs=1e-13)


@given(stated=SOURCES, delta=st.floats(-30, -0.7).map(math.exp))
@settings(max_examples=20, deadline=None, phases=PHASES)
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
