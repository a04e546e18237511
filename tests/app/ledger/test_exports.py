"""Exports: one consistent state, whole or seen to be cut off; an NDJSON file is verified by itself (P8)."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from accounting import ENGINE_VERSION
from accounting.events import Event, ZcDp
from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit.hash_chain import GENESIS, chain_hash
from app.kit.ids import new_id
from app.ledger import exports
from app.ledger.books import BadPlace, Head, digest_of
from app.ledger.commands import Quote, Reserve
from app.ledger.export_verification import read_past, verify_export
from app.ledger.exports import ExportFormat
from app.ledger.journal import Instruction, carry_out
from app.ledger.merkle import Frontier, leaf_hash
from app.ledger.verification import verify
from app.settings import Settings
from tests.app.budgets.conftest import Api, ApiOf, Clock, zcdp
from tests.app.ledger import attacks
from tests.app.ledger.client import open_tree
from tests.app.ledger.scenes import at_random
from tests.app.problem_assertions import assert_problem
from tests.databases import DatabaseFactory, on_one_engine

ROOT = Path(__file__).parents[3]
Lines = list[bytes]


@pytest.fixture
def file(root: dict[str, Any], context: Context, tmp_path: Path) -> Path:
    """An export of a tree in which everything has happened."""
    return write(tmp_path / "export.ndjson", exported(context))


def exported(context: Context, file_format: ExportFormat = ExportFormat.NDJSON) -> bytes:
    return b"".join(exports.export(context).parts(file_format, "1.2.3"))


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def first_bad(path: Path) -> BadPlace:
    verdict = verify_export(path)
    assert verdict.first_bad is not None
    return verdict.first_bad


def test_an_export_is_verified_by_itself(file: Path, context: Context) -> None:
    with context.database.read() as session:
        assert verify_export(file) == verify(session)
    lines = file.read_bytes().splitlines()
    assert json.loads(lines[0]) == {
        "format": "epsilond-ledger",
        "version": 2,
        "made_at": "2026-05-01T01:00:00Z",
        "service_version": "1.2.3",
        "root_id": None,
    }
    stored = attacks.entries(context.database)
    assert [json.loads(line) for line in lines[1:-1]] == [
        {
            "tree_index": place,
            "leaf_index": row["leaf_index"],
            "budget_id": row["budget_id"],
            "sequence": row["sequence"],
            "previous_hash": row["previous_hash"],
            "hash": row["hash"],
            "canonical": bytes(row["canonical"]).decode(),
        }
        for place, row in enumerate(stored)
    ]
    last = json.loads(lines[-1])
    assert last["entries"] == len(stored)
    assert {head["budget_id"]: head["sequence"] for head in last["heads"]} == {
        row["budget_id"]: row["sequence"] for row in stored
    }


@on_one_engine
def test_verification_of_an_export_needs_no_database(file: Path) -> None:
    """A separate process verifies the file, and imports nothing of the database, the settings or the web."""
    source = (
        "import sys; from pathlib import Path; from app.ledger.export_verification import verify_export\n"
        "print(verify_export(Path(sys.argv[1])).in_words())\n"
        "print([name for name in ('sqlalchemy', 'psycopg', 'sqlite3', 'fastapi', 'pydantic_settings', 'app.settings')"
        " if name in sys.modules])"
    )
    command = [sys.executable, "-c", source, str(file)]
    printed = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE).stdout.decode().splitlines()
    assert printed[0] == verify_export(file).in_words()
    assert printed[0].startswith("valid: ")
    assert printed[1] == "[]"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.one_in(3)
def test_exports_of_random_histories_are_valid(context: Context, clock: Clock, tmp_path: Path, seed: int) -> None:
    at_random(context, clock, seed, 120)
    verdict = verify_export(write(tmp_path / "export.ndjson", exported(context)))
    assert verdict.valid, verdict.in_words()
    with context.database.read() as session:
        assert verdict == verify(session)


def test_what_is_written_meanwhile_is_not_in_the_file(
    api: Api, root: dict[str, Any], context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is the state at the moment when it was asked for, however long it takes to read."""
    monkeypatch.setattr("app.ledger.books_repository.BATCH", 4)
    complete = exported(context)
    export = exports.export(context)
    parts = export.parts(ExportFormat.NDJSON, "1.2.3")
    read = [next(parts), next(parts)]
    for _ in range(3):
        api.spend(root["id"], [zcdp(0.001)])
        api.budget()
    path = write(tmp_path / "export.ndjson", b"".join([*read, *parts]))
    assert path.read_bytes() == complete
    assert verify_export(path).valid
    assert verify_export(write(path, exported(context))).entries > len(complete.splitlines())


