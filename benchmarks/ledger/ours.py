"""Our side in process: one function per action, each a whole keyed command as an endpoint makes it, without the HTTP.

Everything that the benchmark asks of the ledger's insides is here; the rest of it speaks HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from accounting.canonical import Json, canonical_bytes
from accounting.events import Event
from app.auth.principal import LOOPBACK
from app.budgets import service
from app.budgets.schemas import BudgetRequest
from app.db.database import Database
from app.kit.context import Context
from app.kit.idempotency import Answer, run_once
from app.ledger.commands import Commit
from app.ledger.rows import budget_state
from app.problems import Problem
from app.reservations.requests import Asked, ReservationCommands
from app.settings import Settings

#: For so long a reservation is held; none is left until then.
EXPIRES_IN = timedelta(hours=1)


@contextmanager
def ledger(url: str, data_dir: Path) -> Iterator[Context]:
    """A process's own way to the ledger at ``url``; any number of threads may share it."""
    database = Database(url)
    try:
        yield Context(Settings(data_dir=data_dir, database_url=url, workers=0), database)
    finally:
        database.dispose()


def create_budget(context: Context, request: Mapping[str, Any], key: str) -> str:
    """Open the budget that the HTTP request describes; returns its id."""
    asked = BudgetRequest.model_validate(request)

    def command(session: Session) -> Answer:
        return Answer(201, {"id": service.create_budget(session, context, asked, LOOPBACK.id).id})

    fingerprint = canonical_bytes({"create_budget": asked.model_dump(mode="json")})
    return str(run_once(context, LOOPBACK.id, key, fingerprint, command).body["id"])


def reserve(context: Context, budget_id: str, events: Sequence[Event], key: str) -> str | None:
    """Hold what the events cost; returns the reservation's id, or None where the budget does not admit it."""
    asked: dict[str, Json] = {"reserve": budget_id, "events": [event.to_json() for event in events]}
    try:
        answer = ReservationCommands(context, LOOPBACK, key).reserve(
            Asked(budget_id, tuple(events), "bench", EXPIRES_IN), canonical_bytes(asked)
        )
    except Problem as problem:
        if problem.code != "budget_exceeded":
            raise
        return None
    return str(json.loads(bytes(answer.body))["id"])


def commit(context: Context, reservation_id: str, key: str) -> None:
    """Spend what the reservation holds."""
    fingerprint = canonical_bytes({"commit": reservation_id})
    ReservationCommands(context, LOOPBACK, key).resolve(reservation_id, Commit, fingerprint)


async def spend(context: Context, budget_id: str, events: Sequence[Event], key: str) -> None:
    """Reserve and commit as the endpoints do: as a coroutine of the server's loop."""
    asked: dict[str, Json] = {"reserve": budget_id, "events": [event.to_json() for event in events]}
    commands = ReservationCommands(context, LOOPBACK, f"{key} reserve")
    answer = await commands.reserve_soon(Asked(budget_id, tuple(events), "bench", EXPIRES_IN), canonical_bytes(asked))
    reservation_id = str(json.loads(bytes(answer.body))["id"])
    commands = ReservationCommands(context, LOOPBACK, f"{key} commit")
    await commands.resolve_soon(reservation_id, Commit(), canonical_bytes({"commit": reservation_id}))


def used(context: Context, budget_id: str) -> tuple[int, ...]:
    """What is spent and reserved, in nano-units per order."""
    with context.database.read() as session:
        return budget_state(service.get_budget(session, budget_id)).used
