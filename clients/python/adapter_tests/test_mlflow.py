"""The adapter with the real MLflow, whose store is a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from epsilond_client import Client
from epsilond_client.adapters.mlflow import log_card, log_charge


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("privacy")
    yield tmp_path
    mlflow.set_tracking_uri(None)


def logged(run_id: str, folder: Path) -> tuple[dict[str, str], dict[str, float], dict[str, str]]:
    found = mlflow.MlflowClient()
    data = found.get_run(run_id).data
    files = {}
    for item in found.list_artifacts(run_id, "privacy"):
        local = found.download_artifacts(run_id, item.path, str(folder))
        files[item.path] = Path(local).read_text()
    tags = {name: value for name, value in data.tags.items() if name.startswith("epsilond.")}
    return tags, data.metrics, files


def test_a_card_is_logged_with_the_hash_of_its_plan(client: Client, store: Path) -> None:
    run = client.runs.create(
        algorithm="dp_sgd",
        dataset_id="ds_breast_cancer",
        model={"kind": "logistic_regression"},
        target={"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
        batch_size=50,
        iterations=10,
        sampling="poisson",
        gradient_bound={"kind": "clip", "max_grad_norm": 1.0},
        hyperparameters={"step_size": 0.1},
    )
    client.runs.wait(run)
    with mlflow.start_run() as tracked:
        card = log_card(client, run)
    tags, metrics, files = logged(tracked.info.run_id, store)
    assert tags["epsilond.plan_hash"] == run.plan_hash == card.plan_hash
    assert tags["epsilond.statement"] == card.statement
    assert metrics["epsilond.epsilon"] == card["achieved"]["epsilon"]["upper"] <= 2.0
    assert metrics["epsilond.delta"] == 1e-5
    assert json.loads(files["privacy/card.json"]) == dict(card)
    assert run.plan_hash in files["privacy/card.md"]
    assert files["privacy/card.html"].startswith("<!")


def test_the_charge_of_a_loop_is_logged_with_what_it_costs(client: Client, store: Path) -> None:
    budget = client.budgets.create(
        "tracked", neighboring_relation="add_or_remove_one", filter={"kind": "renyi_dp", "epsilon": 3, "delta": 1e-5}
    )
    with client.guard("tracked", noise_multiplier=4.0, sample_rate=0.1, epochs=2) as guard:
        guard.take(7)
        with mlflow.start_run() as early, pytest.raises(ValueError, match="nothing is charged"):
            log_charge(client, guard, delta=1e-5)
    with mlflow.start_run() as tracked:
        answer: Any = log_charge(client, guard, delta=1e-5)
    tags, metrics, files = logged(tracked.info.run_id, store)
    assert tags["epsilond.reservation_id"] == guard.id
    assert tags["epsilond.budget"] == "tracked"
    assert (tags["epsilond.budget_id"], tags["epsilond.state"]) == (budget.id, "committed")
    assert metrics == {"epsilond.epsilon": answer.epsilon.upper, "epsilond.delta": 1e-5}
    [event] = json.loads(files["privacy/charge.json"])["reservation"]["charged_events"]
    assert event["count"] == 7
    assert logged(early.info.run_id, store)[0] == {}