@pytest.mark.thorough
def test_an_export_ends_however_much_is_written_meanwhile(
    api: Api, root: dict[str, Any], context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ledger.books_repository.BATCH", 2)
    read: list[bytes] = []
    for part in exports.export(context).parts(ExportFormat.NDJSON, "1.2.3"):
        read.append(part)
        assert len(read) < 20
        api.spend(root["id"], [zcdp(0.0001)])
    assert verify_export(write(tmp_path / "export.ndjson", b"".join(read))).valid


def test_what_was_begun_before_and_committed_after_is_not_in_the_file(
    postgresql_databases: DatabaseFactory, tmp_path: Path
) -> None:
    """On PostgreSQL an entry may take an earlier place than one that was committed before it."""
    url = postgresql_databases.migrated()
    database, clock = Database(url), Clock()
    context = fenced_context(Settings(data_dir=tmp_path / "data", database_url=url, workers=0), database, clock)
    first, second = (open_tree(context, [None], [100])[0] for _ in range(2))
    quote, events = Quote((1,), ENGINE_VERSION), (Event(ZcDp(1e-9)),)

    def reserve(session: Any, budget_id: str) -> None:
        command = Reserve(new_id("res"), events, quote, clock() + timedelta(hours=1))
        carry_out(session, database, [Instruction(command, "loopback", budget_id)], clock())

    with database.write() as slow:
        reserve(slow, first)
        with database.write() as fast:
            reserve(fast, second)
        export = exports.export(context)
    path = write(tmp_path / "export.ndjson", b"".join(export.parts(ExportFormat.NDJSON, "1.2.3")))
    verdict = verify_export(path)
    assert verdict.valid, verdict.in_words()
    assert verdict.entries == 3
    assert verify_export(write(path, exported(context))).entries == 4
    database.dispose()
    postgresql_databases.drop(url)


# A file that somebody, or a disk, has changed.


def entry_lines(content: bytes) -> Lines:
    return content.splitlines(keepends=True)


@on_one_engine
def test_a_changed_byte_anywhere_in_a_file_is_seen(file: Path) -> None:
    content = file.read_bytes()
    places = range(0, len(content), 83)
    assert len(places) > 200
    # The name of the ledger is proved by nothing in the file: a checkpoint has it, too.
    begins = content.rindex(b'"origin":"') + len(b'"origin":"')
    origin = range(begins, content.index(b'"', begins))
    for place in places:
        if place not in origin:
            assert not verify_export(write(file, flipped(content, place))).valid, place


@on_one_engine
def test_a_changed_byte_of_an_entry_is_named(file: Path) -> None:
    content = file.read_bytes()
    lines = entry_lines(content)
    entry, start = json.loads(lines[9]), content.index(lines[9])
    for place in range(start + lines[9].index(b'"canonical":"') + 13, start + len(lines[9]) - 3, 11):
        bad = first_bad(write(file, flipped(content, place)))
        named = (bad.budget_id, bad.sequence, bad.leaf_index)
        is_no_json = bad.reason.startswith("line 10: ")
        assert is_no_json or named == (entry["budget_id"], entry["sequence"], entry["leaf_index"]), place


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


CUTS: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "nothing": (lambda lines: [], "the file ends without its last line, after 0 entries"),
    "the first line alone": (lambda lines: lines[:1], "the file ends without its last line, after 0 entries"),
    "no last line": (lambda lines: lines[:-1], "the file ends without its last line"),
    "half of it": (lambda lines: lines[: len(lines) // 2], "the file ends without its last line"),
    "in a line": (lambda lines: [*lines[:5], lines[5][:-30]], "line 6: the line is not a complete JSON object"),
    "the last new line": (lambda lines: [*lines[:-1], lines[-1][:-1]], "the line is not a complete JSON object"),
    "no first line": (lambda lines: lines[1:], "line 1: the line is not the first line of an export"),
    "more": (lambda lines: [*lines, lines[1]], "the file goes on after its last line"),
    "another kind of line": (lambda lines: [*lines[:4], b'{"a": 1}\n', *lines[4:]], "line 5: the line is not an entry"),
    "not an object": (
        lambda lines: [*lines[:4], b"[]\n", *lines[4:]],
        "line 5: the line is not a complete JSON object",
    ),
    "an object that is too deep": (
        lambda lines: [*lines[:4], b'{"a":' * 10**5 + b"\n", *lines[4:]],
        "line 5: the line is not a complete JSON object",
    ),
    "a leaf index twice": (
        lambda lines: [*lines[:4], lines[3], *lines[4:]],
        "the entry's leaf_index is not larger than that of the entry before",
    ),
}


@on_one_engine
@pytest.mark.parametrize("cut", CUTS)
def test_a_file_that_is_not_whole_is_seen(file: Path, cut: str) -> None:
    change, reason = CUTS[cut]
    assert reason in first_bad(write(file, b"".join(change(entry_lines(file.read_bytes()))))).reason


def sealed(lines: Lines, entries: list[dict[str, Any]]) -> bytes:
    """The file with other entries, and a first and last line that fit: what somebody does who knows the format."""
    body = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for entry in entries]
    ends = {entry["budget_id"]: Head(entry["budget_id"], entry["sequence"], entry["hash"]) for entry in entries}
    heads = [
        {"budget_id": end.budget_id, "sequence": end.sequence, "hash": end.hash} for _, end in sorted(ends.items())
    ]
    digest = hashlib.sha256(lines[0] + b"".join(body)).hexdigest()
    tree = Frontier()
    tree.extend(leaf_hash(bytes.fromhex(entry["hash"])) for entry in entries)
    head = {**json.loads(lines[-1])["tree"], "size": tree.size, "root_hash": tree.root().hex()}
    last = {"entries": len(entries), "heads": heads, "head": digest_of(ends.values()), "tree": head, "sha256": digest}
    return lines[0] + b"".join(body) + json.dumps(last).encode() + b"\n"


#: More than the program that reads it has places for.
DEEP = "[" * 10**5

ATTEMPTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "flipped": lambda entry: {**entry, "canonical": entry["canonical"].replace('"v":"2"', '"v":"3"')},
    "damaged": lambda entry: {
        **{name: value for name, value in entry.items() if name != "canonical"},
        "canonical_hex": "ff00",
    },
    "another hash": lambda entry: {**entry, "hash": entry["previous_hash"]},
    "another previous hash": lambda entry: {**entry, "previous_hash": entry["hash"]},
    "no hash": lambda entry: {**entry, "previous_hash": "none"},
    "another budget": lambda entry: {**entry, "budget_id": "bud_x"},
    "another sequence": lambda entry: {**entry, "sequence": 100},
    "too deep": lambda entry: {**entry, "canonical": DEEP, "hash": chain_hash(entry["previous_hash"], DEEP.encode())},
}


