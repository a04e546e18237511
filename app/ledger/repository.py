"""All SQL on entries."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ledger.models import Entry
from app.ledger.records import EntryRecord, chain_hash


def append(session: Session, record: EntryRecord, previous_hash: str) -> str:
    """Add the entry behind the one with ``previous_hash``; returns its own hash.

    Requires: the caller holds the budget's lock; otherwise UNIQUE (budget_id, sequence) refuses one of two writers.
    """
    canonical = record.canonical()
    entry = Entry(
        id=record.id,
        budget_id=record.budget_id,
        sequence=record.sequence,
        kind=str(record.kind),
        reservation_id=record.reservation_id,
        principal_id=record.principal_id,
        purpose=record.purpose,
        amounts=list(record.amounts),
        events=[event.to_json() for event in record.events],
        recorded_at=record.recorded_at,
        engine_version=record.engine_version,
        canonical=canonical,
        previous_hash=previous_hash,
        hash=chain_hash(previous_hash, canonical),
    )
    session.add(entry)
    return entry.hash


def page(
    session: Session,
    budget_id: str,
    *,
    from_sequence: int,
    limit: int,
    kind: str | None = None,
    after: datetime | None = None,
    before: datetime | None = None,
    purpose: str | None = None,
) -> list[Entry]:
    """Entries of the budget behind ``from_sequence``, oldest first.

    Args:
        session: A session.
        budget_id: Whose entries.
        from_sequence: 0 for the first page.
        limit: Most entries.
        kind: Only this kind.
        after: Only entries recorded at this moment or later.
        before: Only entries recorded earlier than this moment.
        purpose: Only entries of reservations with exactly this purpose.
    """
    statement = select(Entry).where(Entry.budget_id == budget_id, Entry.sequence > from_sequence)
    if kind is not None:
        statement = statement.where(Entry.kind == kind)
    if after is not None:
        statement = statement.where(Entry.recorded_at >= after)
    if before is not None:
        statement = statement.where(Entry.recorded_at < before)
    if purpose is not None:
        statement = statement.where(Entry.purpose == purpose)
    return list(session.scalars(statement.order_by(Entry.sequence).limit(limit)))


def history(session: Session, budget_id: str) -> list[Entry]:
    """All entries of the budget, oldest first."""
    return list(session.scalars(select(Entry).where(Entry.budget_id == budget_id).order_by(Entry.sequence)))
