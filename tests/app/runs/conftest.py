"""The client of the runs' tests, with the steps that most of them begin with."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.runs import worker
from app.runs.executors.interface import Executor
from app.runs.executors.local import LOCAL
from app.settings import Settings
from app.tables.runs import Run
from tests.app.conftest import BASE_URL, LOOPBACK_PEER
from tests.databases import DatabaseFactory
from tests.local_access import local_client
from tests.warm_processes import WarmProcesses

COLUMNS = [
    {"name": "a", "type": "number", "lower": 0, "upper": 10},
    {"name": "b", "type": "number", "lower": -1, "upper": 1},
    {"name": "color", "type": "category", "categories": ["red", "green"]},
    {"name": "y", "type": "category", "categories": ["no", "yes"]},
]
HEADER = "a,b,color,y\n"
ROWS = HEADER + "1,0.5,red,no\n9,-0.5,green,yes\n2,0.25,red,no\n8,0,green,yes\n"

MORE_ROWS = ROWS + "5,0,green,no\n"

#: Full batches are calibrated in closed form, so a request takes milliseconds.
REQUEST: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "model": {"kind": "logistic_regression"},
    "iterations": 20,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
    "hyperparameters": {"step_size": 0.5},
}


class Service:
    """The client of one test, with the steps that most of them begin with."""

    def __init__(self, client: TestClient, context: Context, executor: Executor = LOCAL) -> None:
        self.client = client
        self.context = context
        self.executor = executor

    def post(self, path: str, body: object | None = None, key: str | None = None) -> Any:
        return self.client.post(path, json=body, headers={"Idempotency-Key": key or secrets.token_hex(8)})

    def get(self, path: str) -> Any:
        return self.client.get(path).json()

    def budget(self, **changes: Any) -> dict[str, Any]:
        body = {
            "name": "b",
            "neighboring_relation": "add_or_remove_one",
            "filter": {"kind": "renyi_dp", "epsilon": 1.6, "delta": 1e-5},
        }
        answer = self.post("/v1/budgets", body | changes)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def dataset(self, rows: str = ROWS, **more: Any) -> dict[str, Any]:
        metadata = {"name": "d", "declared_size": 1000, "columns": COLUMNS, "label": "y"} | more
        answer = self.client.post(
            "/v1/datasets",
            files={"file": ("d.csv", rows.encode(), "text/csv")},
            data={"metadata": json.dumps(metadata)},
            headers={"Idempotency-Key": secrets.token_hex(8)},
        )
        assert answer.status_code == 201, answer.text
        return answer.json()

    def add_version(self, dataset_id: str, rows: str, key: str | None = None, **changes: Any) -> Any:
        """The answer to the upload of another version."""
        metadata = {"change": "replaced", "reason": "r"} | changes
        return self.client.post(
            f"/v1/datasets/{dataset_id}/versions",
            files={"file": ("d.csv", rows.encode(), "text/csv")},
            data={"metadata": json.dumps(metadata)},
            headers={"Idempotency-Key": key or secrets.token_hex(8)},
        )

    def version(self, dataset_id: str, rows: str = MORE_ROWS, **changes: Any) -> dict[str, Any]:
        """Another version of a private data set."""
        answer = self.add_version(dataset_id, rows, **changes)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def run(self, **changes: Any) -> Any:
        body = {key: value for key, value in (REQUEST | changes).items() if value is not ...}
        return self.post("/v1/runs", body)

    def queued(self, **changes: Any) -> dict[str, Any]:
        answer = self.run(**changes)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def private(self, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """A budget, and a queued run on private data that it pays for."""
        budget = self.budget()
        dataset = self.dataset(budget_id=budget["id"])
        return budget, self.queued(dataset_id=dataset["id"], budget_id=budget["id"], **changes)

    def charged(self, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same on public data: such a run ends at once, and not at a whole second."""
        budget = self.budget()
        return budget, self.queued(dataset_id="ds_breast_cancer", budget_id=budget["id"], **changes)

    def with_key(self, *scopes: Scope) -> Service:
        """The same for somebody with a key of these scopes; from the first one on, nobody comes without one."""
        created = create_key(self.context, "somebody", scopes)
        assert created is not None
        headers = {"Authorization": f"Bearer {created.token}"}
        client = TestClient(self.client.app, base_url=BASE_URL, client=LOOPBACK_PEER, headers=headers)
        return Service(client, self.context, self.executor)

    def work(self) -> None:
        assert worker.work_once(self.context, "wrk_test", executor=self.executor)

    def trained(self, **changes: Any) -> dict[str, Any]:
        """A run that has been carried out. Those that other tests of the module left in the queue are cancelled."""
        waiting = [run["id"] for run in self.get("/v1/runs?limit=200")["items"] if run["state"] == "queued"]
        for left in waiting:
            assert self.post(f"/v1/runs/{left}/cancel").status_code == 200
        queued = self.queued(**changes)
        self.work()
        run = self.get(f"/v1/runs/{queued['id']}")
        assert run["state"] == "succeeded", run
        return dict(run)

    def model(self, run: dict[str, Any]) -> dict[str, Any]:
        """The released model as JSON."""
        return dict(self.get(f"/v1/runs/{run['id']}/model"))

    def report(self, run: dict[str, Any]) -> dict[str, Any]:
        return dict(self.get(f"/v1/runs/{run['id']}/report"))

    def stored(self, run: dict[str, Any]) -> Run:
        """The run's row, as it is now."""
        with self.context.database.read() as session:
            return session.get_one(Run, run["id"])

    def reservation_state(self, run: dict[str, Any]) -> str:
        state: str = self.get(f"/v1/reservations/{run['reservation_id']}")["state"]
        return state


@pytest.fixture
def service(client: TestClient, context: Context) -> Service:
    return Service(client, context)


@pytest.fixture(scope="module")
def quick(
    sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory, warm_processes: WarmProcesses
) -> Iterator[Service]:
    """One service for a whole module of tests to which the database does not matter; on SQLite."""
    url = sqlite_databases.migrated()
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=url, workers=0, release_interval_s=0.05)
    context = fenced_context(settings, Database(url), **warm_processes.pools())
    with local_client(create_app(context)) as client:
        yield Service(client, context)
    context.database.dispose()
