"""Audits of a run's evaluation: what is attacked, what it is compared with, and where it is shown."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.audits import service as audits
from app.audits.schemas import AuditRequest
from app.dashboard import audits as pages
from app.runs.evaluating import layout_of_run
from calibrators.plan import plan_from_canonical
from tests.app.dashboard.documents import Document
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import Service, quick
from tests.app.runs.test_evaluating import ids_in
from trainer.exact.gaussian import RoundedGaussian
from trainer.held_out import Layout

__all__ = ["quick"]

HERE = {"Origin": "http://127.0.0.1:8000"}
ATTACK: dict[str, Any] = {"design": "held_out", "method": "gaussian_dp", "trials": 400, "seed": 4}


@pytest.fixture(scope="module")
def run(quick: Service) -> dict[str, Any]:
    """A run that is evaluated with little noise, and carried out."""
    target = {"kind": "approximate_dp", "epsilon": 30, "delta": 1e-5}
    return quick.trained(**ids_in(quick), evaluation={"noise_multiplier": 0.7}, target=target, iterations=2)


def test_an_evaluation_is_attacked_and_compared_with_its_share_of_the_charge(
    quick: Service, run: dict[str, Any]
) -> None:
    answer = quick.post("/v1/audits", ATTACK | {"run_id": run["id"]})
    assert answer.status_code == 201, answer.text
    found = answer.json()
    (event,) = found["events"]
    assert event["mechanism"] == {"kind": "gaussian", "noise_multiplier": 0.7}
    relation = found["convention"]["neighboring_relation"]
    asked = {"events": found["events"], "neighboring_relation": relation, "delta": 1e-5}
    assert found["finding"]["claim"] == quick.post("/v1/account", asked).json()["epsilon"]
    assert found["verdict"] == "consistent"
    assert 0.4 * found["finding"]["claim"]["upper"] < found["finding"]["epsilon_lower"]
    (summary,) = quick.report(run)["audits"]
    assert (summary["design"], summary["claimed"]) == ("held_out", found["finding"]["claim"]["upper"])
    assert summary["epsilon_lower"] == found["finding"]["epsilon_lower"]


def test_halved_noise_of_an_evaluation_is_refuted(
    quick: Service, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, honest = quick.stored(run), RoundedGaussian.rounded
    monkeypatch.setattr(RoundedGaussian, "rounded", lambda noise, size, scale: honest(noise, size, scale / 2.0))
    request = AuditRequest.model_validate(ATTACK | {"run_id": run["id"]}).model_dump()
    assert audits.attack(stored.plan, layout_of_run(stored), request, 120.0)["verdict"] == "violated"


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ({"kind": "logistic_regression"}, Layout(2, has_probabilities=True)),
        ({"kind": "q_norm_hinge", "q": 1.5}, Layout(2, has_probabilities=False)),
        ({"kind": "mlp", "hidden": [3]}, Layout(2, has_probabilities=True)),
    ],
)
def test_the_vector_that_is_attacked_has_the_layout_of_the_runs_model(
    quick: Service, run: dict[str, Any], model: dict[str, Any], layout: Layout
) -> None:
    stored = quick.stored(run)
    stored.model = model
    assert layout_of_run(stored) == layout


def test_the_training_of_an_evaluated_run_is_compared_with_what_it_is_charged(
    quick: Service, run: dict[str, Any]
) -> None:
    answer = quick.post("/v1/audits", {"run_id": run["id"], "trials": 20, "seed": 1})
    assert answer.json()["events"] == [phase["event"] for phase in run["plan"]["phases"]]


def test_a_run_without_an_evaluation_has_none_to_attack(quick: Service) -> None:
    plain = quick.queued(dataset_id="ds_breast_cancer")
    problem = assert_problem(
        quick.post("/v1/audits", ATTACK | {"run_id": plain["id"]}), 422, "invalid_value", "/design"
    )
    assert "no evaluation on held-out rows" in problem["detail"]
    assert "attack-scores" not in quick.client.get(f"/dashboard/runs/{plain['id']}").text


def test_the_scores_of_a_run_are_attacked_from_its_page(
    quick: Service, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pages._OF_SCORES, "trials", 50)
    page = quick.client.get(f"/dashboard/runs/{run['id']}").text
    assert Document(page).faults == []
    assert "Attack its scores with canaries" in page
    keys = set(re.findall(r'action="/dashboard/audits".*?name="key" value="([^"]+)"', page))
    assert len(keys) == 2, "one key would replay the attack on the training"
    (key,) = (each for each in keys if each.endswith("-scores"))
    data = {"key": key, "run_id": run["id"], "part": "scores"}
    answer = quick.client.post("/dashboard/audits", data=data, headers=HERE, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    shown = quick.client.get(answer.headers["location"]).text
    assert Document(shown).faults == []
    assert "An attack on the evaluation of dp_sgd" in shown
    assert plan_from_canonical(quick.stored(run).plan, run["plan_hash"]).evaluation is not None