@on_one_engine
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_changed_entry_under_a_last_line_that_fits_is_named(file: Path, attempt: str) -> None:
    lines = entry_lines(file.read_bytes())
    entries = [json.loads(line) for line in lines[1:-1]]
    assert verify_export(write(file, sealed(lines, entries))).valid
    target = entries[9]
    entries[9] = ATTEMPTS[attempt](target)
    bad = first_bad(write(file, sealed(lines, entries)))
    assert (bad.budget_id, bad.sequence, bad.leaf_index) == (
        target["budget_id"],
        target["sequence"],
        target["leaf_index"],
    )


@on_one_engine
def test_entries_that_are_gone_moved_or_doubled_are_named(file: Path) -> None:
    lines = entry_lines(file.read_bytes())
    entries = [json.loads(line) for line in lines[1:-1]]
    target = entries[9]
    place = next(place for place in range(10, 99) if entries[place]["budget_id"] == target["budget_id"])
    deleted = [*entries[:9], *entries[10:]]
    swapped = [*entries]
    swapped[9] = {**entries[place], "leaf_index": target["leaf_index"]}
    swapped[place] = {**target, "leaf_index": entries[place]["leaf_index"]}
    for changed in (deleted, swapped):
        bad = first_bad(write(file, sealed(lines, changed)))
        assert (bad.budget_id, bad.sequence, bad.leaf_index) == (target["budget_id"], target["sequence"], None)
    bad = first_bad(write(file, sealed(lines, [*entries, {**target, "leaf_index": 10_000}])))
    assert (bad.budget_id, bad.leaf_index) == (target["budget_id"], 10_000)


