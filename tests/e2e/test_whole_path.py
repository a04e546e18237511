"""From a clean database to a private model, over HTTP, against a real server process with its worker process."""

from __future__ import annotations

import secrets
import statistics
from typing import Any

import numpy as np
import pytest

from tests.app.problem_assertions import assert_problem
from tests.e2e import breast_cancer
from tests.e2e.server import Api, serving

BUDGET = {
    "name": "breast cancer",
    "neighboring_relation": "add_or_remove_one",
    "filter": {"kind": "renyi_dp", "epsilon": 1.6, "delta": 1e-5},
}
CHOICE: dict[str, Any] = {
    "algorithm": "dp_nsgd",
    "batch_size": 64,
    "iterations": 300,
    "sampling": "poisson",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "normalize", "regularizer": 0.1},
    "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
    "hyperparameters": {"step_size": 0.4},
}
RUNS = 5


def upload(api: Api, rows: breast_cancer.Rows, name: str, **more: Any) -> dict[str, Any]:
    answer = api.client.post(
        "/v1/datasets",
        files={"file": (f"{name}.csv", breast_cancer.to_csv(rows), "text/csv")},
        data={"metadata": breast_cancer.metadata(name, len(rows[1]), **more)},
        headers={"Idempotency-Key": secrets.token_hex(8)},
    )
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def create_budget(api: Api, **changes: Any) -> dict[str, Any]:
    answer = api.post("/v1/budgets", BUDGET | changes)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def run_request(dataset: dict[str, Any], test: dict[str, Any], budget: dict[str, Any]) -> dict[str, Any]:
    return CHOICE | {
        "dataset_id": dataset["id"],
        "test_dataset_id": test["id"],
        "model": {"kind": "logistic_regression"},
        "budget_id": budget["id"],
    }


def score(model: dict[str, Any], rows: breast_cancer.Rows) -> float:
    """Accuracy by the documented formula, apart from the service's own."""
    lower = np.array([feature["lower"] for feature in model["features"]])
    upper = np.array([feature["upper"] for feature in model["features"]])
    scaled = np.clip(2.0 * (rows[0] - lower) / (upper - lower) - 1.0, -1.0, 1.0)
    logits = scaled @ np.array(model["parameters"]["weights"]) + model["parameters"]["bias"]
    return float(np.mean((logits > 0) == (rows[1] == model["classes"].index("benign"))))


@pytest.mark.thorough  # test_the_whole_path has one of them
def test_five_private_runs_on_fresh_budgets_score_above_090(api: Api) -> None:
    """Each budget is a private data set's for ever, so five fresh budgets are five data sets: the rows in five orders.

    On one kind of database: what a run learns does not depend on it.
    """
    private, public = breast_cancer.split()
    scores = []
    test = upload(api, public, "test", public=True)
    for number in range(RUNS):
        budget = create_budget(api)
        train = upload(api, breast_cancer.rotated(private, number), f"train {number}", budget_id=budget["id"])
        created = api.post("/v1/runs", run_request(train, test, budget))
        assert created.status_code == 202, created.text
        run = api.wait_for_run(created.json()["id"])
        assert run["state"] == "succeeded", run
        scores.append(run["result"]["metrics"][0]["accuracy"])
    assert statistics.median(scores) > 0.90, scores


