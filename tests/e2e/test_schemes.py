"""A private run with each scheme of data loaders: calibrated, charged, carried out and attacked, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.problem_assertions import assert_problem
from tests.e2e import breast_cancer
from tests.e2e.server import Api
from tests.e2e.test_whole_path import create_budget, score, upload

TARGET = {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5}
COMMON: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "neighboring_relation": "replace_special",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "hyperparameters": {"step_size": 1.0},
    "target": TARGET,
}
#: What each scheme is asked, and what it is charged as: 455 records, in batches of 65 where they have a size.
SCHEMES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "random_allocation": ({"batch_size": 65, "epochs": 5}, {"num_bins": 7, "participations": 1}),
    "blocks": ({"batch_size": 65, "iterations": 30}, {"num_bins": 30, "participations": 4}),
    "truncated_poisson": (
        {"batch_size": 65, "iterations": 35, "sampling": {"kind": "truncated_poisson", "max_batch_size": 80}},
        {"sampling_probability": 65 / 455, "max_batch_size": 80, "dataset_size": 455, "truncation": "random"},
    ),
    "shuffled_epochs": ({"batch_size": 65, "epochs": 5}, {"steps_per_epoch": 7}),
    "disjoint_batches": ({"iterations": 7}, {"assignment": "by_position"}),
    "cyclic_poisson": (
        {"batch_size": 65, "iterations": 35, "algorithm": "dp_bandmf", "correlation": {"bands": 3}},
        {"sampling_probability": 3 * 65 / 455, "cycle_length": 3, "assignment": "independent"},
    ),
    "fixed_order_epochs": (
        {"batch_size": 65, "epochs": 5, "algorithm": "dp_bandmf", "correlation": {"bands": 7}},
        {"steps_per_epoch": 7},
    ),
}
#: `make test` has the run in stages, and tests/conformance/trainers/test_sampling.py draws the batches of each scheme.
MARKS = dict.fromkeys(("blocks", "truncated_poisson", "shuffled_epochs"), pytest.mark.soak)


@pytest.fixture(scope="module")
def ids(api: Api) -> dict[str, str]:
    return made_for(api, "replace_special", 60)


def made_for(api: Api, relation: str, rotated: int) -> dict[str, str]:
    private, public = breast_cancer.split()
    budget = create_budget(
        api,
        neighboring_relation=relation,
        filter={"kind": "approximate_gaussian_dp", "epsilon": 12, "delta": 1e-5},
    )
    train = upload(api, breast_cancer.rotated(private, rotated), f"schemes under {relation}", budget_id=budget["id"])
    test = upload(api, public, f"test of schemes under {relation}", public=True)
    return {"dataset_id": train["id"], "test_dataset_id": test["id"], "budget_id": budget["id"]}


@pytest.mark.parametrize(
    "scheme", [pytest.param(scheme, marks=MARKS.get(scheme, pytest.mark.thorough)) for scheme in SCHEMES]
)
def test_a_private_run_is_charged_as_it_is_drawn_and_stands_an_attack(
    api: Api, ids: dict[str, str], scheme: str
) -> None:
    given, charged = SCHEMES[scheme]
    is_charged_as_it_is_drawn(api, ids, scheme, COMMON | {"sampling": scheme} | given, charged)


@pytest.mark.thorough
def test_truncated_batches_are_drawn_from_all_slots_where_the_number_of_records_is_private(api: Api) -> None:
    """The data set has the usual capacity for 455 records, and so has the calibration."""
    given, charged = SCHEMES["truncated_poisson"]
    asked = COMMON | given | {"neighboring_relation": "add_or_remove_one"}
    of_slots = charged | {"dataset_size": 512, "truncation": "random_slots"}
    is_charged_as_it_is_drawn(api, made_for(api, "add_or_remove_one", 61), "truncated_poisson", asked, of_slots)


def is_charged_as_it_is_drawn(
    api: Api, ids: dict[str, str], scheme: str, asked: dict[str, Any], charged: dict[str, Any]
) -> None:
    calibrated = api.post("/v1/calibrate", asked | {"dataset_size": 455, "dimension": 31})
    assert calibrated.status_code == 200, calibrated.text
    plan_hash = calibrated.json()["plan_hash"]
    [event] = calibrated.json()["events"]
    assert event["sampling"] == {"kind": scheme} | charged
    spent = float(api.get(f"/v1/budgets/{ids['budget_id']}").json()["epsilon"]["spent"])

    request = asked | ids | {"model": {"kind": "logistic_regression"}, "expected_plan_hash": plan_hash}
    created = api.post("/v1/runs", request)
    assert created.status_code == 202, created.text
    run = api.wait_for_run(created.json()["id"])
    assert (run["state"], run["plan_hash"]) == ("succeeded", plan_hash), run
    reservation = api.get(f"/v1/reservations/{run['reservation_id']}").json()
    assert reservation["charged_events"] == [event]
    assert float(api.get(f"/v1/budgets/{ids['budget_id']}").json()["epsilon"]["spent"]) > spent
    model = api.get(f"/v1/runs/{run['id']}/model").json()
    assert score(model, breast_cancer.split()[1]) == run["result"]["metrics"][0]["accuracy"]

    attacked = api.post("/v1/audits", {"run_id": run["id"], "trials": 400, "confidence": 0.999})
    assert attacked.status_code == 201, attacked.text
    assert (attacked.json()["verdict"], attacked.json()["plan_hash"]) == ("consistent", plan_hash)


def test_a_run_in_stages_is_charged_for_each_of_them(api: Api, ids: dict[str, str]) -> None:
    """Larger batches and less noise in the second half, which a short stage of large batches ends."""
    stages = [
        {"iterations": 12, "batch_size": 40, "noise_factor": 1.25, "step_size": 0.5},
        {"iterations": 9, "batch_size": 80},
        {"iterations": 2, "batch_size": 160, "noise_factor": 1.5},
    ]
    asked = COMMON | {"sampling": "poisson", "schedule": {"stages": stages}}
    calibrated = api.post("/v1/calibrate", asked | {"dataset_size": 455, "dimension": 31}).json()
    noise = calibrated["solution"]["noise_multiplier"]
    assert [
        (event["count"], event["sampling"]["sampling_probability"], event["mechanism"]["noise_multiplier"])
        for event in calibrated["events"]
    ] == [(12, 40 / 455, 1.25 * noise), (9, 80 / 455, noise), (2, 160 / 455, 1.5 * noise)]
    assert [phase["step_size"] for phase in calibrated["plan"]["phases"]] == [0.5, 1.0, 1.0]

    created = api.post("/v1/runs", asked | ids | {"model": {"kind": "logistic_regression"}})
    assert created.status_code == 202, created.text
    run = api.wait_for_run(created.json()["id"])
    assert (run["state"], run["plan_hash"]) == ("succeeded", calibrated["plan_hash"]), run
    reservation = api.get(f"/v1/reservations/{run['reservation_id']}").json()
    assert reservation["charged_events"] == calibrated["events"]
    attacked = api.post("/v1/audits", {"run_id": run["id"], "trials": 400, "confidence": 0.999})
    assert attacked.json()["verdict"] == "consistent"


def test_a_scheme_is_refused_under_a_relation_that_it_does_not_keep(api: Api) -> None:
    asked = COMMON | {"dataset_size": 455, "batch_size": 65, "iterations": 7}
    for scheme, relation in (("random_allocation", "replace_one"), ("shuffled_epochs", "add_or_remove_one")):
        refused = api.post("/v1/calibrate", asked | {"sampling": scheme, "neighboring_relation": relation})
        assert "replace_special" in assert_problem(refused, 422, "unsupported_relation", "/sampling")["detail"]
