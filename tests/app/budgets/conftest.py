"""Budgets under a clock that the test turns by hand; whatever a test did, the auditor looks at everything after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit.process_pool import ProcessPool
from app.settings import Settings
from app.tables.ledger import Budget
from tests.app.conftest import ConnectAs
from tests.app.ledger.audit import audit


@dataclass
class Clock:
    now: datetime = field(default_factory=lambda: datetime(2026, 5, 1, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def context(database: Database, settings: Settings, clock: Clock, pools: dict[str, ProcessPool]) -> Context:
    return fenced_context(settings, database, clock, **pools)


class Api:
    """The ledger's endpoints with a fresh idempotency key for each command, unless one is given."""

    _keys = count()

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def post(self, path: str, body: Any = None, key: str | None = None, **params: Any) -> Any:
        headers = {"Idempotency-Key": key or f"key-{next(self._keys)}"}
        return self.client.post(path, json=body, headers=headers, params=params)

    def get(self, path: str, **params: Any) -> Any:
        return self.client.get(path, params=params)

    def ask_budget(self, budget_filter: dict[str, Any] | None = None, **fields: Any) -> Any:
        """The answer to a request for a budget of rho 1, but for what is given."""
        body = {"name": "survey", "neighboring_relation": "add_or_remove_one"}
        return self.post("/v1/budgets", {**body, "filter": budget_filter or {"kind": "zcdp", "rho": "1"}, **fields})

    def budget(self, budget_filter: dict[str, Any] | None = None, **fields: Any) -> Any:
        return made(self.ask_budget(budget_filter, **fields))

    def child(self, parent: dict[str, Any], budget_filter: dict[str, Any] | None = None, **fields: Any) -> Any:
        return self.budget(budget_filter, parent_id=parent["id"], **fields)

    def reserve(self, budget_id: str, events: list[Any], key: str | None = None, **fields: Any) -> Any:
        return self.post(
            f"/v1/budgets/{budget_id}/reservations", {"events": events, "purpose": "mean", **fields}, key=key
        )

    def hold(self, budget_id: str, events: list[Any], **fields: Any) -> Any:
        return made(self.reserve(budget_id, events, **fields))

    def resolve(self, reservation: dict[str, Any], command: str, body: Any = None, key: str | None = None) -> Any:
        """The answer to `start`, `extend`, `commit` or `void`."""
        return self.post(f"/v1/reservations/{reservation['id']}/{command}", body, key)

    def spend(self, budget_id: str, events: list[Any], **fields: Any) -> Any:
        """Reserve, start and commit."""
        held = self.hold(budget_id, events, **fields)
        made(self.resolve(held, "start"))
        return made(self.resolve(held, "commit"))

    def correct(self, budget_id: str, **fields: Any) -> Any:
        return self.post(f"/v1/budgets/{budget_id}/corrections", {"reason": "told by mistake", **fields})

    def change_limit(self, budget_id: str, budget_filter: dict[str, Any]) -> Any:
        return self.post(f"/v1/budgets/{budget_id}/limit", {"filter": budget_filter, "reason": "approved"})

    def read(self, budget_id: str, **params: Any) -> Any:
        return self.get(f"/v1/budgets/{budget_id}", **params).json()

    def rho(self, budget_id: str) -> tuple[float, float, float]:
        """What a zCDP budget has spent, holds and has left."""
        body = self.read(budget_id)
        return body["rho"]["spent"], body["rho"]["reserved"], body["rho"]["left"]

    def state(self, reservation: dict[str, Any]) -> str:
        return str(self.get(f"/v1/reservations/{reservation['id']}").json()["state"])

    def entries(self, budget_id: str) -> list[Any]:
        return list(self.get(f"/v1/budgets/{budget_id}/entries", limit=200).json()["items"])

    def kinds(self, budget_id: str) -> list[str]:
        return [entry["kind"] for entry in self.entries(budget_id)]


def made(response: Any) -> Any:
    """The body of an answer that must be a success."""
    assert response.status_code in (200, 201), response.text
    return response.json()


def audit_all(context: Context) -> None:
    """Compare every table of the ledger with what its entries say."""
    with context.database.read() as session:
        for root in session.scalars(select(Budget.id).where(Budget.parent_id.is_(None))).all():
            audit(session, root)


@pytest.fixture
def api(client: TestClient, context: Context) -> Iterator[Api]:
    yield Api(client)
    audit_all(context)


#: An `Api` for a new key with some scopes: ``api_of(Scope.OWNER)``. From the first key on, nobody comes without one.
ApiOf = Callable[..., Api]


@pytest.fixture
def api_of(connect: ConnectAs, context: Context) -> Iterator[ApiOf]:
    def with_key(*scopes: Scope) -> Api:
        created = create_key(context, "test", scopes)
        assert created is not None
        return Api(connect(headers={"Authorization": f"Bearer {created.token}"}))

    yield with_key
    audit_all(context)


def zcdp(rho: float, count: int = 1) -> dict[str, Any]:
    return {"mechanism": {"kind": "zcdp", "rho": rho}, "count": count}


def gaussian(noise_multiplier: float, count: int = 1, sampling_probability: float | None = None) -> dict[str, Any]:
    event: dict[str, Any] = {
        "mechanism": {"kind": "gaussian", "noise_multiplier": noise_multiplier},
        "count": count,
    }
    if sampling_probability is not None:
        event["sampling"] = {"kind": "poisson", "sampling_probability": sampling_probability}
    return event


def laplace(noise_multiplier: float, count: int = 1) -> dict[str, Any]:
    return {"mechanism": {"kind": "laplace", "noise_multiplier": noise_multiplier}, "count": count}
