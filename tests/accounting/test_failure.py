"""(epsilon, delta)-DP steps in a composition."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import compose
from accounting.events import ApproximateDp, Event, Gaussian, PureDp, ZcDp
from accounting.failure import Failure
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation

RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE
GAUSSIAN_EPSILON = 4.3771780956812246


def kairouz_oh_viswanath(steps: list[tuple[float, float]], epsilon: float) -> mp.mpf:
    """The hockey stick of the product of the four-outcome pairs, outcome by outcome."""
    with mp.workdps(40):
        pairs = []
        for eps, delta in steps:
            e, d = mp.exp(mp.mpf(eps)), mp.mpf(delta)
            likely, unlikely = (1 - d) * e / (1 + e), (1 - d) / (1 + e)
            pairs.append([(d, mp.mpf(0)), (likely, unlikely), (unlikely, likely), (mp.mpf(0), d)])
        alpha = mp.exp(mp.mpf(epsilon))
        total = mp.mpf(0)
        for outcome in itertools.product(*pairs):
            p, q = (mp.fprod(part[i] for part in outcome) for i in (0, 1))
            total += max(p - alpha * q, mp.mpf(0))
        return total


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-300, 1.0), st.integers(1, 10**8)), min_size=1, max_size=4))
def test_interval_contains_the_probability(steps: list[tuple[float, int]]) -> None:
    failure = Failure.of(steps)
    with mp.workdps(400):
        exact = 1 - mp.fprod((1 - mp.mpf(delta)) ** count for delta, count in steps)
        assert failure.lower <= exact <= failure.upper <= 1.0
        assert failure.upper - failure.lower <= 1e-14 * exact


@given(st.floats(0.0, 0.999))
def test_one_step_is_exact(delta: float) -> None:
    assert Failure.of([(delta, 1), (0.0, 10)]) == Failure(delta, delta)


def test_what_is_left_and_what_it_adds_up_to_are_rounded_outward() -> None:
    failure = Failure.of([(1e-6, 3), (0.1, 2)])
    for delta in (0.2, 0.5, 0.999):
        low, high = failure.left_of(delta)
        with mp.workdps(40):
            f = 1 - (1 - mp.mpf(1e-6)) ** 3 * (1 - mp.mpf(0.1)) ** 2
            assert low <= (delta - f) / (1 - f) <= high
            value = failure.with_rest(Interval(0.01, 0.02, 0.03))
            assert value.lower <= f + (1 - f) * mp.mpf(0.01)
            assert value.upper >= f + (1 - f) * mp.mpf(0.03)
    assert max(failure.left_of(0.1)) < 0
    assert Failure.of([(1.0, 1)]).left_of(0.9) == (-1.0 - 4e-15, -1.0 + 4e-15)
    assert Failure.of([(1.0, 1)]).with_rest(Interval(0.0, 0.5, 1.0)).lower >= 1.0 - 1e-14
    assert Failure.of([(1.0, 1)]).with_rest(Interval(0.0, 0.0, 0.0)) == Interval(1.0, 1.0, 1.0)
    assert Failure(1e-9, 1e-9).left_of(1 - 2**-53)[1] <= 1.0
    assert Failure().left_of(1e-5) == (1e-5, 1e-5)


@pytest.mark.parametrize("steps", [[(0.5, 1e-3)] * 3, [(0.3, 1e-2), (1.0, 0.0), (0.1, 0.2)], [(0.0, 0.1), (2.0, 1e-6)]])
def test_composition_is_that_of_the_dominating_pairs(steps: list[tuple[float, float]]) -> None:
    events = [Event(ApproximateDp(epsilon, delta)) for epsilon, delta in steps]
    for epsilon in (0.0, 0.2, 0.9, 2.5, 9.0):
        value = delta_for_epsilon(events, RELATION, epsilon).value
        exact = kairouz_oh_viswanath(steps, epsilon)
        assert value.lower <= exact * (1 + mp.mpf(10) ** -12)
        assert exact <= value.upper * (1 + mp.mpf(10) ** -15)
        if exact > 0.01:
            assert value.upper <= exact * 1.4


def test_a_guarantee_is_found_at_its_own_delta_and_its_own_epsilon() -> None:
    for epsilon, delta in [(1.0, 1e-5), (0.1, 1e-9), (3.0, 0.25), (0.5, 0.0)]:
        event = Event(ApproximateDp(epsilon, delta))
        value = epsilon_for_delta([event], RELATION, delta).value
        assert value.lower <= epsilon <= value.upper <= epsilon * (1 + 1e-14)
        found = delta_for_epsilon([event], RELATION, epsilon).value
        assert delta * (1 - 1e-14) <= found.lower <= delta <= found.upper <= delta * (1 + 1e-14) + 1e-300
        below = epsilon_for_delta([event], RELATION, delta * 0.99)
        if delta > 0.0:
            assert math.isinf(below.value.upper)
            assert "fails outright" in below.warnings[0]


def test_without_a_delta_it_is_pure_dp() -> None:
    for delta in (0.0, 1e-6, 0.1):
        approximate = epsilon_for_delta([Event(ApproximateDp(0.2, 0.0), count=30)], RELATION, delta).value
        assert approximate == epsilon_for_delta([Event(PureDp(0.2), count=30)], RELATION, delta).value


def test_beside_other_mechanisms_delta_adds_up_and_is_never_dropped() -> None:
    stated = Event(ApproximateDp(0.0, 1e-6), count=5)
    for other, alone in [
        (Event(Gaussian(1.0)), GAUSSIAN_EPSILON),
        (Event(ZcDp(0.5)), 4.728386984943391),
    ]:
        failure = -math.expm1(5 * math.log1p(-1e-6))
        total = failure + (1 - failure) * 1e-5
        value = epsilon_for_delta([stated, other], RELATION, total).value
        assert value.upper == pytest.approx(alone, abs=1e-6)
        assert value.upper >= alone - 1e-9
        with_delta = delta_for_epsilon([stated, other], RELATION, 5.0).value.upper
        without = delta_for_epsilon([other], RELATION, 5.0).value.upper
        assert with_delta == pytest.approx(failure + (1 - failure) * without, rel=1e-9)
    nothing_left = epsilon_for_delta([stated, Event(Gaussian(1.0))], RELATION, 4e-6)
    assert math.isinf(nothing_left.value.upper)
    assert "fails outright" in nothing_left.warnings[0]


def test_equal_guarantees_are_counted_together() -> None:
    one = compose([Event(ApproximateDp(0.1, 1e-3), count=3)], RELATION)
    several = compose([Event(ApproximateDp(0.1, 1e-3))] * 3, RELATION)
    assert one == several
    assert one.failure.upper == pytest.approx(1 - 0.999**3, rel=1e-12)


def test_certain_failure_has_no_guarantee_but_the_trivial_one() -> None:
    event = Event(ApproximateDp(0.1, 1.0))
    assert math.isinf(epsilon_for_delta([event], RELATION, 0.5).value.lower)
    assert epsilon_for_delta([event], RELATION, 1.0).value.upper == 0.0
    small = Event(ApproximateDp(0.1, 1e-9), count=2)
    assert epsilon_for_delta([small], RELATION, 1 - 2**-53).value.upper < 0.2
    assert delta_for_epsilon([event], RELATION, 3.0).value.lower == 1.0
