"""An entry in the form of the HTTP contract, read only from its hashed bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounting.filters import PrivacyFilter, filter_from_json
from app.entries.records import EntryRecord, record_from_canonical
from app.kit.timestamps import format_moment
from app.ledger.amounts import amounts_in_words, limit_in_words, numbers
from app.ledger.books import StoredEntry
from app.ledger.stored_values import wrong_kinds_named


def entry_body(entry: StoredEntry, budget_filter: PrivacyFilter | None) -> dict[str, Any]:
    """Return the members of `EntryBody`, as JSON, except the principal's name, which no entry holds.

    Args:
        entry: The stored entry.
        budget_filter: The filter of the entry's budget, which names the amounts; its present limit does not matter.
            None for an entry of the register, which has no amounts.

    Raises:
        WrongKind: its bytes are not those of an entry.
    """
    with wrong_kinds_named(f"the entry {entry.sequence!r} of {entry.budget_id!r}"):
        try:
            return _body(entry, record_from_canonical(entry.canonical), budget_filter)
        except (KeyError, AttributeError, RecursionError) as error:
            raise ValueError from error


def _body(entry: StoredEntry, record: EntryRecord, budget_filter: PrivacyFilter | None) -> dict[str, Any]:
    kinds = (entry.leaf_index, int), (entry.sequence, int), (entry.previous_hash, str), (entry.hash, str)
    if not all(isinstance(value, kind) for value, kind in kinds):
        raise ValueError("a column beside the entry's bytes has another type")
    details = dict(record.details or {})
    return {
        "id": record.id,
        "budget_id": record.budget_id,
        "sequence": record.sequence,
        "leaf_index": entry.leaf_index,
        "kind": str(record.kind),
        "amount": {} if budget_filter is None else _amount(record, budget_filter),
        "given_back": None
        if record.tail is None or budget_filter is None
        else numbers(budget_filter.describe_given_back(record.tail)),
        "events": [event.to_json() for event in record.events],
        "reservation_id": record.reservation_id,
        "refers_to": record.refers_to,
        "dataset": None if record.dataset is None else record.dataset.to_json(),
        "certificate": record.certificate,
        "principal_id": record.principal_id,
        "purpose": record.purpose,
        "reason": details.get("reason"),
        "limit_request_id": details.get("limit_request_id"),
        "engine_version": record.engine_version,
        "recorded_at": format_moment(record.recorded_at),
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def with_name(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the members of an entry with the name of its principal among them.

    Args:
        body: As `entry_body` and `register_entry_body` make it.
        names: The names of principals, by their ids.
    """
    return {**body, "principal_name": names.get(body["principal_id"])}


def register_entry_body(entry: StoredEntry) -> dict[str, Any]:
    """Return the members of `RegisterEntryBody`, as JSON, except the principal's name, which no entry holds.

    Args:
        entry: A stored entry of the register.
    """
    record = record_from_canonical(entry.canonical)
    details = dict(record.details or {})
    return {
        "id": record.id,
        "sequence": record.sequence,
        "leaf_index": entry.leaf_index,
        "kind": str(record.kind),
        "subject": details["subject"],
        "subject_id": record.subject_id,
        "says": details["says"],
        "principal_id": record.principal_id,
        "recorded_at": format_moment(record.recorded_at),
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def _amount(record: EntryRecord, budget_filter: PrivacyFilter) -> dict[str, Any]:
    limit = dict(record.details or {}).get("filter")
    if isinstance(limit, dict):
        return limit_in_words(filter_from_json(limit))
    return amounts_in_words(budget_filter, record.amounts)
