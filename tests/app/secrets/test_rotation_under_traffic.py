"""Secrets and tokens are rotated and retired while requests come: none of them notices."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.auth import database_secrets, service
from app.auth.database_secrets import SecretRefused
from app.auth.memory import SECONDS
from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.ledger.checkpoints import InvalidNote, VerifierKey, open_note
from app.secrets.material import Purpose
from app.settings import Settings
from tests.crash.server_process import running_server
from tests.databases import DatabaseFactory

BUDGET = {"name": "b", "neighboring_relation": "replace_one", "filter": {"kind": "zcdp", "rho": 1000}}
HELD = {"events": [{"mechanism": {"kind": "zcdp", "rho": 0.001}}], "purpose": "rotation"}
PATIENCE_S = 60
#: Longer than a server remembers what its database said of a key.
HEARD_S = 1.5 * SECONDS


@dataclass
class Traffic:
    """Clients that write, read, repeat and ask for checkpoints, each on and on, each with a key of its own.

    Attributes:
        base: The server's address.
        tokens: Of the clients; a client takes up its new token when it finds one here.
        statuses: Of all answers that were not the expected one.
        held: Answers to reservations, by client and idempotency key.
        notes: Checkpoints that were signed.
        rounds: How often each client has come around.
    """

    base: str
    budget_id: str
    tokens: list[str]
    unexpected: list[tuple[int, str]] = field(default_factory=list)
    held: dict[tuple[int, str], Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)

    def ask(self, client: httpx2.Client, method: str, path: str, **options: Any) -> httpx2.Response:
        answer = client.request(method, path, **options)
        if answer.status_code not in (200, 201):
            self.unexpected.append((answer.status_code, answer.text))
        return answer

    def reserve(self, client: httpx2.Client, number: int, key: str) -> Any:
        headers = {"Authorization": f"Bearer {self.tokens[number]}", "Idempotency-Key": key}
        path = f"/v1/budgets/{self.budget_id}/reservations"
        return self.ask(client, "POST", path, json=HELD, headers=headers).json()

    def work(self, number: int, is_over: threading.Event) -> None:
        with httpx2.Client(base_url=self.base, timeout=PATIENCE_S) as client:
            while not is_over.is_set():
                key = f"{number}-{self.rounds[number]}"
                self.held[number, key] = self.reserve(client, number, key)
                # A retry, perhaps under another version of the secret of keys.
                first = self.held[number, f"{number}-0"]
                if self.reserve(client, number, f"{number}-0")["id"] != first["id"]:
                    self.unexpected.append((0, "a retry was done again"))
                shown = {"Authorization": f"Bearer {self.tokens[number]}"}
                self.ask(client, "GET", f"/v1/budgets/{self.budget_id}", headers=shown)
                note = self.ask(client, "GET", "/v1/ledger/checkpoint", headers={**shown, "Accept": "text/plain"})
                self.notes.append(note.text)
                self.rounds[number] += 1

    def goes_on(self) -> None:
        """Wait until the server has heard of all changes, and each client has made a whole round since then."""
        time.sleep(HEARD_S)
        wanted, deadline = [rounds + 2 for rounds in self.rounds], time.monotonic() + PATIENCE_S
        while any(have < want for have, want in zip(self.rounds, wanted, strict=True)):
            assert time.monotonic() < deadline, self.unexpected
            time.sleep(0.02)

    @contextmanager
    def running(self) -> Iterator[None]:
        self.rounds = [0] * len(self.tokens)
        is_over = threading.Event()
        threads = [threading.Thread(target=self.work, args=(number, is_over)) for number in range(len(self.tokens))]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for thread in threads:
                thread.join()


@pytest.mark.thorough  # tests/app/auth has the shorter ones, request by request
def test_rotations_fail_no_request_and_lose_no_signature(databases: DatabaseFactory, tmp_path: Path) -> None:
    url = databases.migrated()
    with running_server(url, tmp_path) as server:
        settings = Settings(data_dir=tmp_path / "var", database_url=url, workers=0)
        database = Database(settings.sqlalchemy_url)
        # An operator's command beside the server, in another process than it.
        operator = fenced_context(settings, database)
        try:
            rotate_under_traffic(operator, f"http://127.0.0.1:{server.address[1]}")
        finally:
            database.dispose()


def rotate_under_traffic(operator: Context, base: str) -> None:
    made = [service.create_key(operator, f"client {number}", [Scope.ADMIN]) for number in range(3)]
    idle = service.create_key(operator, "nobody uses it", [Scope.ANALYST])
    assert idle is not None
    keys = [key for key in made if key is not None]
    old_token = keys[0].token
    with httpx2.Client(base_url=base, headers={"Authorization": f"Bearer {keys[1].token}"}) as admin:
        # The server hears of the first key after a second at most.
        deadline = time.monotonic() + PATIENCE_S
        while admin.get("/v1/budgets").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        budget = admin.post("/v1/budgets", json=BUDGET, headers={"Idempotency-Key": "budget"}).json()["id"]
        first_key = admin.get("/v1/ledger/checkpoint").json()["public_key"]
        traffic = Traffic(base, budget, [key.token for key in keys])
        with traffic.running():
            traffic.goes_on()
            database_secrets.rotate(operator, Purpose.KEYS)
            database_secrets.rotate(operator, Purpose.SIGNATURES)
            traffic.goes_on()
            before = len(traffic.notes)
            with operator.database.write() as session:
                _, token = service.rotate_key(session, operator, keys[0].id, timedelta(hours=1))
            traffic.goes_on()
            traffic.tokens[0] = token
            traffic.goes_on()
            with pytest.raises(SecretRefused, match=idle.id):
                database_secrets.retire(operator, Purpose.KEYS, 1)
            retired = database_secrets.retire(operator, Purpose.KEYS, 1, revokes_keys=True)
            assert retired.revoked == [idle.id], "those that were used have changed over"
            traffic.goes_on()
            with operator.database.write() as session:
                _, traffic.tokens[0] = service.rotate_key(session, operator, keys[0].id, timedelta(0))
                service.tell_of_change(operator)
            time.sleep(1.5)
        # The one client may have shown its token in the moment in which it ended: that, and nothing else.
        assert {status for status, _ in traffic.unexpected} <= {401}, traffic.unexpected
        assert len(traffic.unexpected) <= 16
        assert_every_note_stands(admin, traffic.notes, before, first_key)
        assert status_of(base, old_token) == status_of(base, token) == status_of(base, idle.token) == 401
        assert status_of(base, traffic.tokens[0]) == 200

        note, verify = traffic.notes[0], "/v1/ledger/verify"
        told = admin.post(verify, json={"checkpoint": note}).json()
        assert told["valid"], json.dumps(told)
        database_secrets.retire(operator, Purpose.SIGNATURES, 1)
        assert admin.post(verify, json={"checkpoint": note}).json()["valid"], "its entries are there all the same"
        forged = note.replace(note.splitlines()[2], "A" * 43 + "=")
        told = admin.post(verify, json={"checkpoint": forged}).json()
        assert not told["valid"]
        reserved = json.loads(admin.get(f"/v1/budgets/{budget}").text)["amounts"]["reserved"]["rho"]
        assert round(reserved / 0.001) == len({each["id"] for each in traffic.held.values() if "id" in each})


def assert_every_note_stands(admin: httpx2.Client, notes: list[str], before: int, first_key: str) -> None:
    """Each is verified with the key that was handed out when it was signed, and with no other."""
    second_key = admin.get("/v1/ledger/checkpoint").json()["public_key"]
    assert second_key != first_key
    old, new = VerifierKey.parse(first_key), VerifierKey.parse(second_key)

    def is_of(note: str, key: VerifierKey) -> bool:
        try:
            open_note(note, key)
        except InvalidNote:
            return False
        return True

    signed = [(is_of(note, old), is_of(note, new)) for note in notes if note.count("\n") > 2]
    assert {(True, False), (False, True)} == set(signed)
    # From the rotation on, the first key has signed nothing.
    assert not any(by_old for by_old, _ in signed[before:])


def status_of(base: str, token: str) -> int:
    return httpx2.get(f"{base}/v1/budgets", headers={"Authorization": f"Bearer {token}"}).status_code
