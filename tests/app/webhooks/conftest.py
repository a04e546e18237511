"""A budget with a webhook at a real receiver, under a clock that the test turns; a test says when messages are sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.settings import Settings
from app.webhooks import delivery
from app.webhooks.delivery import Deliverer
from tests.app.budgets.conftest import Api, Clock, api, clock, context, made
from tests.app.webhooks.receiver import Receiver, receiving

__all__ = ["api", "clock", "context"]


@dataclass
class Told:
    """A budget of rho 1, and who is told of it."""

    api: Api
    receiver: Receiver
    deliverer: Deliverer
    clock: Clock
    budget: dict[str, Any]

    def webhook(self, *events: str, budget_id: str | None = None, **fields: Any) -> dict[str, Any]:
        body = {"url": self.receiver.url, "events": list(events), **fields}
        return dict(made(self.api.post(f"/v1/budgets/{budget_id or self.budget['id']}/webhooks", body)))

    def deliveries(self, webhook: dict[str, Any]) -> list[dict[str, Any]]:
        """Oldest first."""
        found = made(self.api.get(f"/v1/webhooks/{webhook['id']}/deliveries", limit=200))["items"]
        return list(reversed(found))

    def delivered(self) -> list[Any]:
        """Deliver all that is due; what was received since."""
        before = len(self.receiver.received)
        while self.deliverer.deliver():
            pass
        return [received.said for received in self.receiver.received[before:]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def settings(settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Settings:
    # The servers of these tests have threads of their own that deliver; they are not to come in between.
    monkeypatch.setattr(delivery, "INTERVAL_S", 3600.0)
    allowed = f"http://127.0.0.1:{receiver.port}/ https://hooks.example/"
    return settings.model_copy(update={"webhook_addresses": allowed, "webhook_networks": "127.0.0.0/8"})


@pytest.fixture
def told(api: Api, client: TestClient, context: Context, receiver: Receiver, clock: Clock) -> Told:
    return Told(api, receiver, Deliverer(context, jitter=lambda: 0.0), clock, api.budget())
