"""Events over HTTP: every mechanism and every sampling scheme, there and back."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.events import (
    ApproximateDp,
    DisjointBatches,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RenyiDp,
    ShuffledEpochs,
    WithoutReplacement,
    ZcDp,
)
from app.wire.events import EventSchema
from tests.app.problem_assertions import assert_problem

EVENTS = [
    Event(Gaussian(1.1), Poisson(0.02), 5000),
    Event(Laplace(2.0), Poisson(0.5), 3),
    Event(PureDp(0.1)),
    Event(ApproximateDp(1.0, 1e-6), count=2),
    Event(ZcDp(0.25), count=7),
    Event(RenyiDp((1.5, 2.0, 64.0), (0.1, 0.1, 3.25))),
    Event(Gaussian(8.0), WithoutReplacement(1024, 50_000), 10_000),
    Event(Laplace(0.5), ShuffledEpochs(10_000), 25_000),
    Event(Gaussian(0.5), DisjointBatches("by_position"), 100),
    Event(Gaussian(0.5), DisjointBatches("independent"), 100),
]
FIXED = {"kind": "without_replacement", "batch_size": 10, "dataset_size": 1000}
SHUFFLED = {"kind": "shuffled_epochs", "steps_per_epoch": 10}
POSITION = {"kind": "disjoint_batches", "assignment": "by_position"}


def event(
    sampling: dict[str, Any] | None = None, mechanism: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    body: dict[str, Any] = {"mechanism": mechanism or {"kind": "gaussian", "noise_multiplier": 5.0}} | more
    return body | ({"sampling": sampling} if sampling else {})


def account(reader, *events, **question):
    return reader.post("/v1/account", json={"events": list(events)} | question)


@pytest.mark.parametrize("each", EVENTS)
def test_events_survive_the_contract(each: Event) -> None:
    written = EventSchema.of(each).model_dump_json()
    assert EventSchema.model_validate_json(written).to_event() == each


def test_fixed_size_batches_are_charged_less_where_a_record_becomes_null(reader):
    steps = event(FIXED, count=50)
    replace = account(reader, steps, delta=1e-5, neighboring_relation="replace_one").json()
    special = account(reader, steps, delta=1e-5, neighboring_relation="replace_special").json()
    assert 0.099457 <= replace["epsilon"]["upper"] <= 0.1068
    assert 0.0511 <= special["epsilon"]["lower"] <= special["epsilon"]["upper"] <= 0.05398
    assert special["convention"]["sensitivity"] == 1.0
    assert replace["convention"]["sensitivity"] == 2.0
    assert special["convention"]["sampling_probability"] == 0.01
    assert special["convention"]["neighboring_relation"] == "replace_special"


def test_shuffled_epochs_are_not_amplified(reader):
    steps = event(SHUFFLED, {"kind": "gaussian", "noise_multiplier": 0.5}, count=10)
    body = account(reader, steps, delta=1e-6, neighboring_relation="replace_special").json()
    assert 10.99 <= body["epsilon"]["upper"] <= 10.9972


@pytest.mark.parametrize("sampling", [FIXED, SHUFFLED, POSITION])
def test_what_moves_other_records_is_refused_where_it_stands(reader, sampling):
    answer = account(reader, event(), event(sampling, count=20), delta=1e-5, neighboring_relation="add_or_remove_one")
    problem = assert_problem(answer, 422, "unsupported_relation", "/events/1/sampling/kind")
    assert "replace_one" in problem["detail"]
    assert account(reader, event(sampling, count=20), delta=1e-5, neighboring_relation="replace_one").status_code == 200


@pytest.mark.parametrize("sampling", [FIXED, SHUFFLED, POSITION, {"kind": "poisson", "sampling_probability": 0.1}])
@pytest.mark.parametrize(
    "mechanism",
    [
        {"kind": "pure_dp", "epsilon": 0.1},
        {"kind": "zcdp", "rho": 0.1},
        {"kind": "approximate_dp", "epsilon": 0.1, "delta": 1e-6},
        {"kind": "renyi_dp", "orders": [2], "epsilons": [0.1]},
    ],
)
def test_stated_guarantees_are_not_amplified(reader, mechanism, sampling):
    answer = account(reader, event(sampling, mechanism), delta=1e-5, neighboring_relation="replace_one")
    assert_problem(answer, 422, "unsupported_sampling", "/events/0/sampling/kind")
    assert account(reader, event(None, mechanism), delta=1e-5).status_code == 200


def test_a_stated_delta_leaves_less_for_the_rest(reader):
    stated = {"kind": "approximate_dp", "epsilon": 1.0, "delta": 1e-6}
    assert account(reader, event(None, stated), delta=1e-6).json()["epsilon"]["upper"] == pytest.approx(1.0)
    body = account(reader, event(None, stated, count=3), delta=1e-6).json()
    assert body["epsilon"]["upper"] is None
    assert "fails outright" in body["warnings"][0]
    assert account(reader, event(None, stated, count=3), epsilon=3.0).json()["delta"]["upper"] == pytest.approx(
        3e-6, rel=1e-3
    )


@pytest.mark.parametrize(
    ("part", "body", "pointer", "code"),
    [
        ("sampling", {**FIXED, "batch_size": 1001}, "/events/0/sampling/batch_size", "invalid_value"),
        ("sampling", {**FIXED, "batch_size": 0}, "/events/0/sampling", "invalid_request"),
        ("sampling", {**FIXED, "batch_size": 2.5}, "/events/0/sampling", "invalid_request"),
        ("sampling", {**FIXED, "dataset_size": 10**13 + 1}, "/events/0/sampling", "invalid_request"),
        ("sampling", {**SHUFFLED, "steps_per_epoch": 0}, "/events/0/sampling", "invalid_request"),
        ("sampling", {**POSITION, "assignment": "random"}, "/events/0/sampling", "invalid_request"),
        ("sampling", {"kind": "disjoint_batches"}, "/events/0/sampling", "invalid_request"),
        (
            "mechanism",
            {"kind": "renyi_dp", "orders": [3, 2], "epsilons": [1, 1]},
            "/events/0/mechanism/orders",
            "invalid_value",
        ),
        (
            "mechanism",
            {"kind": "renyi_dp", "orders": [2, 3], "epsilons": [1]},
            "/events/0/mechanism/epsilons",
            "invalid_value",
        ),
        ("mechanism", {"kind": "renyi_dp", "orders": [1], "epsilons": [1]}, "/events/0/mechanism", "invalid_request"),
        ("mechanism", {"kind": "renyi_dp", "orders": [], "epsilons": []}, "/events/0/mechanism", "invalid_request"),
        (
            "mechanism",
            {"kind": "renyi_dp", "orders": list(range(2, 67)), "epsilons": [1] * 65},
            "/events/0/mechanism",
            "invalid_request",
        ),
        (
            "mechanism",
            {"kind": "approximate_dp", "epsilon": 1, "delta": 1.5},
            "/events/0/mechanism",
            "invalid_request",
        ),
    ],
)
def test_a_malformed_part_is_pointed_at(reader, part, body, pointer, code):
    bad = event(body) if part == "sampling" else event(None, body)
    problem = assert_problem(account(reader, bad, delta=1e-5, neighboring_relation="replace_one"), 422, code)
    assert problem["errors"][0]["pointer"].startswith(pointer), problem
