"""`POST /v1/advise`: what it recommends calibrates as it says, and faults are pointed at."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from app.algorithms import advice, simulation
from app.algorithms.advice import ADVISE_EXAMPLES, AdviseRequest
from app.kit.process_pool import ProcessPool
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
    assert "Your loader cannot draw Poisson batches" in batches["detail"]
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
        ({"algorithms": ["dp_sgd", "dp_sdg"]}, "/algorithms/1"),
        ({"simulation": {"model": "mlp"}}, "/simulation/model"),
        ({"simulation": {"model": "mean"}}, "/simulation/model"),
        ({"simulation": {"repetitions": 100}}, "/simulation/repetitions"),
        ({"simulation": {}, "dimension": 50_000}, "/dimension"),
        ({"simulation": {"model": "mlp"}, "problem": {"shape": "nonconvex"}, "dimension": 100}, "/dimension"),
        ({"simulation": {"penalty": {"kind": "l2", "strength": 0}}}, "/simulation/penalty/strength"),
        ({"simulation": {"fit_intercept": True}, "assumptions": {"lipschitz": 0.5}}, "/assumptions"),
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


SMALL = {
    "dataset_size": 2000,
    "dimension": 6,
    "problem": {"shape": "convex"},
    "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
    "assumptions": {"lipschitz": 1, "smoothness": 0.5, "radius": 2, "diameter": 4, "initial_gap": 1},
    "algorithms": ["dp_adam", "clipped_acsa", "dp_fw"],
}


def test_a_simulation_ranks_what_was_attained_and_says_that_it_is_one(reader):
    body = SMALL | {"simulation": {"repetitions": 2}}
    answer = reader.post("/v1/advise", json=body).json()
    simulation = answer["simulation"]
    assert simulation["label"].startswith("A simulation is not a bound.")
    assert {item["algorithm"] for item in simulation["ranked"]} == {"dp_adam", "clipped_acsa"}
    assert [item["algorithm"] for item in answer["others"]] == ["dp_fw"], "of these alone"
    excesses = [item["excess"] for item in simulation["ranked"]]
    assert excesses == sorted(excesses)
    assert simulation["dataset_size"] == 2000
    assert simulation["is_complete"]
    adam = next(item for item in simulation["ranked"] if item["algorithm"] == "dp_adam")
    assert "hyperparameters.step_size" in adam["choices"], "what a run that names it alone would take"
    assert f"{adam['excess']:.3g}" in adam["why"]
    assert reader.post("/v1/advise", json=body | {"simulation": {"repetitions": 2, "seed": 0}}).json() == answer
    assert "simulation" not in reader.post("/v1/advise", json=SMALL).json()


def test_a_simulation_carries_penalty_and_intercept_and_says_so(reader):
    constants = {"lipschitz": 2, "smoothness": 1, "radius": 2, "diameter": 4, "strong_convexity": 0.1}
    body = SMALL | {
        "problem": {"shape": "strongly_convex"},
        "assumptions": constants | {"initial_gap": 1},
        "algorithms": ["dp_sgd", "dp_accmd", "clipped_acsa"],
        "simulation": {"fit_intercept": True, "penalty": {"kind": "l2", "strength": 0.05}, "repetitions": 1},
    }
    found = reader.post("/v1/advise", json=body).json()["simulation"]
    assert {item["algorithm"] for item in found["ranked"]} == {"dp_sgd", "clipped_acsa"}
    [refused] = found["others"]
    assert refused["algorithm"] == "dp_accmd"
    assert refused["reasons"][0]["pointer"] == "/simulation/penalty"
    assert found["fit_intercept"] is True
    assert found["penalty"] == {"kind": "l2", "strength": 0.05}
    details = " ".join(found["details"])
    assert "a constant feature 1" in details
    assert "the l2 penalty of strength 0.05" in details
    assert "0.05 strongly convex, but the problem says 0.1" in details
    body["simulation"] |= {"penalty": {"kind": "l2", "strength": 0.1}}
    assert "strongly convex" not in " ".join(reader.post("/v1/advise", json=body).json()["simulation"]["details"])
    plain = reader.post("/v1/advise", json=body | {"simulation": {"repetitions": 1}}).json()["simulation"]
    assert plain["penalty"] is None
    assert "The simulated objective is not strongly convex" in " ".join(plain["details"])


def test_a_perceptron_is_simulated(reader):
    body = SMALL | {"problem": {"shape": "nonconvex"}, "dimension": 4 * 3 + 4 + 5 * 2, "assumptions": {}}
    body |= {"algorithms": ["dp_sgd"], "simulation": {"model": "mlp", "hidden": [4], "repetitions": 1}}
    found = reader.post("/v1/advise", json=body).json()["simulation"]
    assert found["model"] == "mlp"
    assert [item["algorithm"] for item in found["ranked"]] == ["dp_sgd"]
    assert "another perceptron" in found["details"][0]


def test_more_steps_than_a_plan_may_have_are_told_at_the_field_and_given_ones_help(reader):
    body = SMALL | {"dataset_size": 50_000, "problem": {"shape": "convex", "smooth": False}}
    body |= {"assumptions": {"lipschitz": 1, "radius": 2, "failure_probability": 0.05}}
    body |= {"algorithms": ["dp_sgd_gradient"], "simulation": {"model": "quantile_regression", "repetitions": 1}}
    [refused] = reader.post("/v1/advise", json=body).json()["others"]
    assert refused["reasons"][0]["pointer"] == "/iterations"
    assert "chooses 2.5e+09 steps" in refused["reasons"][0]["detail"]
    found = reader.post("/v1/advise", json=body | {"iterations": 200}).json()
    [item] = found["simulation"]["ranked"]
    assert item["iterations"] == found["measures"][0]["ranked"][0]["iterations"] == 200


def test_a_simulation_whose_time_is_over_says_so_and_is_not_remembered(context):
    body = AdviseRequest.model_validate(SMALL | {"simulation": {"repetitions": 1}})
    pool = ProcessPool(size=1, seconds=30.0, memory_bytes=2**31)
    hasty = replace(context, audit_processes=pool)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(simulation, "MOST_SECONDS", 0.0)
            found = advice.answer(hasty, body)
    finally:
        pool.close()
    assert found.simulation is not None
    assert not found.simulation.is_complete
    assert not advice.is_complete(found)
    assert found.simulation.ranked == []
    assert {each.algorithm for each in found.simulation.others} == {"dp_adam", "clipped_acsa"}


def test_the_mean_has_its_own_algorithms(reader):
    body = reader.post("/v1/advise", json=example("mean", simulation=None)).json()
    ranked = {group["measure"]: [item["algorithm"] for item in group["ranked"]] for group in body["measures"]}
    assert set(ranked["mean_squared_error"]) == {"clipped_mean", "shuffle_vector_mean"}
    assert set(ranked["mean_error"]) == {"coordinatewise_mean", "shuffle_coordinatewise_mean"}
    assert set(ranked) == {"mean_squared_error", "mean_error"}
    assert all("minimising a loss" in item["reasons"][0]["detail"] for item in body["others"])


def test_every_algorithm_of_the_mean_is_simulated(reader):
    body = example("mean")
    body["simulation"] |= {"repetitions": 1}
    found = reader.post("/v1/advise", json=body).json()["simulation"]
    assert found["model"] == "mean"
    assert {item["algorithm"] for item in found["ranked"]} >= {"clipped_mean", "coordinatewise_mean"}
    assert found["ranked"][0]["excess"] < found["before_training"]
