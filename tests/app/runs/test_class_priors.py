"""Weights of classes from declared shares: in the run, its plan, its file and its card; never from rows."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import Service

PRIORS = {"malignant": 0.1, "benign": 0.9}
MODEL = {"kind": "logistic_regression", "class_priors": PRIORS}
CANCER: dict[str, Any] = {"dataset_id": "ds_breast_cancer", "seed": 0}


def test_the_shares_are_wherever_the_model_is(quick: Service) -> None:
    run = quick.trained(**CANCER, model=MODEL)
    plain = quick.trained(**CANCER)
    assert run["model"]["class_priors"] == PRIORS
    assert "class_priors" not in plain["model"]
    document = quick.model(run)
    assert document["model"]["class_priors"] == PRIORS
    npz = quick.client.get(f"/v1/runs/{run['id']}/model?format=npz").content
    with np.load(io.BytesIO(npz), allow_pickle=False) as arrays:
        assert json.loads(arrays["document"].item())["model"]["class_priors"] == PRIORS
    assert quick.report(run)["model"]["class_priors"] == PRIORS
    assert run["plan"] == plain["plan"], "weights are at most 1: noise, bounds and charge are the same"
    assert document["parameters"] != quick.model(plain)["parameters"]
    row = quick.client.post(
        f"/v1/runs/{run['id']}/predictions", json={"rows": [[0.0] * len(document["features"])]}
    ).json()
    assert row["predictions"][0] in PRIORS


def test_the_rare_class_weighs_more(quick: Service) -> None:
    """The more the shares say that a class is rare, the more often it is predicted."""
    found = []
    for share in (0.05, 0.5, 0.95):
        model = {"kind": "logistic_regression", "class_priors": {"malignant": share, "benign": 1.0 - share}}
        run = quick.trained(**CANCER, model=model, target={"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5})
        [metrics] = run["result"]["metrics"]
        matrix = np.array(metrics["confusion_matrix"])
        found.append(matrix[:, 0].sum())
    assert found[0] > found[1] > found[2]


@pytest.mark.parametrize(
    ("priors", "pointer"),
    [
        ({"malignant": 0.4, "benign": 0.5}, "/model/class_priors"),
        ({"malignant": 0.4, "kind": 0.6}, "/model/class_priors"),
        ({"malignant": 1.0}, "/model/class_priors/malignant"),
        ({"malignant": 0.0, "benign": 0.5}, "/model/class_priors/malignant"),
    ],
)
def test_shares_that_are_none_are_refused_where_they_stand(
    quick: Service, priors: dict[str, float], pointer: str
) -> None:
    answer = quick.run(**CANCER, model={"kind": "logistic_regression", "class_priors": priors})
    assert answer.status_code == 422
    assert pointer in {each["pointer"] for each in answer.json()["errors"]}


def test_a_regression_has_no_shares(quick: Service) -> None:
    model = {"kind": "linear_regression", "class_priors": {"a": 0.5, "b": 0.5}}
    answer = quick.run(dataset_id="ds_diabetes", model=model)
    assert_problem(answer, 422, "invalid_request", "/model/class_priors")
