"""Events of dp-accounting as JSON, its accountants' own numbers, and the named reasons why they differ."""

from __future__ import annotations

from typing import Any

import pytest
from dp_accounting import dp_event as dp

from accounting.accountant import epsilon_for_delta
from accounting.dp_accounting_adapter import library_epsilon
from accounting.dp_event_reader import FIELDS
from accounting.dp_events import NoiseOver, from_dp_event
from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, Gaussian, ShuffledEpochs
from accounting.interoperability import Batches, import_dp_event
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE


def gaussian(noise: float) -> dict[str, Any]:
    return {"class_name": "GaussianDpEvent", "noise_multiplier": noise}


def repeated(event: dict[str, Any], count: int) -> dict[str, Any]:
    return {"class_name": "SelfComposedDpEvent", "event": event, "count": count}


def poisson(event: dict[str, Any], probability: float) -> dict[str, Any]:
    return {"class_name": "PoissonSampledDpEvent", "sampling_probability": probability, "event": event}


def as_json(value: Any) -> Any:
    """A named tuple of theirs with its fields as keys."""
    if hasattr(value, "_asdict"):
        return {key: as_json(item) for key, item in value._asdict().items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def codes(event: dict[str, Any], relation: NeighboringRelation, accountant: str, **more: Any) -> set[str]:
    return {difference.code for difference in import_dp_event(event, relation, accountant, **more).differences}


def test_named_tuples_and_objects_are_the_same_events() -> None:
    inner = dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.SelfComposedDpEvent(dp.GaussianDpEvent(3), 2)])
    for theirs in (
        dp.PoissonSampledDpEvent(0.5, inner),
        dp.ComposedDpEvent([dp.LaplaceDpEvent(2.0), dp.ZCDpEvent(0.1), dp.DiscreteLaplaceDpEvent(0.5, 2)]),
        dp.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 30, 2.0),
        dp.SelfComposedDpEvent(dp.NoOpDpEvent(), 3),
    ):
        written = as_json(theirs.to_named_tuple())
        assert from_dp_event(written, ADD_REMOVE) == from_dp_event(theirs, ADD_REMOVE)


def test_fields_are_those_of_their_classes() -> None:
    released = {name: fields for name, fields in FIELDS.items() if hasattr(dp, name)}
    assert len(released) >= 13
    for name, fields in released.items():
        assert tuple(field.name for field in getattr(dp, name).__attrs_attrs__) == fields


@pytest.mark.parametrize(
    ("written", "pointer"),
    [
        ({}, ("class_name",)),
        ({"class_name": "GaussianDpEvent"}, ("noise_multiplier",)),
        (gaussian(1.0) | {"sensitivity": 2.0}, ("sensitivity",)),
        (repeated({"noise_multiplier": 1.0}, 2), ("event", "class_name")),
        ({"class_name": "ComposedDpEvent", "events": [gaussian(1.0), {}]}, ("events", 1, "class_name")),
        ({"class_name": "ComposedDpEvent", "events": 3}, ("events",)),
        (repeated(gaussian(-1.0), 2), ("event", "noise_multiplier")),
    ],
)
def test_malformed_json_is_pointed_at(written: dict[str, Any], pointer: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidValue) as refusal:
        from_dp_event(written, ADD_REMOVE)
    assert refusal.value.pointer == pointer


def test_unknown_classes_and_bottomless_events_are_refused() -> None:
    with pytest.raises(Unsupported, match="does not know this class"):
        from_dp_event({"class_name": "QuantumDpEvent", "depth": 3}, ADD_REMOVE)
    deep = gaussian(1.0)
    for _ in range(100):
        deep = repeated(deep, 1)
    with pytest.raises(InvalidValue, match="levels"):
        from_dp_event(deep, ADD_REMOVE)


