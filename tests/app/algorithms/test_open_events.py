"""`POST /v1/calibrate/events`: one field of a plain list of events, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from app.algorithms.open_events import EVENTS_EXAMPLES
from tests.app.problem_assertions import assert_problem

STEPS: dict[str, Any] = {
    "mechanism": {"kind": "gaussian"},
    "sampling": {"kind": "poisson", "sampling_probability": 0.02},
    "count": 100,
}
BODY: dict[str, Any] = {"events": [STEPS], "target": {"kind": "approximate_dp", "epsilon": 1.0, "delta": 1e-5}}


def ask(reader, **changes):
    return reader.post("/v1/calibrate/events", json=BODY | changes)


@pytest.mark.parametrize("name", EVENTS_EXAMPLES)
def test_examples_are_solved_and_account_agrees(reader, name):
    answer = reader.post("/v1/calibrate/events", json=EVENTS_EXAMPLES[name]["value"])
    assert answer.status_code == 200, answer.text
    body, target = answer.json(), EVENTS_EXAMPLES[name]["value"]["target"]
    assert body["achieved"]["epsilon"]["upper"] <= target["epsilon"]
    assert body["is_extreme"] is True
    assert (body["next"] is None) == (body["solve_for"] == "noise_multiplier")
    again = reader.post("/v1/account", json={"events": body["events"], "delta": target["delta"]}).json()
    assert again["epsilon"]["upper"] == body["achieved"]["epsilon"]["upper"]


def test_the_relation_is_that_of_accounting_where_it_is_left_out(reader):
    body = ask(reader).json()
    assert body["convention"]["neighboring_relation"] == "add_or_remove_one"
    assert body == ask(reader, neighboring_relation="add_or_remove_one").json()
    assert body["value"] < ask(reader, neighboring_relation="replace_one").json()["value"]


def test_other_targets_and_unknowns(reader):
    full = {"mechanism": {"kind": "gaussian", "noise_multiplier": 10.0}}
    steps = ask(reader, events=[full], solve_for="count", target={"kind": "gaussian_dp", "mu": 1.0}).json()
    assert (steps["value"], steps["next"]["value"], steps["achieved"]["mu"]) == (100, 101, 1.0)
    noise = ask(reader, events=[{"mechanism": {"kind": "gaussian"}}], target={"kind": "zcdp", "rho": 0.5}).json()
    assert noise["value"] == pytest.approx(1.0)


def test_what_is_weak_is_said(reader):
    cut = {
        "mechanism": {"kind": "gaussian"},
        "sampling": {
            "kind": "truncated_poisson",
            "sampling_probability": 0.1,
            "max_batch_size": 120,
            "dataset_size": 1000,
            "truncation": "random",
        },
    }
    target = {"kind": "approximate_dp", "epsilon": 25.0, "delta": 0.001}
    warnings = ask(reader, events=[cut], target=target).json()["warnings"]
    assert any("above 20" in each for each in warnings)
    assert any("at least 1/n" in each for each in warnings)


def test_what_is_refused_is_pointed_at(reader):
    whole = STEPS | {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}}
    assert_problem(ask(reader, events=[whole]), 422, "missing", "/events")
    wrong = STEPS | {"count": 0}
    assert_problem(ask(reader, events=[STEPS, wrong]), 422, "invalid_request", "/events/1/count")
    shuffled = STEPS | {"sampling": {"kind": "shuffled_epochs", "steps_per_epoch": 10}}
    assert_problem(ask(reader, events=[shuffled]), 422, "unsupported_relation", None)
    stated = {"mechanism": {"kind": "pure_dp", "epsilon": 2.0}}
    assert_problem(ask(reader, events=[STEPS, stated]), 422, "unreachable_target", "/target")
