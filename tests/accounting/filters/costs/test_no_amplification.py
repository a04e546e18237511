"""A sampled Gaussian has no amplified cost in zcdp and gaussian_dp budgets: searched for by value."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from accounting.composition.gaussian_dp import epsilon_of_gaussian
from accounting.events import Event, Gaussian, Poisson, WithoutReplacement
from accounting.filters import NO_AMPLIFICATION, gaussian_dp_cost, renyi_dp_cost, zcdp_cost
from accounting.relations import NeighboringRelation
from accounting.units import NANO, Between, exactly
from tests.accounting.filters.costs.cells import ADD_REMOVE, REPLACE, SAMPLED, SPECIAL, cost_in


@pytest.mark.parametrize("kind", ["zcdp", "gaussian_dp"])
def test_no_amplified_cost_of_a_gaussian(kind: str) -> None:
    for event in (SAMPLED, Event(SAMPLED.mechanism, WithoutReplacement(2, 100), 5000)):
        for relation in NeighboringRelation:
            if relation is ADD_REMOVE and event is not SAMPLED:
                continue
            sampled = cost_in(kind, [event], relation)
            full = cost_in(kind, [Event(SAMPLED.mechanism, count=5000)], relation)
            assert sampled.amounts == full.amounts
            assert [warning.code for warning in sampled.warnings] == [NO_AMPLIFICATION]
            assert kind in sampled.warnings[0].detail


def test_zcdp_and_gaussian_dp_fixed_size_with_a_null_record_have_the_sensitivity_of_one_participation() -> None:
    """Given the batches, which do not depend on the data, a step with the record is N(0, s^2) against N(1, s^2)."""
    event = Event(Gaussian(4.0), WithoutReplacement(5, 100), 8)
    assert zcdp_cost((event,), SPECIAL).amounts == (250_000_000,)
    assert gaussian_dp_cost((event,), SPECIAL).amounts == (500_000_000,)
    assert zcdp_cost((event,), REPLACE).amounts == (NANO,)
    assert gaussian_dp_cost((event,), REPLACE).amounts == (2 * NANO,)


PLANS = [
    SAMPLED,  # epsilon 1 at delta 1e-5
    Event(Gaussian(2.0), Poisson(0.1), 100),
    Event(Gaussian(0.7), Poisson(0.001), 20000),
    Event(Gaussian(20.0), Poisson(0.3), 2000),
]
HIGH_ORDER = 20_000.0


def tempting_rhos(plan: Event, relation: NeighboringRelation) -> dict[str, float]:
    """False costs of a sampled Gaussian; as squares of mu they are twice as much. The truth is sens^2 T / (2 s^2)."""
    assert isinstance(plan.mechanism, Gaussian)
    assert isinstance(plan.sampling, Poisson)
    s, q, steps = plan.mechanism.noise_multiplier, plan.sampling.sampling_probability, plan.count
    distances = {"": 1.0, ", replaced": relation.sensitivity}
    return {
        name + of: value
        for of, sens in distances.items()
        for name, value in (
            ("scaled by q squared", q * q * steps * sens**2 / (2 * s * s)),
            ("scaled by q", q * steps * sens**2 / (2 * s * s)),
            ("central limit", q * q * steps * math.expm1(sens**2 / s**2) / 2),
        )
    }


def tempting_numbers_in_costs(plan: Event) -> set[tuple[str, str]]:
    """The false costs, by filter and name, within a twentieth of which a price is.

    Of Renyi divergences over the order, which rise with it, the false rho is found where a high order's is not above.
    """
    found = set()
    for relation in NeighboringRelation:
        rho = zcdp_cost((plan,), relation).amounts[0] / NANO
        mu_squared = gaussian_dp_cost((plan,), relation).amounts[0] / NANO
        (divergence,) = renyi_dp_cost((plan,), relation, (HIGH_ORDER,)).amounts
        for name, wrong in tempting_rhos(plan, relation).items():
            prices = {"zcdp": (rho, wrong), "gaussian_dp": (mu_squared, 2 * wrong)}
            found |= {(kind, name) for kind, (price, false) in prices.items() if abs(price / false - 1) < 0.05}
            if name.startswith("scaled by q squared") and divergence / NANO / HIGH_ORDER < 1.05 * wrong:
                found.add(("renyi_dp", name))
    return found


@pytest.mark.parametrize("plan", PLANS)
def test_no_cost_is_a_tempting_one(plan: Event) -> None:
    """By value: no cost of a sampled Gaussian is the scaled-by-q-squared or the central-limit number."""
    assert tempting_numbers_in_costs(plan) == set()


def scaled(share: Callable[[float, float], float]) -> Callable[[Event, NeighboringRelation], Between]:
    """A price of one step that scales the full one by ``share`` of the probability and (sensitivity / noise)^2."""

    def price(step: Event, relation: NeighboringRelation) -> Between:
        assert isinstance(step.mechanism, Gaussian)
        size = (relation.sensitivity / step.mechanism.noise_multiplier) ** 2
        probability = step.sampling.sampling_probability if isinstance(step.sampling, Poisson) else 1.0
        return exactly(Fraction(share(probability, size)))

    return price


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("where", "kind", "name", "share"),
    [
        ("zcdp.zcdp_rho", "zcdp", "scaled by q squared", lambda q, size: q * q * size / 2),
        ("zcdp.zcdp_rho", "zcdp", "scaled by q", lambda q, size: q * size / 2),
        ("zcdp.zcdp_rho", "zcdp", "central limit", lambda q, size: q * q * math.expm1(size) / 2),
        ("gaussian_dp.mu_squared", "gaussian_dp", "scaled by q squared", lambda q, size: q * q * size),
        ("gaussian_dp.mu_squared", "gaussian_dp", "central limit", lambda q, size: q * q * math.expm1(size)),
        ("renyi_dp.zcdp_rho", "renyi_dp", "scaled by q squared", lambda q, size: q * q * size / 2),
    ],
)
def test_the_search_finds_a_tempting_price_where_it_is_used(
    plan: Event,
    where: str,
    kind: str,
    name: str,
    share: Callable[[float, float], float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pricing falsified on purpose: the search above can fail."""
    monkeypatch.setattr(f"accounting.filters.{where}", scaled(share))
    monkeypatch.setattr("accounting.filters.renyi_dp._is_linear_in_order", lambda _: kind == "renyi_dp")
    assert {(kind, name), (kind, f"{name}, replaced")} <= tempting_numbers_in_costs(plan)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_the_true_costs_are_those_of_full_batches(plan: Event, relation: NeighboringRelation) -> None:
    assert isinstance(plan.mechanism, Gaussian)
    full = relation.sensitivity**2 * plan.count / plan.mechanism.noise_multiplier**2
    assert zcdp_cost((plan,), relation).amounts[0] / NANO == pytest.approx(full / 2, rel=1e-6)
    assert gaussian_dp_cost((plan,), relation).amounts[0] / NANO == pytest.approx(full, rel=1e-6)


