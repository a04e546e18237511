"""Verification: what the tables of budgets and reservations say is what the entries make, or it is named (P8)."""

from __future__ import annotations

from typing import Any

import pytest

from app.db.database import Database
from tests.app.ledger import attacks
from tests.app.ledger.verdicts import first_bad
from tests.databases import on_one_engine, on_postgresql

BUDGET_CHANGES = {
    "name": "'another'",
    "neighboring_relation": "'replace_one'",
    "privacy_unit": "'another'",
    "filter": """'{"kind":"zcdp","rho":4.5}'""",
    "report_delta": "'0.5'",
    "labels": "'{}'",
    "principal_id": "'another'",
    "created_at": "'2020-01-01 00:00:00'",
    "parent_id": "'another'",
    "path": "'another'",
    "spent": "'[1]'",
    "started": "'[1]'",
    "pending": "'[1]'",
    "overdrawn": "TRUE",
    "headroom": "headroom - 1",
    "sequence": "sequence + 1",
    "head_hash": "'another'",
}


#: What verification finds in a row does not depend on the engine; many columns are tried on one of them alone.


@on_one_engine
@pytest.mark.parametrize("column", BUDGET_CHANGES)
def test_a_changed_column_of_a_budget_is_named(root: dict[str, Any], database: Database, column: str) -> None:
    attacks.run(database, f"UPDATE budgets SET {column} = {BUDGET_CHANGES[column]} WHERE id = '{root['id']}'")
    bad = first_bad(database)
    assert bad.budget_id == root["id"]
    assert column in bad.reason or "the budget's row says" in bad.reason


RESERVATION_CHANGES = {
    "budget_id": "'another'",
    "sequence": "sequence + 1000",
    "events": "'[]'",
    "charged_events": "'[]'",
    "mechanisms": "','",
    "purpose": "'another'",
    "cost": "'[1]'",
    "charged": "'[1]'",
    "charge_delta": "0.5",
    "corrected": "NOT corrected",
    "warnings": "'[]'",
    "engine_version": "'0'",
    "principal_id": "'another'",
    "run_id": "'another'",
    "plan_hash": "'another'",
    "certificate": "'another'",
    "dataset": """'{"content": "", "id": "ds_another", "version": 1}'""",
    "entry_hash": "'another'",
    "created_at": "'2020-01-01 00:00:00'",
    "expires_at": "'2020-01-01 00:00:00'",
    "resolved_at": "'2020-01-01 00:00:00'",
}


@on_one_engine
@pytest.mark.parametrize("purpose", ["spent", "corrected"])
@pytest.mark.parametrize("column", RESERVATION_CHANGES)
@pytest.mark.one_in(4)
def test_a_changed_column_of_a_reservation_is_named(
    root: dict[str, Any], database: Database, column: str, purpose: str
) -> None:
    (row,) = [row for row in attacks.dump(database)["reservations"] if row["purpose"] == purpose]
    change = RESERVATION_CHANGES[column]
    attacks.run(database, f"UPDATE reservations SET {column} = {change} WHERE id = '{row['id']}'")
    bad = first_bad(database)
    assert row["id"] in bad.reason
    assert column in bad.reason
    # What was settled before the end is named with its last entry.
    assert (bad.leaf_index is None) == (purpose == "corrected")


def test_a_changed_state_of_a_reservation_is_named(root: dict[str, Any], database: Database) -> None:
    (row,) = [row for row in attacks.dump(database)["reservations"] if row["purpose"] == "started"]
    attacks.run(database, f"UPDATE reservations SET state = 'pending' WHERE id = '{row['id']}'")
    assert f"the column state of the reservation {row['id']}" in first_bad(database).reason


LIMIT_REQUEST_CHANGES = {
    "budget_id": "'another'",
    "sequence": "sequence + 1000",
    "filter": """'{"kind":"zcdp","rho":4.25}'""",
    "filter_before": """'{"kind":"zcdp","rho":4.25}'""",
    "reason": "'another'",
    "principal_id": "'another'",
    "approvals_needed": "2",
    "approvals": """'[{"principal_id":"a","reason":"r","approved_at":"2026-05-01T00:00:00Z"}]'""",
    "decided_by": "'another'",
    "decision_reason": "'another'",
    "created_at": "'2020-01-01 00:00:00'",
    "decided_at": "'2020-01-01 00:00:00'",
}


