"""`/v1/keys`: made, shown once, rotated, revoked, and what a key may know of itself."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, text
from starlette.testclient import TestClient

from app.auth import service
from app.auth.principal import Scope
from app.context import Context
from app.tables.access import ApiKey
from app.tables.idempotency import IdempotencyRecord
from tests.app.conftest import ConnectAs
from tests.app.datasets.uploads import create_budget
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

KEY = {"name": "notebook", "scopes": ["analyst"]}


class Keys:
    """A client that is shown the key of each request."""

    def __init__(self, client: TestClient, token: str) -> None:
        self.client, self.token = client, token

    def get(self, path: str, token: str | None = None) -> Any:
        return self.client.get(f"/v1/keys{path}", headers=_bearer(token or self.token))

    def post(self, path: str, body: Any = None, key: str = "", token: str | None = None) -> Any:
        """The same request again is the same command, unless it has another key."""
        headers = {**_bearer(token or self.token), "Idempotency-Key": f"{path} {key}".strip() or "create"}
        return self.client.post(f"/v1/keys{path}", json=body, headers=headers)

    def is_good(self, token: str) -> bool:
        return bool(self.get("/self", token).status_code == 200)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def keys(connect: ConnectAs, context: Context) -> Keys:
    admin = service.create_key(context, "admin", [Scope.ADMIN])
    assert admin is not None
    return Keys(connect(), admin.token)


def test_a_key_is_made_and_its_token_is_in_no_other_answer_and_in_no_row(keys: Keys, context: Context) -> None:
    made = keys.post("", {**KEY, "expires_in": 3600, "requests_per_second": 5})
    assert made.status_code == 201, made.text
    body = made.json()
    token = body["token"]
    assert made.headers["location"] == f"/v1/keys/{body['id']}"
    assert (body["state"], body["scopes"], body["budgets"]) == ("active", ["analyst"], None)
    assert keys.is_good(token)
    secret = token.rpartition("_")[2]
    again = keys.post("", {**KEY, "expires_in": 3600, "requests_per_second": 5})
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == {**body, "token": None}
    for path in ("", f"/{body['id']}"):
        assert secret not in keys.get(path).text
    with context.database.read() as session:
        stored = session.scalars(select(IdempotencyRecord.answer)).all()
        rows = [dict(row._mapping) for row in session.execute(text("SELECT * FROM api_keys"))]
    assert secret not in json.dumps(stored)
    assert secret not in repr(rows)
    assert "token" not in repr(service.CreatedKey("key_1", "n", (), token)).replace(token, "token")


@on_one_engine
@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"scopes": ["admin"], "budgets": ["bud_x"]}, "contradiction", "/budgets"),
        ({"budgets": ["bud_x"]}, "unknown_budget", "/budgets/0"),
        ({"budgets": []}, "invalid_request", "/budgets"),
        ({"scopes": []}, "invalid_request", "/scopes"),
        ({"scopes": ["root"]}, "invalid_request", "/scopes/0"),
        ({"expires_in": 5, "expires_at": "2030-01-01T00:00:00Z"}, "overdetermined", "/expires_at"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "out_of_range", "/expires_at"),
        ({"expires_at": "9999-12-31T23:59:59-12:00"}, "out_of_range", "/expires_at"),
        ({"expires_at": "2030-01-01T00:00:00"}, "invalid_request", "/expires_at"),
        ({"requests_per_second": -1}, "invalid_request", "/requests_per_second"),
        ({"concurrent_requests": 1.5}, "invalid_request", "/concurrent_requests"),
        ({"name": "a\nb"}, "invalid_request", "/name"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(keys: Keys, change: dict[str, Any], code: str, pointer: str) -> None:
    assert_problem(keys.post("", {**KEY, **change}), 422, code, pointer)
    assert len(keys.get("").json()["items"]) == 1


def test_a_key_says_what_it_reaches_and_until_when(keys: Keys, context: Context) -> None:
    root = create_budget(context)
    child = create_budget(context, parent_id=root)
    made = keys.post("", {**KEY, "budgets": [child, child], "expires_in": 60, "concurrent_requests": 3}).json()
    assert made["budgets"] == [child]
    own = keys.get("/self", made["token"]).json()
    assert (own["id"], own["scopes"], own["budgets"]) == (made["id"], ["analyst"], [child])
    assert (own["valid_until"], own["concurrent_requests"]) == (made["expires_at"], 3)
    assert own["requests_per_second"] == context.settings.requests_per_second
    assert_problem(keys.get("", made["token"]), 403, "forbidden")


def test_keys_are_listed_in_pages(keys: Keys) -> None:
    made = [keys.post("", {**KEY, "name": f"n{number}"}, key=str(number)).json()["id"] for number in range(4)]
    found, cursor = [], ""
    while cursor is not None:
        page = keys.get(f"?limit=2{cursor and '&cursor=' + cursor}").json()
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert set(made) < set(found)
    assert len(found) == 5
    assert_problem(keys.get("/key_nothing"), 404, "not_found")


def test_an_expired_key_is_refused_at_once_also_while_it_is_remembered(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.auth import memory

    monkeypatch.setattr(memory, "SECONDS", 1e9)
    now = [context.clock()]
    object.__setattr__(context, "clock", lambda: now[0])
    created = service.create_key(context, "short", [Scope.ANALYST], expires_at=now[0] + timedelta(seconds=5))
    assert created is not None
    remembered = memory.KeyMemory(context)
    assert remembered.principal(created.token, ask=True) is not None
    now[0] += timedelta(seconds=4)
    assert remembered.principal(created.token, ask=False) is not None
    now[0] += timedelta(seconds=1)
    assert remembered.principal(created.token, ask=False) is None
    assert remembered.principal(created.token, ask=True) is None


def test_a_rotated_key_has_two_tokens_for_the_overlap(
    keys: Keys, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = keys.post("", KEY).json()
    rotated = keys.post(f"/{old['id']}/rotate", {"overlap_s": 60})
    assert rotated.status_code == 200, rotated.text
    new = rotated.json()
    assert new["id"] == old["id"]
    assert new["previous_token_until"] is not None
    assert keys.is_good(old["token"])
    assert keys.is_good(new["token"])
    assert keys.get("/self", old["token"]).json()["valid_until"] == new["previous_token_until"]
    assert keys.get("/self", new["token"]).json()["valid_until"] is None
    assert keys.post(f"/{old['id']}/rotate", {"overlap_s": 60}).json()["token"] is None, "a replay"
    assert_problem(keys.post(f"/{old['id']}/rotate", {"overlap_s": 1}, key="2"), 409, "rotation_in_progress")
    later = context.clock() + timedelta(seconds=60)
    object.__setattr__(context, "clock", lambda: later)
    assert not keys.is_good(old["token"])
    assert keys.is_good(new["token"])
    assert keys.get(f"/{old['id']}").json()["previous_token_until"] is None
    third = keys.post(f"/{old['id']}/rotate", key="3").json()["token"]
    last = keys.post(f"/{old['id']}/rotate", {"overlap_s": 0}, key="4").json()["token"]
    assert [keys.is_good(token) for token in (old["token"], new["token"], third, last)] == [False, False, False, True]


def test_an_ended_key_is_not_rotated_and_a_revoked_one_stays_so(keys: Keys) -> None:
    made = keys.post("", KEY).json()
    assert keys.post(f"/{made['id']}/rotate", {"overlap_s": 60}).status_code == 200
    revoked = keys.post(f"/{made['id']}/revoke").json()
    assert (revoked["state"], revoked["id"]) == ("revoked", made["id"])
    assert not keys.is_good(made["token"]), "the token before the rotation ends with the key"
    assert keys.post(f"/{made['id']}/revoke", key="2").json() == revoked
    assert_problem(keys.post(f"/{made['id']}/rotate", key="3"), 409, "key_has_ended")
    for call in ("rotate", "revoke"):
        assert_problem(keys.post(f"/key_nothing/{call}", key=f"{call}"), 404, "not_found")


def test_the_last_admin_key_is_not_revoked_over_http(keys: Keys, context: Context) -> None:
    own = keys.get("/self").json()["id"]
    keys.post("", KEY)
    ended = keys.post("", {"name": "ended", "scopes": ["admin"], "expires_in": 1}, key="2").json()["id"]
    with context.database.write() as session:
        session.get_one(ApiKey, ended).expires_at = context.clock()
    body = assert_problem(keys.post(f"/{own}/revoke", key="3"), 409, "last_admin_key")
    assert "epsilond keys revoke" in body["detail"]
    other = keys.post("", {"name": "other", "scopes": ["admin"]}, key="4").json()
    assert keys.post(f"/{own}/revoke", key="5").status_code == 200
    assert not keys.is_good(keys.token)
    assert_problem(keys.post(f"/{other['id']}/revoke", key="6", token=other["token"]), 409, "last_admin_key")
    assert service.revoke_key(context, other["id"]), "the machine itself may"


def test_use_is_noted_by_the_minute_and_rarely(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.auth import memory

    created = service.create_key(context, "used", [Scope.ANALYST])
    assert created is not None
    assert service.list_keys(context)[0].last_used_at is None
    service.note_use(context, created.id)
    used = service.list_keys(context)[0].last_used_at
    assert used == context.clock().replace(second=0)
    earlier = used - timedelta(hours=1)
    object.__setattr__(context, "clock", lambda: earlier)
    service.note_use(context, created.id)
    assert service.list_keys(context)[0].last_used_at == used, "a clock that went back forgets nothing"
    remembered, now = memory.KeyMemory(context), [1000.0]
    monkeypatch.setattr(memory.time, "monotonic", lambda: now[0])
    principal = service.authenticate(context, created.token)
    assert principal is not None
    assert remembered.is_due_for_a_note(principal)
    now[0] += memory.NOTED_EVERY_S - 1
    assert not remembered.is_due_for_a_note(principal)
    now[0] += 1
    assert remembered.is_due_for_a_note(principal)


def test_a_request_notes_the_use_of_its_key(keys: Keys, context: Context) -> None:
    own = keys.get("/self").json()["id"]
    keys.client.__exit__(None, None, None)  # whatever its loop left to threads is done then
    with context.database.read() as session:
        assert session.get_one(ApiKey, own).last_used_at is not None


def test_on_a_server_without_keys_the_machine_itself_is_told_so(client: TestClient, context: Context) -> None:
    own = client.get("/v1/keys/self").json()
    assert (own["id"], own["budgets"], own["valid_until"]) == ("loopback", None, None)
    first = client.post("/v1/keys", json={"name": "first", "scopes": ["admin"]}, headers={"Idempotency-Key": "1"})
    assert first.status_code == 201
    assert_problem(client.get("/v1/keys/self"), 401, "unauthenticated")
    assert client.get("/v1/keys/self", headers=_bearer(first.json()["token"])).status_code == 200
