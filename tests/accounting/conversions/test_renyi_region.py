"""The exact conversion of Renyi bounds against mpmath, and against the two-outcome mechanisms that attain it."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.composition.gaussian_dp import epsilon_of_gaussian
from accounting.conversions import convert
from accounting.conversions.divergence_bounds import LinearBounds, ListedBounds
from accounting.conversions.renyi_region import RenyiRegion, TwoOutcomePair
from accounting.conversions.two_outcome import divergence
from accounting.errors import InvalidValue
from accounting.guarantees import ApproximateDpGuarantee, RenyiDpGuarantee, TruncatedZcdpGuarantee, ZcdpGuarantee
from tests.accounting.conversions.trade_offs import both, largest, renyi, single_order_epsilon

ORDERS = [1 + 10 ** mp.mpf(x) for x in mp.linspace(-4, 3, 57)]


def laws(pair: TwoOutcomePair) -> tuple[mp.mpf, mp.mpf]:
    p = 1 / (1 + mp.exp(-mp.mpf(pair.log_odds)))
    return p, p * mp.exp(-mp.mpf(pair.log_ratio))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("log_ratio", [1e-15, 1e-6, 0.03, 0.49, 1.9, 2.1, 40.0, 900.0])
@pytest.mark.parametrize("log_odds", [-300.0, -7.0, -1e-3, 0.7, 12.0, 300.0])
def test_divergence_is_accurate(log_odds: float, log_ratio: float) -> None:
    with mp.workdps(700):
        p, q = laws(TwoOutcomePair(log_odds, log_ratio))
        for tilt in (1e-9, 1e-2, 0.7, 5.0, 3e3):
            exact = both(1 + mp.mpf(tilt), p, q)
            assert abs(divergence(tilt, log_odds, log_ratio) / exact - 1) < 5e-14


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("order", "size", "delta"),
    [(2.0, 1.0, 1e-5), (8.0, 0.2, 1e-3), (1.5, 4.0, 1e-8), (64.0, 3.0, 1e-12), (3.0, 1e-6, 1e-5)],
)
def test_one_order_alone_is_converted_exactly(order: float, size: float, delta: float) -> None:
    """Against a direct search in 30 digits (the forward divergence alone binds here)."""
    stated = RenyiDpGuarantee((order,), (size,))
    found = convert(stated, "approximate_dp", delta=delta).guarantee
    assert isinstance(found, ApproximateDpGuarantee)
    with mp.workdps(30):
        exact = single_order_epsilon(order, size, delta)
        assert exact * (1 - mp.mpf(10) ** -18) <= found.epsilon <= exact * (1 + mp.mpf(10) ** -9) + 1e-13


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("rho", "delta"), [(0.5, 1e-5), (0.03125, 1e-3), (1e-6, 1e-4), (30.0, 1e-12), (2.0, 0.3), (1e-3, 0.01)]
)
def test_attained_by_a_bit(rho: float, delta: float) -> None:
    """The two-outcome mechanism found is rho-zCDP (but for 1e-9) and needs the epsilon that is answered."""
    region = RenyiRegion(LinearBounds(rho))
    epsilon = region.epsilon(delta)
    with mp.workdps(40):
        p, q = laws(region.attaining_pair_at_delta(delta))
        assert max(both(order, p, q) / order for order in ORDERS) <= rho * (1 + 1e-9)
        assert mp.log((p - delta) / q) <= epsilon
        assert mp.log((p - delta) / q) >= epsilon * (1 - 1e-9) - 1e-11 * region.attaining_pair_at_delta(delta).log_ratio


def test_zcdp_is_the_smallest_over_single_orders() -> None:
    """4.728385649 where Canonne, Kamath & Steinke have 4.728386985."""
    epsilon = RenyiRegion(LinearBounds(0.5)).epsilon(1e-5)
    with mp.workdps(25):
        around = [single_order_epsilon(order, 0.5 * order, 1e-5) for order in (5.42, 5.43185, 5.44)]
    assert around[1] < min(around[0], around[2])
    assert epsilon <= min(around) * (1 + 1e-9)
    assert epsilon == pytest.approx(float(around[1]), abs=2e-9)
    assert epsilon == pytest.approx(4.728385649, abs=2e-9)


@pytest.mark.parametrize("rho", [1e-8, 0.01, 0.5, 3.0, 200.0])
@pytest.mark.one_in(5)
def test_bounds_every_test(rho: float) -> None:
    """Two-outcome laws on the edge of rho-zCDP lie within delta and the true positive rate."""
    region = RenyiRegion(LinearBounds(rho))
    epsilons = [0.0, 0.3 * math.sqrt(rho), rho + 2 * math.sqrt(rho)]
    deltas = {epsilon: region.delta(epsilon) for epsilon in epsilons}
    with mp.workdps(45):
        for log_odds in (-9.0, 1.0):
            p = 1 / (1 + mp.exp(-mp.mpf(log_odds)))
            q = p * mp.exp(-edge(rho, p))
            assert region.true_positive_rate(float(q)) >= p * (1 - mp.mpf(10) ** -12)
            assert region.true_positive_rate(float(q)) <= p * (1 + mp.mpf(10) ** -8)
            for epsilon, delta in deltas.items():
                assert delta >= p - mp.exp(epsilon) * q


def edge(rho: float, p: mp.mpf) -> mp.mpf:
    """Largest log(p / q) that every order allows, each direction's worst order by golden section."""

    def rho_needed(log_ratio: mp.mpf) -> mp.mpf:
        q = p * mp.exp(-log_ratio)
        directions = [(p, q), (q, p)]
        return max(
            largest(lambda x, pair=pair: renyi(1 + mp.exp(x), *pair) / (1 + mp.exp(x)), -30, 20, 44)[1]  # type: ignore[misc]  # the pair of now
            for pair in directions
        )

    low, high = mp.mpf(0), 6 * (rho + mp.sqrt(rho)) + 12 * mp.sqrt(rho)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rho_needed(middle) <= rho else (low, middle)
    return low


