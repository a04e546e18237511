"""The smallest noise multiplier for each target: never a miss, and nothing to spare."""

from __future__ import annotations

import math

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import AccountingError, InvalidValue, NoCostInFilter, Unreachable
from accounting.events import ApproximateDp, Event, Gaussian, Laplace, Poisson, PureDp
from accounting.filters import ApproximateDpFilter, GaussianDpFilter, PureDpFilter, RenyiFilter, ZcdpFilter
from accounting.relations import NeighboringRelation
from accounting.solve import EventsAt, solve_noise, solve_noise_multiplier
from accounting.targets import (
    AdvantageTarget,
    BudgetTarget,
    GaussianDpTarget,
    Target,
    TruePositiveRateTarget,
    ZcdpTarget,
)

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


def poisson(probability: float, count: int) -> EventsAt:
    return lambda noise: [Event(Gaussian(noise), Poisson(probability), count)]


CASES = [
    (poisson(0.1, 512), ADD_REMOVE, 1.0, 1e-6),
    (poisson(0.02, 5000), ADD_REMOVE, 1.0, 1e-5),
    (poisson(0.2, 100), NeighboringRelation.REPLACE_ONE, 1.0, 1e-5),
    (poisson(1e-3, 10000), NeighboringRelation.REPLACE_SPECIAL, 8.0, 1e-6),
    (poisson(0.01, 10), ADD_REMOVE, 0.05, 1e-9),
    (poisson(1.0, 100), NeighboringRelation.REPLACE_ONE, 1.0, 1e-5),
    (lambda s: [Event(Laplace(s), count=10)], ADD_REMOVE, 2.0, 0.0),
    (lambda s: [Event(Laplace(s), count=40)], ADD_REMOVE, 2.0, 1e-6),
    (lambda s: [Event(Gaussian(s), Poisson(0.1), 100), Event(PureDp(0.3))], ADD_REMOVE, 1.0, 1e-6),
]


@pytest.mark.parametrize(("events_at", "relation", "epsilon", "delta"), CASES)
def test_never_misses_and_target_is_used(
    events_at: EventsAt, relation: NeighboringRelation, epsilon: float, delta: float
) -> None:
    found = solve_noise_multiplier(events_at, relation, epsilon=epsilon, delta=delta)
    assert found.achieved == epsilon_for_delta(events_at(found.noise_multiplier), relation, delta)
    assert epsilon * (1 - 1e-5) <= found.achieved.value.upper <= epsilon
    less = epsilon_for_delta(events_at(found.noise_multiplier * (1 - 2e-5)), relation, delta)
    assert less.value.upper > epsilon * (1 - 1e-5)


def test_never_misses_where_the_cost_jumps() -> None:
    """Half a millionth above the target on one side of 2, well below it on the other."""

    def jumping(noise: float) -> list[Event]:
        return [Event(PureDp(0.9 if noise >= 2.0 else 1.0000005))]

    found = solve_noise_multiplier(jumping, ADD_REMOVE, epsilon=1.0, delta=0.0)
    assert found.achieved.value.upper == pytest.approx(0.9)
    assert 2.0 <= found.noise_multiplier <= 2.0 * (1 + 2e-7)


def test_known_answer_is_rounded_up() -> None:
    """512 steps at probability 0.1 for (1, 1e-6): 9.661755; the 9.66 that is quoted for it misses its target."""
    found = solve_noise_multiplier(poisson(0.1, 512), ADD_REMOVE, epsilon=1.0, delta=1e-6)
    assert 9.661755 <= found.noise_multiplier <= 9.6619
    assert epsilon_for_delta(poisson(0.1, 512)(9.66), ADD_REMOVE, 1e-6).value.lower > 1.0


def test_full_batch_is_solved_analytically() -> None:
    found = solve_noise_multiplier(poisson(1.0, 9), ADD_REMOVE, epsilon=4.377178095681137, delta=1e-5)
    assert found.noise_multiplier == pytest.approx(3.0, rel=1e-9)
    assert found.achieved.method == "analytic_gaussian"


def test_unreachable_targets_say_why() -> None:
    fixed = [Event(PureDp(2.0))]
    with pytest.raises(Unreachable, match="even noise multiplier 1e\\+06 costs epsilon"):
        solve_noise_multiplier(lambda s: [Event(Gaussian(s)), *fixed], ADD_REMOVE, epsilon=1.0, delta=1e-9)
    with pytest.raises(Unreachable, match="unbounded"):
        solve_noise_multiplier(poisson(0.1, 10), ADD_REMOVE, epsilon=1.0, delta=0.0)
    with pytest.raises(Unreachable, match="every noise multiplier"):
        solve_noise_multiplier(poisson(1e-8, 1), ADD_REMOVE, epsilon=1.0, delta=1e-3)


def test_targets_outside_their_range_are_refused() -> None:
    for epsilon, delta in ((0.0, 1e-5), (-1.0, 1e-5), (math.nan, 1e-5), (1.0, -1e-5), (1.0, 2.0)):
        with pytest.raises(InvalidValue):
            solve_noise_multiplier(poisson(0.1, 10), ADD_REMOVE, epsilon=epsilon, delta=delta)


TARGETS = [
    ZcdpTarget(0.1),
    GaussianDpTarget(0.5),
    AdvantageTarget(0.2),
    AdvantageTarget(1e-4),
    AdvantageTarget(0.9999),
    TruePositiveRateTarget(0.01, 0.05),
    TruePositiveRateTarget(0.5, 0.9999),
    TruePositiveRateTarget(1e-9, 1e-8),
]


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_met_and_used_by_full_batches(target: Target, relation: NeighboringRelation) -> None:
    events_at = poisson(1.0, 300)
    found = solve_noise(events_at, relation, target)
    assert found.achieved == target.assess(events_at(found.value), relation)
    assert found.achieved.value.upper <= target.limit
    assert target.assess(events_at(found.value * (1 - 1e-8)), relation).value.upper > target.limit


