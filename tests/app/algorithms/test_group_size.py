"""Targets for all records of one owner, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.problem_assertions import assert_problem

TARGET: dict[str, Any] = {"kind": "approximate_dp", "epsilon": 4.0, "delta": 1e-5, "group_size": 4}
BODY: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 10_000,
    "batch_size": 100,
    "iterations": 100,
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": TARGET,
}


def test_the_noise_is_what_accounting_says_of_a_group(reader):
    body = reader.post("/v1/calibrate", json=BODY).json()
    achieved = body["achieved"]
    assert achieved["group_size"] == 4
    again = reader.post("/v1/account", json={"events": body["events"], "delta": 1e-5, "group_size": 4}).json()
    assert again["epsilon"]["upper"] == achieved["epsilon"]["upper"] <= 4.0
    single = reader.post("/v1/account", json={"events": body["events"], "delta": 1e-5}).json()
    assert single["epsilon"]["upper"] < 1.0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampling", "relation"),
    [
        ("full_batch", "replace_one"),
        ("poisson", "replace_special"),
        ("truncated_poisson", "add_or_remove_one"),
        ("truncated_poisson", "replace_special"),
        ("truncated_poisson", "replace_one"),
        ("without_replacement", "replace_one"),
        ("random_allocation", "add_or_remove_one"),
        ("blocks", "replace_special"),
        ("shuffled_epochs", "replace_one"),
        ("disjoint_batches", "add_or_remove_one"),
        ("disjoint_batches", "replace_one"),
    ],
)
def test_every_scheme_is_calibrated_for_a_group_and_costs_it_what_is_said(reader, sampling, relation):
    """Two records of an owner cost more than one, and no more than the target: on a small data set, in a few steps."""
    kind = {"kind": sampling, "max_batch_size": 60} if sampling == "truncated_poisson" else sampling
    sizes = {"batch_size": 500 if sampling == "full_batch" else 50, "dataset_size": 500, "iterations": 10}
    asked = BODY | sizes | {"sampling": kind, "neighboring_relation": relation, "target": TARGET | {"group_size": 2}}
    answer = reader.post("/v1/calibrate", json=asked)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    question = {"events": body["events"], "delta": 1e-5, "neighboring_relation": relation}
    again = reader.post("/v1/account", json=question | {"group_size": 2}).json()["epsilon"]
    assert again["upper"] == body["achieved"]["epsilon"]["upper"]
    assert 3.99 < again["upper"] <= 4.0
    alone = reader.post("/v1/account", json=question).json()["epsilon"]
    assert alone["upper"] < again["upper"]


def test_a_plain_list_is_solved_for_a_group(reader):
    steps = {"mechanism": {"kind": "gaussian"}, "count": 10}
    body = reader.post("/v1/calibrate/events", json={"events": [steps], "target": TARGET}).json()
    assert body["achieved"]["epsilon"]["upper"] <= 4.0
    alone = reader.post("/v1/calibrate/events", json={"events": [steps], "target": TARGET | {"group_size": 1}}).json()
    assert body["value"] == pytest.approx(4 * alone["value"], rel=1e-6), "a group of four moves a sum four times as far"
    assert "group_size" not in alone["achieved"]


def test_an_epsilon_that_promises_groups_next_to_nothing_is_warned_of(reader):
    whole = {key: value for key, value in BODY.items() if key != "batch_size"} | {"sampling": "full_batch"}
    for epsilon, is_warned in ((40.0, True), (4.0, False)):
        answer = reader.post("/v1/calibrate", json=whole | {"target": TARGET | {"epsilon": epsilon}}).json()
        assert any("promises almost nothing" in warning for warning in answer["warnings"]) == is_warned


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"target": TARGET | {"group_size": 0}}, "invalid_request"),
        ({"target": TARGET | {"group_size": 1001}}, "invalid_request"),
        (
            {
                "target": {"kind": "approximate_dp", "delta": 1e-5, "group_size": 4},
                "solve_for": "epsilon",
                "noise_multiplier": 2.0,
            },
            "unsupported",
        ),
    ],
)
def test_what_is_refused(reader, changes, code):
    assert_problem(reader.post("/v1/calibrate", json=BODY | changes), 422, code, "/target/group_size")


def test_an_algorithm_whose_theorem_is_for_single_records_refuses_groups(reader):
    """Its noise is not that of a list of Gaussian steps, which is all that is known of groups."""
    example = next(
        each["value"]
        for each in reader.get("/openapi.json")
        .json()["paths"]["/v1/calibrate"]["post"]["requestBody"]["content"]["application/json"]["examples"]
        .values()
        if each["value"]["algorithm"] == "dp_sgd_output"
    )
    answer = reader.post("/v1/calibrate", json=example | {"target": TARGET})
    assert answer.status_code == 422, answer.text
    assert "approximate_dp" in answer.json()["errors"][0]["detail"]
