"""Verification: what leaves every chain whole, such as forged entries and books written anew, is named (P8)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from app.context import Context
from app.db.database import Database
from app.kit.hash_chain import GENESIS, chain_hash
from app.ledger import exports
from app.ledger.export_verification import read_past
from app.ledger.exports import ExportFormat
from app.ledger.integration import integrate
from app.ledger.recovery import rebuild_tables
from app.ledger.verdicts import Past
from tests.app.budgets.conftest import Api, zcdp
from tests.app.ledger import attacks
from tests.app.ledger.attacks import Rows
from tests.app.ledger.verdicts import first_bad, place_of, verdict_on, where
from tests.databases import on_postgresql


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
    made: dict[str, str] = {}
    for row in rows:
        row["previous_hash"] = heads.get(row["budget_id"], GENESIS)
        # Entries of one reservation refer to the first of them.
        was, record = row["hash"], json.loads(bytes(row["canonical"]))
        if record.get("refers_to") in made:
            row["canonical"] = bytes(row["canonical"]).replace(
                record["refers_to"].encode(), made[record["refers_to"]].encode()
            )
        made[was] = chain_hash(row["previous_hash"], bytes(row["canonical"]))
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
            if record.get("purpose") == "spent":
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
    assert bad.reason == "the entry is missing, although the older export has it"


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
    ("large", "reserve", lambda entry: entry.update(amounts=["4500000000"]), "the entry exceeds the limit of"),
    (
        "large",
        "reserve",
        lambda entry: entry.update(amounts=[math.inf]),
        "the bytes are not an entry with this hash",
    ),
    (
        "large",
        "reserve",
        lambda entry: entry.update(amounts=["1", "2"]),
        "the entry's amounts are not amounts of the budget's",
    ),
    ("large", "reserve", lambda entry: entry["details"].pop("run_id"), "have the fields of a reserve (KeyError)"),
    ("large", "reserve", lambda entry: entry.update(v="3"), "bytes are not an entry"),
    ("large", "reserve", lambda entry: entry.update(surprise="2"), "bytes are not an entry"),
    ("large", "reserve", lambda entry: entry.update(sequence="7"), "the entry says that it is entry 7"),
    ("large", "reserve", lambda entry: entry.update(kind="create"), "the first entry of a budget, and no other entry"),
    ("large", "reserve", lambda entry: entry.update(reservation_id=None), "the column reservation_id differs"),
    (
        "spent",
        "start",
        lambda entry: entry.update(amounts=["1"]),
        "the entry's amounts differ from what the reservation holds",
    ),
    (
        "spent",
        "start",
        lambda entry: entry.update(refers_to="f" * 64),
        "the entry does not refer to the entry that made",
    ),
    ("spent", "start", lambda entry: entry.pop("refers_to"), "the column mechanisms differs"),
    (
        "large",
        "reserve",
        lambda entry: entry.update(refers_to="f" * 64),
        "the entry makes a reservation, but refers to an",
    ),
    ("spent", "commit", lambda entry: entry.update(failure="1"), "the entry charges a failure beside its amounts"),
    (
        "spent",
        "commit",
        lambda entry: entry.update(tail=["1"]),
        "what the entry charges and gives back differs from what the",
    ),
    ("spent", "commit", lambda entry: entry.update(work="0"), "the bytes are not an entry with this hash"),
    ("spent", "commit", lambda entry: entry.update(certificate="x"), "the bytes are not an entry with this hash"),
    (
        "spent",
        "commit",
        lambda entry: entry.update(amounts=["320000000"]),
        "the entry charges more than the reservation holds",
    ),
    ("spent", "commit", lambda entry: entry["events"].reverse(), "the entry's events are not the first"),
    (
        "voided",
        "void",
        lambda entry: entry.update(amounts=["1"]),
        "the entry's amounts differ from what the reservation holds",
    ),
    (
        "extended",
        "extend",
        lambda entry: entry.update(amounts=["1"]),
        "the entry's amounts differ from what the reservation holds",
    ),
    ("corrected", "correct", lambda entry: entry["details"].update(before=["1"]), "corrects an amount that"),
    (
        "",
        "limit",
        lambda entry: entry["details"]["filter"].update(rho="0.5"),
        "the entry sets a limit below what is used",
    ),
    ("", "limit", lambda entry: entry["details"].update(filter={"kind": "pure_dp", "epsilon": "9"}), "(InvalidValue)"),
]


@on_postgresql
@pytest.mark.parametrize(("purpose", "kind", "change", "reason"), FORGERIES)
@pytest.mark.one_in(3)
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
    """An entry of another kind in place of a commit is found."""

    def released(rows: Rows) -> Rows:
        commit = next(row for row in rows if (row["purpose"], row["kind"]) == ("spent", "commit"))
        record = json.loads(bytes(commit["canonical"]))
        commit["kind"], commit["canonical"] = kind, canonical({**record, "kind": kind})
        return rechained(rows)

    attacks.rewrite_entries(database, released)
    assert first_bad(database).reason == f"a reservation that is started cannot have the entry {kind}"


def test_an_entry_about_nothing_is_named(root: dict[str, Any], database: Database) -> None:
    row = forge(database, "spent", "start", lambda record: record.update(reservation_id="res_x"))
    attacks.run(database, f"UPDATE entries SET reservation_id = 'res_x' WHERE id = '{row['id']}'")
    bad = first_bad(database)
    assert where(bad) == place_of(row)
    assert bad.reason == "the entry is about a reservation that was never made, or is already resolved"


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
    assert bad.reason == "the entry does not follow the entry before it"


def test_a_parents_limit_is_looked_at_too(client: TestClient, database: Database) -> None:
    """The forged charge fits its own budget, but not the budget above it."""
    api = Api(client)
    parent = api.budget({"kind": "zcdp", "rho": "0.5"})
    child = api.child(parent, {"kind": "zcdp", "rho": "5"})
    api.hold(child["id"], [zcdp(0.1)], purpose="large")
    row = forge(database, "large", "reserve", lambda record: record.update(amounts=["600000000"]))
    bad = first_bad(database)
    assert where(bad) == place_of(row)
    assert bad.reason == f"the entry exceeds the limit of {parent['id']}"
