"""Entries as bytes: written once, hashed once, never serialised again.

Each budget has a chain of its own, and so has the register: the hash of an entry covers its bytes and the hash of the
entry before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, cast

from accounting.canonical import Json, canonical_text
from accounting.events import Event, event_from_json
from app.entries.kinds import ChargedData, EntryKind
from app.kit.timestamps import format_moment

#: The version of the bytes that are written now. Version 1 stays readable for ever.
RECORD_VERSION = 2


@dataclass(frozen=True)
class EntryRecord:
    """One entry, without its place in the chain.

    Attributes:
        budget_id: The owner of its chain: a budget, or `app.tables.states.REGISTER`.
        amounts: Units per order: what was held, charged or released; the caps for a new budget.
        events: What the amounts are for. Empty if ``refers_to`` names the entry that has them.
        details: Further data to rebuild the state, such as the budget's terms or the reservation's times.
        refers_to: The hash of the entry that made the reservation.
        subject_id: The id of the subject of an entry of the register: the data set, key, run or audit that it is about.
        dataset: The data that the charge is for, if known.
        work: The work that was spent on the price; None for the engine's own.
        certificate: The SHA-256 of a certificate of what the events cost alone, hexadecimal.
        failure: A failure probability that is charged besides the amounts, in units of 1e-18.
        tail: What was given back for steps that will never be taken, per position of the amounts.
        version: The version of the format of its bytes.
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
    refers_to: str | None = None
    subject_id: str | None = None
    dataset: ChargedData | None = None
    work: int | None = None
    certificate: str | None = None
    failure: int | None = None
    tail: tuple[int, ...] | None = None
    version: int = RECORD_VERSION

    def canonical(self) -> bytes:
        """Return canonical bytes of everything above, as `accounting.canonical` writes them, without members that are
        None.

        They are assembled from parts, because most entries share their events with others.
        """
        parts = ['{"amounts":[', ",".join([f'"{amount}"' for amount in self.amounts])]
        parts += ['],"budget_id":', _text(self.budget_id)]
        if self.certificate is not None:
            parts += [',"certificate":', _text(self.certificate)]
        if self.dataset is not None:
            parts += [',"dataset":', canonical_text(self.dataset.to_json())]
        parts += [',"details":', canonical_text(dict(self.details or {}))]
        parts += [',"engine_version":', _text(self.engine_version), ',"events":', _canonical_events(self.events)]
        if self.failure is not None:
            parts += [f',"failure":"{self.failure}"']
        parts += [',"id":', _text(self.id), ',"kind":', _text(str(self.kind))]
        parts += [',"principal_id":', _text(self.principal_id)]
        if self.purpose is not None:
            parts += [',"purpose":', _text(self.purpose)]
        parts += [',"recorded_at":', _text(format_moment(self.recorded_at))]
        if self.refers_to is not None:
            parts += [',"refers_to":', _text(self.refers_to)]
        if self.reservation_id is not None:
            parts += [',"reservation_id":', _text(self.reservation_id)]
        parts += [f',"sequence":"{self.sequence}"']
        if self.subject_id is not None:
            parts += [',"subject_id":', _text(self.subject_id)]
        if self.tail is not None:
            parts += [',"tail":[', ",".join([f'"{amount}"' for amount in self.tail]), "]"]
        parts += [f',"v":"{self.version}"']
        if self.work is not None:
            parts += [f',"work":"{self.work}"']
        return "".join([*parts, "}"]).encode()


def _text(value: str) -> str:
    return encode_basestring(value)


@lru_cache(maxsize=4096)
def _canonical_events(events: tuple[Event, ...]) -> str:
    return canonical_text([event.to_json() for event in events])


@lru_cache(maxsize=4096)
def mechanisms_of(events: tuple[Event, ...]) -> str:
    """Return the kinds of mechanism among the events, each between commas, so that a query can look for one of them.

    >>> from accounting.events import PureDp, ZcDp
    >>> mechanisms_of((Event(ZcDp(0.1)), Event(PureDp(1.0)), Event(ZcDp(0.2))))
    ',pure_dp,zcdp,'
    """
    kinds = sorted({event.mechanism.kind for event in events})
    return f",{','.join(kinds)}," if kinds else ""


