"""A training in stages: one noise multiplier for all, certified for all of them together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import AccountingError
from accounting.events import Event, FullBatch, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.plan import Clip, Normalize
from calibrators.registry import ALGORITHMS, calibrate
from calibrators.spec import OpenDelta, OpenEpsilon, Spec, Unknown
from calibrators.stages import MAX_STAGES, Stage

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
SPEC = Spec(
    dataset_size=1000,
    stages=(Stage(4, 1000), Stage(9, 1000, noise_factor=1.5)),
    sampling="full_batch",
    neighboring_relation=ADD,
    gradient_bound=Clip(1.0),
    target=ApproximateDpTarget(1.0, 1e-5),
    step_size=0.5,
)
IN_STAGES = [name for name, algorithm in ALGORITHMS.items() if algorithm.in_stages]


def noises(found: Any) -> list[float]:
    return [event.mechanism.noise_multiplier for event in found.plan.events]


def test_full_batches_in_stages_are_one_gaussian() -> None:
    """Steps of noise s and 1.5 s add up in mu squared: 4 / s^2 + 9 / (1.5 s)^2 = 8 / s^2."""
    found = calibrate("dp_sgd", SPEC)
    equal = calibrate("dp_sgd", replace(SPEC, stages=(), batch_size=1000, iterations=8))
    assert found.value == pytest.approx(equal.value, rel=1e-6)
    assert noises(found) == [found.value, 1.5 * found.value]
    assert found.achieved.value.upper <= 1.0


def test_the_phases_have_their_own_sizes_and_steps() -> None:
    stages = (Stage(4, 50, 2.0, step_size=0.1), Stage(9, 200))
    found = calibrate("dp_sgd", replace(SPEC, sampling="poisson", stages=stages))
    assert found.plan.events == (
        Event(Gaussian(2.0 * found.value), Poisson(0.05), 4),
        Event(Gaussian(found.value), Poisson(0.2), 9),
    )
    assert [(phase.divisor, phase.step_size) for phase in found.plan.phases] == [(50, 0.1), (200, 0.5)]
    assert found.achieved == ApproximateDpTarget(1.0, 1e-5).assess(found.plan.events, ADD)
    assert [(item.name, item.value) for item in found.utility] == [("gradient_evaluations", 2000.0)]
    assert any("stages" in warning for warning in found.warnings)


@pytest.mark.parametrize("name", IN_STAGES)
def test_every_algorithm_in_stages_gives_a_plan_that_runs(name: str) -> None:
    bound = Clip(1.0) if Clip in ALGORITHMS[name].gradient_bounds else Normalize(1.0)
    found = calibrate(name, replace(SPEC, gradient_bound=bound))
    assert [phase.is_executable for phase in found.plan.phases] == [True, True]
    assert found.plan.iterations == 13
    equal = calibrate(name, replace(SPEC, gradient_bound=bound, stages=(), batch_size=1000, iterations=8))
    assert {item.name for item in found.hyperparameters} == {item.name for item in equal.hyperparameters}


@pytest.mark.parametrize(("target", "unknown"), [(OpenEpsilon(1e-5), Unknown.EPSILON), (OpenDelta(1.0), Unknown.DELTA)])
def test_epsilon_and_delta_of_given_noise_are_those_of_all_stages(target: Any, unknown: Unknown) -> None:
    noise = calibrate("dp_sgd", SPEC).value
    found = calibrate("dp_sgd", replace(SPEC, target=target, unknown=unknown, noise_multiplier=noise))
    assert noises(found) == [noise, 1.5 * noise]
    assert found.value == pytest.approx(1.0 if unknown is Unknown.EPSILON else 1e-5, rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        ({"batch_size": 10}, "batch_size", "batch_size cannot be given together with stages"),
        ({"iterations": 10}, "iterations", "iterations cannot be given together with stages"),
        ({"unknown": Unknown.ITERATIONS, "noise_multiplier": 1.0}, "solve_for", "solve for noise_multiplier"),
        ({"unknown": Unknown.BATCH_SIZE, "noise_multiplier": 1.0}, "solve_for", "solve for noise_multiplier"),
        ({"stages": (Stage(1, 1000),) * (MAX_STAGES + 1)}, "stages", f"at most {MAX_STAGES}"),
        ({"stages": (Stage(1, 1000), Stage(1, 1001))}, "stages/1/batch_size", "at most dataset_size"),
        ({"stages": (Stage(1, 10),)}, "batch_size", "every record in every step"),
        ({"sampling": "disjoint_batches", "stages": (Stage(2, 501),)}, "stages/0/iterations", "need 1002 records"),
        ({"sampling": "truncated_poisson"}, "max_batch_size", "max_batch_size is needed"),
        ({"sampling": "shuffled_epochs"}, "sampling", "replace_special"),
    ],
)
def test_stages_that_make_no_sense_are_refused(changes: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(AccountingError, match=words) as caught:
        calibrate("dp_sgd", replace(SPEC, **changes))
    assert "/".join(map(str, caught.value.pointer)) == pointer


def test_an_algorithm_of_equal_steps_has_no_stages() -> None:
    spec = replace(SPEC, neighboring_relation=None, sampling=None, step_size=None)
    with pytest.raises(
        AccountingError, match=r"dp_gd cannot be run in stages; .*dp_sgd, dp_adam, dp_nadam or dp_nsgd"
    ) as caught:
        calibrate("dp_gd", spec)
    assert caught.value.pointer == ("stages",)


def test_two_passes_over_disjoint_batches_are_two_participations() -> None:
    stages = (Stage(10, 100), Stage(5, 200))
    found = calibrate("dp_sgd", replace(SPEC, sampling="disjoint_batches", stages=stages))
    twice = calibrate("dp_sgd", replace(SPEC, stages=(Stage(2, 1000),)))
    assert found.value == pytest.approx(twice.value, rel=1e-6)
    assert all(event.sampling != FullBatch() for event in found.plan.events)


@pytest.mark.parametrize(
    "numbers",
    [
        {"iterations": 0},
        {"batch_size": 0},
        {"noise_factor": 0.0},
        {"noise_factor": 1e4},
        {"step_size": 0.0},
    ],
)
def test_a_stage_has_numbers_in_their_ranges(numbers: dict[str, Any]) -> None:
    with pytest.raises(AccountingError, match=next(iter(numbers))):
        Stage(**{"iterations": 1, "batch_size": 1} | numbers)