@on_one_engine
def test_a_tail_that_was_cut_off_is_named_by_the_last_line(file: Path) -> None:
    lines = entry_lines(file.read_bytes())
    last = json.loads(lines[-1])
    gone = json.loads(lines[-2])
    digest = hashlib.sha256(b"".join(lines[:-2])).hexdigest()
    seal = json.dumps({**last, "entries": last["entries"] - 1, "sha256": digest}).encode() + b"\n"
    bad = first_bad(write(file, b"".join([*lines[:-2], seal])))
    assert (bad.budget_id, bad.sequence, bad.leaf_index) == (gone["budget_id"], gone["sequence"], None)


@on_one_engine
def test_a_file_that_was_written_anew_is_caught_by_one_that_was_kept(file: Path, tmp_path: Path) -> None:
    kept = write(tmp_path / "kept.ndjson", file.read_bytes())
    lines = entry_lines(file.read_bytes())
    entries = [json.loads(line) for line in lines[1:-1]]
    heads: dict[str, str] = {}
    made: dict[str, str] = {}
    first: dict[str, Any] = {}
    for entry in entries:
        if '"purpose":"spent"' in entry["canonical"]:
            first = first or entry
            entry["canonical"] = entry["canonical"].replace('"purpose":"spent"', '"purpose":"other"')
        was, refers_to = entry["hash"], json.loads(entry["canonical"]).get("refers_to")
        if refers_to is not None:
            entry["canonical"] = entry["canonical"].replace(refers_to, made[refers_to])
        entry["previous_hash"] = heads.get(entry["budget_id"], GENESIS)
        entry["hash"] = made[was] = chain_hash(entry["previous_hash"], entry["canonical"].encode())
        heads[entry["budget_id"]] = entry["hash"]
    write(file, sealed(lines, entries))
    assert verify_export(file).valid
    past, verdict = read_past(kept)
    assert verdict.valid
    bad = verify_export(file, past).first_bad
    assert bad is not None
    assert (bad.budget_id, bad.sequence, bad.leaf_index) == (
        first["budget_id"], first["sequence"], first["leaf_index"],
    )  # fmt: skip


@on_one_engine
def test_a_file_without_its_last_entry_is_caught_by_one_that_was_kept(file: Path, tmp_path: Path) -> None:
    past, _ = read_past(write(tmp_path / "kept.ndjson", file.read_bytes()))
    lines = entry_lines(file.read_bytes())
    *entries, last = (json.loads(line) for line in lines[1:-1])
    write(file, sealed(lines, entries))
    assert verify_export(file).valid
    bad = verify_export(file, past).first_bad
    assert bad is not None
    assert (bad.budget_id, bad.sequence) == (last["budget_id"], last["sequence"])
    assert bad.reason == "the entry is missing, although the older export has it"


