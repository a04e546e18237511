"""Entries: what they say, that they cannot be changed, that they explain the state, and how they are found."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accounting.events import Event, Gaussian, Poisson
from app.kit.context import Context
from app.ledger import repository
from app.ledger.rebuild import first_broken_link
from app.ledger.records import GENESIS, EntryRecord, chain_hash, record_from_canonical
from app.ledger.states import EntryKind
from tests.app.budgets.conftest import Api, Clock, gaussian, zcdp
from tests.app.ledger.audit import audit, links
from tests.app.problem_assertions import assert_problem

FILTERS: list[tuple[dict[str, Any], list[Any]]] = [
    ({"kind": "zcdp", "rho": "1.9"}, [zcdp(0.1, count=3), gaussian(10.0, count=2, sampling_probability=0.1)]),
    ({"kind": "pure_dp", "epsilon": 1}, [{"mechanism": {"kind": "laplace", "noise_multiplier": 30}, "count": 3}]),
    ({"kind": "renyi_dp", "epsilon": 2.5, "delta": 1e-6}, [gaussian(20.0, count=3, sampling_probability=0.5)]),
]


def _live(api: Api, clock: Clock, budget_filter: dict[str, Any], events: list[Any]) -> str:
    """A budget with one reservation of every fate."""
    budget_id: str = api.budget(budget_filter, labels={"a": "b"}, report_delta=1e-6)["id"]
    held = [api.hold(budget_id, events[:1], expires_in=60, purpose=f"q{number}")["id"] for number in range(5)]
    api.post(f"/v1/reservations/{held[0]}/start")
    api.post(f"/v1/reservations/{held[0]}/commit")
    api.post(f"/v1/reservations/{held[1]}/commit", {"events": [{**events[0], "count": 2}]})
    api.post(f"/v1/reservations/{held[2]}/void")
    api.post(f"/v1/reservations/{held[3]}/start")
    clock.advance(60)
    api.post(f"/v1/reservations/{held[4]}/start")
    api.hold(budget_id, events)
    return budget_id


@pytest.mark.parametrize(("budget_filter", "events"), FILTERS)
def test_entries_rebuild_the_state(
    api: Api, clock: Clock, context: Context, budget_filter: dict[str, Any], events: list[Any]
) -> None:
    budget_id = _live(api, clock, budget_filter, events)
    with context.database.read() as session:
        history = audit(session, budget_id)
    states = sorted(str(state.status) for state in history.reservations.values())
    assert states == ["committed", "committed", "expired", "pending", "started", "voided"]
    assert any(history.budget.spent)
    assert any(history.budget.reserved)


def test_an_entry_says_what_happened(api: Api, clock: Clock) -> None:
    budget_id = _live(api, clock, *FILTERS[0])
    entries = api.get(f"/v1/budgets/{budget_id}/entries").json()["items"]
    kinds = ["create", *["reserve"] * 5, "start", "commit", "commit", "void", "start", "expire", "reserve"]
    assert [entry["kind"] for entry in entries] == kinds
    assert [entry["sequence"] for entry in entries] == list(range(1, 14))
    assert sorted({entry["leaf_index"] for entry in entries}) == [entry["leaf_index"] for entry in entries]
    assert len({entry["id"] for entry in entries}) == 13
    assert all(entry["id"].startswith("ent_") for entry in entries)
    create, reserve, part = entries[0], entries[1], entries[8]
    assert create["amount"] == {"rho": 1.9}
    assert (reserve["amount"], reserve["purpose"], reserve["principal_id"]) == ({"rho": 0.3}, "q0", "loopback")
    assert reserve["events"][0]["count"] == 3
    assert (part["amount"], part["events"][0]["count"], part["purpose"]) == ({"rho": 0.2}, 2, "q1")
    assert entries[11]["recorded_at"] == "2026-05-01T00:01:00Z"
    assert entries[0]["previous_hash"] == GENESIS
    assert [entry["previous_hash"] for entry in entries[1:]] == [entry["hash"] for entry in entries[:-1]]


def test_entries_are_found_by_kind_time_and_purpose(api: Api, clock: Clock) -> None:
    budget_id = _live(api, clock, *FILTERS[0])
    path = f"/v1/budgets/{budget_id}/entries"

    def found(**params: Any) -> list[int]:
        return [entry["sequence"] for entry in api.get(path, **params).json()["items"]]

    assert found(kind="commit") == [8, 9]
    assert found(purpose="q0") == [2, 7, 8]
    assert found(purpose="nobody's") == []
    assert found(after="2026-05-01T00:01:00Z") == [12, 13]
    assert found(before="2026-05-01T00:01:00Z") == list(range(1, 12))
    assert found(after="2026-05-01T02:01:00+02:00", kind="reserve") == [13]
    assert found(after="2026-05-01T00:00:00Z", before="2026-05-01T00:00:01Z", purpose="q3") == [5, 11]
    first = api.get(path, kind="reserve", limit=4).json()
    assert [entry["sequence"] for entry in first["items"]] == [2, 3, 4, 5]
    assert found(kind="reserve", limit=4, cursor=first["next_cursor"]) == [6, 13]
    assert_problem(api.get(path, kind="refund"), 422, "invalid_request", "/query/kind")
    assert_problem(api.get(path, after="yesterday"), 422, "invalid_request", "/query/after")
    assert_problem(api.get(path, before="2026-05-01T00:00:00"), 422, "invalid_request", "/query/before")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET kind = 'void' WHERE sequence = 2",
        "UPDATE entries SET hash = previous_hash",
        "DELETE FROM entries WHERE sequence = 2",
        "DELETE FROM entries",
    ],
)
def test_the_database_refuses_to_change_or_delete_an_entry(api: Api, context: Context, statement: str) -> None:
    api.hold(api.budget()["id"], [zcdp(0.1)])
    with pytest.raises(DBAPIError, match="append-only"), context.database.write() as session:
        session.execute(text(statement))


def test_the_database_refuses_to_replace_or_truncate_entries(api: Api, context: Context) -> None:
    api.budget()
    if context.database.is_sqlite:
        statement = "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE sequence = 1"
    else:
        statement = "TRUNCATE entries"
    with pytest.raises(DBAPIError, match="append-only"), context.database.write() as session:
        session.execute(text(statement))


def test_the_database_refuses_amounts_past_the_limit_and_two_entries_in_one_place(api: Api, context: Context) -> None:
    api.budget()
    with pytest.raises(DBAPIError, match="ck_budgets_within_limit"), context.database.write() as session:
        session.execute(text("UPDATE budgets SET headroom = -1"))
    columns = (
        "id, budget_id, sequence, kind, reservation_id, principal_id, purpose, amounts, events, recorded_at, "
        "engine_version, canonical, previous_hash, hash"
    )
    copy = (
        f"INSERT INTO entries ({columns}) SELECT {columns.replace('id', chr(39) + 'ent_x' + chr(39), 1)} FROM entries"
    )
    with pytest.raises(DBAPIError), context.database.write() as session:
        session.execute(text(copy))


def test_a_changed_chain_is_noticed_at_the_first_bad_entry(api: Api, clock: Clock, context: Context) -> None:
    budget_id = _live(api, clock, *FILTERS[0])
    with context.database.read() as session:
        chain = links(repository.history(session, budget_id))
    assert first_broken_link(chain) is None
    flipped = replace(chain[4], canonical=chain[4].canonical.replace(b'"q3"', b'"q4"'))
    rehashed = replace(flipped, hash=chain_hash(flipped.previous_hash, flipped.canonical))
    for tampered, place in (
        ([*chain[:4], flipped, *chain[5:]], 5),
        ([*chain[:4], rehashed, *chain[5:]], 6),
        ([*chain[:4], rehashed, replace(chain[5], previous_hash=rehashed.hash), *chain[6:]], 6),
        ([*chain[:4], *chain[5:]], 5),
        ([*chain[:4], chain[5], chain[4], *chain[6:]], 5),
        ([*chain[:5], chain[4], *chain[5:]], 6),
    ):
        assert first_broken_link(tampered) == place


def test_a_record_reads_back_from_its_bytes() -> None:
    record = EntryRecord(
        id="ent_1",
        budget_id="bud_1",
        sequence=3,
        kind=EntryKind.RESERVE,
        principal_id="loopback",
        recorded_at=datetime(2026, 5, 1, tzinfo=UTC),
        engine_version="1",
        amounts=(1, 2**80),
        events=(Event(Gaussian(1.1), Poisson(1e-5), count=7),),
        reservation_id="res_1",
        purpose="é",
        details={"run_id": None},
    )
    assert record_from_canonical(record.canonical()) == record
    with pytest.raises(ValueError, match="another format version"):
        record_from_canonical(record.canonical().replace(b'"v":"1"', b'"v":"2"'))
