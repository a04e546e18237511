"""Answers about entries of the ledger."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from app.kit.fields import Schema
from app.ledger.states import EntryKind
from app.privacy.schemas import EventSchema


class EntryBody(Schema):
    """One transition of a budget. Entries are never changed or deleted."""

    id: str
    budget_id: str
    sequence: int = Field(description="Place in the budget's chain, from 1, without gaps.")
    leaf_index: int = Field(description="Place among the entries of all budgets; grows, and may have gaps.")
    kind: EntryKind
    amount: dict[str, Any] = Field(
        description="In the filter's own fields: the limit (create), what is held (reserve, start), charged (commit) "
        "or released (void, expire)."
    )
    events: list[EventSchema]
    reservation_id: str | None
    principal_id: str
    purpose: str | None
    engine_version: str = Field(description="Version of the accounting engine that made the amount.")
    recorded_at: datetime
    previous_hash: str = Field(description="Hash of the entry before, 64 zeros for the first.")
    hash: str = Field(description="SHA-256 over the entry's canonical bytes and `previous_hash`.")
