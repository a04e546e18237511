"""Checkpoints and proofs over HTTP, and from the command line; what is checked elsewhere is checked without us."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit.fair_gate import FairGate
from app.ledger import transparency
from app.ledger.checkpoints import Checkpoint, VerifierKey, open_note, sign
from app.main import create_app
from app.settings import Settings
from tests.app.budgets.conftest import Api, ApiOf, zcdp
from tests.app.ledger import attacks, rfc9162
from tests.app.ledger.test_cli_ledger import ok, refused
from tests.app.ledger.test_merkle import naive_root
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine
from tests.local_access import local_client

ROOT = Path(__file__).parents[3]


def checkpoint(client: TestClient) -> dict[str, Any]:
    answer = client.get("/v1/ledger/checkpoint")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def hashes(context: Context) -> list[bytes]:
    """The data of the leaves; nothing was committed out of order here."""
    return [bytes.fromhex(row["hash"]) for row in attacks.entries(context.database)]


def test_a_checkpoint_is_of_all_entries_and_signed(root: dict[str, Any], client: TestClient, context: Context) -> None:
    body = checkpoint(client)
    leaves = hashes(context)
    assert (body["tree_size"], body["root_hash"]) == (len(leaves), naive_root(leaves).hex())
    key = VerifierKey.parse(body["public_key"])
    assert (key.name, body["origin"]) == (body["origin"], f"epsilond/{body['origin'].partition('/')[2]}")
    said = open_note(body["note"], key)
    assert (said.size, said.root.hex()) == (body["tree_size"], body["root_hash"])
    assert rfc9162.checked_note(body["note"], body["public_key"]) == (body["origin"], said.size, said.root)
    assert body["issued_at"] == "2026-05-01T01:00:00Z"
    bare = client.get("/v1/ledger/checkpoint", headers={"Accept": "text/plain"})
    assert (bare.text, bare.headers["vary"]) == (body["note"], "Accept")
    assert bare.headers["content-type"] == "text/plain; charset=utf-8"


def test_the_same_state_has_one_checkpoint(api: Api, client: TestClient, context: Context, clock: Any) -> None:
    first = checkpoint(client)
    assert first["tree_size"] == 0
    clock.advance(60)
    assert checkpoint(client) == first
    api.budget()
    second = checkpoint(client)
    assert (second["tree_size"], second["public_key"]) == (1, first["public_key"])
    assert len(attacks.rows(context.database, "SELECT * FROM merkle_checkpoints")) == 2
    key = context.settings.data_dir / "checkpoint.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_another_key_signs_the_same_state_anew(client: TestClient, context: Context, tmp_path: Path) -> None:
    first = checkpoint(client)
    path = tmp_path / "other.pem"
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes(*form))
    settings = Settings(data_dir=context.settings.data_dir, database_url=context.database.url, checkpoint_key_file=path)
    other = fenced_context(settings, context.database, context.clock)
    second = transparency.checkpoint(other)
    assert second.public_key != first["public_key"]
    assert second.checkpoint.root.hex() == first["root_hash"]
    assert transparency.checkpoint(other) == second
    verdict = client.post("/v1/ledger/verify", json={"checkpoint": second.note}).json()
    assert verdict["valid"] is True
    assert checkpoint(client) == first, "two servers with keys of their own sign each state once"


def test_a_note_that_was_changed_in_the_database_is_not_handed_out(
    api: Api, client: TestClient, context: Context
) -> None:
    first = checkpoint(client)["note"]
    api.budget()
    second = checkpoint(client)["note"]
    for note in (first, second.replace("\n1\n", "\n2\n"), "x"):
        attacks.run(context.database, f"UPDATE merkle_checkpoints SET note = '{note}' WHERE number = 2")
        problem = assert_problem(client.get("/v1/ledger/checkpoint"), 409, "ledger_not_consistent")
        assert "the checkpoint of 1 entries differs from the one that was signed" in problem["detail"]


def test_who_asks_for_what_was_signed_already_needs_no_write(
    api: Api, client: TestClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.budget()
    body = checkpoint(client)

    def refuse(_: object) -> None:
        raise AssertionError("others would wait")

    monkeypatch.setattr(Database, "write", refuse)
    assert checkpoint(client) == body


@pytest.mark.parametrize("content", [b"", b"x", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_file_without_a_key_is_refused_without_quoting_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="holds no Ed25519 key in PEM without a password"):
        Settings(checkpoint_key_file=path)
    with pytest.raises(ValueError, match="cannot be read"):
        Settings(checkpoint_key_file=tmp_path / "missing.pem")


def test_every_entry_is_proved_to_be_in_the_tree(
    root: dict[str, Any], client: TestClient, context: Context, tmp_path: Path
) -> None:
    first = checkpoint(client)
    later = Api(client).spend(root["id"], [zcdp(0.01)])
    assert later["state"] == "committed"
    for place, row in enumerate(attacks.entries(context.database)):
        proof = client.get(f"/v1/ledger/entries/{row['id']}/proof").json()
        assert (proof["tree_index"], proof["entry_hash"]) == (place, row["hash"])
        assert (tmp_path / "proof.json").write_text(json.dumps(proof))
        printed = ok(
            context.settings, "prove", "--proof", f"{tmp_path}/proof.json", "--public-key", first["public_key"]
        )
        assert printed.startswith(f"proved: the entry with the hash {row['hash']} is in the tree of ")
        older = client.get(f"/v1/ledger/entries/{row['id']}/proof", params={"tree_size": first["tree_size"]})
        if place < first["tree_size"]:
            assert (older.json()["root_hash"], older.json()["checkpoint"]) == (first["root_hash"], first["note"])
        else:
            assert_problem(older, 422, "invalid_request", "/query/tree_size")
    unsigned = client.get(f"/v1/ledger/entries/{row['id']}/proof", params={"tree_size": place + 1})
    assert unsigned.json()["tree_size"] == place + 1
    missing = client.get("/v1/ledger/entries/ent_x/proof")
    assert_problem(missing, 404, "not_found")
    too_large = client.get(f"/v1/ledger/entries/{row['id']}/proof", params={"tree_size": 10_000})
    assert_problem(too_large, 422, "invalid_request", "/query/tree_size")


def test_the_tree_is_proved_to_begin_with_every_smaller_one(
    root: dict[str, Any], client: TestClient, context: Context
) -> None:
    body, leaves = checkpoint(client), hashes(context)
    for size in range(len(leaves) + 1):
        proof = client.get("/v1/ledger/consistency", params={"from_size": size}).json()
        assert (proof["from_root"], proof["to_root"]) == (naive_root(leaves[:size]).hex(), body["root_hash"])
        assert proof["to_checkpoint"] == body["note"]
        assert (proof["from_checkpoint"] is None) == (size != len(leaves))
    for params in ({"from_size": 10_000}, {"from_size": 2, "to_size": 1}):
        assert_problem(client.get("/v1/ledger/consistency", params=params), 422, "invalid_request", "/query/from_size")
    answer = client.get("/v1/ledger/consistency", params={"from_size": 1, "to_size": 10_000})
    assert_problem(answer, 422, "invalid_request", "/query/to_size")


def test_a_proof_that_was_changed_is_refused(
    root: dict[str, Any], client: TestClient, context: Context, tmp_path: Path
) -> None:
    old = checkpoint(client)
    Api(client).spend(root["id"], [zcdp(0.01)])
    new = checkpoint(client)
    row = attacks.entries(context.database)[4]
    inclusion = client.get(f"/v1/ledger/entries/{row['id']}/proof").json()
    consistency = client.get("/v1/ledger/consistency", params={"from_size": old["tree_size"]}).json()
    kept = tmp_path / "kept.txt"
    kept.write_text(old["note"])

    def prove(proof: Any, *more: str, good: bool = False) -> str:
        (tmp_path / "proof.json").write_text(proof if isinstance(proof, str) else json.dumps(proof))
        arguments = ("prove", "--proof", f"{tmp_path}/proof.json", "--public-key", new["public_key"], *more)
        return ok(context.settings, *arguments) if good else refused(context.settings, *arguments)

    prove(inclusion, good=True)
    for more in ((), ("--checkpoint", str(kept))):
        prove(consistency, *more, good=True)
    without_its_own = {**consistency, "from_checkpoint": None}
    prove(without_its_own, "--checkpoint", str(kept), good=True)
    assert f"no checkpoint has the root of {old['tree_size']} entries" in prove(without_its_own)
    other = "0" * 64
    for name, value in (
        ("tree_index", 5), ("tree_size", 20), ("entry_hash", other), ("leaf_hash", other), ("root_hash", other),
        ("path", [*inclusion["path"][1:], other]), ("path", [*inclusion["path"], other]), ("checkpoint", old["note"]),
        ("checkpoint", new["note"].replace("\n31\n", "\n30\n")), ("checkpoint", None), ("kind", "other"),
        ("path", None),
    ):  # fmt: skip
        assert "Not proved: " in prove({**inclusion, name: value}), name
    for name, value in (
        ("from_size", 5), ("to_size", 20), ("from_root", other), ("to_root", other), ("path", []),
        ("from_checkpoint", new["note"]), ("to_checkpoint", old["note"]), ("to_checkpoint", None), ("from_root", "x"),
    ):  # fmt: skip
        assert "Not proved: " in prove({**consistency, name: value}), name
    for text in ("", "[]", "{}", "[" * 100_000):
        assert "Not proved: the file is not a proof" in prove(text)
    for name, value in (("root_hash", other[1:]), ("path", [f"{inclusion['path'][0]}00", *inclusion["path"][1:]])):
        assert "Not proved: the file is not a proof" in prove({**inclusion, name: value}), name
    # The server has signed two trees of one size, and tells each to somebody else.
    another = Checkpoint(new["origin"], new["tree_size"], bytes(32))
    kept.write_text(sign(another, context.settings.checkpoint_key))
    for proof in (inclusion, consistency):
        said = prove(proof, "--checkpoint", str(kept))
        assert f"the checkpoint of {new['tree_size']} entries and the proof have different roots" in said
    foreign = str(VerifierKey.of(Ed25519PrivateKey.generate(), new["origin"]))
    arguments = ("prove", "--proof", f"{tmp_path}/proof.json", "--public-key")
    (tmp_path / "proof.json").write_text(json.dumps(inclusion))
    assert "has no signature of the public key" in refused(context.settings, *arguments, foreign)
    assert "--public-key is refused" in refused(context.settings, *arguments, "x")


def test_verification_has_a_place_of_its_own(api: Api, context: Context) -> None:
    """Whoever asks for many keeps nobody's numbers waiting, and is not kept waiting by them."""
    api.budget()
    full = replace(context, numerics=FairGate(1, 0, 0.0), verifications=FairGate(1, 0, 0.0))
    client = local_client(create_app(full))
    account = {"events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 2.0}}], "delta": 1e-5}
    with full.numerics:
        assert client.post("/v1/ledger/verify").json()["valid"]
        assert_problem(client.post("/v1/account", json=account), 503, "numerics_busy")
    with full.verifications:
        assert_problem(client.post("/v1/ledger/verify"), 503, "numerics_busy")
        assert client.post("/v1/account", json=account).status_code == 200


def test_who_reads_entries_reads_checkpoints(api_of: ApiOf) -> None:
    for scope in (Scope.OWNER, Scope.ANALYST, Scope.AUDITOR, Scope.ADMIN):
        client = api_of(scope).client
        assert client.get("/v1/ledger/checkpoint").status_code == 200
        assert client.get("/v1/ledger/consistency", params={"from_size": 0}).status_code == 200
    for path in ("checkpoint", "consistency?from_size=0", "entries/ent_x/proof"):
        assert_problem(api_of(Scope.LIMITS).client.get(f"/v1/ledger/{path}"), 403, "forbidden")


# Elsewhere.


def elsewhere(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[bytes]:
    """A process that is told nothing of the service: no settings, no database, and a folder that is empty."""
    folder = tmp_path / "elsewhere"
    folder.mkdir(exist_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    result = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, check=False)
    assert list(folder.iterdir()) == []
    return result


@pytest.mark.thorough
@on_one_engine
def test_an_export_is_verified_elsewhere_with_a_checkpoint_and_a_public_key_alone(
    root: dict[str, Any], client: TestClient, context: Context, tmp_path: Path
) -> None:
    kept, export, proof = tmp_path / "kept.txt", tmp_path / "export.ndjson", tmp_path / "proof.json"
    assert "The checkpoint of 28 entries was written" in ok(context.settings, "checkpoint", "--output", str(kept))
    key = ok(context.settings, "public-key").strip()
    assert ok(context.settings, "checkpoint") == kept.read_text()
    Api(client).spend(root["id"], [zcdp(0.01)])
    ok(context.settings, "export", "--output", str(export))
    proof.write_text(client.get("/v1/ledger/consistency", params={"from_size": 28}).text)
    options = ("--export", str(export), "--checkpoint", str(kept))
    verify = ("-m", "app", "ledger", "verify", *options)
    result = elsewhere(tmp_path, *verify, "--public-key", key)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"; tree of 31, root " in result.stdout
    assert elsewhere(tmp_path, str(Path(rfc9162.__file__)), str(export), str(kept), key).stdout == b"28\n"
    printed = elsewhere(tmp_path, "-m", "app", "ledger", "prove", "--proof", str(proof), "--public-key", key).stdout
    assert printed.startswith(b"proved: the tree of 31 entries of epsilond/led_")
    assert b"needs --public-key" in elsewhere(tmp_path, *verify).stderr

    # The same files in process: each way in which they do not belong together.
    def not_valid(*arguments: str) -> str:
        return refused(context.settings, "verify", *arguments, "--public-key", key)

    early = tmp_path / "early.ndjson"
    note = kept.read_text()
    kept.write_text(note.replace("\n28\n", "\n27\n"))
    assert "was changed after it was signed" in not_valid(*options)
    kept.write_bytes(b"\xff")
    assert "it is not text in UTF-8" in not_valid(*options)
    kept.write_text(checkpoint(client)["note"])
    lines = export.read_bytes().splitlines(keepends=True)
    early.write_bytes(b"".join([lines[0].replace(b'"version":2', b'"version":1'), *lines[1:]]))
    assert "the line is not an entry" in not_valid("--export", str(early), "--checkpoint", str(kept))
    tree = client.get("/v1/ledger/export", params={"budget_id": root["id"]}).content
    early.write_bytes(tree)
    assert "lacks budgets" in not_valid("--export", str(early), "--checkpoint", str(kept))
    ok(context.settings, "verify", "--export", str(early))


def test_the_modules_that_verify_elsewhere_know_no_database() -> None:
    source = (
        "import sys; import app.ledger.export_verification, app.ledger.proofs, app.ledger.checkpoints\n"
        "print([name for name in ('sqlalchemy', 'psycopg', 'sqlite3', 'fastapi', 'pydantic_settings', 'app.settings')"
        " if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", source], check=True, cwd=ROOT, stdout=subprocess.PIPE).stdout
    assert printed == b"[]\n"
