"""What an entry says, as bytes: written once, hashed once, never serialised again.

Each budget has a chain of its own: the hash of an entry covers its bytes and the hash of the entry before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from accounting.canonical import Json, canonical_bytes
from accounting.events import Event, event_from_json
from app.kit.moments import format_moment
from app.ledger.states import EntryKind

#: The hash "before" a budget's first entry.
GENESIS = "0" * 64
# Says how the hash is made; another way of making it gets another byte.
_HASH_VERSION = b"\x01"


@dataclass(frozen=True)
class EntryRecord:
    """One entry, without its place in the chain.

    Attributes:
        amounts: Nano-units per order: what was held, charged or released; the caps for a new budget.
        details: What else is needed to rebuild the state: the budget's terms, the reservation's times.
    """

    id: str
    budget_id: str
    sequence: int
    kind: EntryKind
    principal_id: str
    recorded_at: datetime
    engine_version: str
    amounts: tuple[int, ...]
    events: tuple[Event, ...] = ()
    reservation_id: str | None = None
    purpose: str | None = None
    details: Mapping[str, Json] | None = None

    def canonical(self) -> bytes:
        """Canonical bytes of everything above."""
        return canonical_bytes(
            {
                "id": self.id,
                "budget_id": self.budget_id,
                "sequence": self.sequence,
                "kind": str(self.kind),
                "principal_id": self.principal_id,
                "recorded_at": format_moment(self.recorded_at),
                "engine_version": self.engine_version,
                "amounts": list(self.amounts),
                "events": [event.to_json() for event in self.events],
                "reservation_id": self.reservation_id,
                "purpose": self.purpose,
                "details": dict(self.details or {}),
            }
        )


def record_from_canonical(data: bytes) -> EntryRecord:
    """Read what `EntryRecord.canonical` wrote. Numbers inside `details` stay strings."""
    plain: dict[str, Any] = json.loads(data)
    if plain.pop("v") != "1":
        raise ValueError("these bytes are of another format version")
    return EntryRecord(
        **{
            **plain,
            "sequence": int(plain["sequence"]),
            "kind": EntryKind(plain["kind"]),
            "recorded_at": datetime.fromisoformat(plain["recorded_at"]),
            "amounts": tuple(int(amount) for amount in plain["amounts"]),
            "events": tuple(event_from_json(event) for event in plain["events"]),
        }
    )


def chain_hash(previous_hash: str, canonical: bytes) -> str:
    """SHA-256 of the version byte, the length (8 bytes, big-endian) and the bytes of the entry, and the hash before.

    >>> chain_hash(GENESIS, b"{}")[:8]
    '94dd13fd'
    """
    length = len(canonical).to_bytes(8, "big")
    return hashlib.sha256(_HASH_VERSION + length + canonical + bytes.fromhex(previous_hash)).hexdigest()
