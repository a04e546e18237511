"""One thing of a spec is left open, and the calibrators solve for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Poisson
from accounting.relations import NeighboringRelation
from accounting.targets import AdvantageTarget, ApproximateDpTarget, ZcdpTarget
from calibrators.plan import Clip
from calibrators.registry import find_algorithm
from calibrators.spec import OpenDelta, OpenEpsilon, Spec, Unknown

#: One sampled step has a closed form.
SPEC = Spec(
    dataset_size=1000,
    batch_size=100,
    iterations=1,
    sampling="poisson",
    neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    gradient_bound=Clip(1.5),
    target=ApproximateDpTarget(1.0, 1e-5),
)
OPEN: dict[Unknown, dict[str, Any]] = {
    Unknown.NOISE_MULTIPLIER: {},
    Unknown.ITERATIONS: {"iterations": None, "noise_multiplier": 30.0, "batch_size": 1000},
    Unknown.BATCH_SIZE: {"batch_size": None, "noise_multiplier": 1.2},
    Unknown.EPSILON: {"target": OpenEpsilon(1e-5), "noise_multiplier": 2.0},
    Unknown.DELTA: {"target": OpenDelta(0.5), "noise_multiplier": 2.0},
}


@pytest.mark.parametrize("unknown", Unknown)
def test_what_is_left_open_is_solved_for_and_the_plan_has_it(unknown: Unknown) -> None:
    spec = replace(SPEC, **OPEN[unknown])
    assert spec.unknown is unknown
    found = find_algorithm("dp_sgd").calibrate(spec)
    assert found.unknown is unknown
    [event], [phase] = found.plan.events, found.plan.phases
    solved = {
        Unknown.NOISE_MULTIPLIER: phase.noise_stddev_on_sum / 1.5,
        Unknown.ITERATIONS: event.count,
        Unknown.BATCH_SIZE: phase.divisor,
        Unknown.EPSILON: found.achieved.value.upper,
        Unknown.DELTA: found.achieved.value.upper,
    }
    assert found.value == pytest.approx(solved[unknown], rel=1e-15)
    assert event.sampling == Poisson(phase.divisor / 1000)
    assert (found.next_achieved is not None) == (unknown in (Unknown.ITERATIONS, Unknown.BATCH_SIZE))
    if isinstance(spec.target, ApproximateDpTarget):
        assert found.achieved == spec.target.assess(found.plan.events, spec.neighboring_relation)
        assert found.achieved.value.upper <= spec.target.limit
    if found.next_achieved is not None:
        assert found.next_achieved.value.upper > 1.0


@pytest.mark.parametrize("target", [ZcdpTarget(0.5), AdvantageTarget(0.1)])
def test_other_targets_reach_the_plan(target: ZcdpTarget | AdvantageTarget) -> None:
    found = find_algorithm("dp_sgd").calibrate(replace(SPEC, target=target))
    assert found.achieved.value.upper <= target.limit
    assert set(found.achieved.warnings) <= set(found.warnings)


def test_exactly_one_thing_is_left_open() -> None:
    with pytest.raises(InvalidValue, match="nothing is left") as caught:
        replace(SPEC, noise_multiplier=1.0)
    assert caught.value.code == "overdetermined"
    for more in ({"iterations": None}, {"batch_size": None}, {"target": OpenEpsilon(1e-5)}):
        with pytest.raises(InvalidValue, match="give all but one") as caught:
            replace(SPEC, **more)
        assert caught.value.code == "missing"
        assert caught.value.pointer == ("noise_multiplier",)


def test_full_batches_have_no_batch_size_to_solve_for() -> None:
    spec = replace(SPEC, sampling="full_batch", batch_size=None, noise_multiplier=1.0)
    with pytest.raises(Unsupported, match="no batch size"):
        find_algorithm("dp_sgd").calibrate(spec)


@pytest.mark.parametrize("noise_multiplier", [0.0, 1e7, True])
def test_a_given_noise_is_in_the_engines_range(noise_multiplier: float) -> None:
    with pytest.raises(InvalidValue, match="noise_multiplier"):
        replace(SPEC, iterations=None, noise_multiplier=noise_multiplier)
