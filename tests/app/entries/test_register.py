"""What the register takes: a first entry about something, changes of what may change, and an end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from accounting.events import Event, PureDp
from app.entries.kinds import EntryKind
from app.entries.records import EntryRecord
from app.entries.register import UNREADABLE, Refused, Register
from app.entries.subjects import LATER, Subject
from app.tables.states import REGISTER

HASH = "a" * 64


def entry(kind: EntryKind, subject: str = "key", subject_id: str = "key_1", **more: Any) -> EntryRecord:
    says = more.pop("says", {"id": subject_id} if kind is EntryKind.REGISTER else {})
    fields: dict[str, Any] = {"amounts": (), "details": {"subject": subject, "says": says}, **more}
    return EntryRecord(
        id="ent_1",
        budget_id=REGISTER,
        sequence=1,
        kind=kind,
        principal_id="loopback",
        recorded_at=datetime(2026, 5, 1, tzinfo=UTC),
        engine_version="1",
        subject_id=subject_id,
        **fields,
    )


def taken(*entries: EntryRecord) -> Register:
    register = Register()
    for each in entries:
        register.enter(each, HASH)
    return register


FIRST = entry(EntryKind.REGISTER, says={"id": "key_1", "scopes": ["owner"], "revoked_at": None})


def test_later_entries_replace_what_was_said() -> None:
    register = taken(FIRST, entry(EntryKind.CHANGE, says={"token_hash": "b"}))
    assert register.told["key_1"].columns == {
        "id": "key_1",
        "scopes": ["owner"],
        "revoked_at": None,
        "token_hash": "b",
    }
    ended = register.enter(entry(EntryKind.END, says={"revoked_at": "2026-05-02"}), HASH)
    assert ended is not None
    assert (ended.has_ended, ended.columns["revoked_at"], register.told) == (True, "2026-05-02", {})


def test_what_has_no_later_entries_is_final_at_once() -> None:
    told = Register().enter(entry(EntryKind.REGISTER, "audit", "aud_1"), HASH)
    assert told is not None
    assert not told.has_ended


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([FIRST, FIRST], "registered already"),
        ([entry(EntryKind.REGISTER, says={"id": "key_2"})], "belongs to another subject"),
        ([entry(EntryKind.CHANGE)], "or it has ended"),
        ([FIRST, entry(EntryKind.END), entry(EntryKind.CHANGE)], "or it has ended"),
        ([FIRST, entry(EntryKind.CHANGE, "dataset")], "or it has ended"),
        ([FIRST, entry(EntryKind.CHANGE, says={"scopes": ["admin"]})], "fixed for ever"),
        ([FIRST, entry(EntryKind.END, says={"scopes": ["admin"]})], "fixed for ever"),
        ([FIRST, entry(EntryKind.COMMIT)], "cannot be of the kind commit"),
        ([entry(EntryKind.REGISTER, amounts=(1,))], "must charge nothing"),
        ([entry(EntryKind.REGISTER, events=(Event(PureDp(1.0)),))], "must charge nothing"),
        ([entry(EntryKind.REGISTER, reservation_id="res_1")], "must charge nothing"),
        ([entry(EntryKind.REGISTER, subject_id=None)], "must charge nothing"),
    ],
)
def test_what_the_service_would_not_have_entered_is_refused(entries: list[EntryRecord], reason: str) -> None:
    *before, last = entries
    register = taken(*before)
    with pytest.raises(Refused, match=reason):
        register.enter(last, HASH)


@pytest.mark.parametrize(
    "details",
    [None, {}, {"subject": "budget", "says": {}}, {"subject": "key"}, {"subject": "key", "says": []}],
)
def test_what_says_nothing_is_unreadable(details: Any) -> None:
    with pytest.raises(UNREADABLE):
        Register().enter(entry(EntryKind.REGISTER, details=details), HASH)


def test_every_subject_says_what_may_change() -> None:
    assert set(LATER) == set(Subject)
    # What decides a charge never changes under an id: whether rows are private, and whose budget they are bound to.
    changing = {column for each in LATER[Subject.DATASET].values() for column in each}
    assert not changing & {"is_public", "budget_id", "content_hash", "columns", "privacy_unit"}
    assert "scopes" not in {column for each in LATER[Subject.KEY].values() for column in each}
