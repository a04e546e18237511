"""Targets that follow from a proved additive cost: epsilon at delta 0, rho and mu."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from accounting.errors import InvalidValue, NoCostInFilter
from accounting.events import (
    ApproximateDp,
    DisjointBatches,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RenyiDp,
    WithoutReplacement,
    ZcDp,
)
from accounting.filters import PureDpFilter, gaussian_dp_cost, pure_dp_cost, zcdp_cost
from accounting.relations import NeighboringRelation
from accounting.solve import solve_noise
from accounting.targets import ApproximateDpTarget, BudgetTarget, GaussianDpTarget, PureDpTarget, ZcdpTarget
from accounting.units import NANO

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE


@pytest.mark.parametrize("relation", [REPLACE, NeighboringRelation.REPLACE_SPECIAL])
@pytest.mark.parametrize(
    "events",
    [
        (Event(Gaussian(4.0), count=8),),
        (Event(Gaussian(7.0), Poisson(0.01), 300),),
        (Event(Gaussian(7.0), WithoutReplacement(1, 100), 300), Event(Gaussian(3.0))),
        (Event(Laplace(3.0), count=7), Event(PureDp(0.3), count=2)),
        (Event(Laplace(3.0), Poisson(0.1), 7), Event(Gaussian(3.0), count=2)),
    ],
)
def test_the_figure_is_the_filters_cost(events: tuple[Event, ...], relation: NeighboringRelation) -> None:
    """To a nano-unit for every event; of Gaussians not even that is rounded."""
    rho = ZcdpTarget(1.0).assess(events, relation).value.upper
    mu = GaussianDpTarget(1.0).assess(events, relation).value.upper
    of_rho, of_mu_squared = (cost(events, relation).amounts[0] for cost in (zcdp_cost, gaussian_dp_cost))
    assert of_rho - 1 < rho * NANO <= of_rho + len(events)
    assert of_mu_squared - 1 < mu * mu * NANO <= of_mu_squared + len(events)


def test_stated_rho_counts_in_rho_and_has_no_mu() -> None:
    stated = (Event(ZcDp(0.1), count=3), Event(Gaussian(4.0), count=8))
    assert ZcdpTarget(1.0).assess(stated, ADD_REMOVE).value.upper == pytest.approx(0.55, rel=1e-15)
    with pytest.raises(NoCostInFilter):
        GaussianDpTarget(1.0).assess(stated, ADD_REMOVE)
    with pytest.raises(NoCostInFilter):
        ZcdpTarget(1.0).assess((Event(ApproximateDp(0.1, 1e-9)),), ADD_REMOVE)


def test_gaussians_in_full_batches_are_exact_and_attained() -> None:
    events = (Event(Gaussian(0.3), count=7),)
    rho, mu = ZcdpTarget(1.0).assess(events, ADD_REMOVE), GaussianDpTarget(1.0).assess(events, ADD_REMOVE)
    squares = 7 / Fraction(9, 100)
    assert rho.value.lower == rho.value.upper
    assert mu.value.lower == mu.value.upper
    assert math.nextafter(rho.value.upper, 0.0) < squares / 2 <= rho.value.upper
    assert squares <= Fraction(mu.value.upper) ** 2 <= squares * (1 + Fraction(1, 10**15))
    assert (rho.method, mu.method) == ("zcdp_cost", "gaussian_dp_cost")
    assert rho.warnings == mu.warnings == ()


@pytest.mark.parametrize(("target", "word"), [(ZcdpTarget(1.0), "zCDP"), (GaussianDpTarget(1.0), "Gaussian-DP")])
def test_of_sampled_gaussians_nothing_is_attained_and_it_is_said_why(
    target: ZcdpTarget | GaussianDpTarget, word: str
) -> None:
    sampled = target.assess((Event(Gaussian(4.0), Poisson(0.1), 8),), ADD_REMOVE)
    full = target.assess((Event(Gaussian(4.0), count=8),), ADD_REMOVE)
    assert sampled.value.upper == full.value.upper
    assert sampled.value.lower == 0.0
    (warning,) = sampled.warnings
    assert f"does not lower {target.figure}: no amplified {word} guarantee" in warning
    assert target.assess((Event(Laplace(4.0)),), ADD_REMOVE).value.lower == 0.0


def test_a_target_is_its_own_limit_and_says_its_figure() -> None:
    assert ZcdpTarget(0.25).limit == 0.25
    assert GaussianDpTarget(3).limit == 3.0
    assert ZcdpTarget(1.0).say(0.1234567) == "rho 0.123457"
    assert GaussianDpTarget(1.0).say(2.0) == "mu 2"
    assert {ZcdpTarget(1.0), ZcdpTarget(1)} == {ZcdpTarget(1.0)}
    for make, name in ((ZcdpTarget, "rho"), (GaussianDpTarget, "mu")):
        with pytest.raises(InvalidValue) as refused:
            make(0.0)
        assert refused.value.pointer == (name,)


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize(
    "events",
    [
        (Event(PureDp(0.3), count=3),),
        (Event(Laplace(4.0), count=8), Event(PureDp(1e-7))),
        (Event(Laplace(3.0), Poisson(0.1), 7), Event(Laplace(2.0))),
        (Event(Laplace(3.0), DisjointBatches("independent"), 7),),
    ],
)
def test_the_pure_epsilon_is_the_filters_cost_and_the_engines_answer_at_delta_0(
    events: tuple[Event, ...], relation: NeighboringRelation
) -> None:
    found = PureDpTarget(1.0).assess(events, relation)
    cost = pure_dp_cost(events, relation).amounts[0]
    assert cost - 1 < found.value.upper * NANO * (1 + 1e-15)
    assert found.value.upper * NANO <= cost * (1 + 1e-15)
    engine = ApproximateDpTarget(1.0, 0.0).assess(events, relation)
    assert found.value.upper == pytest.approx(engine.value.upper, rel=1e-9)
    assert found.method == "pure_dp_cost"
    sampled = any(isinstance(event.sampling, Poisson) for event in events)
    assert found.value.lower == (0.0 if sampled else found.value.upper)


def test_stated_epsilons_add_up_as_the_decimals_that_they_are_written_as() -> None:
    assert PureDpTarget(0.9).assess((Event(PureDp(0.3), count=3),), REPLACE).value.upper == 0.9
    thirds = PureDpTarget(1.0).assess((Event(Laplace(3.0)),), ADD_REMOVE).value.upper
    assert Fraction(repr(thirds)) >= Fraction(1, 3)
    assert thirds == pytest.approx(1 / 3, rel=1e-15)


@pytest.mark.parametrize(
    "mechanism", [Gaussian(5.0), ZcDp(0.1), ApproximateDp(0.1, 1e-9), RenyiDp((2.0,), (0.1,))], ids=lambda m: m.kind
)
def test_what_has_no_epsilon_at_delta_0_is_refused_with_the_filters_that_price_it(
    mechanism: Gaussian | ZcDp | ApproximateDp | RenyiDp,
) -> None:
    with pytest.raises(NoCostInFilter, match=f"{mechanism.kind} event has no .* pure_dp") as refused:
        PureDpTarget(1.0).assess((Event(PureDp(0.1)), Event(mechanism)), REPLACE)
    assert refused.value.pointer == ("events", 1, "mechanism")
    with pytest.raises(NoCostInFilter):
        solve_noise(lambda s: [Event(Gaussian(s))], REPLACE, PureDpTarget(1.0))


def test_noise_for_a_pure_target_is_the_closed_form() -> None:
    found = solve_noise(lambda s: [Event(Laplace(s), count=5)], REPLACE, PureDpTarget(0.7))
    assert found.value == pytest.approx(2.0 * 5 / 0.7, rel=1e-9)
    assert found.achieved.value.upper <= 0.7
    in_budget = solve_noise(lambda s: [Event(Laplace(s), count=5)], REPLACE, BudgetTarget(PureDpFilter(0.7), (0,)))
    assert in_budget.value == pytest.approx(found.value, rel=2e-5)


def test_a_pure_target_is_its_own_limit_and_says_its_figure() -> None:
    assert PureDpTarget(3).limit == 3.0
    assert PureDpTarget(3.0).say(0.1234567) == "epsilon 0.123457 at delta 0"
    assert PureDpTarget(1.0).level(0.25) == 0.25
    for epsilon in (0.0, -1.0, math.nan, 1e7):
        with pytest.raises(InvalidValue) as refused:
            PureDpTarget(epsilon)
        assert refused.value.pointer == ("epsilon",)
