"""What an entry says, as bytes: written once, hashed once, never serialised again.

Each budget has a chain of its own: the hash of an entry covers its bytes and the hash of the entry before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, cast

from accounting.canonical import FORMAT_VERSION, Json, canonical_text
from accounting.events import Event, event_from_json
from app.kit.timestamps import format_moment
from app.ledger.states import EntryKind, LimitRequestState
from app.ledger.transitions import Transition

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
        """Canonical bytes of everything above: what `accounting.canonical.canonical_bytes` makes of it.

        Put together from parts, because most entries share their events with others.
        """
        parts = (
            '{"amounts":[',
            ",".join([f'"{amount}"' for amount in self.amounts]),
            '],"budget_id":',
            _text(self.budget_id),
            ',"details":',
            canonical_text(dict(self.details or {})),
            ',"engine_version":',
            _text(self.engine_version),
            ',"events":',
            _canonical_events(self.events),
            ',"id":',
            _text(self.id),
            ',"kind":',
            _text(str(self.kind)),
            ',"principal_id":',
            _text(self.principal_id),
            ',"purpose":',
            _text(self.purpose),
            ',"recorded_at":',
            _text(format_moment(self.recorded_at)),
            ',"reservation_id":',
            _text(self.reservation_id),
            ',"sequence":"',
            str(self.sequence),
            f'","v":"{FORMAT_VERSION}"}}',
        )
        return "".join(parts).encode()


def entry_record(
    transition: Transition, *, entry_id: str, sequence: int, principal_id: str, recorded_at: datetime
) -> EntryRecord:
    """The entry of a transition: with everything that is needed to replay it."""
    reservation = transition.reservation
    return EntryRecord(
        id=entry_id,
        budget_id=transition.budget.id,
        sequence=sequence,
        kind=transition.kind,
        principal_id=principal_id,
        recorded_at=recorded_at,
        engine_version=transition.engine_version,
        amounts=transition.amounts,
        events=transition.events,
        reservation_id=None if reservation is None else reservation.id,
        purpose=None if reservation is None else reservation.purpose,
        details=_details(transition),
    )


def _details(transition: Transition) -> dict[str, Json]:
    reservation, kind = transition.reservation, transition.kind
    details: dict[str, Json] = dict(transition.details)
    if kind is EntryKind.LIMIT:
        details["filter"] = transition.budget.filter.to_json()
    if transition.reason is not None:
        details["reason"] = transition.reason
    if transition.limit_request is not None:
        details |= _of_limit_request(transition.limit_request, kind)
    if reservation is None:
        return details
    if transition.before is None:
        details["expires_at"] = format_moment(reservation.expires_at)
        details["run_id"], details["plan_hash"] = reservation.run_id, reservation.plan_hash
        details["warnings"] = [{"code": code, "detail": detail} for code, detail in reservation.warnings]
        if reservation.charge_delta is not None:
            details["charge_delta"] = reservation.charge_delta
    elif kind is EntryKind.EXTEND:
        details["expires_at"] = format_moment(reservation.expires_at)
    elif kind is EntryKind.CORRECT:
        before = transition.before
        details["before"] = [str(amount) for amount in (before.cost if before.charged is None else before.charged)]
        details["events_replaced"] = reservation.corrected
        if reservation.charge_delta is not None:
            details["charge_delta"] = reservation.charge_delta
    return details


def _of_limit_request(request: LimitRequestState, kind: EntryKind) -> dict[str, Json]:
    """Which request an entry is about, and, where it makes one, what is asked for."""
    details: dict[str, Json] = {"limit_request_id": request.id}
    if kind is EntryKind.ASK:
        details["filter"], details["filter_before"] = request.filter.to_json(), request.filter_before.to_json()
        details["approvals_needed"] = request.approvals_needed
    return details


def _text(value: str | None) -> str:
    return "null" if value is None else encode_basestring(value)


@lru_cache(maxsize=4096)
def _canonical_events(events: tuple[Event, ...]) -> str:
    return canonical_text([event.to_json() for event in events])


@lru_cache(maxsize=4096)
def mechanisms_of(events: tuple[Event, ...]) -> str:
    """The kinds of mechanism among the events, each between commas, so that a query can look for one of them.

    >>> from accounting.events import PureDp, ZcDp
    >>> mechanisms_of((Event(ZcDp(0.1)), Event(PureDp(1.0)), Event(ZcDp(0.2))))
    ',pure_dp,zcdp,'
    """
    kinds = sorted({event.mechanism.kind for event in events})
    return f",{','.join(kinds)}," if kinds else ""


def record_from_canonical(data: bytes) -> EntryRecord:
    """Read what `EntryRecord.canonical` wrote. Numbers inside `details` stay strings.

    Raises:
        ValueError, KeyError, TypeError: these are not the bytes of an entry.
    """
    text = data.decode()
    plain = _members_around_known_events(text) or _members(text)
    if plain.pop("v") != "1":
        raise ValueError("these bytes are of another format version")
    plain["sequence"] = int(plain["sequence"])
    plain["kind"] = _KINDS[plain["kind"]]
    plain["recorded_at"] = datetime.fromisoformat(plain["recorded_at"])
    plain["amounts"] = tuple(map(int, plain["amounts"]))
    # `EntryRecord(**plain)`, which takes as long as everything above.
    record = object.__new__(EntryRecord)
    vars(record).update(plain)
    return record


_read_json: Callable[[str], tuple[Any, int]] = json.JSONDecoder().raw_decode
_MEMBERS = {"v", *(member.name for member in fields(EntryRecord))}
_BEFORE_EVENTS = {"amounts", "budget_id", "details", "engine_version"}
_BEHIND_EVENTS = _MEMBERS - _BEFORE_EVENTS - {"events"}
_KINDS = {str(kind): kind for kind in EntryKind}
# Most entries share their events with others: what was read once is found again by its text.
_EVENTS: dict[str, tuple[Event, ...]] = {}
_MOST_EVENTS = 4096


def _members_around_known_events(text: str) -> dict[str, Any] | None:
    """The members of an entry whose events were read before; None where reading the whole has to tell what it says.

    Before and behind the events are then two whole objects, whose members are those of the entry in their order: what
    looks like the beginning or the end of the events inside of something else makes neither of them.
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
    if plain.keys() != _BEFORE_EVENTS or others.keys() != _BEHIND_EVENTS:
        return None
    plain.update(others)
    plain["events"] = events
    return cast(dict[str, Any], plain)


def _members(text: str) -> dict[str, Any]:
    plain, end = _read_json(text)
    if end != len(text) or not isinstance(plain, dict) or plain.keys() != _MEMBERS:
        raise ValueError("these bytes are not of an entry alone")
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


def chain_hash(previous_hash: str, canonical: bytes) -> str:
    """SHA-256 of the version byte, the length (8 bytes, big-endian) and the bytes of the entry, and the hash before.

    >>> chain_hash(GENESIS, b"{}")[:8]
    '94dd13fd'
    """
    length = len(canonical).to_bytes(8, "big")
    return hashlib.sha256(_HASH_VERSION + length + canonical + bytes.fromhex(previous_hash)).hexdigest()