@pytest.mark.thorough
def test_the_factor_two_of_replace_one_is_named() -> None:
    event = gaussian(1.0)
    assert "noise_over_the_sensitivity" in codes(event, REPLACE, "rdp")
    assert "noise_over_the_sensitivity" not in codes(event, ADD_REMOVE, "rdp")
    assert "noise_over_the_sensitivity" not in codes(event, REPLACE, "pld")
    assert "noise_over_the_sensitivity" not in codes(event, REPLACE, "rdp", noise_over=NoiseOver.SENSITIVITY)
    truth = epsilon_for_delta(import_dp_event(event, REPLACE, "rdp").events, REPLACE, 1e-5).value.lower
    assert library_epsilon(event, REPLACE, 1e-5, "rdp") == pytest.approx(4.7285, abs=1e-3)
    assert library_epsilon(event, REPLACE, 1e-5, "pld") == pytest.approx(truth, abs=1e-3)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_integers_inside_a_sampled_composition_are_named() -> None:
    """The same event costs 2.9 where its multiplier is written 2, and 18 where it is written 2.0."""
    integer, real = (poisson(repeated(gaussian(noise), 100), 0.5) for noise in (2, 2.0))
    assert "integer_noise_multiplier" in codes(integer, ADD_REMOVE, "rdp")
    assert "integer_noise_multiplier" not in codes(real, ADD_REMOVE, "rdp")
    assert "integer_noise_multiplier" not in codes(poisson(gaussian(2), 0.5), ADD_REMOVE, "rdp")
    truth = epsilon_for_delta(from_dp_event(integer, ADD_REMOVE), ADD_REMOVE, 1e-5).value
    assert library_epsilon(integer, ADD_REMOVE, 1e-5, "rdp") < 0.2 * truth.lower
    assert library_epsilon(real, ADD_REMOVE, 1e-5, "rdp") > truth.upper
    assert from_dp_event(integer, ADD_REMOVE) == from_dp_event(real, ADD_REMOVE)


def test_repeated_randomized_response_is_named() -> None:
    event = repeated({"class_name": "RandomizedResponseDpEvent", "noise_parameter": 0.5, "num_buckets": 2}, 10)
    assert "repetitions_of_randomized_response" in codes(event, REPLACE, "pld")
    assert "repetitions_of_randomized_response" not in codes(event, REPLACE, "rdp")
    truth = epsilon_for_delta(from_dp_event(event, REPLACE), REPLACE, 1e-6).value
    assert library_epsilon(event, REPLACE, 1e-6, "pld") < 0.2 * truth.lower
    assert library_epsilon(event, REPLACE, 1e-6, "rdp") > truth.upper


def test_shuffled_training_is_named() -> None:
    event = repeated(poisson(gaussian(1.0), 0.01), 300)
    special = NeighboringRelation.REPLACE_SPECIAL
    found = import_dp_event(event, special, "pld", batches=Batches.SHUFFLED)
    assert found.events == (Event(Gaussian(1.0), ShuffledEpochs(100), 300),)
    assert found.differences[0].code == "shuffled_charged_as_poisson"
    assert (
        library_epsilon(event, special, 1e-5, "pld") < 0.2 * epsilon_for_delta(found.events, special, 1e-5).value.lower
    )


def test_shuffled_steps_of_several_kinds_are_refused() -> None:
    """A composition does not say in which order it was run."""
    event = {"class_name": "ComposedDpEvent", "events": [repeated(poisson(gaussian(s), 0.1), 10) for s in (1.0, 2.0)]}
    special = NeighboringRelation.REPLACE_SPECIAL
    with pytest.raises(Unsupported, match="in which order") as refusal:
        import_dp_event(event, special, "pld", batches=Batches.SHUFFLED)
    assert refusal.value.pointer == ("batches",)
    assert len(import_dp_event(event, special, "pld").events) == 2


def test_fixed_sizes_and_trees_are_named() -> None:
    fixed = {
        "class_name": "SampledWithoutReplacementDpEvent",
        "source_dataset_size": 1000,
        "sample_size": 10,
        "event": gaussian(2.0),
    }
    assert "fixed_size_bound" in codes(fixed, REPLACE, "rdp")
    tree = {"class_name": "SingleEpochTreeAggregationDpEvent", "noise_multiplier": 2.0, "step_counts": [5, 100]}
    special = NeighboringRelation.REPLACE_SPECIAL
    assert "nodes_of_a_tree" in codes(tree, special, "rdp")
    truth = epsilon_for_delta(from_dp_event(tree, special), special, 1e-5).value
    assert truth.upper < library_epsilon(tree, special, 1e-5, "rdp")