@pytest.mark.parametrize("rho", [1e-12, 1e-3, 0.5, 20.0])
def test_advantage_is_that_of_randomised_response(rho: float) -> None:
    """tanh(s/2) where s tanh(s/2) = rho: the randomised response whose zCDP is exactly rho."""
    with mp.workdps(40):
        low, high = mp.mpf(0), mp.mpf(rho) + 2 * mp.sqrt(rho)
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (middle, high) if middle * mp.tanh(middle / 2) <= rho else (low, middle)
        found = RenyiRegion(LinearBounds(rho)).advantage
        assert mp.tanh(low / 2) <= found <= mp.tanh(low / 2) * (1 + mp.mpf(10) ** -9)


def test_epsilon_delta_and_true_positive_rate_describe_the_same_region() -> None:
    region = RenyiRegion(ListedBounds((2.0, 5.0, 30.0), (0.3, 0.9, 4.0)))
    for delta in (1e-9, 1e-4, 0.05):
        epsilon = region.epsilon(delta)
        assert region.delta(epsilon) == pytest.approx(delta, rel=1e-7)
        for fpr in (1e-6, 1e-3, 0.1, 0.5, 0.9):
            tpr = region.true_positive_rate(fpr)
            assert tpr <= math.exp(epsilon) * fpr + delta * (1 + 1e-7)
            assert 1 - fpr <= math.exp(epsilon) * (1 - tpr) + delta * (1 + 1e-7) + 1e-12


@pytest.mark.thorough
def test_more_orders_never_hurt_and_kinks_are_found() -> None:
    """Where two orders bind at once the answer is below what either gives alone."""
    pairs = [(2.0, 0.5), (20.0, 1.2)]
    together = RenyiRegion(ListedBounds((2.0, 20.0), (0.5, 1.2)))
    for delta in (1e-2, 2e-4, 1e-6):
        alone = min(RenyiRegion(ListedBounds((order,), (size,))).epsilon(delta) for order, size in pairs)
        assert together.epsilon(delta) <= alone * (1 + 1e-9)
    gains = [
        min(RenyiRegion(ListedBounds((order,), (size,))).epsilon(delta) for order, size in pairs)
        - together.epsilon(delta)
        for delta in (10.0 ** (-0.25 * x) for x in range(6, 18))
    ]
    assert max(gains) > 1e-4


@pytest.mark.parametrize("gap", [1e-12, 1e-9, 1e-3])
def test_an_omega_next_to_1_says_little_and_is_no_fault(gap: float) -> None:
    wide = convert(TruncatedZcdpGuarantee(1.0, 2.0), "approximate_dp", delta=0.3)
    near = convert(TruncatedZcdpGuarantee(1.0, 1.0 + gap), "approximate_dp", delta=0.3)
    assert isinstance(wide.guarantee, ApproximateDpGuarantee)
    assert isinstance(near.guarantee, ApproximateDpGuarantee)
    assert near.guarantee.epsilon >= wide.guarantee.epsilon
    for alternative in near.alternatives:
        assert isinstance(alternative.guarantee, ApproximateDpGuarantee)
        assert near.guarantee.epsilon <= alternative.guarantee.epsilon


@pytest.mark.parametrize("gap", [2.0**-52, 1e-15])
def test_an_epsilon_beyond_all_that_is_answered_is_refused(gap: float) -> None:
    with pytest.raises(InvalidValue, match="epsilon must be in"):
        convert(TruncatedZcdpGuarantee(1.0, 1.0 + gap), "approximate_dp", delta=0.3)


@given(
    rho=st.floats(-25, 13.8).map(math.exp),
    delta=st.floats(-69, -0.7).map(math.exp),
)
@settings(max_examples=15, deadline=None)
def test_never_raises_and_lies_between_the_gaussian_and_the_textbook(rho: float, delta: float) -> None:
    answer = convert(ZcdpGuarantee(rho), "approximate_dp", delta=delta)
    assert isinstance(answer.guarantee, ApproximateDpGuarantee)
    assert answer.guarantee.epsilon >= epsilon_of_gaussian(math.sqrt(2 * rho), delta, upward=False) * (1 - 1e-9)
    for alternative in answer.alternatives:
        assert isinstance(alternative.guarantee, ApproximateDpGuarantee)
        assert answer.guarantee.epsilon <= alternative.guarantee.epsilon * (1 + 1e-9)


def test_the_gain_over_one_order_is_large_where_delta_is() -> None:
    """docs/concepts/conversions.md says so: the advantage of 0.02-zCDP, against the single-order form at epsilon 0."""
    single = min(
        math.exp(0.02 * x * (x + 1) - x * math.log1p(1 / x) - math.log1p(x)) for x in (0.01 * i for i in range(1, 5000))
    )
    assert single == pytest.approx(0.1209, abs=1e-4)
    assert RenyiRegion(LinearBounds(0.02)).advantage == pytest.approx(0.0998, abs=1e-4)