def test_bytes_that_are_no_text_are_exported_as_they_are(
    root: dict[str, Any], context: Context, tmp_path: Path
) -> None:
    row = attacks.entries(context.database)[9]
    blob = "x'ff00'" if context.database.is_sqlite else "'\\xff00'"
    attacks.run(context.database, f"UPDATE entries SET canonical = {blob} WHERE leaf_index = {row['leaf_index']}")
    content = exported(context)
    assert json.loads(entry_lines(content)[10])["canonical_hex"] == "ff00"
    bad = first_bad(write(tmp_path / "export.ndjson", content))
    assert (bad.budget_id, bad.sequence) == (row["budget_id"], row["sequence"])


# CSV.


def test_the_table_says_what_the_entries_say(api: Api, root: dict[str, Any], context: Context) -> None:
    content = exported(context, ExportFormat.CSV).decode()
    assert content.count("\r\n") == content.count("\n")
    rows = list(csv.DictReader(io.StringIO(content, newline=""), strict=True))
    assert len(rows) == len(attacks.entries(context.database))
    for entry in api.entries(root["id"]):
        (row,) = [row for row in rows if row["id"] == entry["id"]]
        del entry["principal_name"]  # which may change; what was entered has the id
        assert set(row) == set(entry)
        for name, value in entry.items():
            if isinstance(value, dict | list):
                assert json.loads(row[name]) == value
            else:
                assert row[name] == ("" if value is None else str(value))


PURPOSES = ["=1+1", "+1", "-1", "@SUM(A1)", " =1+1", "＝1+1", 'a "quoted", text', "a, b", "é", "'"]


def test_a_cell_is_never_a_formula(api: Api, context: Context) -> None:
    budget = api.budget()
    for purpose in PURPOSES:
        api.hold(budget["id"], [zcdp(0.001)], purpose=purpose)
    rows = list(csv.DictReader(io.StringIO(exported(context, ExportFormat.CSV).decode(), newline=""), strict=True))
    cells = [row["purpose"] for row in rows[1:]]
    assert cells == [*(f"'{purpose}" for purpose in PURPOSES[:6]), *PURPOSES[6:]]
    assert not any(cell.lstrip()[:1] in "=+-@＝" for row in rows for cell in row.values() if cell)


# Over HTTP.


def test_an_export_is_a_file_to_keep(
    root: dict[str, Any], client: TestClient, context: Context, tmp_path: Path
) -> None:
    answer = client.get("/v1/ledger/export")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == 'attachment; filename="ledger-20260501T010000Z.ndjson"'
    assert verify_export(write(tmp_path / "export.ndjson", answer.content)).valid
    table = client.get("/v1/ledger/export", params={"format": "csv"})
    assert table.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert table.headers["content-disposition"] == 'attachment; filename="ledger-20260501T010000Z.csv"'
    assert table.content == exported(context, ExportFormat.CSV)


def test_a_tree_is_exported_alone(api: Api, root: dict[str, Any], client: TestClient, tmp_path: Path) -> None:
    other = api.budget()
    child = api.get("/v1/budgets", parent_id=root["id"]).json()["items"][0]
    content = client.get("/v1/ledger/export", params={"budget_id": child["id"]}).content
    verdict = verify_export(write(tmp_path / "export.ndjson", content))
    assert (verdict.valid, verdict.budgets) == (True, 3)
    assert json.loads(entry_lines(content)[0])["root_id"] == root["id"]
    assert other["id"].encode() not in content
    assert_problem(client.get("/v1/ledger/export", params={"budget_id": "bud_x"}), 404, "not_found")
    assert_problem(client.get("/v1/ledger/export", params={"format": "xml"}), 422, "invalid_request", "/query/format")


def test_owners_and_auditors_may_export(api_of: ApiOf) -> None:
    for scope in (Scope.OWNER, Scope.AUDITOR):
        assert api_of(scope).client.get("/v1/ledger/export").status_code == 200
    assert_problem(api_of(Scope.ANALYST).client.get("/v1/ledger/export"), 403, "forbidden")