def record_from_canonical(data: bytes) -> EntryRecord:
    """Read what `EntryRecord.canonical` wrote, in this version or the first. Numbers inside `details` stay strings.

    Raises:
        ValueError, KeyError, TypeError: these are not the bytes of an entry.
    """
    text = data.decode()
    plain = _members_around_known_events(text) or _members(text)
    version = plain.pop("v", None)
    if version not in _MEMBERS_OF:
        raise ValueError("these bytes have another format version, or are not exactly one entry")
    required, allowed = _MEMBERS_OF[version]
    if not required <= plain.keys() <= allowed:
        raise ValueError("these bytes are not exactly one entry")
    plain["version"] = int(version)
    plain["sequence"] = int(plain["sequence"])
    plain["kind"] = _KINDS[plain["kind"]]
    plain["recorded_at"] = datetime.fromisoformat(plain["recorded_at"])
    plain["amounts"] = tuple(map(int, plain["amounts"]))
    if plain.keys() & _CONVERTED:
        _convert(plain)
    # This does the same as `EntryRecord(**plain)`, which alone would take as long as everything above.
    record = object.__new__(EntryRecord)
    vars(record).update(_ABSENT, **plain)
    return record


_read_json: Callable[[str], tuple[Any, int]] = json.JSONDecoder().raw_decode
_FIRST = {
    "amounts",
    "budget_id",
    "details",
    "engine_version",
    "events",
    "id",
    "kind",
    "principal_id",
    "purpose",
    "recorded_at",
    "reservation_id",
    "sequence",
}
_ABSENT: dict[str, Any] = {
    member.name: None for member in fields(EntryRecord) if member.default is None and member.name != "details"
}
# For each version, the members that its bytes must have, and those that they may have.
_MEMBERS_OF = {
    "1": (_FIRST, _FIRST),
    "2": (_FIRST - _ABSENT.keys(), _FIRST | _ABSENT.keys()),
}
_CONVERTED = {"dataset", "work", "failure", "tail", "refers_to", "certificate", "subject_id"}
_KINDS = {str(kind): kind for kind in EntryKind}
_HASH = re.compile("[0-9a-f]{64}")
# Many entries have the same events, so those that were parsed once are found again by their text.
_EVENTS: dict[str, tuple[Event, ...]] = {}
_MOST_EVENTS = 4096


def _convert(plain: dict[str, Any]) -> None:
    """Read the members that only few entries have."""
    for name in plain.keys() & {"refers_to", "certificate"}:
        if not _HASH.fullmatch(plain[name]):
            raise ValueError(f"{name} must be a hash")
    if not isinstance(plain.get("subject_id", ""), str):
        raise TypeError("an id must be a string")
    for name in plain.keys() & {"work", "failure"}:
        plain[name] = _positive(plain[name])
    if "tail" in plain:
        plain["tail"] = tuple(map(int, plain["tail"]))
    if "dataset" in plain:
        plain["dataset"] = ChargedData.from_json(plain["dataset"])


def _positive(text: str) -> int:
    number = int(text)
    if number < 1 or str(number) != text:
        raise ValueError("the amount is not a positive number")
    return number


def _members_around_known_events(text: str) -> dict[str, Any] | None:
    """Return the members of an entry whose events were parsed before; None if the whole entry must be parsed.

    The texts before and after the events must then form two complete objects, with the members of the entry in order.
    If something inside another member merely looks like the beginning or the end of the events, they do not.
    """
    before, _, rest = text.partition(',"events":')
    events_text, _, behind = rest.partition(',"id":')
    events = _EVENTS.get(events_text)
    if events is None:
        return None
    before, behind = before + "}", '{"id":' + behind
    try:
        plain, end = _read_json(before)
        others, others_end = _read_json(behind)
    except ValueError:
        return None
    if end != len(before) or others_end != len(behind):
        return None
    if not plain.keys() <= _BEFORE_EVENTS or not others.keys() <= _BEHIND_EVENTS:
        return None
    plain.update(others)
    plain["events"] = events
    return cast(dict[str, Any], plain)


_BEFORE_EVENTS = {"amounts", "budget_id", "certificate", "dataset", "details", "engine_version"}
_BEHIND_EVENTS = ({"v"} | _FIRST | _ABSENT.keys()) - _BEFORE_EVENTS - {"events"}


def _members(text: str) -> dict[str, Any]:
    plain, end = _read_json(text)
    if end != len(text) or not isinstance(plain, dict) or "events" not in plain:
        raise ValueError("these bytes are not exactly one entry")
    plain["events"] = _events(plain["events"])
    return plain


def _events(plain: list[Any]) -> tuple[Event, ...]:
    if not plain:
        return ()
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    found = _EVENTS.get(text)
    if found is None:
        found = tuple(event_from_json(event) for event in plain)
        if len(_EVENTS) >= _MOST_EVENTS:
            _EVENTS.clear()
        _EVENTS[text] = found
    return found