@on_one_engine
@pytest.mark.parametrize("column", LIMIT_REQUEST_CHANGES)
def test_a_changed_column_of_a_limit_request_is_named(root: dict[str, Any], database: Database, column: str) -> None:
    (row,) = [row for row in attacks.dump(database)["limit_requests"] if row["state"] == "refused"]
    change = LIMIT_REQUEST_CHANGES[column]
    attacks.run(database, f"UPDATE limit_requests SET {column} = {change} WHERE id = '{row['id']}'")
    assert f"the column {column} of the limit request {row['id']} differs" in first_bad(database).reason


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            "UPDATE limit_requests SET state = 'approved' WHERE state = 'refused'",
            "the column state of the limit request",
        ),
        ("DELETE FROM limit_requests WHERE state = 'open'", "has no row"),
        ("UPDATE limit_requests SET id = 'lim_other' WHERE state = 'open'", "lim_other has no entry that made it"),
    ],
)
def test_a_limit_request_is_what_its_entries_say(
    root: dict[str, Any], database: Database, statement: str, reason: str
) -> None:
    attacks.run(database, statement)
    assert reason in first_bad(database).reason


def test_every_column_of_the_state_tables_is_covered(root: dict[str, Any], database: Database) -> None:
    tables = attacks.dump(database)
    assert set(tables["budgets"][0]) == {"id", *BUDGET_CHANGES}
    assert set(tables["reservations"][0]) == {"id", "state", *RESERVATION_CHANGES}
    assert set(tables["limit_requests"][0]) == {"id", "state", *LIMIT_REQUEST_CHANGES}
    assert set(tables["exposed_steps"][0]) == {"budget_id", "step_hash", "step", "count"}


@on_postgresql
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM reservations WHERE purpose = 'spent'",
        "DELETE FROM reservations WHERE purpose = 'extended'",
        "UPDATE reservations SET id = 'res_other' WHERE purpose = 'spent'",
    ],
)
def test_a_reservation_without_a_row_is_named(root: dict[str, Any], database: Database, statement: str) -> None:
    attacks.run(database, statement)
    assert "has no row" in first_bad(database).reason


def test_a_reservation_that_no_entry_made_is_named(root: dict[str, Any], database: Database) -> None:
    columns = ", ".join(name for name in attacks.dump(database)["reservations"][0] if name not in ("id", "sequence"))
    attacks.run(
        database,
        f"INSERT INTO reservations (id, sequence, {columns}) "
        f"SELECT 'res_other', 1000, {columns} FROM reservations WHERE purpose = 'spent'",
    )
    assert first_bad(database).reason == "the reservation res_other has no entry that made it"


@pytest.mark.parametrize("sequence", ["sequence", "sequence + 1"])
def test_a_second_row_of_a_reservation_is_named(root: dict[str, Any], database: Database, sequence: str) -> None:
    """Where an entry of the same reservation stands, or beside the first one: no key is left that would refuse it."""
    columns = ", ".join(name for name in attacks.dump(database)["reservations"][0] if name != "sequence")
    attacks.run(
        database,
        "CREATE TABLE copied AS SELECT * FROM reservations",
        "DROP TABLE reservations" if database.is_sqlite else "DROP TABLE reservations CASCADE",
        "ALTER TABLE copied RENAME TO reservations",
        f"INSERT INTO reservations (sequence, {columns}) "
        f"SELECT {sequence}, {columns} FROM reservations WHERE purpose = 'spent'",
    )
    assert first_bad(database).reason == "a reservation has more than one row"


@on_postgresql
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE exposed_steps SET count = count + 1",
        "UPDATE exposed_steps SET step = '[]'",
        "UPDATE exposed_steps SET step_hash = 'another' WHERE count = (SELECT max(count) FROM exposed_steps)",
        "DELETE FROM exposed_steps WHERE count = (SELECT max(count) FROM exposed_steps)",
    ],
)
def test_a_changed_exposed_step_is_named(root: dict[str, Any], database: Database, statement: str) -> None:
    attacks.run(database, statement)
    bad = first_bad(database)
    assert "exposed step" in bad.reason
    assert bad.sequence is None
