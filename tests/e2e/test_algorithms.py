"""One algorithm of each paper on private rows that one budget pays for, and attacks on what ran, against a real server.

The budget counts under replace_one, the relation of all these papers.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.problem_assertions import assert_problem
from tests.e2e import breast_cancer
from tests.e2e.server import Api
from tests.e2e.test_whole_path import create_budget, score, upload

CLIP = {"kind": "clip", "max_grad_norm": 1.0}
LOGISTIC = {"kind": "logistic_regression"}
#: Each within rho 1; what is left out is the paper's own, or follows from the declared bounds.
CHOICES: dict[str, dict[str, Any]] = {
    "dp_nsgd": {
        "model": LOGISTIC,
        "sampling": "full_batch",
        "iterations": 50,
        "gradient_bound": {"kind": "normalize", "regularizer": 0.1},
        "hyperparameters": {"step_size": 1.0},
    },
    "dp_sgd_gradient": {
        "model": {"kind": "q_norm_hinge", "q": 1.5},
        "sampling": "full_batch",
        "iterations": 100,
        "assumptions": {"radius": 3, "failure_probability": 0.05},
    },
    "dp_gd": {
        "model": LOGISTIC,
        "iterations": 50,
        "gradient_bound": CLIP,
        "assumptions": {"pl_constant": 0.01},
        "hyperparameters": {"step_size": 0.1},
    },
    "clipped_sgd_strongly_convex": {
        "model": LOGISTIC,
        "iterations": 4,
        "penalty": {"kind": "l2", "strength": 0.1},
        "assumptions": {"diameter": 10},
    },
    "tree_sfw_l1": {"model": LOGISTIC, "iterations": 3, "assumptions": {"radius": 2}},
}
RHO = 1.0


def request_for(algorithm: str, ids: dict[str, str], **changes: Any) -> dict[str, Any]:
    target = {"kind": "zcdp", "rho": RHO}
    return {"algorithm": algorithm, "target": target, **ids, **CHOICES[algorithm], **changes}


@pytest.mark.thorough  # tests/e2e/test_schemes.py has the shorter ones
def test_an_algorithm_of_each_paper_runs_on_private_rows_and_stands_an_attack(api: Api) -> None:
    private, public = breast_cancer.split()
    budget = create_budget(api, neighboring_relation="replace_one", filter={"kind": "zcdp", "rho": 5.5})
    train = upload(api, breast_cancer.rotated(private, 30), "train", budget_id=budget["id"])
    test = upload(api, public, "test", public=True)
    ids = {"dataset_id": train["id"], "test_dataset_id": test["id"], "budget_id": budget["id"]}
    runs = []
    for algorithm in CHOICES:
        created = api.post("/v1/runs", request_for(algorithm, ids))
        assert created.status_code == 202, created.text
        runs.append(api.wait_for_run(created.json()["id"]))
    for algorithm, run in zip(CHOICES, runs, strict=True):
        _is_what_was_asked_for(api, algorithm, run, public)
    spent = api.get(f"/v1/budgets/{budget['id']}").json()["amounts"]["spent"]
    assert float(spent["rho"]) == pytest.approx(len(CHOICES) * RHO, rel=1e-6)

    # What is left does not pay for another, and says so; what a network is for is refused before any charge.
    denied = assert_problem(api.post("/v1/runs", request_for("dp_gd", ids)), 409, "budget_exceeded")
    assert denied["remaining"]["rho"] < RHO
    network = request_for("tree_sfw_l1", ids, model={"kind": "mlp"})
    assert_problem(api.post("/v1/runs", network), 422, "unsupported_model", "/model/kind")

    for run in runs:
        attacked = api.post("/v1/audits", {"run_id": run["id"], "trials": 20})
        assert attacked.status_code == 201, attacked.text
        found = attacked.json()
        assert (found["verdict"], found["plan_hash"]) == ("consistent", run["plan_hash"])
        assert api.get("/v1/audits", params={"run_id": run["id"]}).json()["items"] == [found]
    assert api.get(f"/v1/budgets/{budget['id']}").json()["amounts"]["spent"] == spent, "an attack costs nothing"


def _is_what_was_asked_for(api: Api, algorithm: str, run: dict[str, Any], public: breast_cancer.Rows) -> None:
    assert (run["state"], run["algorithm"]) == ("succeeded", algorithm), run
    assert run["plan"]["neighboring_relation"] == "replace_one"
    assert float(run["charge"]["rho"]) == pytest.approx(RHO, rel=1e-6)
    [metric] = run["result"]["metrics"]
    model = api.get(f"/v1/runs/{run['id']}/model").json()
    assert score(model, public) == pytest.approx(metric["accuracy"], abs=1e-12)
    if algorithm == "dp_nsgd":
        assert metric["accuracy"] > 0.8
    report = api.get(f"/v1/runs/{run['id']}/report").json()
    assert report["statement"].endswith("-zCDP where one record is replaced by another.")
    assert report["achieved"]["rho"] <= RHO
    # The papers print noise for (epsilon, delta) alone, but for the one that is about zCDP.
    assert (report["literal"] is not None) == (algorithm == "clipped_sgd_strongly_convex")
