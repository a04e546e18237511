"""Budgets under a clock that the test turns by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.db.database import Database
from app.kit.context import Context
from app.settings import Settings


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
def context(database: Database, settings: Settings, clock: Clock) -> Context:
    return Context(settings, database, clock)


class Api:
    """The ledger's endpoints with a fresh idempotency key for each command, unless one is given."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self._keys = 0

    def post(self, path: str, body: Any = None, key: str | None = None, **params: Any) -> Any:
        self._keys += 1
        headers = {"Idempotency-Key": key or f"key-{self._keys}"}
        return self.client.post(path, json=body, headers=headers, params=params)

    def get(self, path: str, **params: Any) -> Any:
        return self.client.get(path, params=params)

    def budget(self, budget_filter: dict[str, Any] | None = None, **fields: Any) -> Any:
        body = {
            "name": "survey",
            "neighboring_relation": "add_or_remove_one",
            "filter": budget_filter or {"kind": "zcdp", "rho": "1"},
            **fields,
        }
        response = self.post("/v1/budgets", body)
        assert response.status_code == 201, response.text
        return response.json()

    def reserve(self, budget_id: str, events: list[Any], key: str | None = None, **fields: Any) -> Any:
        return self.post(
            f"/v1/budgets/{budget_id}/reservations", {"events": events, "purpose": "mean", **fields}, key=key
        )

    def hold(self, budget_id: str, events: list[Any], **fields: Any) -> Any:
        response = self.reserve(budget_id, events, **fields)
        assert response.status_code == 201, response.text
        return response.json()


@pytest.fixture
def api(client: TestClient) -> Api:
    return Api(client)


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
