"""Verification: books that nobody touched are valid; of others, the first bad place is named (P8)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.db.database import Database
from app.kit.context import Context
from app.ledger import books_repository, exports, tree_repository, verification
from app.ledger.books import BadPlace
from app.ledger.export_verification import read_past
from app.ledger.exports import ExportFormat
from app.ledger.integration import integrate
from app.ledger.records import GENESIS, chain_hash
from app.ledger.recovery import rebuild_tables
from app.ledger.verdicts import Past, Verdict
from app.ledger.verification import verify
from tests.app.budgets.conftest import Api, ApiOf, Clock, zcdp
from tests.app.ledger import attacks
from tests.app.ledger.attacks import Rows
from tests.app.ledger.scenes import at_random
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine, on_postgresql

#: Of the entries of `lived_in`, one with a neighbour on either side in its own chain.
PLACE = 9


def verdict_on(database: Database, past: Past | None = None) -> Verdict:
    with database.read() as session:
        return verify(session, past=past)


def first_bad(database: Database, past: Past | None = None) -> BadPlace:
    verdict = verdict_on(database, past)
    assert verdict.first_bad is not None
    assert verdict.head is None
    return verdict.first_bad


def where(bad: BadPlace) -> tuple[str | None, int | None, int | None]:
    return bad.budget_id, bad.sequence, bad.leaf_index


def place_of(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["budget_id"], row["sequence"], row["leaf_index"]


def own_chain(rows: Rows, row: dict[str, Any]) -> Rows:
    return [other for other in rows if other["budget_id"] == row["budget_id"]]


def test_books_that_nobody_touched_are_valid(root: dict[str, Any], database: Database) -> None:
    verdict = verdict_on(database)
    assert verdict.valid, verdict.in_words()
    rows = attacks.entries(database)
    assert (verdict.entries, verdict.budgets) == (len(rows), 3)
    assert {row["kind"] for row in rows} == {
        "create", "reserve", "start", "extend", "commit", "void", "expire", "correct", "limit",
    }  # fmt: skip
    assert verdict.tree is not None
    said = f"valid: {len(rows)} entries of 3 budgets, head {verdict.head}; tree of 0, root {verdict.tree.root.hex()}"
    assert verdict.in_words() == said


@pytest.mark.parametrize("seed", range(4))
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
        assert bad.reason.startswith("it is missing")
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
    "created_at": "'2020-01-01 00:00:00'",
    "expires_at": "'2020-01-01 00:00:00'",
    "resolved_at": "'2020-01-01 00:00:00'",
}


@on_one_engine
@pytest.mark.parametrize("purpose", ["spent", "corrected"])
@pytest.mark.parametrize("column", RESERVATION_CHANGES)
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


def test_every_column_of_the_state_tables_is_covered(root: dict[str, Any], database: Database) -> None:
    tables = attacks.dump(database)
    assert set(tables["budgets"][0]) == {"id", *BUDGET_CHANGES}
    assert set(tables["reservations"][0]) == {"id", "state", *RESERVATION_CHANGES}
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
    assert first_bad(database).reason == "the reservation res_other was made by no entry"


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


# What leaves every chain whole.


def earlier_export(context: Context, tmp_path: Any) -> Past:
    """The past as an export has it that was made now and kept."""
    path = tmp_path / "kept.ndjson"
    path.write_bytes(b"".join(exports.export(context).parts(ExportFormat.NDJSON, "0")))
    past, verdict = read_past(path)
    assert verdict.valid
    return past


def rechained(rows: Rows) -> Rows:
    """The same entries with hashes that fit: what somebody does who knows how they are made."""
    heads: dict[str, str] = {}
    for row in rows:
        row["previous_hash"] = heads.get(row["budget_id"], GENESIS)
        row["hash"] = heads[row["budget_id"]] = chain_hash(row["previous_hash"], bytes(row["canonical"]))
    return rows


def forget(database: Database) -> None:
    """Make every other table fit the entries."""
    rows = attacks.entries(database)
    heads = {row["budget_id"]: row for row in rows}
    attacks.run(
        database,
        *(
            f"UPDATE budgets SET sequence = {head['sequence']}, head_hash = '{head['hash']}' WHERE id = '{budget_id}'"
            for budget_id, head in heads.items()
        ),
        *(
            f"DELETE FROM reservations WHERE id = '{reservation['id']}'"
            for reservation in attacks.dump(database)["reservations"]
            if reservation["id"] not in {row["reservation_id"] for row in rows}
        ),
    )
    with database.write() as session:
        rebuild_tables(session)
    attacks.forget_tree(database)
    integrate(database)


def test_books_that_were_written_anew_are_caught_by_an_export_that_was_kept(
    root: dict[str, Any], context: Context, tmp_path: Any
) -> None:
    past = earlier_export(context, tmp_path)
    assert verdict_on(context.database, past).valid
    changed: list[dict[str, Any]] = []

    def cheaper(rows: Rows) -> Rows:
        for row in rows:
            record = json.loads(bytes(row["canonical"]))
            if record["purpose"] == "spent":
                record["amounts"] = ["1" for _ in record["amounts"]]
                text_of_record = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                row["canonical"] = text_of_record.encode()
                changed.append(row)
        return rechained(rows)

    attacks.rewrite_entries(context.database, cheaper)
    forget(context.database)
    assert [row["kind"] for row in changed] == ["reserve", "start", "commit"]
    verdict = verdict_on(context.database)
    assert verdict.valid, verdict.in_words()
    assert where(first_bad(context.database, past)) == place_of(changed[0])


def test_books_that_were_rolled_back_are_caught_by_an_export_that_was_kept(
    root: dict[str, Any], context: Context, tmp_path: Any
) -> None:
    past = earlier_export(context, tmp_path)
    last = attacks.entries(context.database)[-1]
    attacks.rewrite_entries(context.database, lambda rows: rows[:-1])
    forget(context.database)
    assert verdict_on(context.database).valid
    bad = first_bad(context.database, past)
    assert where(bad) == (last["budget_id"], last["sequence"], None)
    assert bad.reason == "it is missing: the older export has it"


def test_a_budget_that_was_forgotten_is_caught_by_an_export_that_was_kept(
    client: TestClient, context: Context, tmp_path: Any
) -> None:
    api = Api(client)
    api.budget()
    gone = api.budget()["id"]
    past = earlier_export(context, tmp_path)
    attacks.run(
        context.database,
        f"DELETE FROM entries WHERE budget_id = '{gone}'",
        f"DELETE FROM budgets WHERE id = '{gone}'",
    )
    attacks.forget_tree(context.database)
    assert verdict_on(context.database).valid
    assert where(first_bad(context.database, past)) == (gone, 1, None)


def test_later_entries_do_not_contradict_an_export_that_was_kept(
    root: dict[str, Any], client: TestClient, context: Context, tmp_path: Any
) -> None:
    past = earlier_export(context, tmp_path)
    Api(client).hold(root["id"], [zcdp(0.01)])
    assert verdict_on(context.database, past).valid


def forge(database: Database, purpose: str, kind: str, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Change what the entry of a kind, about the reservation with a purpose, says, with hashes that fit; the entry."""
    forged: list[dict[str, Any]] = []

    def changed(rows: Rows) -> Rows:
        row = next(row for row in rows if (row["purpose"] or "", row["kind"]) == (purpose, kind))
        record = json.loads(bytes(row["canonical"]))
        change(record)
        row["canonical"] = canonical(record)
        forged.append(row)
        return rechained(rows)

    attacks.rewrite_entries(database, changed)
    return forged[0]


