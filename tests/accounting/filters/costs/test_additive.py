"""Costs in pure_dp, zcdp and gaussian_dp budgets."""

from __future__ import annotations

import mpmath as mp
import pytest

from accounting.events import Event, Gaussian, Laplace, PureDp, ZcDp
from accounting.filters import gaussian_dp_cost, pure_dp_cost, zcdp_cost
from accounting.relations import NeighboringRelation
from accounting.units import NANO
from tests.accounting.filters.costs.cells import ADD_REMOVE, FULL, REPLACE, SAMPLED_LAPLACE, SPECIAL, up
from tests.accounting.filters.costs.truths import mu_through


def test_pure_dp_laplace_adds_up_with_the_relations_sensitivity() -> None:
    assert pure_dp_cost((Event(Laplace(4.0), count=3),), ADD_REMOVE).amounts == (750_000_000,)
    assert pure_dp_cost((Event(Laplace(4.0), count=3),), SPECIAL).amounts == (750_000_000,)
    assert pure_dp_cost((Event(Laplace(4.0), count=3),), REPLACE).amounts == (1_500_000_000,)


@pytest.mark.parametrize(("event", "relation", "largest"), SAMPLED_LAPLACE)
def test_pure_dp_sampled_laplace_is_amplified(event: Event, relation: NeighboringRelation, largest: mp.mpf) -> None:
    assert 0 <= pure_dp_cost((event,), relation).amounts[0] - up(7 * largest) <= 1


def test_pure_dp_pure_adds_up_exactly() -> None:
    assert pure_dp_cost((Event(PureDp(1e-6), count=10**6),), REPLACE).amounts == (NANO,)
    assert pure_dp_cost((Event(PureDp(0.1), count=3),), ADD_REMOVE).amounts == (300_000_000,)


def test_zcdp_gaussian_is_exact() -> None:
    assert zcdp_cost((FULL,), ADD_REMOVE).amounts == (250_000_000,)
    assert zcdp_cost((FULL,), SPECIAL).amounts == (250_000_000,)
    assert zcdp_cost((FULL,), REPLACE).amounts == (NANO,)
    assert zcdp_cost((FULL,), REPLACE).warnings == ()


def test_zcdp_laplace_is_the_best_proved() -> None:
    for scale, relation in ((1.0, ADD_REMOVE), (3.0, REPLACE), (200.0, SPECIAL)):
        epsilon = mp.mpf(relation.sensitivity) / scale
        rho = epsilon + mp.exp(-epsilon) - 1
        assert 0 <= zcdp_cost((Event(Laplace(scale), count=7),), relation).amounts[0] - up(7 * rho) <= 1
        assert rho < epsilon**2 / 2


@pytest.mark.parametrize(("event", "relation", "largest"), SAMPLED_LAPLACE)
def test_zcdp_sampled_laplace_is_the_best_of_both(event: Event, relation: NeighboringRelation, largest: mp.mpf) -> None:
    assert isinstance(event.mechanism, Laplace)
    epsilon = mp.mpf(relation.sensitivity) / event.mechanism.noise_multiplier
    rho = min(epsilon + mp.exp(-epsilon) - 1, largest * mp.tanh(largest / 2))
    cost = zcdp_cost((event,), relation)
    assert 0 <= cost.amounts[0] - up(7 * rho) <= 1
    assert cost.warnings == ()


def test_zcdp_pure_is_the_best_proved() -> None:
    for epsilon in (1e-3, 0.5, 4.0):
        rho = mp.mpf(repr(epsilon)) * mp.tanh(mp.mpf(repr(epsilon)) / 2)
        assert 0 <= zcdp_cost((Event(PureDp(epsilon), count=7),), REPLACE).amounts[0] - up(7 * rho) <= 1
        assert rho < mp.mpf(epsilon) ** 2 / 2


def test_zcdp_zcdp_adds_up_exactly() -> None:
    assert zcdp_cost((Event(ZcDp(0.1), count=3), Event(ZcDp(0.2))), REPLACE).amounts == (500_000_000,)


def test_gaussian_dp_gaussian_is_exact() -> None:
    assert gaussian_dp_cost((FULL,), ADD_REMOVE).amounts == (500_000_000,)
    assert gaussian_dp_cost((FULL,), SPECIAL).amounts == (500_000_000,)
    assert gaussian_dp_cost((FULL,), REPLACE).amounts == (2 * NANO,)
    assert gaussian_dp_cost((FULL,), REPLACE).warnings == ()
    hundred = (Event(Gaussian(10.0), count=50), Event(Gaussian(10.0), count=50))
    assert gaussian_dp_cost(hundred, ADD_REMOVE).amounts == (NANO,)


@pytest.mark.parametrize(("event", "relation", "largest"), SAMPLED_LAPLACE)
def test_gaussian_dp_sampled_laplace_is_the_best_of_both(
    event: Event, relation: NeighboringRelation, largest: mp.mpf
) -> None:
    assert isinstance(event.mechanism, Laplace)
    full = mp.exp(-mp.mpf(relation.sensitivity) / event.mechanism.noise_multiplier / 2) / 2
    mu = min(mu_through(full), mu_through(1 / (1 + mp.exp(largest))))
    assert 0 <= gaussian_dp_cost((event,), relation).amounts[0] - up(7 * mu**2) <= 1
