"""The Plan: one object for charge and execution, known by its hash."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.canonical import sha256_hex
from accounting.errors import InvalidValue
from accounting.events import (
    CorrelatedGaussian,
    CyclicPoisson,
    DisjointBatches,
    Event,
    FixedOrderEpochs,
    FullBatch,
    Gaussian,
    Poisson,
    PureDp,
    SquareRootGaussian,
    WithoutReplacement,
    ZcDp,
)
from accounting.events.schedules import resolve_schedules
from accounting.relations import NeighboringRelation
from calibrators.geometry import Box, L1Ball, L1Penalty, L2Ball, L2Penalty, LpBall, Simplex
from calibrators.phases.vertex_trees import TreePhase
from calibrators.plan import (
    MAX_COEFFICIENT_BITS,
    MAX_SCHEDULE,
    AnyPhase,
    Clip,
    CorrelatedSteps,
    Normalize,
    Phase,
    Plan,
    plan_from_canonical,
)
from calibrators.release import LAST_ITERATE, AverageIterate, RandomIterate, WeightedAverage

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE


def phase(**changes: Any) -> Phase:
    given_phase = Phase(Event(Gaussian(2.5), Poisson(0.2), 100), Normalize(0.5), divisor=91, step_size=0.1)
    return replace(given_phase, **changes)


def trees(**changes: Any) -> TreePhase:
    """Three trees of depth 1, 2, 3: 2 + 4 + 8 steps."""
    return replace(TreePhase(Event(ZcDp(0.5)), 3, 16, (0.25, 0.5, 1.0), lipschitz=1.0, smoothness=2.0), **changes)


#: Three bands in cycles of four groups: 100 steps are 25 cycles.
CORRELATED = Event(CorrelatedGaussian(2.5, (0.75, 0.5, 0.25)), CyclicPoisson(0.8, 4, "independent"), 100)


def correlated(**changes: Any) -> CorrelatedSteps:
    return replace(CorrelatedSteps(CORRELATED, Clip(0.5), divisor=91, step_size=0.1, momentum=0.9), **changes)


def plan(*phases: AnyPhase, **changes: Any) -> Plan:
    return replace(Plan("dp_nsgd", 455, ADD, phases or (phase(),)), **changes)


numbers = st.floats(min_value=1e-3, max_value=1e6)
samplings = st.one_of(
    st.just(FullBatch()),
    st.builds(Poisson, st.floats(1e-8, 1.0)),
    st.integers(1, 1000).map(lambda size: WithoutReplacement(size, 1000)),
    st.builds(DisjointBatches, st.sampled_from(["by_position", "independent"])),
)
gradient_steps = st.builds(
    Phase,
    st.builds(Event, st.builds(Gaussian, numbers), samplings, st.integers(1, 10**8)),
    st.one_of(st.builds(Clip, numbers), st.builds(Normalize, numbers)),
    st.integers(1, 10**9),
    st.one_of(st.none(), numbers),
)
schedules = st.lists(numbers, min_size=1, max_size=5).map(
    lambda sizes: phase(event=Event(Gaussian(1.0), FullBatch(), len(sizes)), step_size=tuple(sizes))
)
lists_of_coefficients = st.lists(st.integers(2, 1 << MAX_COEFFICIENT_BITS), min_size=1, max_size=5).map(
    lambda found: tuple(value * 2.0**-MAX_COEFFICIENT_BITS for value in sorted(found, reverse=True))
)
correlated_steps = st.builds(
    CorrelatedSteps,
    st.builds(
        Event,
        st.builds(CorrelatedGaussian, numbers, lists_of_coefficients),
        st.one_of(
            st.builds(CyclicPoisson, st.floats(1e-8, 1.0), st.integers(5, 100), st.just("independent")),
            st.builds(FixedOrderEpochs, st.integers(1, 1000)),
        ),
        st.integers(1, 10**8),
    ),
    st.one_of(st.builds(Clip, numbers), st.builds(Normalize, numbers)),
    st.integers(1, 10**9),
    st.one_of(st.none(), numbers),
    st.floats(0.0, 1.0, exclude_max=True),
)
tree_phases = st.integers(1, 5).flatmap(
    lambda count: st.builds(
        TreePhase,
        st.one_of(st.builds(ZcDp, numbers), st.builds(PureDp, numbers)).map(Event),
        st.just(count),
        st.integers(count, 20).map(lambda power: 1 << power),
        st.tuples(*[numbers] * count),
        numbers,
        st.one_of(st.just(0.0), numbers),
    )
)
domains = st.one_of(
    st.none(),
    st.builds(L2Ball, numbers),
    st.builds(L1Ball, numbers),
    st.builds(LpBall, st.floats(1.01, 10.0), numbers),
    st.builds(Simplex, numbers),
    st.builds(Box, numbers.map(lambda x: -x), numbers),
)
penalties = st.one_of(st.none(), st.builds(L2Penalty, numbers), st.builds(L1Penalty, numbers))
releases = st.sampled_from([LAST_ITERATE, AverageIterate(), RandomIterate()])


@given(
    st.lists(st.one_of(gradient_steps, schedules, correlated_steps, tree_phases), min_size=1, max_size=4),
    st.sampled_from(NeighboringRelation),
    st.integers(1, 10**9),
    domains,
    penalties,
    releases,
)
def test_canonical_bytes_read_back_to_the_same_plan(some, relation, size, domain, penalty, release):
    made = Plan("dp_sgd", size, relation, tuple(some), domain=domain, penalty=penalty, release=release)
    assert plan_from_canonical(made.canonical(), made.plan_hash) == made


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6))
def test_weights_of_an_average_read_back(shares):
    weights = tuple(share / sum(shares) for share in shares)
    made = plan(phase(event=Event(Gaussian(1.0), FullBatch(), len(shares))), release=WeightedAverage(weights))
    assert plan_from_canonical(made.canonical(), made.plan_hash) == made


#: Written by the first version that stored plans. Stored plans are known by these bytes: they never change.
OLD_BYTES = (
    b'{"algorithm":"dp_nsgd","dataset_size":"455","engine":"1","neighboring_relation":"add_or_remove_one","phases":['
    b'{"divisor":"91","event":{"count":"100","mechanism":{"kind":"gaussian","noise_multiplier":"2.5"},'
    b'"sampling":{"kind":"poisson","sampling_probability":"0.2"}},'
    b'"gradient_bound":{"kind":"normalize","regularizer":"0.5"},"step_size":"0.1"},'
    b'{"divisor":"455","event":{"count":"7","mechanism":{"kind":"gaussian","noise_multiplier":"3"},'
    b'"sampling":{"kind":"full_batch"}},"gradient_bound":{"kind":"clip","max_grad_norm":"1.5"},"step_size":null}],'
    b'"v":"1"}'
)
OLD_HASH = "a656647888d4e7ac2483cbbfa4b96a79ef6fd807a5177aae8f19d2e3fb06737b"


def test_plans_of_the_first_version_keep_their_bytes_and_their_hash():
    second = Phase(Event(Gaussian(3.0), FullBatch(), 7), Clip(1.5), 455)
    old = plan(phase(), second, engine="1")
    assert old.canonical() == OLD_BYTES
    assert old.plan_hash == OLD_HASH == hashlib.sha256(OLD_BYTES).hexdigest()
    read = plan_from_canonical(OLD_BYTES, OLD_HASH)
    assert read == old
    assert (read.domain, read.penalty, read.release) == (None, None, LAST_ITERATE)


@pytest.mark.parametrize(
    "other",
    [
        plan(phase(step_size=0.2)),
        plan(phase(divisor=92)),
        plan(phase(gradient_bound=Normalize(0.6))),
        plan(phase(gradient_bound=Clip(0.5))),
        plan(phase(event=Event(Gaussian(2.5), Poisson(0.2), 101))),
        plan(phase(event=Event(Gaussian(2.6), Poisson(0.2), 100))),
        plan(phase(event=Event(Gaussian(2.5), Poisson(0.21), 100))),
        plan(phase(event=Event(Gaussian(2.5), FullBatch(), 100))),
        plan(phase(), phase()),
        replace(plan(), algorithm="dp_sgd"),
        replace(plan(), dataset_size=456),
        replace(plan(), neighboring_relation=NeighboringRelation.REPLACE_ONE),
        replace(plan(), engine="0"),
        plan(phase(step_size=(0.1,) * 100)),
        plan(domain=L2Ball(1.0)),
        plan(domain=L1Ball(1.0)),
        plan(penalty=L2Penalty(0.1)),
        plan(penalty=L1Penalty(0.1)),
        plan(release=AverageIterate()),
        plan(release=RandomIterate()),
        plan(release=WeightedAverage((0.01,) * 100)),
        plan(trees()),
    ],
)
def test_every_field_is_under_the_hash(other):
    assert other.plan_hash != plan().plan_hash


@pytest.mark.parametrize(
    "changes",
    [
        {"event": Event(ZcDp(0.25))},
        {"event": Event(PureDp(0.5))},
        {"num_trees": 2, "noise_scales": (0.25, 0.5)},
        {"records_per_tree": 32},
        {"noise_scales": (0.25, 0.5, 1.5)},
        {"lipschitz": 2.0},
        {"smoothness": 0.0},
    ],
)
def test_every_field_of_trees_is_under_the_hash(changes):
    assert plan(trees(**changes)).plan_hash != plan(trees()).plan_hash


@pytest.mark.parametrize(
    "changes",
    [
        {"event": replace(CORRELATED, mechanism=CorrelatedGaussian(2.5, (0.75, 0.5, 0.125)))},
        {"event": replace(CORRELATED, mechanism=CorrelatedGaussian(2.5, (0.75, 0.5)))},
        {"event": replace(CORRELATED, mechanism=CorrelatedGaussian(2.25, (0.75, 0.5, 0.25)))},
        {"event": replace(CORRELATED, sampling=CyclicPoisson(0.8, 5, "independent"))},
        {"event": replace(CORRELATED, sampling=CyclicPoisson(0.8, 4, "by_position"))},
        {"event": replace(CORRELATED, sampling=FixedOrderEpochs(4))},
        {"event": replace(CORRELATED, count=99)},
        {"gradient_bound": Clip(0.25)},
        {"gradient_bound": Normalize(0.5)},
        {"divisor": 90},
        {"step_size": 0.2},
        {"step_size": (0.1,) * 100},
        {"momentum": 0.0},
    ],
)
def test_every_field_of_correlated_steps_is_under_the_hash(changes):
    assert plan(correlated(**changes)).plan_hash != plan(correlated()).plan_hash


@pytest.mark.parametrize(("taken", "cycles"), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (99, 25), (100, 25)])
def test_a_prefix_of_correlated_steps_costs_its_cycles(taken, cycles):
    """Begun cycles count; the noise of each is that over the norm of a column of the steps that were taken."""
    [stands] = resolve_schedules(plan(correlated()).cost_of_prefix(taken), ADD)
    assert stands.count == cycles
    assert stands.sampling == Poisson(0.8)
    norm = sum(value**2 for value in (0.75, 0.5, 0.25)[:taken]) ** 0.5
    assert stands.mechanism.to_json()["noise_multiplier"] == pytest.approx(2.5 / norm, rel=1e-12)


def test_a_prefix_in_a_fixed_order_costs_what_a_record_moves_in_it():
    phase = correlated(event=replace(CORRELATED, sampling=FixedOrderEpochs(3)))
    squares = []
    for taken in (1, 2, 3, 4, 100):
        [stands] = resolve_schedules(plan(phase).cost_of_prefix(taken), NeighboringRelation.REPLACE_SPECIAL)
        assert (stands.count, stands.sampling) == (1, FullBatch())
        squares.append((2.5 / float(str(stands.mechanism.to_json()["noise_multiplier"]))) ** 2)
    whole = 0.75**2 + 0.5**2 + 0.25**2
    steps = [0.75**2, 0.75**2 + 0.5**2, whole, whole + 0.75**2, 33 * whole + 0.75**2]
    assert squares == pytest.approx(steps, rel=1e-12)


def test_coefficients_of_correlated_steps_are_whole_numbers_over_a_power_of_two():
    phase = correlated()
    assert (phase.coefficient_bits, phase.whole_coefficients) == (2, (3, 2, 1))
    finest = correlated(event=replace(CORRELATED, mechanism=CorrelatedGaussian(1.0, (1.0, 2.0**-MAX_COEFFICIENT_BITS))))
    assert (finest.coefficient_bits, finest.whole_coefficients) == (20, (1 << 20, 1))
    alone = correlated(event=replace(CORRELATED, mechanism=CorrelatedGaussian(1.0, (1.0,))))
    assert (alone.coefficient_bits, alone.whole_coefficients) == (0, (1,))
    for index, wrong in enumerate([(0.1,), (0.75, 0.5 - 2.0**-21), (0.75, 0.5, 1e-9), (1.5,)]):
        with pytest.raises(InvalidValue, match=r"multiples of 2\^-20 and at most 1") as caught:
            correlated(event=replace(CORRELATED, mechanism=CorrelatedGaussian(1.0, wrong)))
        assert caught.value.pointer == ("event", "mechanism", "coefficients", index % 3)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"event": Event(Gaussian(1.0), Poisson(0.1), 10)}, ("event", "mechanism")),
        ({"event": Event(SquareRootGaussian(1.0, 2), FixedOrderEpochs(3), 10)}, ("event", "mechanism")),
        ({"event": replace(CORRELATED, sampling=FullBatch())}, ("event", "sampling")),
        ({"momentum": 1.0}, ("momentum",)),
        ({"momentum": -0.1}, ("momentum",)),
        ({"divisor": 0}, ("divisor",)),
        ({"step_size": 0.0}, ("step_size",)),
        ({"step_size": (0.1,) * 99}, ("step_size",)),
    ],
)
def test_correlated_steps_that_could_not_be_carried_out_are_refused(changes, pointer):
    with pytest.raises(InvalidValue) as caught:
        correlated(**changes)
    assert caught.value.pointer == pointer


def test_the_noise_of_correlated_steps_is_that_of_their_normal_numbers():
    assert correlated().noise_stddev_on_sum == 2.5 * 0.5
    assert correlated().noise_stddev_on_mean == 2.5 * 0.5 / 91
    assert correlated().smallest_noise == 2.5


def test_numbers_that_mean_the_same_hash_the_same():
    assert plan(phase(divisor=91.0, step_size=1)).plan_hash == plan(phase(step_size=1.0)).plan_hash


def test_a_plan_with_another_hash_is_refused():
    data = plan().canonical()
    with pytest.raises(InvalidValue, match="expected hash") as caught:
        plan_from_canonical(data.replace(b'"91"', b'"92"'), plan().plan_hash)
    assert caught.value.code == "plan_hash_mismatch"


def test_bytes_that_are_not_canonical_are_refused_even_with_their_own_hash():
    data = plan().canonical().replace(b'"0.1"', b'"0.10"')
    with pytest.raises(InvalidValue, match="not the canonical bytes"):
        plan_from_canonical(data, sha256_hex(data))


def test_what_is_charged_is_what_runs():
    two = plan(phase(), phase(event=Event(Gaussian(3.0), FullBatch(), 7)))
    assert two.events == tuple(part.event for part in two.phases)
    assert two.iterations == 107


@pytest.mark.parametrize(("steps", "counts"), [(0, []), (1, [1]), (100, [100]), (101, [100, 1]), (107, [100, 7])])
def test_cost_of_a_prefix_counts_the_first_steps(steps, counts):
    two = plan(phase(), phase(event=Event(Gaussian(3.0), FullBatch(), 7)))
    assert [event.count for event in two.cost_of_prefix(steps)] == counts


@pytest.mark.parametrize("steps", [-1, 101, 1.5])
def test_a_prefix_outside_the_plan_is_refused(steps):
    with pytest.raises(InvalidValue):
        plan().cost_of_prefix(steps)


def test_trees_are_charged_as_a_whole_from_their_first_step_on():
    both = plan(phase(), trees())
    assert both.iterations == 100 + 14
    assert both.cost_of_prefix(100) == (phase().event,)
    for steps in (101, 107, 114):
        assert both.cost_of_prefix(steps) == (phase().event, trees().event)


def test_a_schedule_has_one_step_size_for_each_step():
    sizes = tuple(0.1 / (k + 1) for k in range(100))
    scheduled = phase(step_size=sizes)
    assert [scheduled.step_size_at(k) for k in range(100)] == list(sizes)
    assert [phase().step_size_at(k) for k in (0, 99)] == [0.1, 0.1]
    for wrong in (sizes[:-1], (*sizes, 0.1), (), (*sizes[:-1], 0.0), (*sizes[:-1], float("nan"))):
        with pytest.raises(InvalidValue, match="step"):
            phase(step_size=wrong)
    too_many = MAX_SCHEDULE + 1
    with pytest.raises(InvalidValue, match="schedule"):
        phase(event=Event(Gaussian(1.0), FullBatch(), too_many), step_size=(0.1,) * too_many)


def test_a_weighted_average_has_one_weight_for_each_step():
    with pytest.raises(InvalidValue, match="one weight for each step") as caught:
        plan(release=WeightedAverage((0.5, 0.5)))
    assert caught.value.pointer == ("release", "weights")


@pytest.mark.parametrize(
    "changes",
    [
        {"event": Event(Gaussian(1.0))},
        {"event": Event(ZcDp(0.5), count=2)},
        {"num_trees": 0, "noise_scales": ()},
        {"num_trees": 21, "noise_scales": (1.0,) * 21, "records_per_tree": 1 << 22},
        {"records_per_tree": 4},
        {"records_per_tree": 24},
        {"noise_scales": (1.0, 1.0)},
        {"noise_scales": (1.0, 1.0, 0.0)},
        {"lipschitz": 0.0},
        {"smoothness": -1.0},
    ],
)
def test_trees_that_could_not_be_carried_out_are_refused(changes):
    with pytest.raises(InvalidValue):
        trees(**changes)


def test_noise_is_scaled_by_the_contribution_bound_and_never_by_the_regularizer():
    assert phase(gradient_bound=Normalize(0.01)).noise_stddev_on_sum == 2.5
    assert phase(gradient_bound=Clip(4.0)).noise_stddev_on_sum == 10.0
    assert phase(gradient_bound=Clip(4.0)).noise_stddev_on_mean == 10.0 / 91


def test_a_phase_needs_a_gaussian_event():
    with pytest.raises(InvalidValue, match="gaussian"):
        phase(event=Event(PureDp(1.0)))


def test_a_plan_without_a_step_size_is_not_executable():
    assert plan().is_executable
    assert plan(trees()).is_executable
    assert not plan(phase(), phase(step_size=None)).is_executable
