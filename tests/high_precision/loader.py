"""The committed references, with the engine's own event types."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from accounting.events import Event, event_from_json
from accounting.relations import NeighboringRelation

FILE = Path(__file__).with_name("references.json")


@dataclass(frozen=True)
class KnownDelta:
    """delta at epsilon, exact to half a unit of its last digit (`error`)."""

    id: str
    events: tuple[Event, ...]
    relation: NeighboringRelation
    epsilon: float
    delta: Decimal
    goal: bool

    @property
    def error(self) -> Decimal:
        exponent = self.delta.as_tuple().exponent
        assert isinstance(exponent, int)
        return Decimal(1).scaleb(exponent)


def load_references() -> list[KnownDelta]:
    """All entries of ``references.json``, in its order."""
    return [_read(entry) for entry in json.loads(FILE.read_text())["references"]]


def _read(entry: dict[str, Any]) -> KnownDelta:
    return KnownDelta(
        entry["id"],
        tuple(event_from_json(event) for event in entry["events"]),
        NeighboringRelation(entry["neighboring_relation"]),
        float(entry["epsilon"]),
        Decimal(entry["delta"]),
        bool(entry["goal"]),
    )
