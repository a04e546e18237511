"""The Plan: one object for charge and execution, known by its hash."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidValue
from accounting.events import Event, FullBatch, Gaussian, Poisson, PureDp
from accounting.relations import NeighboringRelation
from calibrators.plan import Clip, Normalize, Phase, Plan, plan_from_canonical


def phase(**changes: object) -> Phase:
    given_phase = Phase(Event(Gaussian(2.5), Poisson(0.2), 100), Normalize(0.5), divisor=91, step_size=0.1)
    return replace(given_phase, **changes)


def plan(*phases: Phase) -> Plan:
    return Plan("dp_nsgd", 455, NeighboringRelation.ADD_OR_REMOVE_ONE, phases or (phase(),))


numbers = st.floats(min_value=1e-3, max_value=1e6)
phases = st.builds(
    Phase,
    st.builds(
        Event,
        st.builds(Gaussian, numbers),
        st.one_of(st.just(FullBatch()), st.builds(Poisson, st.floats(1e-8, 1.0))),
        st.integers(1, 10**8),
    ),
    st.one_of(st.builds(Clip, numbers), st.builds(Normalize, numbers)),
    st.integers(1, 10**9),
    st.one_of(st.none(), numbers),
)


@given(st.lists(phases, min_size=1, max_size=4), st.sampled_from(NeighboringRelation), st.integers(1, 10**9))
def test_canonical_bytes_read_back_to_the_same_plan(some, relation, size):
    made = Plan("dp_sgd", size, relation, tuple(some))
    assert plan_from_canonical(made.canonical(), made.plan_hash) == made


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
    ],
)
def test_every_field_is_under_the_hash(other):
    assert other.plan_hash != plan().plan_hash


def test_numbers_that_mean_the_same_hash_the_same():
    assert plan(phase(divisor=91.0, step_size=1)).plan_hash == plan(phase(step_size=1.0)).plan_hash


def test_a_plan_with_another_hash_is_refused():
    data = plan().canonical()
    with pytest.raises(InvalidValue, match="expected hash") as caught:
        plan_from_canonical(data.replace(b'"91"', b'"92"'), plan().plan_hash)
    assert caught.value.code == "plan_hash_mismatch"


def test_bytes_that_are_not_canonical_are_refused_even_with_their_own_hash():
    from accounting.canonical import sha256_hex

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


def test_noise_is_scaled_by_the_contribution_bound_and_never_by_the_regularizer():
    assert phase(gradient_bound=Normalize(0.01)).noise_stddev_on_sum == 2.5
    assert phase(gradient_bound=Clip(4.0)).noise_stddev_on_sum == 10.0
    assert phase(gradient_bound=Clip(4.0)).noise_stddev_on_mean == 10.0 / 91


def test_a_phase_needs_a_gaussian_event():
    with pytest.raises(InvalidValue, match="gaussian"):
        phase(event=Event(PureDp(1.0)))


def test_a_plan_without_a_step_size_is_not_executable():
    assert plan().is_executable
    assert not plan(phase(), phase(step_size=None)).is_executable
