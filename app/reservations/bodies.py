"""A reservation in the form of the HTTP contract, made from the states of a decision without a query."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

from accounting.events import Event
from app.kit.timestamps import format_moment
from app.ledger.amounts import amounts_in_words, given_back_in_words, remaining_in_words
from app.ledger.states import Path, ReservationState


def reservation_body(state: ReservationState, path: Path, now: datetime) -> dict[str, Any]:
    """Return the members of `ReservationBody`, as JSON.

    Args:
        state: The reservation.
        path: Its budget and those above it.
        now: The time that decides whether it is overdue.
    """
    budget_filter = path[0].filter
    return {
        "id": state.id or None,
        "budget_id": state.budget_id,
        "state": str(state.status),
        "overdue": state.is_overdue(now),
        "cost": amounts_in_words(budget_filter, state.cost),
        "charged": None if state.charged is None else amounts_in_words(budget_filter, state.charged),
        "given_back": given_back_in_words(budget_filter, state),
        "remaining": remaining_in_words(path),
        "events": events_body(state.events),
        "charged_events": None if state.charged_events is None else events_body(state.charged_events),
        "charge_delta": state.charge_delta,
        "corrected": state.corrected,
        "purpose": state.purpose,
        "run_id": state.run_id,
        "plan_hash": state.plan_hash,
        "certificate": state.certificate,
        "created_at": format_moment(state.created_at),
        "expires_at": format_moment(state.expires_at),
        "resolved_at": None if state.resolved_at is None else format_moment(state.resolved_at),
        "warnings": [{"code": code, "detail": detail} for code, detail in state.warnings],
        "price": None,
    }


@lru_cache(maxsize=1024)
def events_body(events: tuple[Event, ...]) -> list[Any]:
    """Return the events in the form of the contract. The result is shared, so it must not be changed."""
    return [event.to_json() for event in events]
