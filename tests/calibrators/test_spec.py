"""A spec leaves one thing open, and may leave others to the algorithm."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import (
    Blocks,
    DisjointBatches,
    FullBatch,
    Poisson,
    RandomAllocation,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
)
from accounting.relations import NeighboringRelation
from accounting.targets import AdvantageTarget, ApproximateDpTarget, ZcdpTarget
from calibrators.noise import GaussianSteps, gaussian_event, solve_gaussian_steps, solve_steps
from calibrators.plan import Clip, Normalize
from calibrators.registry import ALGORITHMS, calibrate, find_algorithm, with_defaults
from calibrators.spec import OpenDelta, OpenEpsilon, Spec, Unknown

ADD, ONE, SPECIAL = (
    NeighboringRelation.ADD_OR_REMOVE_ONE,
    NeighboringRelation.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL,
)
#: One sampled step has a closed form.
SPEC = Spec(
    dataset_size=1000,
    batch_size=100,
    iterations=1,
    sampling="poisson",
    neighboring_relation=ADD,
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


@pytest.mark.one_in(3)
@pytest.mark.parametrize("unknown", Unknown)
def test_what_is_left_open_is_solved_for_and_the_plan_has_it(unknown: Unknown) -> None:
    spec = replace(SPEC, unknown=unknown, **OPEN[unknown])
    found = calibrate("dp_sgd", spec)
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
        assert found.achieved == spec.target.assess(found.plan.events, spec.relation)
        assert found.achieved.value.upper <= spec.target.limit
    if found.next_achieved is not None:
        assert found.next_achieved.value.upper > 1.0


@pytest.mark.parametrize("target", [ZcdpTarget(0.5), AdvantageTarget(0.1)])
def test_other_targets_reach_the_plan(target: ZcdpTarget | AdvantageTarget) -> None:
    found = calibrate("dp_sgd", replace(SPEC, target=target))
    assert found.achieved.value.upper <= target.limit
    assert set(found.achieved.warnings) <= set(found.warnings)


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"noise_multiplier": 1.0}, "overdetermined", ("noise_multiplier",)),
        ({"unknown": Unknown.ITERATIONS, "noise_multiplier": 1.0}, "overdetermined", ("iterations",)),
        ({"unknown": Unknown.BATCH_SIZE, "noise_multiplier": 1.0}, "overdetermined", ("batch_size",)),
        ({"unknown": Unknown.EPSILON, "noise_multiplier": 1.0}, "overdetermined", ("target",)),
        ({"target": OpenEpsilon(1e-5)}, "missing", ("target",)),
        ({"target": OpenDelta(1.0), "unknown": Unknown.EPSILON, "noise_multiplier": 1.0}, "missing", ("target",)),
        ({"unknown": Unknown.ITERATIONS, "iterations": None}, "missing", ("noise_multiplier",)),
        ({"unknown": Unknown.EPSILON, "target": OpenEpsilon(1e-5)}, "missing", ("noise_multiplier",)),
    ],
)
def test_exactly_what_is_solved_for_is_left_out(changes: dict[str, Any], code: str, pointer: tuple[str]) -> None:
    with pytest.raises(InvalidValue) as caught:
        replace(SPEC, **changes)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)


@pytest.mark.parametrize("name", ["batch_size", "iterations"])
def test_a_size_that_the_algorithm_cannot_choose_is_asked_for(name: str) -> None:
    with pytest.raises(InvalidValue, match=name) as caught:
        calibrate("dp_sgd", replace(SPEC, **{name: None}))
    assert (caught.value.code, caught.value.pointer) == ("missing", (name,))


def test_full_batches_need_no_batch_size_and_take_no_other() -> None:
    found = calibrate("dp_sgd", replace(SPEC, sampling="full_batch", batch_size=None))
    assert found.plan.phases[0].divisor == 1000
    with pytest.raises(InvalidValue, match="1000") as caught:
        calibrate("dp_sgd", replace(SPEC, sampling="full_batch"))
    assert caught.value.pointer == ("batch_size",)


@pytest.mark.parametrize("sampling", ["full_batch", "disjoint_batches"])
def test_a_sampling_without_a_batch_size_to_choose_has_none_to_solve_for(sampling: str) -> None:
    spec = replace(SPEC, sampling=sampling, batch_size=None, noise_multiplier=1.0, unknown=Unknown.BATCH_SIZE)
    with pytest.raises(Unsupported, match="no batch size") as caught:
        solve_gaussian_steps(spec)
    assert caught.value.pointer == ("solve_for",)


@pytest.mark.parametrize("noise_multiplier", [0.0, 1e7, True])
def test_a_given_noise_is_in_the_engines_range(noise_multiplier: float) -> None:
    with pytest.raises(InvalidValue, match="noise_multiplier"):
        replace(SPEC, iterations=None, unknown=Unknown.ITERATIONS, noise_multiplier=noise_multiplier)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_sampling_and_relation_that_were_left_out_are_the_first_that_the_algorithm_names(name: str) -> None:
    algorithm = find_algorithm(name)
    bound = (
        {Clip: Clip(1.0), Normalize: Normalize(1.0)}[algorithm.gradient_bounds[0]]
        if (algorithm.gradient_bounds)
        else None
    )
    filled = with_defaults(algorithm, replace(SPEC, sampling=None, neighboring_relation=None, gradient_bound=bound))
    assert filled.sampling == algorithm.samplings[0].kind
    assert filled.neighboring_relation is algorithm.relations[0]


def test_what_the_spec_names_is_not_overwritten() -> None:
    filled = with_defaults(find_algorithm("dp_sgd"), SPEC)
    assert (filled.sampling, filled.neighboring_relation) == ("poisson", ADD)


def test_an_unknown_algorithm_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidValue, match="dp_sgd, clipped_acsa") as caught:
        calibrate("adam", SPEC)
    assert (caught.value.code, caught.value.pointer) == ("unknown_algorithm", ("algorithm",))


def test_a_batch_larger_than_the_data_set_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at most dataset_size"):
        replace(SPEC, batch_size=1001)


@pytest.mark.parametrize(
    ("sampling", "relation", "expected"),
    [
        ("full_batch", ADD, FullBatch()),
        ("poisson", ADD, Poisson(0.1)),
        ("without_replacement", ONE, WithoutReplacement(100, 1000)),
        ("random_allocation", ADD, RandomAllocation(10, 1)),
        ("blocks", ADD, Blocks(7, 1)),
        ("shuffled_epochs", ONE, ShuffledEpochs(10)),
        ("disjoint_batches", ONE, DisjointBatches("by_position")),
        ("disjoint_batches", SPECIAL, DisjointBatches("by_position")),
        ("disjoint_batches", ADD, DisjointBatches("independent")),
    ],
)
def test_the_sampling_of_the_events_follows_from_the_public_sizes(
    sampling: str, relation: NeighboringRelation, expected: object
) -> None:
    size = 1000 if sampling == "full_batch" else 100
    spec = replace(SPEC, sampling=sampling, neighboring_relation=relation, batch_size=size)
    event = gaussian_event(spec)(2.0, 7, size)
    assert (event.sampling, event.count, event.mechanism.noise_multiplier) == (expected, 7, 2.0)


@pytest.mark.parametrize(("size", "steps"), [(1000, 1), (999, 2), (300, 4), (250, 4), (1, 1000)])
@pytest.mark.parametrize("sampling", ["random_allocation", "shuffled_epochs"])
def test_an_epoch_has_the_fewest_steps_whose_batches_are_no_larger_than_asked(
    sampling: str, size: int, steps: int
) -> None:
    expected = RandomAllocation(steps, 1) if sampling == "random_allocation" else ShuffledEpochs(steps)
    event = gaussian_event(replace(SPEC, sampling=sampling, neighboring_relation=SPECIAL))(1.0, 7, size)
    assert event.sampling == expected


@pytest.mark.parametrize(
    ("size", "steps", "blocks"), [(100, 50, 5), (90, 50, 4), (110, 50, 5), (1, 50, 1), (1000, 50, 50)]
)
def test_blocks_are_as_many_as_keep_batches_no_larger_than_asked(size: int, steps: int, blocks: int) -> None:
    event = gaussian_event(replace(SPEC, sampling="blocks"))(1.0, steps, size)
    assert event.sampling == Blocks(steps, blocks)


def test_the_number_of_steps_in_blocks_is_not_solved_for() -> None:
    spec = replace(SPEC, sampling="blocks", iterations=None, noise_multiplier=1.0, unknown=Unknown.ITERATIONS)
    with pytest.raises(Unsupported, match="cost less") as caught:
        solve_gaussian_steps(spec)
    assert caught.value.pointer == ("solve_for",)


def test_an_epoch_of_more_steps_than_a_plan_may_have_is_refused() -> None:
    spec = replace(SPEC, dataset_size=10**9, batch_size=9, sampling="random_allocation")
    with pytest.raises(InvalidValue, match="batch_size must be at least 10") as caught:
        calibrate("dp_sgd", spec)
    assert caught.value.pointer == ("batch_size",)


def test_allocations_need_about_the_noise_of_poisson_batches_and_far_less_than_shuffled_ones() -> None:
    """Twenty epochs of ten batches, for (1, 1e-5): the noise of shuffled epochs is that of twenty full batches."""
    spec = replace(SPEC, iterations=200, neighboring_relation=SPECIAL)
    noise = {
        kind: solve_gaussian_steps(replace(spec, sampling=kind)).noise_multiplier
        for kind in ("poisson", "random_allocation", "shuffled_epochs")
    }
    assert noise["random_allocation"] == pytest.approx(noise["poisson"], rel=0.02)
    twenty = solve_gaussian_steps(replace(spec, sampling="full_batch", batch_size=None, iterations=20))
    assert noise["shuffled_epochs"] == pytest.approx(twenty.noise_multiplier, rel=1e-6)
    assert noise["random_allocation"] < 0.5 * noise["shuffled_epochs"]


def test_the_number_of_steps_or_the_size_of_disjoint_batches_follows_from_the_other() -> None:
    spec = replace(SPEC, sampling="disjoint_batches")
    steps = solve_gaussian_steps(replace(spec, batch_size=300, iterations=None))
    assert (steps.event.count, steps.batch_size) == (3, 300)
    size = solve_gaussian_steps(replace(spec, batch_size=None, iterations=7))
    assert (size.event.count, size.batch_size) == (7, 142)
    for changes, pointer in (
        ({"batch_size": 300, "iterations": 4}, "iterations"),
        ({"batch_size": None, "iterations": 1001}, "iterations"),
        ({"batch_size": None, "iterations": None}, "batch_size"),
    ):
        with pytest.raises(InvalidValue, match="disjoint batches") as caught:
            solve_gaussian_steps(replace(spec, **changes))
        assert caught.value.pointer == (pointer,)


def test_truncated_batches_keep_a_random_subset_of_the_size_that_is_given() -> None:
    spec = replace(SPEC, sampling="truncated_poisson", max_batch_size=120, iterations=20)
    public = solve_gaussian_steps(replace(spec, neighboring_relation=SPECIAL))
    assert public.event.sampling == TruncatedPoisson(0.1, 120, 1000, truncation="random")
    # Where the number of records is private, batches are drawn from all slots.
    steps = solve_gaussian_steps(spec)
    assert steps.event.sampling == TruncatedPoisson(0.1, 120, 1125, truncation="random_slots")
    assert 0.999 < steps.achieved.value.upper <= 1.0
    more = solve_gaussian_steps(replace(spec, capacity=1000))
    assert more.event.sampling == TruncatedPoisson(0.1, 120, 1000, truncation="random_slots")
    assert more.noise_multiplier == public.noise_multiplier
    # Nothing is ever cut where a batch may hold everyone.
    whole = solve_gaussian_steps(replace(spec, max_batch_size=1125))
    poisson = solve_gaussian_steps(replace(spec, sampling="poisson", max_batch_size=None))
    assert whole.noise_multiplier == poisson.noise_multiplier < steps.noise_multiplier


def test_there_are_no_fewer_slots_than_records() -> None:
    with pytest.raises(InvalidValue, match="1000") as caught:
        replace(SPEC, capacity=999)
    assert caught.value.pointer == ("capacity",)
    assert (SPEC.slots, replace(SPEC, capacity=1000).slots) == (1125, 1000)


def test_the_largest_size_is_of_truncated_batches_which_need_it_and_is_not_solved_for() -> None:
    with pytest.raises(InvalidValue, match="max_batch_size is only for truncated_poisson sampling") as caught:
        replace(SPEC, max_batch_size=120)
    assert caught.value.pointer == ("max_batch_size",)
    truncated = replace(SPEC, sampling="truncated_poisson")
    with pytest.raises(InvalidValue, match="max_batch_size is needed") as caught:
        solve_gaussian_steps(truncated)
    assert (caught.value.code, caught.value.pointer) == ("missing", ("max_batch_size",))
    open_size = replace(
        truncated, max_batch_size=120, batch_size=None, unknown=Unknown.BATCH_SIZE, noise_multiplier=1.0
    )
    with pytest.raises(Unsupported, match="there is no proof") as refused:
        solve_gaussian_steps(open_size)
    assert refused.value.pointer == ("solve_for",)


def test_the_number_of_disjoint_batches_is_nothing_to_solve_for() -> None:
    spec = replace(SPEC, sampling="disjoint_batches", iterations=None, noise_multiplier=1.0, unknown=Unknown.ITERATIONS)
    with pytest.raises(Unsupported, match="no number of steps") as caught:
        solve_gaussian_steps(spec)
    assert caught.value.pointer == ("solve_for",)


@pytest.mark.thorough
@pytest.mark.parametrize("relation", [ONE, SPECIAL])
def test_batches_without_replacement_are_solved_and_cost_what_is_said(relation: NeighboringRelation) -> None:
    spec = replace(SPEC, sampling="without_replacement", neighboring_relation=relation, iterations=20)
    steps = solve_gaussian_steps(spec)
    target = spec.target
    assert isinstance(target, ApproximateDpTarget)
    assert steps.event.sampling == WithoutReplacement(100, 1000)
    assert steps.achieved == target.assess([steps.event], relation)
    assert 0.999 < steps.achieved.value.upper <= 1.0
    # Sampled, so cheaper than the same steps on every record.
    everyone = solve_gaussian_steps(replace(spec, sampling="full_batch", batch_size=None))
    assert steps.noise_multiplier < everyone.noise_multiplier


def test_all_records_without_replacement_are_a_full_batch() -> None:
    spec = replace(SPEC, neighboring_relation=ONE, batch_size=1000, iterations=20)
    drawn = solve_gaussian_steps(replace(spec, sampling="without_replacement"))
    full = solve_gaussian_steps(replace(spec, sampling="full_batch"))
    assert drawn.noise_multiplier == pytest.approx(full.noise_multiplier, rel=1e-6)


def test_a_record_in_one_of_the_disjoint_batches_pays_for_one_step() -> None:
    """Each record takes part in one step, so that the number of steps does not raise the noise."""
    spec = replace(SPEC, sampling="disjoint_batches", neighboring_relation=ONE, iterations=10)
    once = solve_gaussian_steps(replace(spec, sampling="full_batch", batch_size=None, iterations=1))
    assert solve_gaussian_steps(spec).noise_multiplier == pytest.approx(once.noise_multiplier, rel=1e-3)
    everyone = solve_gaussian_steps(replace(spec, sampling="full_batch", batch_size=None))
    assert everyone.noise_multiplier == pytest.approx(math.sqrt(10.0) * once.noise_multiplier, rel=1e-3)


def test_replace_one_doubles_the_sensitivity_and_not_the_meaning_of_the_multiplier() -> None:
    """The multiplier is on the sum over one contribution, so twice the distance takes twice the multiplier."""
    spec = replace(SPEC, sampling="full_batch", batch_size=None)
    noise = {
        relation: solve_gaussian_steps(replace(spec, neighboring_relation=relation)).noise_multiplier
        for relation in NeighboringRelation
    }
    assert noise[ONE] == pytest.approx(2.0 * noise[ADD], rel=1e-6)
    assert noise[SPECIAL] == noise[ADD]


def test_steps_may_have_events_of_the_algorithms_own() -> None:
    """Twice the noise that a step is asked for, under a batch size that the algorithm chose."""
    usual = GaussianSteps("full_batch", 1000, ADD)

    def generous(noise_multiplier: float, iterations: int, batch_size: int) -> Any:
        return usual(2.0 * noise_multiplier, iterations, batch_size)

    found = solve_steps(SPEC, generous, iterations=3, batch_size=1000)
    plain = solve_steps(SPEC, usual, iterations=3, batch_size=1000)
    assert found.noise_multiplier == pytest.approx(plain.noise_multiplier / 2.0, rel=1e-6)
    assert found.event.mechanism.noise_multiplier == 2.0 * found.noise_multiplier