def canonical(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


Change = Callable[[dict[str, Any]], Any]
FORGERIES: list[tuple[str, str, Change, str]] = [
    ("large", "reserve", lambda entry: entry.update(amounts=["4500000000"]), "it passes the limit of"),
    (
        "large",
        "reserve",
        lambda entry: entry.update(amounts=[math.inf]),
        "its bytes are not an entry that has its hash",
    ),
    ("large", "reserve", lambda entry: entry.update(amounts=["1", "2"]), "its amounts are not those of the budget's"),
    ("large", "reserve", lambda entry: entry["details"].pop("run_id"), "does not say what a reserve says (KeyError)"),
    ("large", "reserve", lambda entry: entry.update(v="2"), "its bytes are not an entry"),
    ("large", "reserve", lambda entry: entry.update(surprise="2"), "its bytes are not an entry"),
    ("large", "reserve", lambda entry: entry.update(sequence="7"), "it says that it is entry 7"),
    ("large", "reserve", lambda entry: entry.update(kind="create"), "a budget's first entry makes it, and no other"),
    ("large", "reserve", lambda entry: entry.update(reservation_id=None), "column reservation_id beside its bytes"),
    ("spent", "start", lambda entry: entry.update(amounts=["1"]), "its amounts are not what the reservation holds"),
    (
        "spent",
        "commit",
        lambda entry: entry.update(amounts=["320000000"]),
        "it charges more than the reservation holds",
    ),
    ("spent", "commit", lambda entry: entry["events"].reverse(), "its events are not the first ones"),
    ("voided", "void", lambda entry: entry.update(amounts=["1"]), "its amounts are not what the reservation holds"),
    ("extended", "extend", lambda entry: entry.update(amounts=["1"]), "its amounts are not what the reservation holds"),
    ("corrected", "correct", lambda entry: entry["details"].update(before=["1"]), "corrects another amount than"),
    ("", "limit", lambda entry: entry["details"]["filter"].update(rho="0.5"), "it sets a limit below what is used"),
    ("", "limit", lambda entry: entry["details"].update(filter={"kind": "pure_dp", "epsilon": "9"}), "(InvalidValue)"),
]


@on_postgresql
@pytest.mark.parametrize(("purpose", "kind", "change", "reason"), FORGERIES)
def test_an_entry_that_the_ledger_would_not_have_written_is_named(
    root: dict[str, Any], database: Database, purpose: str, kind: str, change: Change, reason: str
) -> None:
    row = forge(database, purpose, kind, change)
    bad = first_bad(database)
    assert where(bad) == place_of(row)
    assert reason in bad.reason


@on_postgresql
@pytest.mark.parametrize("kind", ["start", "void", "expire", "reserve"])
def test_what_is_started_is_never_released(root: dict[str, Any], database: Database, kind: str) -> None:
    """In place of a commit."""

    def released(rows: Rows) -> Rows:
        commit = next(row for row in rows if (row["purpose"], row["kind"]) == ("spent", "commit"))
        record = json.loads(bytes(commit["canonical"]))
        commit["kind"], commit["canonical"] = kind, canonical({**record, "kind": kind})
        return rechained(rows)

    attacks.rewrite_entries(database, released)
    assert first_bad(database).reason == f"a reservation that is started takes no {kind}"


def test_an_entry_about_nothing_is_named(root: dict[str, Any], database: Database) -> None:
    row = forge(database, "spent", "start", lambda record: record.update(reservation_id="res_x"))
    attacks.run(database, f"UPDATE entries SET reservation_id = 'res_x' WHERE id = '{row['id']}'")
    bad = first_bad(database)
    assert where(bad) == place_of(row)
    assert bad.reason == "it is about a reservation that was never made, or is resolved"


def test_an_entry_with_a_hash_that_fits_is_found_out_by_the_next(root: dict[str, Any], database: Database) -> None:
    rows = attacks.entries(database)
    row = next(row for row in rows if (row["purpose"], row["kind"]) == ("spent", "reserve"))
    record = json.loads(bytes(row["canonical"]))
    changed = canonical({**record, "principal_id": "somebody"})
    with attacks.attack(database) as connection:
        connection.execute(
            text("UPDATE entries SET canonical = :canonical, hash = :hash, principal_id = 'somebody' WHERE id = :id"),
            {"canonical": changed, "hash": chain_hash(row["previous_hash"], changed), "id": row["id"]},
        )
    bad = first_bad(database)
    assert (bad.budget_id, bad.sequence) == (row["budget_id"], row["sequence"] + 1)
    assert bad.reason == "it does not follow the entry before it"


def test_a_parents_limit_is_looked_at_too(client: TestClient, database: Database) -> None:
    """What fits a budget by itself, and not the one above it."""
    api = Api(client)
    parent = api.budget({"kind": "zcdp", "rho": "0.5"})
    child = api.child(parent, {"kind": "zcdp", "rho": "5"})
    api.hold(child["id"], [zcdp(0.1)], purpose="large")
    row = forge(database, "large", "reserve", lambda record: record.update(amounts=["600000000"]))
    bad = first_bad(database)
    assert where(bad) == place_of(row)
    assert bad.reason == f"it passes the limit of {parent['id']}"


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
        "reason": "the column name of its row is not what the entries amount to",
    }
    assert whole["head"] is None
    tree = client.post("/v1/ledger/verify", json={"budget_id": child["id"]}).json()
    assert (tree["valid"], tree["budgets"]) == (True, 3)
    alone = client.post("/v1/ledger/verify", json={"budget_id": other["id"]}).json()
    assert (alone["valid"], alone["budgets"]) == (False, 1)
    assert_problem(client.post("/v1/ledger/verify", json={"budget_id": "bud_x"}), 404, "not_found")
    assert_problem(client.post("/v1/ledger/verify", json={"budgets": []}), 422, "invalid_request", "/budgets")
