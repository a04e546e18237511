"""Deletion: the rows go; what was charged, what was released and what the rows are bound to stays."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from app.context import Context
from tests.app.datasets.declarations import metadata
from tests.app.datasets.uploads import create_budget, upload
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import COLUMNS, ROWS, Service


@pytest.fixture
def service(client: TestClient, context: Context) -> Service:
    return Service(client, context)


def without_name(body: dict[str, Any]) -> dict[str, Any]:
    """A body but for the data set's name, which is shown no more, and the proof of a tree that has grown by its end."""
    data = body.get("data")
    if not isinstance(data, dict):
        return body
    return body | {"data": data | {"name": None}, "ledger": body["ledger"] | {"proof": None}}


def test_models_reports_budgets_and_the_ledger_outlive_the_rows(service: Service) -> None:
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5})
    dataset = service.dataset(budget_id=budget["id"])
    run = service.trained(dataset_id=dataset["id"], budget_id=budget["id"])
    waiting = service.queued(dataset_id=dataset["id"], budget_id=budget["id"])
    paths = [
        f"/v1/runs/{run['id']}",
        f"/v1/runs/{run['id']}/model",
        f"/v1/runs/{run['id']}/report",
        f"/v1/budgets/{budget['id']}",
        f"/v1/budgets/{budget['id']}/entries",
    ]
    before = [service.client.get(path) for path in paths]
    assert all(answer.status_code == 200 for answer in before)
    assert service.client.delete(f"/v1/datasets/{dataset['id']}").status_code == 204
    assert list((service.context.settings.data_dir / "datasets").iterdir()) == []
    after = [service.client.get(path) for path in paths]
    for path, old, new in zip(paths, before, after, strict=True):
        assert (new.status_code, without_name(new.json())) == (200, without_name(old.json())), path
    assert service.post("/v1/ledger/verify", {}).json()["valid"]
    # What waited for the rows fails, and its hold goes back: nothing was computed from them.
    service.work()
    failed = service.get(f"/v1/runs/{waiting['id']}")
    assert (failed["state"], failed["problem"]["code"]) == ("failed", "dataset_deleted")
    assert service.reservation_state(waiting) == "voided"
    body = service.get(f"/v1/budgets/{budget['id']}")
    assert body["amounts"]["spent"] == before[3].json()["amounts"]["spent"]
    assert service.get(f"/v1/runs/{run['id']}")["charge"] == run["charge"]
    refused = service.run(dataset_id=dataset["id"], budget_id=budget["id"])
    assert refused.status_code in (404, 422)
    # The same rows, whatever they are called, are the same people's: their budget has spent what it has.
    other = service.budget()
    declared = metadata(public=False, budget_id=other["id"], columns=COLUMNS, label="y", name="new")
    assert_problem(upload(service.client, declared, ROWS.encode()), 409, "budget_not_bound")
    again = service.dataset(budget_id=budget["id"], name="new")
    service.trained(dataset_id=again["id"], budget_id=budget["id"])
    assert service.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"]["epsilon"] > body["epsilon"]["spent"]


def test_a_deleted_data_set_is_nowhere_shown_and_its_hash_never(service: Service) -> None:
    dataset_id = upload(
        service.client, metadata(public=False, budget_id=create_budget(service.context)), key="once"
    ).json()["id"]
    service.client.delete(f"/v1/datasets/{dataset_id}")
    assert_problem(service.client.get(f"/v1/datasets/{dataset_id}"), 404, "not_found")
    assert dataset_id not in service.client.get("/v1/datasets").text
