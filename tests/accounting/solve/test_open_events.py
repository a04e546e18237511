"""Lists of events from which one field is left out: what is found is certified, and the next value fails."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue, Unreachable
from accounting.events import FULL_BATCH, Event, Gaussian, Poisson, PureDp, SquareRootGaussian
from accounting.relations import NeighboringRelation
from accounting.solve import OpenEvents, OpenField, solve_events, solve_noise_multiplier
from accounting.targets import ApproximateDpTarget, ZcdpTarget

ADD_REMOVE, SPECIAL = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_SPECIAL
TARGET = ApproximateDpTarget(1.0, 1e-5)


def event(mechanism: dict[str, Any], sampling: dict[str, Any], count: int | None = 1) -> dict[str, Any]:
    steps = {} if count is None else {"count": count}
    return {"mechanism": mechanism, "sampling": sampling, **steps}


POISSON = {"kind": "poisson", "sampling_probability": 0.01}
CUT = {"kind": "truncated_poisson", "max_batch_size": 1100, "dataset_size": 100_000, "truncation": "random"}
FIXED = {"kind": "without_replacement", "dataset_size": 10_000}
FULL = {"kind": "full_batch"}


def test_noise_is_shared_by_the_events_that_leave_it_out() -> None:
    given = event({"kind": "gaussian", "noise_multiplier": 20.0}, FULL)
    stated = event({"kind": "pure_dp", "epsilon": 0.1}, FULL)
    listed = (event({"kind": "gaussian"}, POISSON, 1000), given, event({"kind": "gaussian"}, FULL), stated)
    found = solve_events(OpenEvents(listed, OpenField.NOISE_MULTIPLIER), ADD_REMOVE, TARGET)

    def at(noise: float) -> list[Event]:
        return [
            Event(Gaussian(noise), Poisson(0.01), 1000),
            Event(Gaussian(20.0)),
            Event(Gaussian(noise)),
            Event(PureDp(0.1)),
        ]

    assert found.value == solve_noise_multiplier(at, ADD_REMOVE, epsilon=1.0, delta=1e-5).noise_multiplier
    assert list(found.events) == at(found.value)
    assert found.is_extreme
    assert found.next_achieved is None


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("field", "listed", "relation", "is_extreme"),
    [
        (OpenField.COUNT, event({"kind": "gaussian", "noise_multiplier": 4.0}, POISSON, None), ADD_REMOVE, True),
        (
            OpenField.COUNT,
            event({"kind": "gaussian", "noise_multiplier": 4.0}, CUT | {"sampling_probability": 0.01}, None),
            ADD_REMOVE,
            True,
        ),
        (OpenField.BATCH_SIZE, event({"kind": "gaussian", "noise_multiplier": 4.0}, FIXED, 500), SPECIAL, True),
        (
            OpenField.SAMPLING_PROBABILITY,
            event({"kind": "gaussian", "noise_multiplier": 4.0}, {"kind": "poisson"}, 1000),
            ADD_REMOVE,
            True,
        ),
        (
            OpenField.SAMPLING_PROBABILITY,
            event({"kind": "gaussian", "noise_multiplier": 4.0}, CUT, 1000),
            ADD_REMOVE,
            False,
        ),
    ],
)
def test_what_is_found_is_certified_and_more_is_not(
    field: OpenField, listed: dict[str, Any], relation: NeighboringRelation, is_extreme: bool
) -> None:
    """never_misses."""
    left_out = OpenEvents((listed,), field)
    found = solve_events(left_out, relation, TARGET)
    assert epsilon_for_delta(found.events, relation, 1e-5).value.upper == found.achieved.value.upper <= 1.0
    assert found.is_extreme == is_extreme
    more = found.value + 1 if field.is_integer else found.value * 1.001
    assert epsilon_for_delta(left_out.at(more), relation, 1e-5).value.upper > 1.0
    if field.is_integer:
        assert found.next_achieved is not None
        assert found.next_achieved.value.upper > 1.0


def test_what_cannot_be_solved_is_refused_with_a_reason() -> None:
    whole = event({"kind": "gaussian", "noise_multiplier": 4.0}, POISSON)
    for field in OpenField:
        with pytest.raises(InvalidValue, match=f"no event leaves {field} out") as caught:
            solve_events(OpenEvents((whole,), field), ADD_REMOVE, TARGET)
        assert caught.value.code == "missing"
    stated = event({"kind": "pure_dp", "epsilon": 2.0}, FULL)
    with pytest.raises(Unreachable):
        solve_events(
            OpenEvents((event({"kind": "gaussian"}, FULL), stated), OpenField.NOISE_MULTIPLIER), ADD_REMOVE, TARGET
        )
    sizes = tuple(
        event({"kind": "gaussian", "noise_multiplier": 4.0}, FIXED | {"dataset_size": size}) for size in (10, 20)
    )
    with pytest.raises(InvalidValue, match="the same dataset_size"):
        solve_events(OpenEvents(sizes, OpenField.BATCH_SIZE), SPECIAL, TARGET)


def test_correlated_noise_is_solved_in_the_range_in_which_it_is_accounted() -> None:
    """A record moves these 2000 steps by 1000 contribution bounds, so that noise 1 is less than the least there is."""
    correlated = {"kind": "square_root_gaussian", "bands": 10**6}
    left_out = OpenEvents((event(correlated, FULL, 2000),), OpenField.NOISE_MULTIPLIER)
    with pytest.raises(InvalidValue, match="take more noise"):
        epsilon_for_delta(left_out.at(1.0), ADD_REMOVE, 1e-5)
    found = solve_events(left_out, ADD_REMOVE, TARGET)
    move = SquareRootGaussian(1.0, 10**6).sensitivity(FULL_BATCH, 2000)
    alone = solve_noise_multiplier(lambda noise: [Event(Gaussian(noise))], ADD_REMOVE, epsilon=1.0, delta=1e-5)
    assert move > 1000.0
    assert found.value == pytest.approx(move * alone.noise_multiplier, rel=1e-8)
    assert found.is_extreme


def test_the_steps_of_correlated_noise_are_solved_up_to_what_is_computed() -> None:
    """There are no coefficients for more than 100000 steps, and the noise is too little for many fewer."""
    correlated = {"kind": "square_root_gaussian", "bands": 10**6}
    left_out = OpenEvents((event(correlated | {"noise_multiplier": 400.0}, FULL, None),), OpenField.COUNT)
    found = solve_events(left_out, ADD_REMOVE, TARGET)
    assert found.achieved.value.upper <= 1.0
    assert epsilon_for_delta(left_out.at(found.value + 1), ADD_REMOVE, 1e-5).value.upper > 1.0
    much = OpenEvents(
        (event({"kind": "square_root_gaussian", "bands": 1, "noise_multiplier": 1e6}, FULL, None),), OpenField.COUNT
    )
    few = {"kind": "inverse_square_root_gaussian", "inverse_bands": 20, "noise_multiplier": 1e6}
    with pytest.raises(Unreachable, match="every number of steps up to 100000 meets"):
        solve_events(OpenEvents((event(few, FULL, None),), OpenField.COUNT), ADD_REMOVE, TARGET)
    with pytest.raises(Unreachable, match="every number of steps up to 100000000 meets"):
        solve_events(much, ADD_REMOVE, TARGET)


def test_other_targets_and_an_event_that_is_none() -> None:
    left_out = OpenEvents((event({"kind": "gaussian"}, FULL, 9),), OpenField.NOISE_MULTIPLIER)
    assert solve_events(left_out, NeighboringRelation.REPLACE_ONE, ZcdpTarget(2.0)).value == pytest.approx(3.0)
    with pytest.raises(InvalidValue) as caught:
        left_out.at(-1.0)
    assert caught.value.pointer[0] == 0
