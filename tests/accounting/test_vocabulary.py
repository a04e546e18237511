"""Events, relations, intervals, numbers and canonical bytes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from accounting.canonical import canonical_bytes, number_to_string, sha256_hex
from accounting.errors import AccountingError, InvalidValue, Unsupported, one_of
from accounting.events import (
    ApproximateDp,
    DisjointBatches,
    Event,
    Gaussian,
    GaussianMixture,
    Laplace,
    Mechanism,
    Poisson,
    PureDp,
    RenyiDp,
    ShuffledEpochs,
    ShuffleModel,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
    ZcDp,
    event_from_json,
    group_events,
    prefix_of_events,
)
from accounting.intervals import Interval
from accounting.numbers import MAX_COUNT, read_integer, read_real
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED, add_saturating, from_nano, to_nano_down, to_nano_up

EVENTS = [
    Event(Gaussian(1.1), Poisson(0.02), 5000),
    Event(Gaussian(3)),
    Event(Laplace(2.0), count=3),
    Event(PureDp(0.1)),
    Event(ZcDp(0.25), count=7),
    Event(ApproximateDp(1.0, 1e-6), count=2),
    Event(RenyiDp((1.5, 2.0, 64.0), (0.1, 0.1, 3.25))),
    Event(Gaussian(8.0), WithoutReplacement(1024, 50_000), 10_000),
    Event(Laplace(0.5), ShuffledEpochs(10_000), 25_000),
    Event(Gaussian(0.5), DisjointBatches("by_position"), 100),
    Event(Gaussian(0.5), DisjointBatches("independent"), 100),
    Event(GaussianMixture((0.25, 0.75), (1.0, 3.5)), Poisson(0.5), 7),
    Event(Laplace(0.5), WithReplacement(10, 100), 7),
    Event(Gaussian(0.5), TruncatedPoisson(0.1, 20, 100), 7),
    Event(ApproximateDp(1.0, 1e-6), ShuffleModel(100, 1.0, 1e-6), 7),
]


@pytest.mark.parametrize("event", EVENTS)
def test_events_survive_json(event: Event) -> None:
    written = event.to_json()
    assert event_from_json(written) == event
    as_strings = {"mechanism": written["mechanism"], "sampling": written["sampling"], "count": str(event.count)}
    assert event_from_json(as_strings) == event


def test_numbers_that_mean_the_same_give_the_same_bits() -> None:
    assert Gaussian(1) == Gaussian(np.float32(1.0)) == Gaussian(np.int8(1)) == Gaussian(1.0)
    assert type(Gaussian(1).noise_multiplier) is float
    assert Event(Gaussian(1.0), count=3.0) == Event(Gaussian(1.0), count=3)  # type: ignore[arg-type]  # on purpose
    assert read_integer("count", np.int64(5), 1, 9) == 5
    assert read_real("x", 2, 0, 3) == 2.0


@pytest.mark.parametrize("bad", [True, "1", None, math.nan, math.inf, -1.0, 0.0, 1e9])
def test_bad_numbers_are_refused_with_a_pointer(bad: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        Gaussian(bad)  # type: ignore[arg-type]  # on purpose
    assert caught.value.pointer == ("noise_multiplier",)
    with pytest.raises(InvalidValue):
        Poisson(bad)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidValue):
        Event(Gaussian(1.0), count=bad)  # type: ignore[arg-type]  # on purpose


def test_sampling_without_a_proof_is_refused_and_names_what_works() -> None:
    stated: list[Mechanism] = [PureDp(1.0), ZcDp(1.0), ApproximateDp(1.0, 1e-6), RenyiDp((2.0,), (0.1,))]
    for mechanism in stated:
        for sampling in (Poisson(0.1), WithoutReplacement(1, 10), ShuffledEpochs(10), DisjointBatches("independent")):
            with pytest.raises(Unsupported, match="use full_batch") as caught:
                Event(mechanism, sampling)
            assert caught.value.code == "unsupported_sampling"
            assert caught.value.pointer == ("sampling", "kind")
    with pytest.raises(InvalidValue, match=r"mechanism\.kind must be"):
        event_from_json({"mechanism": {"kind": "magic"}, "sampling": {"kind": "full_batch"}, "count": 1})


@pytest.mark.parametrize(
    ("make", "pointer"),
    [
        (lambda: ApproximateDp(1.0, 1.5), ("delta",)),
        (lambda: ApproximateDp(-1.0, 0.5), ("epsilon",)),
        (lambda: RenyiDp((), ()), ("orders",)),
        (lambda: RenyiDp((1.0,), (0.1,)), ("orders", 0)),
        (lambda: RenyiDp((3.0, 2.0), (0.1, 0.2)), ("orders",)),
        (lambda: RenyiDp(tuple(range(2, 67)), (0.1,) * 65), ("orders",)),
        (lambda: RenyiDp((2.0, 3.0), (0.1,)), ("epsilons",)),
        (lambda: RenyiDp((2.0, 3.0), (0.2, 0.1)), ("epsilons",)),
        (lambda: WithoutReplacement(11, 10), ("batch_size",)),
        (lambda: WithoutReplacement(0, 10), ("batch_size",)),
        (lambda: WithoutReplacement(1.5, 10), ("batch_size",)),
        (lambda: WithoutReplacement(1, 10**14), ("dataset_size",)),
        (lambda: ShuffledEpochs(0), ("steps_per_epoch",)),
        (lambda: DisjointBatches("random"), ("assignment",)),
    ],
)
def test_contradictory_parts_are_refused_with_a_pointer(make: Callable[[], object], pointer: tuple[str, ...]) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert caught.value.pointer == pointer


def test_grouping_counts_equal_steps_and_refuses_to_saturate() -> None:
    step = Event(Gaussian(1.0), Poisson(0.1), 2)
    assert group_events([step, Event(PureDp(1.0)), step]) == (
        Event(Gaussian(1.0), Poisson(0.1), 4),
        Event(PureDp(1.0)),
    )
    with pytest.raises(InvalidValue):
        group_events([Event(Gaussian(1.0), count=MAX_COUNT), Event(Gaussian(1.0))])


def test_prefixes_have_the_asked_number_of_steps() -> None:
    for steps in range(9):
        prefix = prefix_of_events([Event(Gaussian(1.0), count=3), Event(PureDp(0.1), count=5)], steps)
        assert sum(event.count for event in prefix) == steps
    assert len(prefix_of_events(EVENTS, 10**9)) == len(EVENTS)


def test_canonical_bytes_do_not_depend_on_the_way_a_number_is_held() -> None:
    assert canonical_bytes({"b": 1, "a": [1.0, True, None, "x"]}) == b'{"a":["1",true,null,"x"],"b":"1","v":"1"}'
    assert len(sha256_hex(b"")) == 64
    with pytest.raises(ValueError, match="finite"):
        number_to_string(math.inf)
    with pytest.raises(ValueError, match="reserved"):
        canonical_bytes({"v": 2})


def test_intervals_are_in_order() -> None:
    assert Interval(1.0, 2.0, 4.0).width == 3.0
    for bad in ((2.0, 1.0, 3.0), (0.0, 4.0, 3.0), (math.nan, 1.0, 2.0), (0.0, 1.0, math.nan)):
        with pytest.raises(ValueError, match="not an interval"):
            Interval(*bad)


def test_sensitivities_of_the_relations() -> None:
    assert {relation.value: relation.sensitivity for relation in NeighboringRelation} == {
        "add_or_remove_one": 1.0,
        "replace_one": 2.0,
        "replace_special": 1.0,
    }


def test_errors_carry_code_and_pointer() -> None:
    error = AccountingError("no", code="other", pointer=("a",)).inside("events", 3)
    assert (error.code, error.pointer, error.detail) == ("other", ("events", 3, "a"), "no")
    assert one_of(["a"]) == "a"
    assert one_of(["a", "b", "c"]) == "a, b or c"


def test_units_round_costs_up_and_limits_down() -> None:
    from fractions import Fraction

    third = Fraction(1, 3)
    assert to_nano_up(third) == 333_333_334
    assert to_nano_down(third) == 333_333_333
    assert to_nano_up(Fraction(10**30)) == SATURATED
    assert add_saturating((SATURATED - 1,), (5,)) == (SATURATED,)
    assert from_nano(to_nano_up(third)) == "0.333333334"
