"""Values of another kind in every column that the tree, its checkpoints and the entries are read from.

Whoever has the file of a SQLite database can put anything anywhere: an integer in the place of bytes, of which Python
would make as many zeros. Nobody is answered 500, and verification is never content.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.db.database import Database
from app.ledger import stored_values, transparency
from app.ledger import tree_repository as repository
from app.ledger.export_verification import verify_export
from app.ledger.integration import CannotIntegrate, integrate
from app.ledger.verification import verify
from tests.app.budgets.conftest import Api, zcdp
from tests.app.ledger import attacks
from tests.app.ledger.test_tree_verification import many, signed
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

__all__ = ["many", "signed"]

#: In the place of every value: a huge integer, a fraction, a text, bytes, nothing.
OTHER_VALUES = ("1000000000000", "-1", "1.5", "'x'", "x'00ff'", "NULL")
#: Of each table the row that is changed.
ROWS = {
    "merkle_trees": "id = 1",
    "merkle_leaves": "tree_index = 9",
    "merkle_checkpoints": "number = 3",
    "entries": "leaf_index = 7",
}
#: On SQLite nobody reads them, or less of what is known already is looked at again: some integer may stand there.
HARMLESS = {
    ("merkle_trees", name) for name in ("id", "awaited_leaf_index", "awaited_transaction", "settled_leaf_index")
}


@contextmanager
def changed(database: Database, table: str, column: str, value: str, where: str) -> Iterator[None]:
    """The table with a value changed; without its columns' kinds, which would turn a number into a text."""
    names = list(attacks.rows(database, f"SELECT * FROM {table} LIMIT 1")[0])
    (tree,) = attacks.rows(database, "SELECT checkpoints FROM merkle_trees")
    attacks.run(
        database,
        f"ALTER TABLE {table} RENAME TO kept_{table}",
        f"CREATE TABLE {table} ({', '.join(map(_quoted, names))})",
        f"INSERT INTO {table} SELECT * FROM kept_{table}",
        f"UPDATE {table} SET {column} = {value} WHERE {where}",
    )
    try:
        yield
    finally:
        attacks.run(
            database,
            f"DROP TABLE {table}",
            f"ALTER TABLE kept_{table} RENAME TO {table}",
            # One may have been signed in the place of one that was changed.
            f"UPDATE merkle_trees SET checkpoints = {tree['checkpoints']}",
            f"DELETE FROM merkle_checkpoints WHERE number > {tree['checkpoints']}",
        )


def _quoted(name: str) -> str:
    return f'"{name}"'


def answers(client: TestClient, entry_id: str, budget_id: str) -> Iterator[Any]:
    """Everything that reads the tree or the entries."""
    yield client.get("/v1/ledger/checkpoint")
    yield client.get(f"/v1/ledger/entries/{entry_id}/proof")
    yield client.get(f"/v1/ledger/entries/{entry_id}/proof", params={"tree_size": 20})
    yield client.get("/v1/ledger/consistency", params={"from_size": 20})
    yield client.get("/v1/ledger/consistency", params={"from_size": 20, "to_size": 23})
    yield client.get("/v1/ledger/export", params={"format": "csv"})
    yield client.get(f"/v1/budgets/{budget_id}/entries")


@on_one_engine
@pytest.mark.parametrize("value", OTHER_VALUES)
@pytest.mark.parametrize("table", ROWS)
@pytest.mark.one_in(12)
def test_no_value_of_another_kind_is_an_error_of_the_server(
    signed: list[transparency.SignedCheckpoint],
    client: TestClient,
    context: Context,
    tmp_path: Path,
    table: str,
    value: str,
) -> None:
    database, export = context.database, tmp_path / "export.ndjson"
    entry = attacks.entries(database)[6]
    (row,) = attacks.rows(database, f"SELECT * FROM {table} WHERE {ROWS[table]}")
    for column in [name for name, held in row.items() if held is not None or value != "NULL"]:
        with changed(database, table, column, value, ROWS[table]):
            for answer in answers(client, entry["id"], entry["budget_id"]):
                assert answer.status_code in (200, 404, 409, 422), (column, answer.request.url, answer.text)
                if answer.status_code == 409:
                    assert_problem(answer, 409, "ledger_not_consistent")
            verdict = client.post("/v1/ledger/verify").json()
            assert not verdict["valid"] or (table, column) in HARMLESS, column
            export.write_bytes(client.get("/v1/ledger/export").content)
        is_in_the_file = table == "entries" and column in ("canonical", "hash", "previous_hash")
        assert verify_export(export).valid is False or not is_in_the_file, column
    verdict = client.post("/v1/ledger/verify").json()
    # An entry that was somewhere else for a while has a second place in the tree.
    assert verdict["valid"] or table == "entries", verdict


