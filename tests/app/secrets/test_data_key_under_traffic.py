"""The data key, secrets of webhooks and what sessions are under are rotated while uploads, runs and messages come."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.auth import database_secrets, service
from app.auth.principal import Scope
from app.auth.sessions import COOKIE, SIGN_IN
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit.data_keys import KeyFile, NotRotated, key_id, shown
from app.runs.files_at_rest import count_held, encrypt_anew, held_by_keys
from app.secrets.material import Purpose
from app.settings import Settings
from tests.app.runs.conftest import COLUMNS, HEADER, REQUEST
from tests.app.secrets.test_rotation_under_traffic import BUDGET, HEARD_S, PATIENCE_S
from tests.app.webhooks.receiver import Receiver, receiving
from tests.crash.server_process import running_server
from tests.databases import DatabaseFactory

KEY = secrets.token_bytes(32)
PAGE = "/dashboard/budgets"


@dataclass
class Uploads:
    """Two clients that upload rows, train on them, and ask for another limit, of which a webhook tells; on and on."""

    client: httpx2.Client
    budget_id: str
    rounds: list[int] = field(default_factory=lambda: [0, 0])
    asked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def made(self, path: str, **options: Any) -> Any:
        answer = self.client.post(path, headers={"Idempotency-Key": secrets.token_hex(8)}, **options)
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()

    def round(self, number: int) -> None:
        rows = HEADER + "".join(f"{3 + secrets.randbelow(10**9) / 10**9},0.5,red,{label}\n" for label in ("no", "yes"))
        declared = {"name": "d", "public": True, "declared_size": 10, "columns": COLUMNS, "label": "y"}
        files = {
            "file": ("d.csv", rows.encode(), "text/csv"),
            "metadata": (None, json.dumps(declared), "application/json"),
        }
        dataset = self.made("/v1/datasets", files=files)
        run = self.made("/v1/runs", json=REQUEST | {"dataset_id": dataset["id"]})
        asked = {"filter": {"kind": "zcdp", "rho": 2000 + len(self.asked)}, "reason": "more"}
        request = self.made(f"/v1/budgets/{self.budget_id}/limit-requests", json=asked)["id"]
        self.asked.append(request)
        self.made(f"/v1/limit-requests/{request}/withdraw")
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.client.get(f"/v1/runs/{run['id']}").json())["state"] not in ("succeeded", "failed"):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        assert found["state"] == "succeeded", found
        self.rounds[number] += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        is_over = threading.Event()

        def work(number: int) -> None:
            while not is_over.is_set():
                try:
                    self.round(number)
                except AssertionError as error:
                    self.faults.append(str(error))
                    return

        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(self.rounds))]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for thread in threads:
                thread.join()

    def go_on(self) -> None:
        time.sleep(HEARD_S)
        wanted, deadline = [rounds + 2 for rounds in self.rounds], time.monotonic() + 2 * PATIENCE_S
        while any(have < want for have, want in zip(self.rounds, wanted, strict=True)):
            assert not self.faults, self.faults
            assert time.monotonic() < deadline
            time.sleep(0.05)


def is_signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return headers["webhook-signature"] == f"v1,{expected}"


def told_of(receiver: Receiver, secret: str) -> set[str]:
    genuine = (each for each in receiver.received if is_signed(secret, each.headers, each.body))
    return {each.said["data"]["limit_request_id"] for each in genuine}


@pytest.mark.thorough  # tests/app/runs/test_files_at_rest.py has the shorter ones, file by file
def test_nothing_fails_and_nothing_is_lost_while_they_are_rotated(databases: DatabaseFactory, tmp_path: Path) -> None:
    kept = tmp_path / "data.key"
    kept.write_text(KEY.hex())
    url = databases.migrated()
    with receiving() as receiver:
        given = {
            "EPSILOND_WORKERS": "1",
            "EPSILOND_DATA_KEY_FILE": str(kept),
            "EPSILOND_WEBHOOK_ADDRESSES": f"http://127.0.0.1:{receiver.port}/",
            "EPSILOND_WEBHOOK_NETWORKS": "127.0.0.0/8",
        }
        with running_server(url, tmp_path, **given) as server:
            settings = Settings(data_dir=tmp_path / "var", database_url=url, workers=0, data_key_file=kept)
            database = Database(settings.sqlalchemy_url)
            try:
                operator = fenced_context(settings, database)
                created = service.create_key(operator, "client", [Scope.ADMIN])
                assert created is not None
                base = f"http://127.0.0.1:{server.address[1]}"
                shows_key = {"Authorization": f"Bearer {created.token}"}
                with httpx2.Client(base_url=base, timeout=PATIENCE_S, headers=shows_key) as client:
                    deadline = time.monotonic() + PATIENCE_S
                    while client.get("/v1/budgets").status_code != 200:
                        assert time.monotonic() < deadline
                        time.sleep(0.1)
                    rotate_all(operator, client, created.token, receiver)
            finally:
                database.dispose()


def rotate_all(operator: Any, client: httpx2.Client, token: str, receiver: Receiver) -> None:
    keys, settings = operator.settings.encryption.keys, operator.settings
    assert isinstance(keys, KeyFile)
    first = Uploads(client, "")
    first.budget_id = first.made("/v1/budgets", json=BUDGET)["id"]
    hook = {"url": receiver.url, "events": ["limit_requested"]}
    webhook = first.made(f"/v1/budgets/{first.budget_id}/webhooks", json=hook)
    before = signed_in(client, token)
    with first.running():
        first.go_on()
        assert shows(client, before) == 200
        newest = keys.rotate()
        database_secrets.rotate(operator, Purpose.KEYS)
        first.go_on()
        assert shows(client, before) == 303, "the key was hashed anew, and one signs in again"
        session = signed_in(client, token)
        # A receiver that takes up the new secret later than the server signs with it.
        receiver.answer = b"HTTP/1.1 401 Unknown\r\n\r\n"
        rotated = first.made(f"/v1/webhooks/{webhook['id']}/rotate")
        with pytest.raises(NotRotated, match="still encrypted"):
            keys.drop(shown(key_id(KEY)), lambda identity: count_held(settings, identity))
        left, deadline = 1, time.monotonic() + PATIENCE_S
        while left:
            left = encrypt_anew(operator, lambda _done, _of: None).left
            assert time.monotonic() < deadline
        keys.drop(shown(key_id(KEY)), lambda identity: count_held(settings, identity))
        receiver.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
        first.go_on()
        assert shows(client, session) == 200
        database_secrets.retire(operator, Purpose.KEYS, 1)
        assert shows(client, session) == 200
        assert shows(client, before) == 303
    assert first.faults == []
    assert set(held_by_keys(settings)) == {newest}
    deadline = time.monotonic() + PATIENCE_S
    while told_of(receiver, webhook["secret"]) | told_of(receiver, rotated["secret"]) != set(first.asked):
        assert time.monotonic() < deadline, "a message was lost"
        time.sleep(0.2)
    ends = [receiver.received[0], receiver.received[-1]]
    assert is_signed(webhook["secret"], ends[0].headers, ends[0].body)
    assert is_signed(rotated["secret"], ends[1].headers, ends[1].body)


def signed_in(client: httpx2.Client, token: str) -> str:
    origin = {"Origin": str(client.base_url).rstrip("/")}
    with httpx2.Client(base_url=client.base_url) as browser:
        answer = browser.post(SIGN_IN, data={"key": token}, headers=origin)
        assert answer.status_code == 303, answer.text
        return answer.cookies[COOKIE]


def shows(client: httpx2.Client, cookie: str) -> int:
    address = str(client.base_url).rstrip("/") + PAGE
    return httpx2.get(address, headers={"Cookie": f"{COOKIE}={cookie}"}).status_code