def test_the_whole_path(environment: dict[str, str]) -> None:
    private, public = breast_cancer.split()
    with serving(environment) as api:
        budget = create_budget(api)
        train = upload(api, private, "train", budget_id=budget["id"])
        assert not train["public"], "private unless declared public"
        test = upload(api, public, "test", public=True)

        # Calibrate: the plan that a run will charge and execute is known before.
        calibration = api.post("/v1/calibrate", CHOICE | {"dataset_size": 455, "dimension": 31})
        assert calibration.status_code == 200, calibration.text
        calibrated = calibration.json()
        assert calibrated["achieved"]["epsilon"]["upper"] <= 1.0
        assert calibrated["convention"]["neighboring_relation"] == "add_or_remove_one"

        request = run_request(train, test, budget) | {"expected_plan_hash": calibrated["plan_hash"]}
        created = api.post("/v1/runs", request, headers={"Idempotency-Key": "the run"})
        assert created.status_code == 202, created.text
        assert created.headers["Location"] == f"/v1/runs/{created.json()['id']}"
        run = api.wait_for_run(created.json()["id"])
        assert run["state"] == "succeeded", run
        assert run["plan_hash"] == calibrated["plan_hash"]
        assert run["progress"] == {"done": 300, "total": 300, "unit": "steps"}

        # The model is released with its score on public rows, and scores the same by its documented formula.
        model = api.get(f"/v1/runs/{run['id']}/model").json()
        [metric] = run["result"]["metrics"]
        assert metric["records"] == 114
        assert score(model, public) == pytest.approx(metric["accuracy"], abs=1e-12)
        assert metric["accuracy"] > 0.8
        assert api.get(f"/v1/runs/{run['id']}/model", params={"format": "npz"}).content[:2] == b"PK"

        report = api.get(f"/v1/runs/{run['id']}/report").json()
        assert "differentially private" in report["statement"]
        assert report["events"] == calibrated["events"]
        assert report["charge"] == run["charge"]

        # A replay runs and charges nothing again.
        replayed = api.post("/v1/runs", request, headers={"Idempotency-Key": "the run"})
        assert replayed.headers["Idempotency-Replayed"] == "true"
        assert replayed.json()["id"] == run["id"]

        # What was charged is the plan's events, once.
        spent = api.get(f"/v1/budgets/{budget['id']}").json()
        assert 1.0 < float(spent["epsilon"]["spent"]) < 1.6
        entries = api.get(f"/v1/budgets/{budget['id']}/entries").json()["items"]
        assert [entry["kind"] for entry in entries][-3:] == ["reserve", "start", "commit"]
        reservation = api.get(f"/v1/reservations/{run['reservation_id']}").json()
        assert (reservation["state"], reservation["events"]) == ("committed", calibrated["events"])

        # A second run does not fit: denied with what would, and the budget is unchanged.
        denied = api.post("/v1/runs", run_request(train, test, budget))
        problem = assert_problem(denied, 409, "budget_exceeded")
        assert float(problem["cost"]["epsilon"]) > float(problem["remaining"]["epsilon"])
        assert 0 < problem["largest_count_that_fits"] < 300
        assert api.get(f"/v1/budgets/{budget['id']}").json() == spent

        # Another budget is not this data set's, and a seed is not for private data.
        other = create_budget(api)
        assert_problem(api.post("/v1/runs", run_request(train, test, other)), 409, "budget_not_bound")
        assert_problem(api.post("/v1/runs", request | {"seed": 1}), 422, "seed_on_private_data", "/seed")


def test_a_zcdp_budget_shows_the_unamplified_cost_and_says_so(api: Api) -> None:
    private, public = breast_cancer.split()
    budget = create_budget(api, filter={"kind": "zcdp", "rho": 10})
    train = upload(api, breast_cancer.rotated(private, 10), "train", budget_id=budget["id"])
    test = upload(api, public, "test", public=True)
    created = api.post("/v1/runs", run_request(train, test, budget))
    assert created.status_code == 202, created.text
    run = created.json()
    noise = run["plan"]["phases"][0]["event"]["mechanism"]["noise_multiplier"]
    assert float(run["charge"]["rho"]) == pytest.approx(300 / (2 * noise**2), rel=1e-6)
    assert any("amplif" in warning for warning in run["warnings"]), run["warnings"]
    assert api.wait_for_run(run["id"])["state"] == "succeeded"


def test_replacing_one_private_row_changes_nothing_that_preprocessing_does(api: Api) -> None:
    """A scaler fitted to the rows would move every other row; ours reads each row by declared bounds alone."""
    features, labels = breast_cancer.rotated(breast_cancer.split()[0], 20)
    neighbour = features.copy()
    neighbour[0] = [column["upper"] for column in breast_cancer.BOUNDS]
    seen = []
    for name, rows in (("one", features), ("other", neighbour)):
        # Declared public here, so that a seed makes the two runs comparable to the last bit.
        train = upload(api, (rows, labels), name, public=True)
        request = CHOICE | {
            "dataset_id": train["id"],
            "model": {"kind": "logistic_regression"},
            "sampling": "full_batch",
            "batch_size": 455,
            "iterations": 1,
            "seed": 1,
        }
        created = api.post("/v1/runs", request)
        assert created.status_code == 202, created.text
        run = api.wait_for_run(created.json()["id"])
        seen.append((run, api.get(f"/v1/runs/{run['id']}/model").json()))
    (run, model), (neighbours_run, neighbours_model) = seen
    assert model["features"] == neighbours_model["features"]
    assert run["plan"] == neighbours_run["plan"]
    assert run["plan_hash"] == neighbours_run["plan_hash"]
    weights, neighbours_weights = (np.array(m["parameters"]["weights"]) for m in (model, neighbours_model))
    # One full step, same start, same noise: only the replaced row's contribution, shorter than 1, has moved.
    phase = run["plan"]["phases"][0]
    difference = np.linalg.norm(weights - neighbours_weights)
    assert 0.0 < difference <= 2.0 * phase["step_size"] / phase["divisor"]
