"""The SQL that adds entries to their chains."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Connection, Table, insert

from accounting.events import Event
from app.entries.metering import Meter
from app.entries.records import EntryRecord, mechanisms_of
from app.kit.hash_chain import chain_hash
from app.tables.ledger import Entry

ENTRIES = cast(Table, Entry.__table__)
# Inline, so that the statement does not wait for the number of the new row, which nobody needs.
_INSERT_ENTRY = insert(ENTRIES).inline()


def entry_row(record: EntryRecord, previous_hash: str, events: tuple[Event, ...] = ()) -> dict[str, Any]:
    """Return the columns of an entry; its bytes are made here, once.

    Args:
        record: The content of the entry.
        previous_hash: The hash of the entry before it.
        events: The events that it is for, if another entry has them.
    """
    canonical = record.canonical()
    return {
        "id": record.id,
        "budget_id": record.budget_id,
        "sequence": record.sequence,
        "kind": str(record.kind),
        "reservation_id": record.reservation_id,
        "subject_id": record.subject_id,
        "principal_id": record.principal_id,
        "purpose": record.purpose,
        "mechanisms": mechanisms_of(record.events or events),
        "recorded_at": record.recorded_at,
        "canonical": canonical,
        "previous_hash": previous_hash,
        "hash": chain_hash(previous_hash, canonical),
    }


def insert_entries(connection: Connection, values: list[dict[str, Any]], meter: Meter) -> None:
    """Insert new entries, which the meter has counted, at the ends of their chains.

    Requires: the chains' locks; otherwise UNIQUE (budget_id, sequence) refuses one of two writers.
    """
    if values:
        connection.execute(_INSERT_ENTRY, values)
        meter.write()
