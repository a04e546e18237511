"""Several runs of one list, all released: each has schedules of its own, so that runs compose, and counts do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accountant import epsilon_for_delta
from accounting.composition.composition import compose
from accounting.errors import InvalidValue
from accounting.events import (
    SAMPLINGS,
    ApproximateDp,
    Blocks,
    CorrelatedGaussian,
    CyclicPoisson,
    DisjointBatches,
    Event,
    FixedOrderEpochs,
    FullBatch,
    Gaussian,
    GaussianMixture,
    Laplace,
    Poisson,
    PureDp,
    RandomAllocation,
    ShuffledEpochs,
    ShuffleModel,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
)
from accounting.filters.approximate_dp import approximate_dp_cost
from accounting.filters.renyi_dp import renyi_dp_cost
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation
from accounting.tuning import (
    FixedTrials,
    PoissonTrials,
    TruncatedNegativeBinomial,
    selection_charge,
    selection_event,
    selection_moments,
    tuning_cost,
)
from accounting.tuning.cost import epsilon_of_runs
from accounting.tuning.solving import SelectionTarget, solve_noise_factor, with_noise_factor

SPECIAL = NeighboringRelation.REPLACE_SPECIAL
DELTA = 1e-5
#: Events of every sampling, with counts that end inside an epoch, an allocation or a pass.
PARTS: dict[str, tuple[Event, ...]] = {
    "full_batch": (Event(Gaussian(3.0), FullBatch(), 3), Event(Laplace(9.0)), Event(ApproximateDp(0.1, 1e-7))),
    "poisson": (Event(Gaussian(2.0), Poisson(0.1), 30), Event(GaussianMixture((0.5, 0.5), (3.0, 5.0)), Poisson(0.2))),
    "without_replacement": (Event(Gaussian(4.0), WithoutReplacement(10, 100), 7),),
    "with_replacement": (Event(Gaussian(4.0), WithReplacement(3, 100), 7),),
    "truncated_poisson": (Event(Gaussian(2.0), TruncatedPoisson(0.01, 60, 1000), 9),),
    "shuffled_epochs": (Event(Gaussian(2.0), ShuffledEpochs(10), 15), Event(Laplace(20.0), ShuffledEpochs(4), 9)),
    "disjoint_batches": (
        Event(Gaussian(1.0), DisjointBatches("independent"), 10),
        Event(Laplace(9.0), DisjointBatches("by_position"), 4),
    ),
    "shuffle_model": (
        Event(PureDp(1.0), ShuffleModel(1000, 1.0, 0.0), 2),
        Event(ApproximateDp(1.0, 1e-12), ShuffleModel(1000, 1.0, 1e-12)),
    ),
    "random_allocation": (
        Event(Gaussian(1.0), RandomAllocation(10, 1), 15),
        Event(Gaussian(2.0), RandomAllocation(6, 2), 7),
        Event(Gaussian(2.0), RandomAllocation(2, 2), 3),
    ),
    "blocks": (Event(Gaussian(2.0), Blocks(6, 2), 7),),
    "cyclic_poisson": (Event(CorrelatedGaussian(2.0, (1.0, 0.5)), CyclicPoisson(0.1, 2, "independent"), 7),),
    "fixed_order_epochs": (Event(CorrelatedGaussian(2.0, (1.0, 0.5)), FixedOrderEpochs(5), 12),),
}


def test_every_sampling_has_its_part() -> None:
    assert set(PARTS) == set(SAMPLINGS)
    assert {event.sampling.kind for events in PARTS.values() for event in events} == set(SAMPLINGS)


@given(
    events=st.lists(st.sampled_from([event for part in PARTS.values() for event in part]), min_size=1, max_size=6),
    counts=st.lists(st.integers(1, 40), min_size=6, max_size=6),
    runs=st.integers(1, 7),
)
@settings(max_examples=100, deadline=None)
def test_runs_are_the_list_repeated(events: list[Event], counts: list[int], runs: int) -> None:
    run = [Event(event.mechanism, event.sampling, count) for event, count in zip(events, counts, strict=False)]
    assert compose(run, SPECIAL, runs=runs) == compose(run * runs, SPECIAL)


@pytest.mark.parametrize("sampling", ["full_batch", "disjoint_batches", "shuffled_epochs"])
def test_fixed_trials_cost_what_the_list_repeated_costs(sampling: str) -> None:
    run = [PARTS[sampling][0]]
    found = tuning_cost(run, SPECIAL, FixedTrials(3), DELTA)
    repeated = epsilon_for_delta(run * 3, SPECIAL, DELTA)
    assert found.epsilon.value == repeated.value
    # As many runs as are expected, beside the cost of the best one alone.
    geometric = tuning_cost(run, SPECIAL, TruncatedNegativeBinomial(1, 1 / 3), DELTA, orders=[2.0])
    assert geometric.composition is not None
    assert geometric.composition.value == repeated.value


def test_passes_over_disjoint_batches_add_up_and_are_attained() -> None:
    """A record is in one batch of each of five passes, of which each shows it by a Gaussian of its own: mu^2 = 5."""
    run = [Event(Gaussian(1.0), DisjointBatches("independent"), 10)]
    attained = epsilon_for_delta([Event(Gaussian(1.0 / math.sqrt(5.0)))], SPECIAL, DELTA).value
    found = tuning_cost(run, SPECIAL, FixedTrials(5), DELTA).epsilon.value
    assert attained.upper == pytest.approx(11.48002, abs=5e-6)
    assert found.upper == pytest.approx(attained.upper, rel=1e-9)
    assert found.lower == pytest.approx(attained.lower, rel=1e-9)


def test_epochs_of_separate_runs_do_not_merge() -> None:
    """Fifteen steps are two participations, so that five runs are ten: not the eight of 75 steps on end."""
    run = [Event(Gaussian(1.0), ShuffledEpochs(10), 15)]
    found = tuning_cost(run, SPECIAL, FixedTrials(5), DELTA).epsilon.value
    assert found.upper == pytest.approx(17.857, abs=1e-3)
    together = epsilon_for_delta([Event(Gaussian(1.0), ShuffledEpochs(10), 75)], SPECIAL, DELTA).value
    assert together.upper == pytest.approx(15.456, abs=1e-3)


def test_allocations_of_separate_runs_do_not_merge() -> None:
    """Each of five runs ends with an allocation that is cut short, and costs what is seen of it."""
    run, runs_on_end = (Event(Gaussian(1.0), RandomAllocation(10, 1), steps) for steps in (15, 75))
    assert compose([run], SPECIAL, runs=5).count == 10
    assert compose([runs_on_end], SPECIAL).count == 8
    assert epsilon_of_runs([run], SPECIAL, 5, DELTA).value.upper == pytest.approx(5.44034, abs=1e-4)


@pytest.mark.soak
def test_fixed_trials_of_allocations_cost_more_than_their_steps_on_end() -> None:
    run = [Event(Gaussian(1.0), RandomAllocation(10, 1), 15)]
    found = tuning_cost(run, SPECIAL, FixedTrials(5), DELTA, orders=[2.0]).epsilon.value
    assert found.upper == pytest.approx(5.44034, abs=1e-4)
    together = epsilon_for_delta([Event(Gaussian(1.0), RandomAllocation(10, 1), 75)], SPECIAL, DELTA).value
    assert together.upper == pytest.approx(5.436, abs=1e-3)


@pytest.mark.parametrize("sampling", ["full_batch", "poisson", "disjoint_batches", "shuffled_epochs"])
def test_a_charge_of_fixed_trials_costs_a_budget_what_composition_says(sampling: str) -> None:
    run, orders = PARTS[sampling][:1], (1.5, 2.0, 8.0)
    cost = tuning_cost(run, SPECIAL, FixedTrials(4), DELTA, orders=orders)
    assert cost.moments is not None
    epsilon, delta = approximate_dp_cost((selection_charge(cost.epsilon.value.upper, DELTA),), SPECIAL).amounts
    assert epsilon >= epsilon_for_delta(run * 4, SPECIAL, DELTA).value.lower * 1e9
    assert delta == 10**13
    tilts = np.array(orders) - 1.0
    priced = np.array(renyi_dp_cost((selection_event(cost.moments),), SPECIAL, orders).amounts)
    divergences = compose(run * 4, SPECIAL).log_moment(tilts) / tilts
    assert np.all(priced >= divergences * 1e9 * (1 - 1e-12))
    assert np.all(priced <= divergences * 1e9 * (1 + 1e-12) + 1.0)


@pytest.mark.parametrize("law", [FixedTrials(3), PoissonTrials(3)], ids=str)
@pytest.mark.parametrize(
    "event", [Event(ApproximateDp(0.1, 1e-3)), PARTS["truncated_poisson"][0], PARTS["shuffle_model"][1]], ids=str
)
def test_what_may_fail_or_is_only_near_its_composition_has_no_moments(
    event: Event, law: FixedTrials | PoissonTrials
) -> None:
    with pytest.raises(ValueError, match="no finite Renyi divergence") as refusal:
        selection_moments([event], SPECIAL, law, [2.0])
    assert refusal.value.code == "no_renyi_divergence"  # type: ignore[attr-defined]


def test_the_noise_is_solved_for_runs_with_schedules_of_their_own() -> None:
    run = [Event(Gaussian(1.0), DisjointBatches("independent"), 10)]
    found = solve_noise_factor(run, SPECIAL, SelectionTarget(3.0, DELTA, FixedTrials(5)))
    scaled = with_noise_factor(run, found.value)
    assert 2.99 < epsilon_for_delta(scaled * 5, SPECIAL, DELTA).value.upper <= 3.0


def test_every_branch_of_a_mixture_has_a_noise_multiplier() -> None:
    mixture = Event(GaussianMixture((0.9, 0.1), (4.0, 2.0)))
    scaled = with_noise_factor([mixture, Event(Laplace(4.0)), Event(PureDp(0.01))], 1.5)
    assert scaled == (Event(GaussianMixture((0.9, 0.1), (6.0, 3.0))), Event(Laplace(6.0)), Event(PureDp(0.01)))
    found = solve_noise_factor([mixture], SPECIAL, SelectionTarget(1.0, DELTA, FixedTrials(1)))
    assert 0.99 < found.achieved.value.upper <= 1.0


def test_together_the_runs_have_at_most_the_steps_that_are_accounted() -> None:
    many = [Event(Gaussian(100.0), FullBatch(), MAX_COUNT // 2)]
    with pytest.raises(InvalidValue) as refusal:
        tuning_cost(many, SPECIAL, FixedTrials(3), DELTA)
    assert refusal.value.pointer == ("trials",)
    assert tuning_cost(many, SPECIAL, PoissonTrials(3), DELTA, orders=[2.0]).composition is None
    one_pass = [Event(Gaussian(100.0), DisjointBatches("independent"), MAX_COUNT)]
    assert tuning_cost(one_pass, SPECIAL, FixedTrials(3), DELTA).epsilon.value.upper < 0.1
