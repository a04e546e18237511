"""This module calls the ledger in process. Each function runs a whole command with an idempotency key, as an endpoint
does, but without HTTP.

Only this module of the benchmark calls commands of the ledger directly. The others send HTTP requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from accounting.canonical import canonical_bytes
from accounting.events import Event
from app.auth.principal import LOOPBACK, Principal
from app.budgets import service
from app.budgets.schemas import BudgetRequest
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.idempotency.once import Keyed, run_once
from app.idempotency.records import Answer
from app.ledger import repository
from app.ledger.commands import Commit
from app.ledger.rows import budget_state
from app.problems import Problem
from app.reservations.commands import Asked, Command, to_reserve, to_resolve
from app.reservations.endpoints import answered
from app.settings import Settings

#: The time after which a reservation expires. No benchmark takes that long.
EXPIRES_IN = timedelta(hours=1)


@contextmanager
def ledger(url: str, data_dir: Path, **settings: Any) -> Iterator[Context]:
    """Open the ledger at ``url`` for this process; any number of threads may share it."""
    database = Database(url)
    try:
        yield fenced_context(Settings(data_dir=data_dir, database_url=url, workers=0, **settings), database)
    finally:
        database.dispose()


def create_budget(context: Context, request: Mapping[str, Any], key: str) -> str:
    """Open the budget that the HTTP request describes, and return its id."""
    asked = BudgetRequest.model_validate(request)

    def command(session: Session) -> Answer:
        return Answer(201, {"id": service.create_budget(session, context, asked, LOOPBACK.id).id})

    fingerprint = canonical_bytes({"create_budget": asked.model_dump(mode="json")})
    return str(run_once(context, Keyed.of(context, LOOPBACK.id, key, fingerprint), command).body["id"])


def reserve(context: Context, budget_id: str, events: Sequence[Event], key: str) -> str | None:
    """Reserve the cost of the events. Return the reservation's id, or None if the budget does not admit it."""
    try:
        return str(_to_reserve(context, budget_id, events, key, LOOPBACK).carry_out().body["id"])
    except Problem as problem:
        if problem.code != "budget_exceeded":
            raise
        return None


def commit(context: Context, reservation_id: str, key: str) -> None:
    """Commit the reservation."""
    _to_commit(context, reservation_id, key, LOOPBACK).carry_out()


async def spend(
    context: Context, budget_id: str, events: Sequence[Event], key: str, principal: Principal = LOOPBACK
) -> None:
    """Reserve and commit in a coroutine of the event loop, as the endpoints do."""
    response = await answered(_to_reserve(context, budget_id, events, f"{key} reserve", principal))
    reservation_id = str(json.loads(bytes(response.body))["id"])
    await answered(_to_commit(context, reservation_id, f"{key} commit", principal))


def _to_reserve(context: Context, budget_id: str, events: Sequence[Event], key: str, principal: Principal) -> Command:
    fingerprint = canonical_bytes({"reserve": budget_id, "events": [event.to_json() for event in events]})
    asked = Asked(budget_id, tuple(events), "bench", EXPIRES_IN)
    return to_reserve(context, principal, Keyed.of(context, principal.id, key, fingerprint), asked)


def _to_commit(context: Context, reservation_id: str, key: str, principal: Principal) -> Command:
    keyed = Keyed.of(context, principal.id, key, canonical_bytes({"commit": reservation_id}))
    return to_resolve(context, principal, keyed, reservation_id, Commit())


def used(context: Context, budget_id: str) -> tuple[int, ...]:
    """Return the spent and reserved amounts, in nano-units for each order."""
    with context.database.read() as session:
        return budget_state(repository.get_budget(session, budget_id)).used
