"""Attacks on the tree and its checkpoints: the first bad place is named, or the checkpoint that was kept (P8)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from accounting import ENGINE_VERSION
from app.context import Context
from app.db.database import Database
from app.kit.ids import new_id
from app.ledger import exports, transparency
from app.ledger.books import BadPlace
from app.ledger.checkpoints import Checkpoint, read_note
from app.ledger.commands import Quote, Reserve
from app.ledger.export_verification import verify_export
from app.ledger.exports import ExportFormat
from app.ledger.integration import integrate
from app.ledger.journal import Instruction, carry_out
from app.ledger.recovery import rebuild_tables
from app.ledger.verdicts import Verdict
from app.ledger.verification import verify
from app.problems import Problem
from app.runs.supervisor import Supervisor
from tests.app.budgets.conftest import Api, zcdp
from tests.app.ledger import attacks
from tests.app.ledger.attacks import Rows
from tests.app.ledger.client import open_tree
from tests.app.ledger.test_cli_ledger import refused
from tests.app.ledger.test_integration import EVENTS
from tests.app.ledger.test_verification_of_whole_chains import forge, forget, rechained
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine, on_postgresql


def verdict_on(database: Database, kept: Checkpoint | None = None) -> Verdict:
    with database.read() as session:
        return verify(session, kept=kept)


def first_bad(database: Database, kept: Checkpoint | None = None) -> BadPlace:
    bad = verdict_on(database, kept).first_bad
    assert bad is not None
    return bad


@pytest.fixture
def signed(root: dict[str, Any], client: TestClient, context: Context) -> list[transparency.SignedCheckpoint]:
    """Three checkpoints, the last one of all entries of a tree of budgets in which everything has happened."""
    found = [transparency.checkpoint(context)]
    for _ in range(2):
        Api(client).spend(root["id"], [zcdp(0.01)])
        found.append(transparency.checkpoint(context))
    assert [each.checkpoint.size for each in found] == [28, 31, 34]
    verdict = verdict_on(context.database)
    assert verdict.valid, verdict.in_words()
    return found


#: Statements, and what is named: the tree index of the entry, or None, and the reason.
ATTACKS: list[tuple[list[str], int | None, str]] = [
    (["UPDATE merkle_leaves SET entry_hash = (SELECT entry_hash FROM merkle_leaves WHERE tree_index = 3) "
      "WHERE tree_index = 9"], 9, "another entry was put into the tree at this place, 9"),
    (["DELETE FROM merkle_leaves WHERE tree_index = 9"], None, "the place 9 of the tree is empty"),
    (["DELETE FROM merkle_leaves WHERE tree_index = 33"], 33, "the entry is not in the tree"),
    (["UPDATE merkle_leaves SET tree_index = 100 WHERE tree_index = 9"], None, "the place 9 of the tree is empty"),
    (["UPDATE merkle_leaves SET leaf_index = 10000 WHERE tree_index = 9"], None, "the entry is missing, although"),
    (["UPDATE merkle_leaves SET tree_index = 100 WHERE tree_index = 9",
      "UPDATE merkle_leaves SET tree_index = 9 WHERE tree_index = 10",
      "UPDATE merkle_leaves SET tree_index = 10 WHERE tree_index = 100"], None, "the row of the tree differs from"),
    (["UPDATE merkle_trees SET size = 33"], None, "the row of the tree differs from what its 34 leaves give"),
    (["UPDATE merkle_trees SET frontier = substr(frontier, 1, 32)"], None, "the row of the tree differs from"),
    (["UPDATE merkle_trees SET settled_leaf_index = 10000"], None, "says that all places up to 10000 are in the"),
    (["DELETE FROM merkle_trees"], None, "the row of the tree is missing"),
    (["UPDATE merkle_trees SET ledger_id = 'led_other'"], None, "the checkpoint 1 differs from what was signed"),
    (["DELETE FROM merkle_checkpoints WHERE number = 2"], None, "the checkpoint 2 is missing"),
    (["DELETE FROM merkle_checkpoints WHERE number = 3"], None, "the checkpoint 3 is missing: 3"),
    (["UPDATE merkle_checkpoints SET tree_size = 8 WHERE number = 1"], None, "the checkpoint 1 differs"),
    (["UPDATE merkle_checkpoints SET number = 9 WHERE number = 2",
      "UPDATE merkle_checkpoints SET number = 2 WHERE number = 3",
      "UPDATE merkle_checkpoints SET number = 3 WHERE number = 9"], None, "the checkpoint 3 covers a smaller tree"),
    (["UPDATE merkle_checkpoints SET root_hash = (SELECT root_hash FROM merkle_checkpoints WHERE number = 1) "
      "WHERE number = 2"], None, "the checkpoint 2 differs from what was signed"),
    (["UPDATE merkle_checkpoints SET note = replace(note, '31', '32') WHERE number = 2"], None, "2 is damaged"),
    (["UPDATE merkle_checkpoints SET note = 'x' WHERE number = 2"], None, "is damaged: this is not a signed note"),
    (["UPDATE merkle_checkpoints SET public_key = 'x' WHERE number = 2"], None, "2 is damaged: this is not"),
    (["UPDATE merkle_checkpoints SET note = (SELECT note FROM merkle_checkpoints WHERE number = 1) WHERE number = 2"],
     None, "the checkpoint 2 differs from what was signed"),
    (["UPDATE merkle_nodes SET level = level", "INSERT INTO merkle_nodes SELECT 1, 0, entry_hash FROM merkle_leaves "
      "WHERE tree_index = 0"], None, "the node 0 of the level 1 of the tree has too few leaves under it"),
]  # fmt: skip


def test_every_attack_on_the_tree_is_named(signed: list[transparency.SignedCheckpoint], database: Database) -> None:
    rows = attacks.entries(database)
    tables = ("merkle_leaves", "merkle_nodes", "merkle_checkpoints", "merkle_trees")
    attacks.run(database, *(f"CREATE TABLE copy_of_{table} AS SELECT * FROM {table}" for table in tables))
    for statements, place, reason in ATTACKS:
        attacks.run(database, *statements)
        bad = first_bad(database)
        assert reason in bad.reason, statements
        entry = None if place is None else rows[place]
        named = (None, None) if entry is None else (entry["budget_id"], entry["sequence"])
        assert (bad.budget_id, bad.sequence) == named, statements
        for table in tables:
            attacks.run(database, f"DELETE FROM {table}", f"INSERT INTO {table} SELECT * FROM copy_of_{table}")
    assert verdict_on(database).valid


#: Nothing keeps a value of another kind out of a column of SQLite.
OTHER_KINDS = [
    "UPDATE entries SET recorded_at = 'yesterday' WHERE leaf_index = 5",
    "UPDATE budgets SET sequence = 'x'",
    "UPDATE reservations SET expires_at = 'x'",
    "UPDATE merkle_trees SET frontier = 'x'",
    "UPDATE merkle_trees SET size = 'x'",
    "UPDATE merkle_trees SET settled_leaf_index = 'x'",
    "UPDATE merkle_leaves SET entry_hash = 'x' WHERE tree_index = 9",
    "UPDATE merkle_checkpoints SET note = x'ff' WHERE number = 2",
    "INSERT INTO merkle_nodes SELECT 1, 0, 'x'",
]


@on_one_engine
@pytest.mark.parametrize("statement", OTHER_KINDS)
@pytest.mark.one_in(4)
def test_a_value_of_another_kind_than_its_column_is_told(
    signed: list[transparency.SignedCheckpoint],
    context: Context,
    client: TestClient,
    root: dict[str, Any],
    statement: str,
) -> None:
    Api(client).spend(root["id"], [zcdp(0.01)])
    attacks.run(context.database, statement)
    bad = transparency.verified(context).first_bad
    assert bad is not None
    assert "a stored value is not of its column's kind" in bad.reason


def test_an_entry_that_was_never_integrated_is_named(
    signed: list[transparency.SignedCheckpoint], database: Database
) -> None:
    """Whoever takes the last leaf away, and makes the rest fit, leaves an entry without a place."""
    last = attacks.entries(database)[-1]
    attacks.forget_tree(database)
    first = attacks.entries(database)[0]
    for settled in (last["leaf_index"], first["leaf_index"]):
        attacks.run(database, f"UPDATE merkle_trees SET settled_leaf_index = {settled}")
        bad = first_bad(database)
        assert (bad.budget_id, bad.sequence, bad.reason) == (first["budget_id"], 1, "the entry is not in the tree"), (
            settled
        )


@pytest.fixture
def many(context: Context) -> list[dict[str, Any]]:
    """So many entries that nodes are kept; all are in the tree."""
    (budget,) = open_tree(context, [None], [10**6])
    now, quote = context.clock(), Quote((1,), ENGINE_VERSION)
    instructions = [
        Instruction(Reserve(new_id("res"), EVENTS, quote, now + timedelta(hours=1)), "loopback", budget)
        for _ in range(600)
    ]
    with context.database.write() as session:
        carry_out(session, context.database, instructions, now)
    integrate(context.database)
    return attacks.entries(context.database)


def test_a_changed_node_is_named_and_nothing_is_signed(
    many: list[dict[str, Any]], context: Context, client: TestClient
) -> None:
    kept = transparency.checkpoint(context)
    assert verdict_on(context.database, kept.checkpoint).valid
    attacks.run(
        context.database,
        "UPDATE merkle_nodes SET hash = (SELECT hash FROM merkle_nodes WHERE node_index = 0) WHERE node_index = 1",
    )
    reason = "the leaves 256 to 511 of the tree do not give the node above them"
    assert first_bad(context.database).reason == reason
    answer = client.get("/v1/ledger/checkpoint")
    assert_problem(answer, 409, "ledger_not_consistent")
    assert "the first 601 entries of the tree do not give the root that was kept" in answer.json()["detail"]
    attacks.run(context.database, "DELETE FROM merkle_nodes")
    assert first_bad(context.database).reason == reason.replace("256 to 511", "0 to 255")
    assert "has nodes that are missing" in client.get("/v1/ledger/checkpoint").json()["detail"]


def test_two_leaves_that_were_swapped_under_a_node_are_named(many: list[dict[str, Any]], database: Database) -> None:
    swap = ((300, 9000), (301, 300), (9000, 301))
    attacks.run(database, *(f"UPDATE merkle_leaves SET tree_index = {b} WHERE tree_index = {a}" for a, b in swap))
    assert first_bad(database).reason == "the leaves 256 to 511 of the tree do not give the node above them"


def test_entries_that_were_written_anew_are_named_by_the_tree(
    signed: list[transparency.SignedCheckpoint], database: Database
) -> None:
    """Chains and state fit; the tree knows what stood there."""

    def without_events(record: dict[str, Any]) -> None:
        record["principal_id"] = "somebody"

    row = forge(database, "spent", "reserve", without_events)
    attacks.run(database, f"UPDATE entries SET principal_id = 'somebody' WHERE id = '{row['id']}'")
    rows = attacks.entries(database)
    heads = {each["budget_id"]: each["hash"] for each in rows}
    attacks.run(
        database, *(f"UPDATE budgets SET head_hash = '{head}' WHERE id = '{name}'" for name, head in heads.items())
    )
    with database.write() as session:
        rebuild_tables(session)
    bad = first_bad(database)
    assert (bad.budget_id, bad.sequence, bad.leaf_index) == (row["budget_id"], row["sequence"], row["leaf_index"])
    assert "another entry was put into the tree" in bad.reason


def cheaper(rows: Rows) -> Rows:
    """The same entries, one reservation of which has cost almost nothing."""
    for row in rows:
        record = json.loads(bytes(row["canonical"]))
        if record.get("purpose") == "spent":
            record["amounts"] = ["1" for _ in record["amounts"]]
            row["canonical"] = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return rechained(rows)


#: What somebody does who has the database, the code and the server's key.
REWRITES: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "one is cheaper": (cheaper, "the first {size} entries differ from the entries of the kept checkpoint"),
    "the last is gone": (
        lambda rows: rows[:-1],
        "has {size} entries, and the tree has only {fewer}: some entries are missing",
    ),
}


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_ledger_that_was_written_anew_with_its_tree_and_the_servers_key_is_caught_by_a_checkpoint_that_was_kept(
    signed: list[transparency.SignedCheckpoint], context: Context, client: TestClient, tmp_path: Path, rewrite: str
) -> None:
    kept, (change, reason) = signed[-1], REWRITES[rewrite]
    size = kept.checkpoint.size
    assert client.post("/v1/ledger/verify", json={"checkpoint": kept.note}).json()["valid"] is True
    attacks.rewrite_entries(context.database, change)
    forget(context.database)
    for _ in range(2):
        again = transparency.checkpoint(context)
    assert again.public_key == kept.public_key
    verdict = verdict_on(context.database)
    assert verdict.valid, verdict.in_words()
    expected = reason.format(size=size, fewer=size - 1)
    assert expected in first_bad(context.database, kept.checkpoint).reason
    answer = client.post("/v1/ledger/verify", json={"checkpoint": kept.note})
    assert answer.json()["valid"] is False
    assert expected in answer.json()["first_bad"]["reason"]
    path = tmp_path / "export.ndjson"
    path.write_bytes(b"".join(exports.export(context).parts(ExportFormat.NDJSON, "0")))
    assert verify_export(path).valid
    bad = verify_export(path, kept=kept.checkpoint).first_bad
    assert bad is not None
    assert expected in bad.reason


def test_another_ledger_in_its_place_is_caught(signed: list[transparency.SignedCheckpoint], database: Database) -> None:
    attacks.forget_tree(database)
    attacks.run(database, "UPDATE merkle_trees SET ledger_id = 'led_other'")
    integrate(database)
    bad = first_bad(database, signed[0].checkpoint)
    assert bad.reason.startswith("the kept checkpoint belongs to epsilond/led_")
    assert bad.reason.endswith(", and this ledger is epsilond/led_other")


def test_every_earlier_checkpoint_is_one_that_the_tree_begins_with(
    signed: list[transparency.SignedCheckpoint], context: Context, client: TestClient, root: dict[str, Any]
) -> None:
    Api(client).spend(root["id"], [zcdp(0.01)])
    for each in signed:
        verdict = client.post("/v1/ledger/verify", json={"checkpoint": each.note}).json()
        assert verdict["valid"] is True
        assert verdict["tree"]["size"] == signed[-1].checkpoint.size + 3
    checkpoint = signed[0].checkpoint
    wrong = Checkpoint(checkpoint.origin, checkpoint.size, bytes(32))
    assert "the first 28 entries differ" in first_bad(context.database, wrong).reason


def test_a_checkpoint_that_is_none_is_refused(
    signed: list[transparency.SignedCheckpoint], client: TestClient, root: dict[str, Any]
) -> None:
    note = signed[1].note
    assert read_note(note)[0] == signed[1].checkpoint
    for text_of_note in ("", "x", note[:-2], note.replace("\n31\n", "\n32\n")):
        answer = client.post("/v1/ledger/verify", json={"checkpoint": text_of_note})
        assert_problem(answer, 422, "invalid_checkpoint", "/checkpoint")
    answer = client.post("/v1/ledger/verify", json={"checkpoint": note, "budget_id": root["id"]})
    assert_problem(answer, 422, "contradiction", "/checkpoint")
    tree = client.post("/v1/ledger/verify", json={"budget_id": root["id"]}).json()
    assert (tree["valid"], tree["tree"]) == (True, None)


def test_nothing_is_signed_that_contradicts_what_was(
    signed: list[transparency.SignedCheckpoint], context: Context
) -> None:
    """A smaller tree; another root of the same size; a larger tree that begins otherwise."""
    cases = {
        "UPDATE merkle_checkpoints SET tree_size = 35 WHERE number = 3": "35 entries was signed, and the tree has 34",
        "UPDATE merkle_checkpoints SET tree_size = 33 WHERE number = 3": "the first 33 entries of the tree do not give",
        "UPDATE merkle_checkpoints SET root_hash = (SELECT root_hash FROM merkle_checkpoints WHERE number = 1), "
        "tree_size = 34 WHERE number = 3": "the first 34 entries of the tree do not give the root",
    }
    for statement, reason in cases.items():
        attacks.run(context.database, statement)
        with pytest.raises(Problem, match=reason) as refused:
            transparency.checkpoint(context)
        assert (refused.value.status, refused.value.code) == (409, "ledger_not_consistent")
        assert len(attacks.rows(context.database, "SELECT * FROM merkle_checkpoints")) == 3


#: What lets no further entry into the tree, and what verification says of it.
STUCK: dict[str, tuple[list[str], str]] = {
    "a place that is taken": (
        ["INSERT INTO merkle_leaves SELECT 34, 10000, entry_hash FROM merkle_leaves WHERE tree_index = 0"],
        "the entry is missing, although it was put into the tree, at 34",
    ),
    "a hash that is none": (
        ["UPDATE entries SET hash = 'zz' WHERE leaf_index = (SELECT max(leaf_index) FROM entries)"],
        "the bytes are not an entry with this hash",
    ),
    "no frontier": (
        ["UPDATE merkle_trees SET frontier = substr(frontier, 1, 32)"],
        "the row of the tree differs from what its 34 leaves give",
    ),
    "a trigger of somebody else": ([], "the entries cannot be given their places in the tree"),
}


@pytest.mark.parametrize("how", STUCK)
@pytest.mark.one_in(4)
def test_whoever_keeps_entries_out_of_the_tree_does_not_keep_verification_from_telling(
    signed: list[transparency.SignedCheckpoint], context: Context, client: TestClient, root: dict[str, Any], how: str
) -> None:
    statements, reason = STUCK[how]
    Api(client).spend(root["id"], [zcdp(0.01)])
    attacks.run(context.database, *(statements or [trigger(context.database)]))
    verdict = client.post("/v1/ledger/verify").json()
    assert (verdict["valid"], verdict["head"], verdict["tree"]) == (False, None, None)
    assert reason in verdict["first_bad"]["reason"]
    assert reason in refused(context.settings, "verify")
    for path in ("checkpoint", "consistency?from_size=1", "consistency?from_size=1&to_size=2"):
        problem = assert_problem(client.get(f"/v1/ledger/{path}"), 409, "ledger_not_consistent")
        assert "the entries cannot be given their places" in problem["detail"]
    lines = client.get("/v1/ledger/export").content.splitlines()
    assert len(lines) == 37 + 2, "what somebody has changed is evidence"
    supervisor = Supervisor(context, count=0)
    supervisor._integrate()


def trigger(database: Database) -> str:
    """Refuses every further leaf."""
    if database.is_sqlite:
        return "CREATE TRIGGER no BEFORE INSERT ON merkle_leaves BEGIN SELECT RAISE(ABORT, 'no'); END"
    return "ALTER TABLE merkle_leaves ADD CONSTRAINT no_more CHECK (tree_index < 34)"


def test_a_row_of_the_tree_without_a_frontier_is_told_where_nothing_is_new(
    signed: list[transparency.SignedCheckpoint], context: Context, client: TestClient
) -> None:
    attacks.run(context.database, "UPDATE merkle_trees SET frontier = substr(frontier, 1, 32)")
    problem = assert_problem(client.get("/v1/ledger/checkpoint"), 409, "ledger_not_consistent")
    assert "the row of the tree differs from what its leaves give" in problem["detail"]
    attacks.run(context.database, "DELETE FROM merkle_trees")
    problem = assert_problem(client.get("/v1/ledger/checkpoint"), 409, "ledger_not_consistent")
    assert "the tree is missing" in problem["detail"]


@on_postgresql
def test_a_duplicate_leaf_is_named(signed: list[transparency.SignedCheckpoint], database: Database) -> None:
    with attacks.attack(database) as connection:
        connection.execute(text("ALTER TABLE merkle_leaves DROP CONSTRAINT uq_merkle_leaves_leaf_index"))
    attacks.run(
        database, "INSERT INTO merkle_leaves SELECT 34, leaf_index, entry_hash FROM merkle_leaves WHERE tree_index = 9"
    )
    row = attacks.entries(database)[9]
    bad = first_bad(database)
    assert (bad.budget_id, bad.sequence, bad.leaf_index) == (row["budget_id"], row["sequence"], row["leaf_index"])
    assert bad.reason == "the entry is in the tree twice; the second place is 34"
