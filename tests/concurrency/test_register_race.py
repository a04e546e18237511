"""Whatever enters into the register at once with charges: no two transactions wait for each other.

Two that did would be a deadlock, which is answered with an error.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from starlette.testclient import TestClient

from app.context import Context
from app.ledger.transparency import verified
from tests.app.run_sweeps.conftest import Sweeps
from tests.app.runs.conftest import ROWS
from tests.concurrency.processes import in_threads
from tests.concurrency.test_command_race import clients
from tests.databases import on_postgresql

__all__ = ["clients"]

TURNS = 6


class Busy:
    """Somebody who does one thing after the other, all of which lock the register, a budget, or both."""

    def __init__(self, client: TestClient, context: Context, dataset_id: str, budget_id: str) -> None:
        self.service = Sweeps(client, context)
        self.dataset_id, self.budget_id = dataset_id, budget_id

    def made(self, path: str, body: Any = None) -> Any:
        answer = self.service.post(path, body)
        assert answer.status_code < 300, (path, answer.text)
        return answer.json()

    def runs(self) -> None:
        run = self.service.queued(dataset_id=self.dataset_id, budget_id=self.budget_id)
        self.made(f"/v1/runs/{run['id']}/cancel")

    def sweeps(self) -> None:
        sweep = self.service.swept(dataset_id=self.dataset_id, budget_id=self.budget_id)
        self.made(f"/v1/run-sweeps/{sweep['id']}/cancel")

    def versions(self) -> None:
        metadata = {"change": "appended", "reason": "more"}
        rows = ROWS + f"{secrets.randbelow(10)},0.{secrets.randbelow(1000)},red,no\n"
        answer = self.service.client.post(
            f"/v1/datasets/{self.dataset_id}/versions",
            files={"file": ("d.csv", rows.encode(), "text/csv")},
            data={"metadata": json.dumps(metadata)},
            headers={"Idempotency-Key": secrets.token_hex(8)},
        )
        assert answer.status_code == 201, answer.text

    def reservations(self) -> None:
        body = {"events": [{"mechanism": {"kind": "zcdp", "rho": 1e-6}}], "purpose": "p"}
        held = self.made(f"/v1/budgets/{self.budget_id}/reservations", body)
        self.made(f"/v1/reservations/{held['id']}/commit")

    def keys(self) -> None:
        key = self.made("/v1/keys", {"name": "k", "scopes": ["analyst"]})
        self.made(f"/v1/keys/{key['id']}/rotate", {"overlap_s": 0})
        self.made(f"/v1/keys/{key['id']}/revoke")


@on_postgresql
def test_nothing_that_enters_into_the_register_waits_for_what_waits_for_it(
    clients: list[TestClient], context: Context
) -> None:
    service = Sweeps(clients[0], context)
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 1000, "delta": 1e-5})
    dataset = service.dataset(budget_id=budget["id"])
    doings = (Busy.runs, Busy.runs, Busy.sweeps, Busy.versions, Busy.reservations, Busy.keys)

    def do(number: int) -> None:
        busy = Busy(clients[number % len(clients)], context, dataset["id"], budget["id"])
        for _ in range(TURNS):
            doings[number](busy)

    in_threads(len(doings), do)
    verdict = verified(context)
    assert verdict.valid, verdict.in_words()
