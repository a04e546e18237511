"""Verification: books that nobody touched are valid; of changed entries the first bad place is named (P8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.ledger import books_repository, tree_repository, verification
from app.ledger.integration import integrate
from tests.app.budgets.conftest import Api, ApiOf, Clock
from tests.app.ledger import attacks
from tests.app.ledger.attacks import Rows
from tests.app.ledger.scenes import at_random
from tests.app.ledger.verdicts import PLACE, first_bad, own_chain, place_of, verdict_on, where
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine, on_postgresql


def test_books_that_nobody_touched_are_valid(root: dict[str, Any], database: Database) -> None:
    verdict = verdict_on(database)
    assert verdict.valid, verdict.in_words()
    rows = attacks.entries(database)
    assert (verdict.entries, verdict.budgets) == (len(rows), 3)
    assert {row["kind"] for row in rows} == {
        "create", "reserve", "start", "extend", "commit", "void", "expire", "correct", "limit", "ask", "refuse",
        "withdraw",
    }  # fmt: skip
    assert verdict.tree is not None
    said = f"valid: {len(rows)} entries of 3 budgets, head {verdict.head}; tree of 0, root {verdict.tree.root.hex()}"
    assert verdict.in_words() == said


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.one_in(4)
def test_random_histories_are_valid(context: Context, clock: Clock, seed: int) -> None:
    at_random(context, clock, seed, 150)
    verdict = verdict_on(context.database)
    assert verdict.valid, verdict.in_words()
    assert verdict.entries > 60


OTHER_VALUES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "id": lambda row: "ent_other",
    "budget_id": lambda row: "bud_other",
    "sequence": lambda row: row["sequence"] + 100,
    "kind": lambda row: "void" if row["kind"] != "void" else "start",
    "reservation_id": lambda row: "res_other",
    "subject_id": lambda row: "ds_other",
    "principal_id": lambda row: "somebody",
    "purpose": lambda row: "nothing",
    "mechanisms": lambda row: ",laplace,",
    "recorded_at": lambda row: (
        row["recorded_at"].replace("2026", "2025")
        if isinstance(row["recorded_at"], str)
        else row["recorded_at"].replace(year=2025)
    ),
    "previous_hash": lambda row: row["hash"],
    "hash": lambda row: row["previous_hash"],
}


@on_postgresql
@pytest.mark.parametrize("column", OTHER_VALUES)
def test_a_changed_column_is_named_with_its_entry(root: dict[str, Any], database: Database, column: str) -> None:
    row = attacks.entries(database)[PLACE]
    with attacks.attack(database) as connection:
        statement = text(f"UPDATE entries SET {column} = :value WHERE leaf_index = :leaf_index")
        connection.execute(statement, {"value": OTHER_VALUES[column](row), "leaf_index": row["leaf_index"]})
    assert where(first_bad(database)) == place_of(row)


def test_every_column_of_an_entry_is_covered(database: Database, root: dict[str, Any]) -> None:
    assert set(attacks.entries(database)[0]) == {*OTHER_VALUES, "canonical", "leaf_index"}


def test_an_entry_that_was_moved_is_named(root: dict[str, Any], database: Database) -> None:
    rows = attacks.entries(database)
    row = rows[PLACE]
    attacks.run(database, f"UPDATE entries SET leaf_index = 1000 WHERE leaf_index = {row['leaf_index']}")
    bad = first_bad(database)
    assert (bad.budget_id, bad.sequence) == (row["budget_id"], row["sequence"])


def test_a_changed_byte_anywhere_in_an_entry_is_named(root: dict[str, Any], database: Database) -> None:
    row = attacks.entries(database)[PLACE]
    canonical = bytes(row["canonical"])
    change = text("UPDATE entries SET canonical = :canonical WHERE leaf_index = :leaf_index")
    places = range(0, len(canonical), 13)
    assert len(places) > 30
    for place in places:
        flipped = bytearray(canonical)
        flipped[place] ^= 1
        with attacks.attack(database) as connection:
            connection.execute(change, {"canonical": bytes(flipped), "leaf_index": row["leaf_index"]})
        assert where(first_bad(database)) == place_of(row), place
    with attacks.attack(database) as connection:
        connection.execute(change, {"canonical": canonical, "leaf_index": row["leaf_index"]})
    assert verdict_on(database).valid


def test_a_deleted_entry_is_named_whichever_it_is(root: dict[str, Any], database: Database) -> None:
    rows = attacks.entries(database)
    for row in rows:
        attacks.rewrite_entries(database, lambda _, row=row: [other for other in rows if other is not row])  # type: ignore[misc]
        bad = first_bad(database)
        assert where(bad) == (row["budget_id"], row["sequence"], None)
        assert "is missing" in bad.reason
    attacks.rewrite_entries(database, lambda _: rows)
    assert verdict_on(database).valid


def test_swapped_entries_are_named_at_the_first(root: dict[str, Any], database: Database) -> None:
    row = attacks.entries(database)[PLACE]

    def swapped(rows: Rows) -> Rows:
        chain = own_chain(rows, row)
        first, second = chain[row["sequence"] - 1], chain[row["sequence"]]
        first["leaf_index"], second["leaf_index"] = second["leaf_index"], first["leaf_index"]
        return rows

    attacks.rewrite_entries(database, swapped)
    bad = first_bad(database)
    assert (bad.budget_id, bad.sequence) == (row["budget_id"], row["sequence"])


def test_swapped_contents_are_named_at_the_first(root: dict[str, Any], database: Database) -> None:
    row = attacks.entries(database)[PLACE]

    def swapped(rows: Rows) -> Rows:
        chain = own_chain(rows, row)
        first, second = chain[row["sequence"] - 1], chain[row["sequence"]]
        for name in ("id", "kind", "reservation_id", "canonical", "purpose", "mechanisms", "hash", "previous_hash"):
            first[name], second[name] = second[name], first[name]
        return rows

    attacks.rewrite_entries(database, swapped)
    assert where(first_bad(database)) == place_of(row)


def test_a_duplicate_is_named_where_it_stands(root: dict[str, Any], database: Database) -> None:
    row = attacks.entries(database)[PLACE]
    attacks.rewrite_entries(database, lambda rows: [*rows, {**row, "leaf_index": 1000}])
    bad = first_bad(database)
    last = own_chain(attacks.entries(database), row)[-2]["sequence"]
    assert where(bad) == (row["budget_id"], last + 1, 1000)


def test_a_tail_that_was_cut_off_is_named(root: dict[str, Any], database: Database) -> None:
    last = attacks.entries(database)[-1]
    attacks.rewrite_entries(database, lambda rows: rows[:-1])
    bad = first_bad(database)
    assert where(bad) == (last["budget_id"], last["sequence"], None)
    assert "missing" in bad.reason


def test_a_budget_without_entries_is_named(root: dict[str, Any], database: Database) -> None:
    first = attacks.entries(database)[0]
    leaves = [row for row in attacks.entries(database) if row["budget_id"] != first["budget_id"]]
    gone = leaves[-1]["budget_id"]
    attacks.rewrite_entries(database, lambda rows: [row for row in rows if row["budget_id"] != gone])
    bad = first_bad(database)
    assert (bad.budget_id, bad.sequence) == (gone, 1)


def test_entries_of_a_budget_without_a_row_are_named(root: dict[str, Any], database: Database) -> None:
    gone = attacks.entries(database)[-1]["budget_id"]
    attacks.run(database, f"DELETE FROM budgets WHERE id = '{gone}'")
    bad = first_bad(database)
    assert (bad.budget_id, bad.reason) == (gone, "the budget's row knows no such budget")


@on_one_engine
def test_what_is_read_in_many_pieces_is_read_to_its_end(
    root: dict[str, Any], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books_repository, "_READ_AT_ONCE", 2)
    monkeypatch.setattr(verification, "_SETTLED_AT_ONCE", 2)
    monkeypatch.setattr(tree_repository, "BATCH", 2)
    integrate(database)
    verdict = verdict_on(database)
    assert verdict.valid, verdict.in_words()
    assert verdict.tree is not None
    assert verdict.entries == verdict.tree.size == len(attacks.entries(database))
    rows = attacks.dump(database)["reservations"]
    assert len(rows) > 4
    for row in rows:
        attacks.run(database, f"UPDATE reservations SET purpose = 'another' WHERE id = '{row['id']}'")
        assert row["id"] in first_bad(database).reason
        attacks.run(database, f"UPDATE reservations SET purpose = '{row['purpose']}' WHERE id = '{row['id']}'")
    for entry in attacks.entries(database):
        attacks.run(database, f"UPDATE entries SET id = 'another' WHERE id = '{entry['id']}'")
        assert where(first_bad(database)) == place_of(entry)
        attacks.run(database, f"UPDATE entries SET id = '{entry['id']}' WHERE id = 'another'")
    assert verdict_on(database).valid


def test_entries_are_served_beside_a_text_that_is_written_in_another_way(
    root: dict[str, Any], database: Database
) -> None:
    """Earlier versions wrote the same texts with spaces."""
    attacks.run(
        database,
        "UPDATE budgets SET filter = replace(filter, ':', ' : '), spent = replace(spent, '[', '[ ')",
        "UPDATE reservations SET events = replace(events, ':', ' : '), cost = replace(cost, '[', '[ ')",
    )
    assert verdict_on(database).valid


# Over HTTP.


def test_anyone_who_audits_may_verify(root: dict[str, Any], context: Context, api_of: ApiOf) -> None:
    for scope in (Scope.OWNER, Scope.AUDITOR, Scope.ADMIN):
        answer = api_of(scope).client.post("/v1/ledger/verify")
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert body["valid"] is True
        assert body["head"] == verdict_on(context.database).head
        assert body["budgets"] == 3
        assert body["first_bad"] is None
    assert_problem(api_of(Scope.ANALYST).client.post("/v1/ledger/verify"), 403, "forbidden")


def test_a_tree_is_verified_alone(root: dict[str, Any], client: TestClient, database: Database) -> None:
    api = Api(client)
    other = api.budget()
    child = api.get("/v1/budgets", parent_id=root["id"]).json()["items"][0]
    attacks.run(database, f"UPDATE budgets SET name = 'another' WHERE id = '{other['id']}'")
    whole = client.post("/v1/ledger/verify", json={}).json()
    assert whole["valid"] is False
    assert whole["first_bad"] == {
        "budget_id": other["id"],
        "sequence": None,
        "leaf_index": None,
        "reason": "the column name of the row differs from what the entries add up to",
    }
    assert whole["head"] is None
    tree = client.post("/v1/ledger/verify", json={"budget_id": child["id"]}).json()
    assert (tree["valid"], tree["budgets"]) == (True, 3)
    alone = client.post("/v1/ledger/verify", json={"budget_id": other["id"]}).json()
    assert (alone["valid"], alone["budgets"]) == (False, 1)
    assert_problem(client.post("/v1/ledger/verify", json={"budget_id": "bud_x"}), 404, "not_found")
    assert_problem(client.post("/v1/ledger/verify", json={"budgets": []}), 422, "invalid_request", "/budgets")