@pytest.mark.parametrize("target", [ZcdpTarget(0.1), GaussianDpTarget(0.5), AdvantageTarget(0.2)])
def test_every_target_is_met_and_used_by_sampled_steps(target: Target) -> None:
    events_at = poisson(0.02, 300)
    found = solve_noise(events_at, ADD_REMOVE, target)
    assert found.achieved.value.upper <= target.limit
    assert target.assess(events_at(found.value * (1 - 2e-5)), ADD_REMOVE).value.upper > target.limit


def test_closed_forms_of_each_target() -> None:
    """T full batches of noise s under replace-one are one Gaussian pair of mu = 2 sqrt(T) / s."""
    solved = {
        target.kind: 2.0 * math.sqrt(25) / solve_noise(poisson(1.0, 25), NeighboringRelation.REPLACE_ONE, target).value
        for target in (ZcdpTarget(0.5), GaussianDpTarget(1.0), AdvantageTarget(0.3829249225480262))
    }
    assert solved == pytest.approx(dict.fromkeys(solved, 1.0), rel=1e-8)
    tpr = TruePositiveRateTarget(0.05, 0.25951102)
    found = solve_noise(poisson(1.0, 25), NeighboringRelation.REPLACE_ONE, tpr)
    assert 10.0 / found.value == pytest.approx(1.0, rel=1e-7)


@pytest.mark.parametrize("kind", ["zcdp", "gaussian_dp"])
def test_sampling_never_lowers_rho_or_mu(kind: str) -> None:
    """rho scaled by q^2 would take 4 % of this noise."""
    target: Target = ZcdpTarget(0.1) if kind == "zcdp" else GaussianDpTarget(0.5)
    sampled, full = (solve_noise(poisson(q, 300), ADD_REMOVE, target) for q in (0.02, 1.0))
    assert sampled.value == pytest.approx(full.value, rel=1e-8)
    assert any("Sampling does not lower" in warning for warning in sampled.achieved.warnings)
    assert not full.achieved.warnings


RENYI = RenyiFilter(1.6, 1e-5)
BUDGETS = [
    BudgetTarget(RENYI, RENYI.zero),
    BudgetTarget(RENYI, tuple(max(0, cap) // 3 for cap in RENYI.caps)),
    BudgetTarget(ZcdpFilter(0.1), (1,)),
    BudgetTarget(ZcdpFilter(1e-7), (97,)),
    BudgetTarget(GaussianDpFilter(0.5), (10**8,)),
    BudgetTarget(ApproximateDpFilter(1.0, 1e-5), (5 * 10**8, 10**12), 5e-6),
]


@pytest.mark.parametrize("target", BUDGETS)
@pytest.mark.parametrize("probability", [0.02, 1.0])
def test_a_budget_is_filled_and_never_passed(target: BudgetTarget, probability: float) -> None:
    if isinstance(target.filter, ApproximateDpFilter) and probability < 1.0:
        probability = 1.0
    events_at = poisson(probability, 300)
    found = solve_noise(events_at, ADD_REMOVE, target)

    def admitted(noise: float) -> bool:
        cost = target.filter.cost(events_at(noise), ADD_REMOVE, target.charge_delta)
        return target.filter.admits(target.filter.add(target.used, cost.amounts))

    assert admitted(found.value)
    less = found.value * (1 - 2e-5)
    assert not admitted(less) or target.filter.remaining(target.used) == (3,), "three units are filled to the unit"


def test_a_budget_without_room_or_without_a_price_is_refused() -> None:
    with pytest.raises(Unreachable, match="no budget is left"):
        solve_noise(poisson(1.0, 1), ADD_REMOVE, BudgetTarget(ZcdpFilter(0.1), (10**8,)))
    with pytest.raises(Unreachable, match="no budget is left"):
        solve_noise(poisson(1.0, 1), ADD_REMOVE, BudgetTarget(ApproximateDpFilter(1.0, 1e-5), (0, 0), 2e-5))
    with pytest.raises(NoCostInFilter, match="pure_dp"):
        solve_noise(poisson(1.0, 1), ADD_REMOVE, BudgetTarget(PureDpFilter(1.0), (0,)))
    with pytest.raises(AccountingError, match="charge"):
        solve_noise(poisson(1.0, 1), ADD_REMOVE, BudgetTarget(ApproximateDpFilter(1.0, 1e-5), (0, 0)))
    with pytest.raises(NoCostInFilter, match="zcdp"):
        solve_noise(lambda s: [Event(Gaussian(s)), Event(ApproximateDp(1.0, 1e-9))], ADD_REMOVE, ZcdpTarget(1.0))


def test_unreachable_attack_risks_say_why() -> None:
    def fixed(_: float) -> list[Event]:
        return [Event(PureDp(3.0))]

    with pytest.raises(Unreachable, match="attack's advantage"):
        solve_noise(fixed, ADD_REMOVE, AdvantageTarget(0.5))
    with pytest.raises(Unreachable, match="true positive rate"):
        solve_noise(fixed, ADD_REMOVE, TruePositiveRateTarget(0.1, 0.2))
    with pytest.raises(Unreachable, match="every noise multiplier"):
        solve_noise(poisson(1e-8, 1), ADD_REMOVE, AdvantageTarget(0.5))