def test_the_two_tempting_numbers_of_the_reference_plan_are_nowhere() -> None:
    """Noise 5.346, probability 0.02, 5000 steps: epsilon 1 at delta 1e-5."""
    s, q, count = 5.346, 0.02, 5000
    scaled_rho = q * q * count / (2 * s * s)
    central_limit_mu = q * math.sqrt(count * math.expm1(1 / s**2))
    assert scaled_rho == pytest.approx(0.035, abs=1e-3)
    assert zcdp_cost((SAMPLED,), ADD_REMOVE).amounts[0] / NANO == pytest.approx(87.474, abs=1e-2)
    wrong = [scaled_rho, 2 * scaled_rho, math.sqrt(2 * scaled_rho), central_limit_mu, central_limit_mu**2]
    from_mu = epsilon_of_gaussian(central_limit_mu, 1e-5, upward=True)
    # A cover is near the central limit's mu, and has failures.
    kinds = ("approximate_dp", "zcdp", "gaussian_dp")
    for relation in NeighboringRelation:
        returned = [cost_in(kind, [SAMPLED], relation, 1e-5).amounts[0] / NANO for kind in kinds]
        assert all(abs(value / number - 1) > 0.05 for value in returned for number in wrong)
        assert returned[0] != pytest.approx(from_mu, rel=1e-4)
    assert gaussian_dp_cost((SAMPLED,), ADD_REMOVE).amounts[0] / NANO == pytest.approx(174.95, abs=1e-2)
