"""Secrets of a database: who is admitted, what a rotation keeps, what its end ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.auth import database_secrets as service
from app.auth import service as keys
from app.auth import sessions
from app.auth.database_secrets import SecretRefused
from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.fence.watching import fence_of
from app.ledger import transparency
from app.ledger.checkpoints import VerifierKey, open_note
from app.secrets import versions
from app.secrets.material import Purpose, SecretUnavailable
from app.settings import Settings
from app.tables.access import ApiKey
from tests.app.conftest import ConnectAs


@pytest.fixture
def admitted(context: Context) -> Context:
    service.admit(context)
    return context


def elsewhere(context: Context, folder: Path) -> Context:
    """Another server on the same database, with a data folder of its own."""
    settings = Settings(data_dir=folder, database_url=context.database.url, workers=0)
    return replace(context, settings=settings)


def row_of(context: Context, key_id: str) -> ApiKey:
    with context.database.read() as session:
        return keys.get_key(session, key_id)


def a_key(context: Context, name: str = "key") -> keys.CreatedKey:
    created = keys.create_key(context, name, [Scope.ADMIN])
    assert created is not None
    return created


def test_the_first_start_enters_what_recognises_the_secrets(context: Context) -> None:
    assert service.listed(context) == []
    service.admit(context)
    rows = service.listed(context)
    assert [(row.purpose, row.version, row.retired_at) for row in rows] == [
        ("content", 1, None),
        ("keys", 1, None),
        ("signatures", 1, None),
    ]
    assert len({row.check_value for row in rows}) == 3
    secret = context.settings.secret.decode()
    assert all(secret not in row.check_value for row in rows)
    service.admit(context)
    assert [row.check_value for row in service.listed(context)] == [row.check_value for row in rows]


@pytest.mark.parametrize(
    ("name", "words"),
    [("secret.key", "The content secret is not the one"), ("checkpoint.key", "The key of signatures is not the one")],
)
def test_a_server_with_another_secret_is_refused(admitted: Context, tmp_path: Path, name: str, words: str) -> None:
    other = elsewhere(admitted, tmp_path / "other")
    ours, theirs = admitted.settings.data_dir, other.settings.data_dir
    assert other.settings.secret
    assert other.settings.checkpoint_key
    for kept in {"secret.key", "checkpoint.key"} - {name}:
        (theirs / kept).write_bytes((ours / kept).read_bytes())
    before = [(row.purpose, row.check_value) for row in service.listed(admitted)]
    with pytest.raises(SecretRefused) as refused:
        service.admit(elsewhere(admitted, theirs))
    said = str(refused.value)
    assert words in said
    assert "the database expects version 1 with the check value" in said
    assert f"{theirs / name} has" in said
    assert "restore the secrets from a backup" in said
    for folder in (ours, theirs):
        for file in ("secret.key", "checkpoint.key"):
            assert (folder / file).read_text().strip() not in said
    assert [(row.purpose, row.check_value) for row in service.listed(admitted)] == before


def test_no_secret_is_drawn_in_place_of_one_that_is_missing(admitted: Context, tmp_path: Path) -> None:
    folder = tmp_path / "restored"
    with pytest.raises(SecretRefused, match=r"The content secret is missing.*secret\.key is not there"):
        service.admit(elsewhere(admitted, folder))
    assert not folder.exists()


def test_of_servers_that_start_at_once_with_different_secrets_one_wins(context: Context, tmp_path: Path) -> None:
    count = 6
    barrier, outcomes = threading.Barrier(count), dict[int, str]()
    servers = []
    for number in range(count):
        database = Database(context.database.url)
        settings = Settings(data_dir=tmp_path / str(number), database_url=database.url, workers=0)
        servers.append(replace(context, settings=settings, database=database))
        fence_of(servers[-1])

    def start(number: int) -> None:
        barrier.wait()
        try:
            service.admit(servers[number])
            outcomes[number] = "admitted"
        except SecretRefused as error:
            outcomes[number] = str(error)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        server.database.dispose()
    winners = [number for number, outcome in outcomes.items() if outcome == "admitted"]
    assert (len(outcomes), len(winners)) == (count, 1), outcomes
    assert all(outcome.startswith("The content secret is ") for outcome in outcomes.values() if outcome != "admitted")
    material = servers[winners[0]].secrets
    for row in service.listed(context):
        assert row.check_value == material.check_value(Purpose(row.purpose), 1), "all three are one server's"


def test_the_secret_of_contents_is_never_rotated(admitted: Context) -> None:
    with pytest.raises(SecretRefused, match="could be bound to a second root budget"):
        service.rotate(admitted, Purpose.CONTENT)
    with pytest.raises(SecretRefused, match="never gets another version"):
        service.retire(admitted, Purpose.CONTENT, 1)
    assert len(service.listed(admitted)) == 3


def test_a_rotation_of_keys_changes_no_hash_of_contents(admitted: Context) -> None:
    labels = ("dataset_content", "idempotency", "checkpoint", "selection score")
    before = [admitted.keyed_hash(label, b"x") for label in labels]
    assert service.rotate(admitted, Purpose.KEYS) == 2
    assert [admitted.keyed_hash(label, b"x", 2) for label in labels] == before
    assert admitted.keyed_hash("api_key", b"x", 2) != admitted.keyed_hash("api_key", b"x", 1)


def test_a_key_outlives_a_rotation_and_changes_over_when_it_is_used(admitted: Context) -> None:
    created = a_key(admitted)
    old = row_of(admitted, created.id).token_hash
    session = sessions.begin(admitted, created.id, None)
    assert session is not None
    assert service.rotate(admitted, Purpose.KEYS) == 2
    assert sessions.authenticate(admitted, session.cookie) is not None, "until the key is used"
    assert keys.authenticate(admitted, created.token[:-4] + "aaaa") is None
    assert row_of(admitted, created.id).secret_version == 1, "a wrong token changes nothing"
    assert keys.authenticate(admitted, created.token) is not None
    row = row_of(admitted, created.id)
    assert (row.secret_version, row.token_hash == old) == (2, False)
    assert keys.authenticate(admitted, created.token) is not None
    assert sessions.authenticate(admitted, session.cookie) is None
    again = sessions.begin(admitted, created.id, None)
    assert again is not None
    assert sessions.authenticate(admitted, again.cookie) is not None
    _, moment, code = again.cookie.split(".")
    said = f"{created.id}.{moment}.{row.token_hash}".encode()
    assert code == admitted.keyed_hash("session", said, 2) != admitted.keyed_hash("session", said, 1)
    assert row_of(admitted, a_key(admitted).id).secret_version == 2


def test_the_older_token_of_a_rotated_key_changes_over_too(admitted: Context) -> None:
    created = a_key(admitted)
    with admitted.database.write() as session:
        _, newer = keys.rotate_key(session, admitted, created.id, timedelta(hours=1))
    service.rotate(admitted, Purpose.KEYS)
    with pytest.raises(SecretRefused, match=r"1 API key\(s\) are still under version 1"):
        service.retire(admitted, Purpose.KEYS, 1)
    assert keys.authenticate(admitted, newer) is not None
    with pytest.raises(SecretRefused, match=r"1 API key\(s\) are still under version 1"):
        service.retire(admitted, Purpose.KEYS, 1)
    assert keys.authenticate(admitted, created.token) is not None
    assert service.retire(admitted, Purpose.KEYS, 1).revoked == []
    assert all(keys.authenticate(admitted, token) is not None for token in (created.token, newer))


def test_a_key_that_changed_over_is_rotated_with_an_overlap(admitted: Context) -> None:
    created = a_key(admitted)
    service.rotate(admitted, Purpose.KEYS)
    assert keys.authenticate(admitted, created.token) is not None
    with admitted.database.write() as session:
        _, newer = keys.rotate_key(session, admitted, created.id, timedelta(hours=1))
    assert all(keys.authenticate(admitted, token) is not None for token in (created.token, newer))


def test_no_version_ends_while_a_key_is_made_under_it(admitted: Context) -> None:
    service.rotate(admitted, Purpose.KEYS)
    told: list[str] = []

    def end_it() -> None:
        service.rotate(admitted, Purpose.KEYS)
        try:
            service.retire(admitted, Purpose.KEYS, 2)
        except SecretRefused as error:
            told.append(str(error))

    thread = threading.Thread(target=end_it)
    with admitted.database.write() as session:
        assert versions.newest_kept(session, Purpose.KEYS) == 2
        thread.start()
        thread.join(0.5)
        assert thread.is_alive(), "it waits"
        row, token = keys.add_key(session, admitted, keys.Terms("key", (Scope.ADMIN,)), "loopback")
    thread.join()
    assert told == [
        f"1 API key(s) are still under version 2, such as {row.id}. A key moves to the newest version when it "
        "is used. Wait, or revoke the remaining keys with --revoke-keys."
    ]
    assert keys.authenticate(admitted, token) is not None


def test_retiring_a_version_ends_what_is_under_it_and_nothing_else(admitted: Context) -> None:
    unused, used, overlapping = a_key(admitted), a_key(admitted), a_key(admitted)
    with admitted.database.write() as session:
        _, newer = keys.rotate_key(session, admitted, overlapping.id, timedelta(hours=1))
    with pytest.raises(SecretRefused, match="is the newest one"):
        service.retire(admitted, Purpose.KEYS, 1)
    service.rotate(admitted, Purpose.KEYS)
    assert keys.authenticate(admitted, used.token) is not None
    assert keys.authenticate(admitted, newer) is not None
    assert service.retire(admitted, Purpose.KEYS, 1, revokes_keys=True).revoked == [unused.id]
    answers = [keys.authenticate(admitted, each) for each in (unused.token, used.token, overlapping.token, newer)]
    assert [answer is not None for answer in answers] == [False, True, False, True]
    with pytest.raises(SecretRefused, match="No version 1"):
        service.retire(admitted, Purpose.KEYS, 1)
    service.admit(admitted)
    assert transparency.verify(admitted, "").valid, "both ends are entered"


def test_a_server_without_a_newer_version_is_refused_and_says_so(admitted: Context, tmp_path: Path) -> None:
    created = a_key(admitted)
    ours, folder = admitted.settings.data_dir, tmp_path / "apart"
    folder.mkdir()
    for name in ("secret.key", "checkpoint.key"):
        (folder / name).write_bytes((ours / name).read_bytes())
    other = elsewhere(admitted, folder)
    service.admit(other)
    service.rotate(admitted, Purpose.KEYS)
    assert keys.authenticate(other, created.token) is not None, "it cannot hash anew, and need not"
    assert keys.authenticate(admitted, created.token) is not None
    with pytest.raises(SecretUnavailable, match=r"secret of keys, version 2, cannot be read: keys\.2\.key\."):
        keys.authenticate(other, created.token)
    with pytest.raises(SecretRefused, match=r"The secret of keys is missing.*keys\.2\.key is not there"):
        service.admit(other)
    (folder / "keys.2.key").write_bytes((ours / "keys.2.key").read_bytes())
    service.admit(other)
    assert keys.authenticate(other, created.token) is not None


def test_a_secret_that_was_put_there_before_is_taken_unless_it_is_an_old_one(admitted: Context) -> None:
    path = admitted.settings.data_dir / "keys.2.key"
    path.write_bytes(admitted.settings.secret)
    with pytest.raises(SecretRefused, match="holds an older version"):
        service.rotate(admitted, Purpose.KEYS)
    path.write_text("0123456789abcdef" * 4)
    other = elsewhere(admitted, admitted.settings.data_dir)
    assert service.rotate(other, Purpose.KEYS) == 2
    assert path.read_text() == "0123456789abcdef" * 4


def test_what_an_old_key_signed_still_verifies(admitted: Context, client: TestClient) -> None:
    old = transparency.checkpoint(admitted)
    assert service.rotate(admitted, Purpose.SIGNATURES) == 2
    new = transparency.checkpoint(admitted)
    assert new.public_key != old.public_key
    assert new.public_key == str(transparency.verifier_key(admitted))
    for signed in (old, new):
        assert open_note(signed.note, VerifierKey.parse(signed.public_key)) == signed.checkpoint
        assert client.post("/v1/ledger/verify", json={"checkpoint": signed.note}).json()["valid"] is True
    listed = [row.check_value for row in service.listed(admitted) if row.purpose == Purpose.SIGNATURES]
    assert listed == [VerifierKey.parse(each.public_key).key.hex() for each in (old, new)]

    changed = old.note.replace("\n0\n", "\n1\n")
    refused = client.post("/v1/ledger/verify", json={"checkpoint": changed}).json()
    assert refused["code"] == "invalid_checkpoint", "the older key's signature is looked at"
    service.retire(admitted, Purpose.SIGNATURES, 1)
    refused = client.post("/v1/ledger/verify", json={"checkpoint": changed}).json()
    assert refused["valid"] is False, "whose signature it is, the ledger does not say any more"
    (admitted.settings.data_dir / "checkpoint.key").unlink()
    service.admit(elsewhere(admitted, admitted.settings.data_dir))


@contextmanager
def asking(connect: ConnectAs, token: str, ask: Callable[[TestClient, int], None]) -> Iterator[None]:
    """Ask again and again in three threads, at least six times in each; whatever fails there fails here."""
    stop, failures = threading.Event(), list[BaseException]()
    clients = [connect(headers={"Authorization": f"Bearer {token}"}) for _ in range(3)]

    def work(client: TestClient) -> None:
        number = 0
        try:
            while number < 6 or not stop.is_set():
                ask(client, number)
                number += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.wait(1)
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []


def test_rotation_under_load(admitted: Context, connect: ConnectAs) -> None:
    """Requests, retries, new keys and sessions go on over rotations, and every token that was handed out is good."""
    admin = a_key(admitted)
    made: list[str] = []
    terms = {"name": "b", "neighboring_relation": "replace_one", "filter": {"kind": "zcdp", "rho": 1}}
    first = connect(headers={"Authorization": f"Bearer {admin.token}"}).post(
        "/v1/budgets", json=terms, headers={"Idempotency-Key": "the one"}
    )
    assert first.status_code == 201

    def ask(client: TestClient, number: int) -> None:
        again = client.post("/v1/budgets", json=terms, headers={"Idempotency-Key": "the one"})
        assert (again.status_code, again.json()) == (201, first.json())
        body = {"name": "n", "scopes": ["analyst"]}
        answer = client.post("/v1/keys", json=body, headers={"Idempotency-Key": f"{threading.get_ident()} {number}"})
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["token"])
        assert client.get("/v1/ledger/checkpoint").status_code == 200

    with asking(connect, admin.token, ask):
        for version in (2, 3, 4):
            assert service.rotate(admitted, Purpose.KEYS) == version
            assert service.rotate(admitted, Purpose.SIGNATURES) == version
            service.retire(admitted, Purpose.SIGNATURES, version - 1)
    assert len(made) > 15
    assert all(keys.authenticate(admitted, token) is not None for token in [*made, admin.token])
    for version in (1, 2, 3):
        assert service.retire(admitted, Purpose.KEYS, version).revoked == [], "all have changed over"
    assert all(keys.authenticate(admitted, token) is not None for token in [*made, admin.token])


def test_of_two_that_rotate_at_once_each_makes_a_version_or_is_told(admitted: Context) -> None:
    barrier, outcomes = threading.Barrier(2), list[int | str]()

    def rotate() -> None:
        barrier.wait()
        try:
            outcomes.append(service.rotate(admitted, Purpose.KEYS))
        except SecretRefused as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=rotate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = [row.version for row in service.listed(admitted) if row.purpose == Purpose.KEYS]
    assert sorted(each for each in outcomes if isinstance(each, int)) == known[1:]
    assert all("Somebody else" in each for each in outcomes if isinstance(each, str))
    service.admit(admitted)