@on_one_engine
@pytest.mark.parametrize("value", OTHER_VALUES)
@pytest.mark.parametrize("column", ["level", "node_index", "hash"])
@pytest.mark.one_in(4)
def test_a_node_of_another_kind_is_a_conflict(
    many: list[dict[str, Any]], client: TestClient, context: Context, column: str, value: str
) -> None:
    transparency.checkpoint(context)
    with changed(context.database, "merkle_nodes", column, value, "node_index = 1"):
        assert_problem(client.get("/v1/ledger/checkpoint"), 409, "ledger_not_consistent")
        bad = verify_all(context.database)
        assert bad is not None


def verify_all(database: Database) -> str | None:
    with database.read() as session:
        bad = verify(session).first_bad
    return None if bad is None else bad.reason


@on_one_engine
def test_a_huge_integer_in_the_place_of_bytes_is_named(
    signed: list[transparency.SignedCheckpoint], client: TestClient, context: Context, root: dict[str, Any]
) -> None:
    """A terabyte of zeros, if somebody made bytes of it."""
    places = {
        ("merkle_leaves", "entry_hash"): "the column entry_hash of merkle_leaves, in the row of 9",
        ("merkle_trees", "frontier"): "the column frontier of merkle_trees, in the row of 1",
        ("merkle_checkpoints", "root_hash"): "the column root_hash of merkle_checkpoints, in the row of 3",
        ("entries", "canonical"): "the bytes are not an entry with this hash",
    }
    for (table, column), reason in places.items():
        with changed(context.database, table, column, str(10**12), ROWS[table]):
            assert reason in (verify_all(context.database) or "")
            if table != "entries":
                problem = assert_problem(client.get("/v1/ledger/checkpoint"), 409, "ledger_not_consistent")
                assert reason in problem["detail"]
    Api(client).spend(root["id"], [zcdp(0.01)])
    with changed(context.database, "merkle_trees", "frontier", str(10**12), "id = 1"), pytest.raises(CannotIntegrate):
        integrate(context.database)


@on_one_engine
def test_an_export_holds_what_stands_in_the_place_of_bytes(
    signed: list[transparency.SignedCheckpoint], client: TestClient, context: Context, tmp_path: Path
) -> None:
    """It is evidence: the file has all entries, and verification of the file names the one that was changed."""
    entry, export = attacks.entries(context.database)[6], tmp_path / "export.ndjson"
    with changed(context.database, "entries", "canonical", str(10**12), ROWS["entries"]):
        export.write_bytes(client.get("/v1/ledger/export").content)
        table = client.get("/v1/ledger/export", params={"format": "csv"}).text
        problem = assert_problem(client.get(f"/v1/budgets/{entry['budget_id']}/entries"), 409, "ledger_not_consistent")
    line = json.loads(export.read_text().splitlines()[7])
    assert (line["leaf_index"], line["canonical"]) == (7, str(10**12))
    bad = verify_export(export).first_bad
    assert bad is not None
    assert (bad.budget_id, bad.sequence) == (entry["budget_id"], entry["sequence"])
    rows = list(csv.DictReader(table.splitlines()))
    assert len(rows) == len(attacks.entries(context.database))
    told = {name: cell for name, cell in rows[6].items() if cell and name != "hash"}
    where = {"leaf_index": "7", "budget_id": entry["budget_id"], "sequence": str(entry["sequence"])}
    assert told.pop("reason").startswith("not what the ledger wrote")
    assert told == where
    assert f"the entry {entry['sequence']} of '{entry['budget_id']}'" in problem["detail"]


@on_one_engine
def test_the_row_is_named_whose_value_is_of_another_kind(
    signed: list[transparency.SignedCheckpoint], context: Context
) -> None:
    with (
        changed(context.database, "merkle_leaves", "leaf_index", "'x'", "tree_index = 9"),
        context.database.read() as session,
        pytest.raises(stored_values.WrongKind) as caught,
    ):
        list(repository.leaves(session))
    assert str(caught.value).endswith(": the column leaf_index of merkle_leaves, in the row of 9")


@on_one_engine
def test_a_proof_of_another_entry_than_was_put_into_the_tree_is_not_handed_out(
    signed: list[transparency.SignedCheckpoint], client: TestClient, context: Context
) -> None:
    entry = attacks.entries(context.database)[6]
    for other in ("z" * 64, "0" * 64):
        attacks.run(context.database, f"UPDATE entries SET hash = '{other}' WHERE leaf_index = 7")
        answer = client.get(f"/v1/ledger/entries/{entry['id']}/proof", params={"tree_size": 20})
        assert_problem(answer, 409, "ledger_not_consistent")


@on_one_engine
def test_a_number_of_checkpoints_that_is_taken_is_a_conflict(
    signed: list[transparency.SignedCheckpoint], client: TestClient, context: Context, root: dict[str, Any]
) -> None:
    Api(client).spend(root["id"], [zcdp(0.01)])
    for number in (0, 2**63 - 1):
        attacks.run(context.database, f"UPDATE merkle_trees SET checkpoints = {number}")
        problem = assert_problem(client.get("/v1/ledger/checkpoint"), 409, "ledger_not_consistent")
        assert f"the row of the tree says that {number} checkpoints were signed" in problem["detail"]
