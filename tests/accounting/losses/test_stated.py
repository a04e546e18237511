from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.accountant import epsilon_for_delta
from accounting.composition.composition import compose
from accounting.composition.renyi import RenyiBound
from accounting.errors import Unsupported
from accounting.events import Event, Gaussian, Poisson, RenyiDp
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.laplace import LaplaceLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.stated import ApproximateDpLoss, RandomizedResponseLoss, RenyiCurveLoss, ZcdpLoss
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 2.0, 50.0, 900.0])
@mp.workdps(60)
def test_randomized_response_moment_and_rho(epsilon: float) -> None:
    loss, e = RandomizedResponseLoss(epsilon), mp.mpf(epsilon)
    rho = mp.mpf(loss.zcdp_rho) * (1 + mp.mpf(10) ** -12)
    assert rho <= e * e / 2 * (1 + mp.mpf(10) ** -11)
    for tilt in (1e-3, 0.5, 1.0, 30.0, 1000.0):
        x = mp.mpf(tilt)
        exact = mp.log(mp.cosh((x + 0.5) * e) / mp.cosh(e / 2))
        assert 0 <= float(loss.log_moment(np.array([tilt]))[0]) / exact - 1 < 3e-12
        assert exact <= rho * x * (x + 1)
    x = mp.mpf("1e-9")
    assert mp.log(mp.cosh((x + 0.5) * e) / mp.cosh(e / 2)) >= rho * x * (x + 1) * mp.mpf("0.9999")


def test_profile_of_randomized_response() -> None:
    loss = RandomizedResponseLoss(1.0)
    likely = math.e / (1 + math.e)
    assert float(loss.excess(np.array([0.0]))[0]) == pytest.approx(2 * likely - 1, rel=1e-14)
    assert float(loss.excess(np.array([1.0]))[0]) == 0.0


def test_zcdp_has_moments_and_no_pair() -> None:
    loss = ZcdpLoss(0.5)
    assert float(loss.log_moment(np.array([3.0]))[0]) == pytest.approx(6.0)
    with pytest.raises(Unsupported, match="no pair"):
        loss.excess(np.zeros(1))
    with pytest.raises(Unsupported, match="no pair"):
        loss.support(-10.0)


def test_approximate_dp_reveals_everything_with_probability_delta() -> None:
    loss, response = ApproximateDpLoss(0.7, 0.1), RandomizedResponseLoss(0.7)
    epsilons = np.array([-2.0, -0.3, 0.0, 0.4, 0.7, 5.0])
    e = math.exp(0.7)
    for epsilon, value in zip(epsilons, loss.excess(epsilons), strict=True):
        alpha = math.exp(epsilon)
        masses = [(0.1, 0.0), (0.9 * e / (1 + e), 0.9 / (1 + e)), (0.9 / (1 + e), 0.9 * e / (1 + e)), (0.0, 0.1)]
        stick = sum(max(p - alpha * q, 0.0) for p, q in masses)
        assert value == pytest.approx(stick - max(0.0, 1.0 - alpha), abs=1e-15)
    assert math.isinf(loss.pure_epsilon)
    assert math.isinf(float(loss.log_moment(np.array([1.0]))[0]))
    support = loss.support(-20.0)
    assert (support.upper, support.upper_mass) == (0.7, 0.1)
    nothing_fails = ApproximateDpLoss(0.7, 0.0)
    assert nothing_fails.pure_epsilon == 0.7
    assert nothing_fails.log_moment(np.array([2.0])) == response.log_moment(np.array([2.0]))


@pytest.mark.parametrize("truth", [GaussianLoss(0.8), LaplaceLoss(1.5), RandomizedResponseLoss(0.4), ZcdpLoss(0.1)])
@given(orders=st.lists(st.floats(1.01, 60.0), min_size=1, max_size=6, unique=True), share=st.floats(0.001, 1.0))
def test_hull_bounds_every_mechanism(truth: PrivacyLoss, orders: list[float], share: float) -> None:
    """The moments of a mechanism that has these divergences are nowhere above the hull."""
    orders = sorted(orders)
    tilts = np.array(orders) - 1.0
    epsilons = np.maximum.accumulate(truth.log_moment(tilts) / tilts)
    stated = RenyiCurveLoss(tuple(orders), tuple(epsilons.tolist()))
    at = np.array([share * tilts[-1], *tilts])
    bounds = stated.log_moment(at)
    assert np.all(truth.log_moment(at) <= bounds * (1 + 1e-12))
    # As stated at the orders, up to a chord that says more; never above what is monotone in the order.
    assert np.all(bounds[1:] <= tilts * epsilons * (1 + 1e-12))
    assert bounds[0] <= at[0] * epsilons[np.searchsorted(tilts, at[0])] * (1 + 1e-12)
    assert math.isinf(float(stated.log_moment(tilts[-1:] * 1.0001)[0]))


def test_a_chord_between_orders_is_used() -> None:
    stated = RenyiCurveLoss((2.0, 3.0, 5.0), (1.0, 1.4, 1.5))
    # Moments 1, 2.8 and 6 at tilts 1, 2 and 4: the chord from 1 to 4 passes below the middle one.
    assert stated.log_moment(np.array([0.5, 1.0, 2.0, 4.0])) == pytest.approx([0.5, 1.0, 8 / 3, 6.0])
    with pytest.raises(Unsupported, match="no pair"):
        stated.excess(np.zeros(1))
    with pytest.raises(Unsupported, match="no pair"):
        stated.support(-10.0)


@pytest.mark.parametrize("order", [1.37, 8.123, 777.7])
def test_the_stated_orders_are_tried(order: float) -> None:
    """One order alone: Canonne, Kamath & Steinke 2020, Proposition 12, at that order exactly."""
    delta, epsilon, tilt = 1e-6, 0.5, order - 1.0
    expected = epsilon + (math.log(1 / delta) + tilt * math.log1p(-1 / order) - math.log(order)) / tilt
    value = epsilon_for_delta([Event(RenyiDp((order,), (epsilon,)))], ADD_REMOVE, delta).value
    assert value.upper == pytest.approx(expected, rel=1e-9)
    assert value.lower == 0.0
    sampled = compose([Event(RenyiDp((order,), (epsilon,))), Event(Gaussian(50.0), Poisson(0.01))], ADD_REMOVE)
    bounds = RenyiBound().epsilon(sampled, delta)
    assert bounds is not None
    assert expected <= bounds.upper <= expected + 0.01 * (1 + expected)


def test_stated_divergences_compose() -> None:
    orders = tuple(float(order) for order in np.geomspace(1.05, 400.0, 64))
    rho = 0.02
    event = Event(RenyiDp(orders, tuple(order * rho for order in orders)), count=25)
    value = epsilon_for_delta([event], ADD_REMOVE, 1e-5).value
    assert 4.728386984 <= value.upper <= 4.74
