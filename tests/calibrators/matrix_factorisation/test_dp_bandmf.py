"""The record of DP-BandMF: what an answer says beside the noise, and advice to loaders that cannot sample."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from accounting.events import CyclicPoisson, FixedOrderEpochs
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, ZcdpTarget
from calibrators.correlation import Correlation, Objective
from calibrators.geometry import L2Ball, L2Penalty
from calibrators.matrix_factorisation.strategy import Workload, evaluated, optimal
from calibrators.plan import Clip, CorrelatedSteps
from calibrators.provenance import Provenance
from calibrators.registry import ALGORITHMS, calibrate
from calibrators.spec import Calibration, Spec
from calibrators.step_sizes import Course, StepSizeSchedule

SPEC = replace(ALGORITHMS["dp_bandmf"].example.spec, target=ApproximateDpTarget(2.0, 1e-5))


def answer(**changes: Any) -> Calibration:
    return calibrate("dp_bandmf", replace(SPEC, **changes))


def named(found: Calibration) -> dict[str, Provenance]:
    return {each.name: each for each in (*found.hyperparameters, *found.utility)}


def test_numbers_are_those_of_the_plan() -> None:
    found = answer(momentum=0.9)
    [phase] = found.plan.phases
    assert isinstance(phase, CorrelatedSteps)
    numbers = named(found)
    assert numbers["coefficients"].value == phase.coefficients
    norm = math.sqrt(sum(value * value for value in phase.coefficients))
    assert numbers["noise_over_coefficient_norm"].value == pytest.approx(found.value / norm, rel=1e-12)  # type: ignore[operator]
    mean, largest = evaluated(Workload(2000, 0.9), phase.coefficients)
    stddev = phase.noise_multiplier * 1.5 / 500
    assert numbers["error_of_sums"].value == pytest.approx(stddev * mean, rel=1e-12)
    assert numbers["largest_error_of_sums"].value == pytest.approx(stddev * largest, rel=1e-12)
    assert numbers["error_of_points"].value == pytest.approx(0.05 * stddev * mean, rel=1e-12)
    assert numbers["memory_bytes"].value == 4 * 7 * 20
    inverse: list[float] = []
    for t in range(2000):
        earlier = sum(phase.coefficients[j] * inverse[t - j] for j in range(1, min(t + 1, 8)))
        inverse.append(((t == 0) - earlier) / phase.coefficients[0])
    spread = phase.noise_stddev_on_sum * math.sqrt(sum(value * value for value in inverse))
    assert numbers["first_step_noise"].value == pytest.approx(phase.noise_stddev_on_sum * inverse[0], rel=1e-12)
    assert numbers["last_step_noise"].value == pytest.approx(spread, rel=1e-9)


def test_the_objective_decides_what_is_made_small() -> None:
    mean, largest = (named(answer(correlation=Correlation(bands=8, objective=objective))) for objective in Objective)
    for name, better, worse in (("error_of_sums", mean, largest), ("largest_error_of_sums", largest, mean)):
        assert better[name].value < worse[name].value  # type: ignore[operator]


FALLING = StepSizeSchedule(Course.LINEAR)


@pytest.mark.parametrize("sampling", [CyclicPoisson.kind, FixedOrderEpochs.kind])
def test_the_worked_error_of_falling_step_sizes(sampling: str) -> None:
    """T = 200, eta_t = 1 - t/200, momentum 0.9: 2.357176 with 8 bands, 6.399478 with one, both over ten."""
    found = answer(
        iterations=200,
        momentum=0.9,
        step_size_schedule=FALLING,
        sampling=sampling,
        neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
    )
    own = {each.bands: each for each in found.alternatives if each.sampling == sampling}
    for bands, error in ((8, 2.357176), (1, 6.399478)):
        assert 0.1 * own[bands].error / own[bands].noise_multiplier == pytest.approx(error, rel=2e-5)
    [phase] = found.plan.phases
    assert isinstance(phase, CorrelatedSteps)
    assert phase.step_size == pytest.approx([0.05 * (1.0 - t / 200) for t in range(200)], rel=1e-12)
    assert phase.coefficients == optimal(Workload(200, 0.9, FALLING.shares(200)), 8).coefficients
    stddev = phase.noise_multiplier * 1.5 / 500
    assert named(found)["error_of_sums"].value == pytest.approx(10.0 * 2.357176 * stddev, rel=2e-5)
    assert named(found)["error_of_points"].value == pytest.approx(0.5 * 2.357176 * stddev, rel=2e-5)


def test_a_schedule_that_does_not_fall_is_none() -> None:
    bare = answer(momentum=0.9)
    for schedule in (StepSizeSchedule(), StepSizeSchedule(Course.COSINE, 0.5, 1.0)):
        assert answer(momentum=0.9, step_size_schedule=schedule).plan == bare.plan
    assert answer(momentum=0.9, step_size_schedule=FALLING).plan.events != bare.plan.events
    assert not answer(step_size=None, step_size_schedule=FALLING).plan.is_executable


def test_the_number_of_bands_is_chosen_for_the_schedule_and_its_noise_is_certified() -> None:
    found = answer(iterations=400, step_size_schedule=FALLING, correlation=Correlation())
    assert found.achieved.value.upper <= 2.0
    least = min(found.alternatives, key=lambda each: each.error)
    assert least.is_chosen
    for each in found.alternatives:
        matrix = optimal(Workload(400, 0.0, FALLING.shares(400)), each.bands)
        assert each.error == pytest.approx(each.noise_multiplier * matrix.mean, rel=1e-12)


def test_without_a_step_size_or_parameters_what_depends_on_them_is_not_said() -> None:
    found = answer(step_size=None, dimension=None)
    assert not {"error_of_points", "memory_bytes"} & set(named(found))
    assert not found.plan.is_executable


def test_a_domain_or_a_penalty_is_warned_of_and_costs_nothing() -> None:
    bare = answer()
    for changes in ({"domain": L2Ball(1.0)}, {"penalty": L2Penalty(0.1)}):
        found = answer(**changes)
        assert found.plan.events == bare.plan.events
        assert any("no longer sums of gradients" in warning for warning in found.warnings)
    assert not any("no longer sums" in warning for warning in bare.warnings)


def test_what_not_sampling_loses_is_said_where_both_are_accounted() -> None:
    null = {"neighboring_relation": NeighboringRelation.REPLACE_SPECIAL, "correlation": Correlation()}
    for sampling in (CyclicPoisson.kind, FixedOrderEpochs.kind):
        found = answer(sampling=sampling, **null)
        best = {
            kind: min(each.error for each in found.alternatives if each.is_allowed and each.sampling == kind)
            for kind in (CyclicPoisson.kind, FixedOrderEpochs.kind)
        }
        more = 100.0 * (best[FixedOrderEpochs.kind] / best[CyclicPoisson.kind] - 1.0)
        assert more > 0.0
        assert any(f"have {more:.0f} % more error than cyclic_poisson" in warning for warning in found.warnings)
    unsampled = answer(sampling=FixedOrderEpochs.kind, target=ZcdpTarget(0.5), **null)
    assert any("% less error than cyclic_poisson" in warning for warning in unsampled.warnings)
    assert not any("fixed order" in warning for warning in answer().warnings)


def test_what_more_memory_would_give_is_said() -> None:
    found = answer(target=ApproximateDpTarget(8.0, 1e-5), correlation=Correlation(max_bands=16), dimension=10**6)
    errors = {each.bands: each.error for each in found.alternatives}
    less = 100.0 * (1.0 - errors[32] / errors[16])
    [said] = [warning for warning in found.warnings if "More memory" in warning]
    assert f"32 bands have {less:.1f} % less than 16, but a run then keeps 124000000 bytes" in said
    assert not any("More memory" in warning for warning in answer().warnings)
    unknown = answer(target=ApproximateDpTarget(8.0, 1e-5), correlation=Correlation(max_bands=16), dimension=None)
    assert any("31 vectors of all parameters instead of 15" in warning for warning in unknown.warnings)


def test_shuffled_epochs_are_told_what_correlated_noise_gains() -> None:
    shuffled = Spec(
        50_000,
        ApproximateDpTarget(2.0, 1e-5),
        batch_size=500,
        iterations=2000,
        sampling="shuffled_epochs",
        gradient_bound=Clip(1.0),
    )
    less = 100.0 * (1.0 - optimal(Workload(2000), 16).mean / math.sqrt(2001 / 2))
    advice = f"The sums of gradients then have {less:.0f} % less error at the same cost"
    assert any(advice in warning for warning in calibrate("dp_sgd", shuffled).warnings)
    for changes in ({"iterations": 100}, {"sampling": "poisson"}, {"batch_size": 50_000}):
        found = calibrate("dp_sgd", replace(shuffled, **changes))
        assert not any("less error at the same cost" in warning for warning in found.warnings)
    fixed = replace(
        shuffled,
        sampling="fixed_order_epochs",
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
        correlation=Correlation(bands=16),
    )
    own, other = calibrate("dp_bandmf", fixed), calibrate("dp_sgd", shuffled)
    assert isinstance(own.value, float)
    assert isinstance(other.value, float)
    assert own.value == pytest.approx(other.value, rel=2e-5), "the same noise"
