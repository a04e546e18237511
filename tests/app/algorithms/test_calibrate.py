"""`POST /v1/calibrate` and `GET /v1/algorithms`: the contract's answer, and a pointer for every fault."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from app.algorithms.examples import CALIBRATE_EXAMPLES
from calibrators.plan import plan_from_canonical
from calibrators.registry import ALGORITHMS
from tests.app.problem_assertions import assert_problem

#: Full batches are solved in closed form, so each request takes a millisecond.
REQUEST: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "dimension": 100,
    "iterations": 100,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 2.0},
    "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
}
ASSUMPTIONS = {"initial_gap": 2, "generalized_smoothness_l0": 1, "deviation_tau0": 0.3}


def calibrate(reader: TestClient, **changes: Any) -> Any:
    body = {key: value for key, value in (REQUEST | changes).items() if value is not ...}
    return reader.post("/v1/calibrate", json=body)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CALIBRATE_EXAMPLES)
def test_every_example_runs_as_it_stands_and_meets_its_target(reader, name):
    request = CALIBRATE_EXAMPLES[name]["value"]
    answer = reader.post("/v1/calibrate", json=request)
    assert answer.status_code == 200, answer.text
    body, target = answer.json(), request["target"]
    solved = request.get("solve_for", "noise_multiplier")
    [(name, value)] = [item for item in body["solution"].items() if item[0] not in ("epochs", "sampling_probability")]
    assert name == solved or (name == "noise_scale" and body["noise"]["noise_scale"])
    assert min(value if isinstance(value, list) else [value]) > 0
    for field in sorted({"epsilon", "delta", "rho", "mu", "advantage", "tpr", "fpr"} & set(target)):
        achieved = body["achieved"][field]
        upper = achieved["upper"] if isinstance(achieved, dict) else achieved
        assert upper <= target[field]
    assert (body["next"] is not None) == (solved in ("iterations", "batch_size"))


def test_the_answer_carries_noise_convention_provenance_and_plan(reader):
    body = calibrate(reader, assumptions=ASSUMPTIONS).json()
    noise_multiplier = body["solution"]["noise_multiplier"]
    assert body["noise"] == {
        "stddev_on_sum": 2.0 * noise_multiplier,
        "stddev_on_mean": 2.0 * noise_multiplier / 1000,
        "l2_sensitivity": 2.0,
        "noise_scale": None,
    }
    interval = body["achieved"]["epsilon"]
    assert interval["lower"] <= interval["estimate"] <= interval["upper"] <= 2.0
    assert body["convention"]["sensitivity"] == 1.0
    assert body["events"] == [phase["event"] for phase in body["plan"]["phases"]]
    assert body["missing_assumptions"] == []
    for number in (*body["hyperparameters"], *body["utility"]):
        assert number["kind"] in ("exact", "derived", "order")
        assert number["source"]
        assert number["formula"]


def test_the_plan_that_is_shown_has_the_hash_that_is_shown(reader):
    from accounting.canonical import canonical_bytes

    body = calibrate(reader, assumptions=ASSUMPTIONS).json()
    plan = plan_from_canonical(canonical_bytes(body["plan"]), body["plan_hash"])
    assert plan.iterations == 100


def test_replace_one_doubles_the_sensitivity_and_never_the_multipliers_meaning(reader):
    one, other = (
        calibrate(reader, neighboring_relation=relation).json() for relation in ("add_or_remove_one", "replace_one")
    )
    assert other["solution"]["noise_multiplier"] == pytest.approx(2 * one["solution"]["noise_multiplier"], rel=1e-6)
    assert other["noise"]["l2_sensitivity"] == 2 * one["noise"]["l2_sensitivity"]
    assert other["convention"]["noise_multiplier_is"] == one["convention"]["noise_multiplier_is"]


def test_epochs_stand_for_iterations(reader):
    by_epochs = calibrate(reader, iterations=..., epochs=100, batch_size=1000)
    assert by_epochs.json()["plan_hash"] == calibrate(reader).json()["plan_hash"]


def test_integral_floats_are_integers_and_the_kind_may_stand_alone(reader):
    same = calibrate(reader, dataset_size=1000.0, iterations=1e2, sampling={"kind": "full_batch"})
    assert same.json()["plan_hash"] == calibrate(reader).json()["plan_hash"]


def test_without_assumptions_the_noise_is_solved_and_the_step_size_is_open(reader):
    body = calibrate(reader, dimension=...).json()
    assert body["hyperparameters"] == []
    assert body["plan"]["phases"][0]["step_size"] is None
    assert "initial_gap" in body["missing_assumptions"]


STAGE = {"iterations": 5, "batch_size": 1001}


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"algorithm": "adam"}, "unknown_algorithm", "/algorithm"),
        ({"sampling": "with_replacement"}, "unsupported_sampling", "/sampling"),
        ({"sampling": "truncated_poisson"}, "missing", "/sampling/max_batch_size"),
        ({"sampling": {"kind": "poisson", "max_batch_size": 9}}, "invalid_value", "/sampling/max_batch_size"),
        ({"sampling": "disjoint_batches", "batch_size": 100}, "invalid_value", "/iterations"),
        ({"schedule": {"stages": [STAGE]}}, "overdetermined", "/iterations"),
        ({"schedule": {"stages": [STAGE]}, "iterations": ..., "epochs": 3}, "overdetermined", "/epochs"),
        (
            {"schedule": {"stages": [STAGE | {"batch_size": 1000}, STAGE]}, "iterations": ...},
            "invalid_value",
            "/schedule/stages/1/batch_size",
        ),
        ({"gradient_bound": {"kind": "normalize", "regularizer": 1}}, "unsupported_gradient_bound", None),
        ({"batch_size": 10}, "invalid_value", "/batch_size"),
        ({"batch_size": 1001}, "invalid_value", "/batch_size"),
        ({"sampling": "poisson"}, "missing", "/batch_size"),
        ({"iterations": ...}, "missing", "/iterations"),
        ({"epochs": 3}, "overdetermined", "/epochs"),
        ({"noise_multiplier": 1.0}, "overdetermined", "/noise_multiplier"),
        ({"assumptions": {"lipschitz": 1}}, "unknown_assumption", "/assumptions/lipschitz"),
        ({"assumptions": ASSUMPTIONS | {"initial_gap": 0}}, "invalid_value", "/assumptions/initial_gap"),
        ({"assumptions": ASSUMPTIONS | {"deviation_tau0": 5}}, "clip_below_theorem", "/gradient_bound/max_grad_norm"),
    ],
)
def test_a_fault_is_pointed_at(reader, changes, code, pointer):
    assert_problem(calibrate(reader, **changes), 422, code, pointer)


def test_an_unsupported_sampling_names_those_that_are(reader):
    detail = calibrate(reader, sampling="with_replacement").json()["detail"]
    assert "full_batch" in detail
    assert "poisson" in detail


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"dataset_size": True}, "/dataset_size"),
        ({"dataset_size": "1000"}, "/dataset_size"),
        ({"dataset_size": 10.5}, "/dataset_size"),
        ({"dataset_size": 10**13 + 1}, "/dataset_size"),
        ({"sampling": {"kind": "truncated_poisson", "max_batch_size": 0}}, "/sampling/max_batch_size"),
        ({"iterations": 0}, "/iterations"),
        ({"iterations": 10**8 + 1}, "/iterations"),
        ({"target": {"kind": "approximate_dp", "epsilon": 0, "delta": 1e-5}}, "/target/epsilon"),
        ({"target": {"kind": "approximate_dp", "epsilon": 1, "delta": 0.6}}, "/target/delta"),
        ({"gradient_bound": {"kind": "clip", "max_grad_norm": 0}}, "/gradient_bound/max_grad_norm"),
        ({"noise_multiplier": 0}, "/noise_multiplier"),
        ({"noise_multiplier": 1e7}, "/noise_multiplier"),
        ({"solve_for": "step_size"}, "/solve_for"),
        ({"target": {"kind": "renyi_dp", "orders": [2]}}, "/target"),
        ({"target": {"kind": "zcdp"}}, "/target/rho"),
        ({"target": {"kind": "zcdp", "rho": 0}}, "/target/rho"),
        ({"target": {"kind": "gaussian_dp", "mu": 1e4}}, "/target/mu"),
        ({"target": {"kind": "attack_risk", "advantage": 1}}, "/target/advantage"),
        ({"target": {"kind": "attack_risk", "fpr": 0, "tpr": 0.5}}, "/target/fpr"),
        ({"target": {"kind": "attack_risk", "fpr": 0.1, "tpr": 1}}, "/target/tpr"),
        ({"target": {"kind": "budget"}}, "/target/budget_id"),
        ({"target": {"kind": "budget", "budget_id": 7}}, "/target/budget_id"),
        ({"target": {"kind": "budget", "budget_id": "bud_1", "charge": {"delta": 0}}}, "/target/charge/delta"),
        ({"neighboring_relation": "swap"}, "/neighboring_relation"),
    ],
)
def test_what_is_malformed_is_pointed_at(reader, changes, pointer):
    problem = assert_problem(calibrate(reader, **changes), 422, "invalid_request")
    assert any(item["pointer"].startswith(pointer) for item in problem["errors"]), problem


def test_an_unreachable_target_says_so(reader):
    target = {"kind": "approximate_dp", "epsilon": 1e-6, "delta": 1e-30}
    assert_problem(calibrate(reader, target=target, iterations=10**8), 422, "unreachable_target", "/target")


def test_the_algorithms_are_listed_with_what_is_wrong_in_their_papers(reader):
    items = reader.get("/v1/algorithms").json()["items"]
    assert [item["name"] for item in items] == list(ALGORITHMS)
    for item in items:
        assert item["errata"]
        without_theorem = ("dp_adam", "dp_bandmf", "dp_nadam")
        assert item["assumptions"] or item["name"] in without_theorem, "no theorem speaks of what it attains"
        assert item["verdict"]
        assert item["models"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_algorithm_has_its_input_schema(reader, name):
    body = reader.get(f"/v1/algorithms/{name}").json()
    assert body["inputs"]["properties"]["target"]
    assert_problem(reader.get("/v1/algorithms/adam"), 404, "not_found")


_FAR = {
    "algorithm": "dp_gd",
    "dataset_size": 100,
    "dimension": 5,
    "iterations": 10,
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "gaussian_dp", "mu": 10.0},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"iterations": ..., "assumptions": {"smoothness": 1e-200, "initial_gap": 3.4e29}},
        {"iterations": ..., "assumptions": {"smoothness": 1e30, "initial_gap": 1e30, "pl_constant": 1e-300}},
        {
            "algorithm": "dp_sgd",
            "sampling": "full_batch",
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1e-200},
            "assumptions": {"initial_gap": 1e30, "generalized_smoothness_l0": 0.1, "deviation_tau0": 0.0},
        },
    ],
)
def test_constants_beyond_floating_point_are_refused_with_a_pointer(reader, changes):
    body = {key: value for key, value in (_FAR | changes).items() if value is not ...}
    assert_problem(reader.post("/v1/calibrate", json=body), 422, "invalid_value", "/assumptions")


def test_a_bound_without_a_finite_value_is_null(reader):
    assumptions = {"smoothness": 1e30, "initial_gap": 5e29}
    body = _FAR | {"assumptions": assumptions, "hyperparameters": {"step_size": 1e-300}}
    answer = reader.post("/v1/calibrate", json=body)
    assert answer.status_code == 200, answer.text
    bounds = {item["name"]: item for item in answer.json()["utility"]}
    assert bounds["gradient_norm_bound"]["value"] is None
    assert any("no finite value" in sentence for sentence in bounds["gradient_norm_bound"]["assumptions"])


def test_a_calibration_that_takes_too_long_is_given_up_and_says_what_would_be_quicker(reader, monkeypatch):
    monkeypatch.setattr(reader.app.state.context.processes, "seconds", 0.2)
    body = {
        "algorithm": "dp_nsgd",
        "dataset_size": 1000000,
        "batch_size": 1,
        "iterations": 3,
        "gradient_bound": {"kind": "normalize", "regularizer": 0.5},
        "target": {"kind": "approximate_dp", "epsilon": 1e6, "delta": 1e-18},
    }
    problem = assert_problem(reader.post("/v1/calibrate", json=body), 422, "too_much_work", "/sampling")
    assert "longer than 0.2 s" in problem["detail"]
    assert "fewer steps are quicker" in problem["detail"]  # its batches are Poisson samples already
