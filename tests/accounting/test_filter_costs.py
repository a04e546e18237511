"""One test per cell of the table of costs, refusals included."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import pytest

from accounting.errors import NoCostInFilter
from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp, ZcDp
from accounting.filter_costs import NO_AMPLIFICATION, exact, pure_dp_cost, renyi_dp_cost, zcdp_cost
from accounting.relations import NeighboringRelation
from accounting.units import NANO, SATURATED
from tests.accounting.references import poisson_moment

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL

FULL = Event(Gaussian(4.0), count=8)
SAMPLED = Event(Gaussian(5.346), Poisson(0.02), 5000)
ORDERS = (1.5, 2.0, 8.0, 32.0)


def up(value: object) -> int:
    return int(mp.ceil(mp.mpf(value) * NANO))


def test_pure_dp_gaussian_is_refused() -> None:
    with pytest.raises(NoCostInFilter, match="renyi_dp or zcdp") as caught:
        pure_dp_cost((Event(PureDp(1.0)), FULL), ADD_REMOVE)
    assert caught.value.pointer == ("events", 1, "mechanism")


def test_pure_dp_sampled_gaussian_is_refused() -> None:
    with pytest.raises(NoCostInFilter, match="renyi_dp or zcdp"):
        pure_dp_cost((SAMPLED,), ADD_REMOVE)


def test_pure_dp_laplace_adds_up_with_the_relations_sensitivity() -> None:
    assert pure_dp_cost((Event(Laplace(4.0), count=3),), ADD_REMOVE).amounts == (750_000_000,)
    assert pure_dp_cost((Event(Laplace(4.0), count=3),), SPECIAL).amounts == (750_000_000,)
    assert pure_dp_cost((Event(Laplace(4.0), count=3),), REPLACE).amounts == (1_500_000_000,)


def test_pure_dp_pure_adds_up_exactly() -> None:
    assert pure_dp_cost((Event(PureDp(1e-6), count=10**6),), REPLACE).amounts == (NANO,)
    assert pure_dp_cost((Event(PureDp(0.1), count=3),), ADD_REMOVE).amounts == (300_000_000,)


def test_pure_dp_zcdp_is_refused() -> None:
    with pytest.raises(NoCostInFilter, match="zcdp event"):
        pure_dp_cost((Event(ZcDp(0.1)),), ADD_REMOVE)


def test_zcdp_gaussian_is_exact() -> None:
    assert zcdp_cost((FULL,), ADD_REMOVE).amounts == (250_000_000,)
    assert zcdp_cost((FULL,), SPECIAL).amounts == (250_000_000,)
    assert zcdp_cost((FULL,), REPLACE).amounts == (NANO,)
    assert zcdp_cost((FULL,), REPLACE).warnings == ()


def test_zcdp_sampled_gaussian_is_unamplified_with_a_warning() -> None:
    for relation in NeighboringRelation:
        sampled = zcdp_cost((SAMPLED,), relation)
        full = zcdp_cost((Event(SAMPLED.mechanism, count=5000),), relation)
        assert sampled.amounts == full.amounts
        assert [warning.code for warning in sampled.warnings] == [NO_AMPLIFICATION]
    assert zcdp_cost((Event(Gaussian(2.0), Poisson(1.0)),), ADD_REMOVE).warnings == ()


def test_zcdp_laplace_is_the_best_proved() -> None:
    for scale, relation in ((1.0, ADD_REMOVE), (3.0, REPLACE), (200.0, SPECIAL)):
        epsilon = mp.mpf(relation.sensitivity) / scale
        rho = epsilon + mp.exp(-epsilon) - 1
        assert 0 <= zcdp_cost((Event(Laplace(scale), count=7),), relation).amounts[0] - up(7 * rho) <= 1
        assert rho < epsilon**2 / 2


def test_zcdp_pure_is_the_best_proved() -> None:
    for epsilon in (1e-3, 0.5, 4.0):
        rho = mp.mpf(repr(epsilon)) * mp.tanh(mp.mpf(repr(epsilon)) / 2)
        assert 0 <= zcdp_cost((Event(PureDp(epsilon), count=7),), REPLACE).amounts[0] - up(7 * rho) <= 1
        assert rho < mp.mpf(epsilon) ** 2 / 2


def test_zcdp_zcdp_adds_up_exactly() -> None:
    assert zcdp_cost((Event(ZcDp(0.1), count=3), Event(ZcDp(0.2))), REPLACE).amounts == (500_000_000,)


def test_renyi_gaussian_is_exact() -> None:
    expected = tuple(math.ceil(exact(order) * Fraction(8, 32) * NANO) for order in ORDERS)
    assert renyi_dp_cost((FULL,), ADD_REMOVE, ORDERS).amounts == expected
    assert renyi_dp_cost((FULL,), REPLACE, ORDERS).amounts == tuple(4 * amount for amount in expected)


@pytest.mark.parametrize(("relation", "pair"), [(ADD_REMOVE, "remove"), (SPECIAL, "remove"), (REPLACE, "replace")])
def test_renyi_sampled_gaussian_is_a_proved_bound_per_order(relation: NeighboringRelation, pair: str) -> None:
    event = Event(Gaussian(2.0), Poisson(0.05), 300)
    for order, amount in zip(ORDERS, renyi_dp_cost((event,), relation, ORDERS).amounts, strict=True):
        divergence = 300 * poisson_moment(2.0, 0.05, order - 1, pair) / (mp.mpf(order) - 1)
        assert divergence * NANO <= amount <= divergence * NANO * (1 + 2e-9) + 1
        assert amount < renyi_dp_cost((Event(Gaussian(2.0), count=300),), relation, (order,)).amounts[0]


def test_renyi_laplace_is_exact() -> None:
    for relation, scale in ((ADD_REMOVE, 2.0), (REPLACE, 4.0)):
        e = mp.mpf("0.5")
        for order, amount in zip(
            ORDERS, renyi_dp_cost((Event(Laplace(scale), count=9),), relation, ORDERS).amounts, strict=True
        ):
            a = mp.mpf(order)
            inside = (a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)) / (2 * a - 1)
            assert 0 <= amount - up(9 * mp.log(inside) / (a - 1)) <= 1


def test_renyi_pure_is_exact() -> None:
    e = mp.mpf("0.7")
    cost = renyi_dp_cost((Event(PureDp(0.7), count=9),), REPLACE, ORDERS)
    for order, amount in zip(ORDERS, cost.amounts, strict=True):
        a, p = mp.mpf(order), mp.exp(e) / (1 + mp.exp(e))
        inside = p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)
        assert 0 <= amount - up(9 * mp.log(inside) / (a - 1)) <= 1


def test_renyi_zcdp_is_rho_times_order() -> None:
    expected = tuple(math.ceil(exact(order) * exact(0.3) * NANO) for order in ORDERS)
    assert renyi_dp_cost((Event(ZcDp(0.1), count=3),), REPLACE, ORDERS).amounts == expected


def test_costs_saturate_instead_of_overflowing() -> None:
    huge = renyi_dp_cost((Event(Gaussian(0.05), Poisson(0.5), 10**8),), REPLACE, (1000.0, 1e5))
    assert huge.amounts == (SATURATED, SATURATED)
    assert zcdp_cost((Event(ZcDp(1e6), count=10**8),), REPLACE).amounts == (SATURATED,)


def test_no_cost_is_a_tempting_one() -> None:
    """By value: no rho or Renyi cost of a sampled Gaussian is the scaled-by-q-squared or central-limit number."""
    for s, q, count in ((5.346, 0.02, 5000), (2.0, 0.1, 100), (0.7, 0.001, 20000), (20.0, 0.3, 2000)):
        event = Event(Gaussian(s), Poisson(q), count)
        tempting = [
            q * q * count / (2 * s * s),
            q * count / (2 * s * s),
            q * q * count * math.expm1(1 / s**2) / 2,
            2 * q * q * count * math.expm1(4 / s**2),
        ]
        for relation in NeighboringRelation:
            rho = zcdp_cost((event,), relation).amounts[0] / NANO
            assert rho == pytest.approx(relation.sensitivity**2 * count / (2 * s * s), rel=1e-6)
            assert all(abs(rho / wrong - 1) > 0.1 for wrong in tempting)
            for order in (200.0, 2000.0):
                divergence = renyi_dp_cost((event,), relation, (order,)).amounts[0] / NANO
                assert divergence > 1.05 * order * q * q * count / (2 * s * s)
    rho = zcdp_cost((Event(Gaussian(5.346), Poisson(0.02), 5000),), ADD_REMOVE).amounts[0] / NANO
    assert rho == pytest.approx(87.474, abs=1e-2)
