"""`POST /v1/advise`: what it recommends calibrates as it says, and faults are pointed at."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from app.algorithms.advice import ADVISE_EXAMPLES
from calibrators.registry import ALGORITHMS


def example(name: str, **changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = copy.deepcopy(ADVISE_EXAMPLES[name]["value"])
    return body | changes


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ADVISE_EXAMPLES)
def test_every_example_runs_as_it_stands_and_what_it_recommends_calibrates(reader, name):
    answer = reader.post("/v1/advise", json=example(name))
    assert answer.status_code == 200, answer.text
    body = answer.json()
    ranked = [item for group in body["measures"] for item in group["ranked"]]
    assert ranked
    assert sorted([item["algorithm"] for item in (*ranked, *body["others"])]) == sorted(ALGORITHMS)
    for item in ranked:
        calibrated = reader.post("/v1/calibrate", json=item["request"])
        assert calibrated.status_code == 200, calibrated.text
        assert calibrated.json()["plan_hash"] == item["plan_hash"]
        assert calibrated.json()["noise"] == item["noise"]
        assert item["bound"] is not None or item["reasons"]
        assert item["why"].endswith(".")
    assert all(item["reasons"] for item in body["others"])


@pytest.mark.parametrize("relation", [None, "replace_one", "replace_special"])
def test_sizes_that_nobody_gives_are_in_the_request_that_it_answers_with(reader, relation):
    asked = example("network", batch_size=None, iterations=None, gradient_bound=None, neighboring_relation=relation)
    ranked = [item for group in reader.post("/v1/advise", json=asked).json()["measures"] for item in group["ranked"]]
    assert {"dp_sgd", "dp_nsgd", "dp_adam"} <= {item["algorithm"] for item in ranked}
    for item in ranked:
        calibrated = reader.post("/v1/calibrate", json=item["request"])
        assert calibrated.status_code == 200, calibrated.text
        assert calibrated.json()["plan_hash"] == item["plan_hash"], item["algorithm"]


def test_a_loader_that_cannot_sample_is_told_what_loses_less(reader):
    body = reader.post("/v1/advise", json=example("loader")).json()
    batches = body["batches"]
    assert batches["loader"] == "fixed_order"
    assert "Your loader cannot sample by Poisson" in batches["detail"]
    possible = [row["algorithm"] for row in batches["ranked"] if row["is_possible"]]
    assert possible == ["dp_bandmf", "dp_sgd"], "the least error first"
    ranked = {item["algorithm"]: item for group in body["measures"] for item in group["ranked"]}
    assert ranked["dp_bandmf"]["request"]["sampling"] == "fixed_order_epochs"
    assert ranked["dp_sgd"]["request"]["sampling"] == "shuffled_epochs"
    assert "batches" not in reader.post("/v1/advise", json=example("network")).json()
    both = example("loader", neighboring_relation="add_or_remove_one")
    refused = reader.post("/v1/advise", json=both).json()
    assert "batches" not in refused, "no order is accounted under it"
    assert "/loader" in {
        reason["pointer"]
        for item in reader.post("/v1/advise", json=example("loader", loader="shuffled")).json()["others"]
        for reason in item["reasons"]
    }


def test_bounds_stand_above_rates(reader):
    groups = reader.post("/v1/advise", json=example("convex")).json()["measures"]
    for group in groups:
        standing = [
            3
            if item["bound"] is None and item["rate"] is None
            else 2
            if item["bound"] is None
            else item["bound"]["vacuous"]
            for item in group["ranked"]
        ]
        assert standing == sorted(standing)
        sound = [item["bound"]["value"] for item in group["ranked"] if item["bound"] and not item["bound"]["vacuous"]]
        assert sound == sorted(sound)
    assert groups[0]["measure"] == "excess_population_risk"
    assert groups[0]["ranked"][0]["bound"]["value"] > 0


def test_the_reason_says_where_in_the_request_it_lies(reader):
    body = reader.post("/v1/advise", json=example("convex", assumptions={})).json()
    pointers = {reason["pointer"] for item in body["others"] for reason in item["reasons"]}
    assert "/gradient_bound" in pointers


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"problem": {"shape": "flat"}}, "/problem/shape"),
        ({"problem": {"shape": "convex", "norm_order": 3}}, "/problem/norm_order"),
        ({"dimension": 0}, "/dimension"),
        ({"dataset_size": True}, "/dataset_size"),
        ({"target": {"kind": "approximate_dp", "epsilon": 1}}, "/target/delta"),
        ({"surprise": 1}, "/surprise"),
        ({"loader": "backwards"}, "/loader"),
        ({"assumptions": {"lipschits": 1}}, "/assumptions/lipschits"),
    ],
)
def test_faults_are_pointed_at(reader, changes, pointer):
    answer = reader.post("/v1/advise", json=example("convex", **changes))
    problem = answer.json()
    assert answer.status_code == 422
    assert pointer in {error["pointer"] for error in problem["errors"]}


def test_a_private_network_has_no_theorem_and_says_so(reader):
    body = reader.post("/v1/advise", json=example("network")).json()
    [without] = [group for group in body["measures"] if group["measure"] is None]
    assert {"dp_adam"} <= {item["algorithm"] for item in without["ranked"]}
    assert all(item["bound"] is None and item["rate"] is None for item in without["ranked"])
