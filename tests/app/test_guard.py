"""Who is let in: the machine itself while there is no key, and holders of keys afterwards."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from app.auth import service
from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.settings import Settings
from tests.app.conftest import LOOPBACK_PEER, ConnectAs
from tests.app.problem_assertions import assert_problem
from tests.databases import DatabaseFactory, on_one_engine

PATHS = ("/v1/algorithms", "/docs", "/openapi.json", "/", "/v1/nothing")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:65535", "[::1]", "[::1]:8000"]
)
def test_the_machine_itself_is_answered(reader: TestClient, host: str) -> None:
    assert reader.get("/v1/algorithms", headers={"host": host}).status_code == 200
    assert reader.get("/v1/algorithms", headers={"host": host, "origin": f"http://{host}"}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost:8000@evil.example",
        "evil.example#localhost",
        "127.0.0.2",
        "0.0.0.0",
        "::1",
        "[::2]",
        "localhost:",
        "localhost:x",
        "localhost ",
        "localhost\n",
        "",
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_host_is_refused(reader: TestClient, host: str, path: str) -> None:
    assert_problem(reader.get(path, headers={"host": host}), 403, "loopback_only")


def test_two_hosts_are_refused(reader: TestClient) -> None:
    response = reader.get("/v1/algorithms", headers=[("host", "localhost"), ("host", "localhost")])
    assert_problem(response, 403, "loopback_only")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "https://127.0.0.1:8000",
        "http://127.0.0.1:8001",
        "http://localhost:8000",
        "http://127.0.0.1",
        "http://127.0.0.1:8000/",
    ],
)
def test_another_origin_is_refused(reader: TestClient, origin: str) -> None:
    assert_problem(reader.get("/v1/algorithms", headers={"origin": origin}), 403, "loopback_only")


@pytest.mark.parametrize(
    "header",
    [
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Anything",
        "X-Real-IP",
        "Via",
    ],
)
def test_a_proxy_is_refused(reader: TestClient, header: str) -> None:
    assert_problem(reader.get("/v1/algorithms", headers={header: "127.0.0.1"}), 403, "loopback_only")


@on_one_engine
@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_a_loopback_peer_is_answered(connect: ConnectAs, peer: str) -> None:
    assert connect(peer=(peer, 1)).get("/v1/algorithms").status_code == 200


@on_one_engine
@pytest.mark.parametrize("peer", ["10.0.0.1", "192.168.1.7", "0.0.0.0", "::ffff:10.0.0.1", "fe80::1", "unix", ""])
def test_another_machine_is_refused(connect: ConnectAs, peer: str) -> None:
    client = connect(peer=(peer, 1))
    for path in PATHS:
        assert_problem(client.get(path), 403, "loopback_only")
    assert client.get("/health/live").status_code == 200


@on_one_engine
def test_with_a_key_the_api_needs_one_and_the_documentation_does_not(connect: ConnectAs, context: Context) -> None:
    client = connect(base_url="http://epsilond.example", peer=("10.0.0.1", 1))
    created = service.create_key(context, "test", [Scope.ANALYST])
    assert created is not None
    for path in ("/v1/algorithms", "/v1/nothing", "/v1", "/nothing", "/docsx", "/V1/algorithms"):
        response = client.get(path)
        assert_problem(response, 401, "unauthenticated")
        assert response.headers["www-authenticate"].startswith("Bearer ")
    for path in ("/docs", "/openapi.json", "/docs/assets/docs.js", "/health/live", "/health/ready"):
        assert client.get(path).status_code == 200, path
    for scheme in ("Bearer", "bearer", "BEARER"):
        headers = {"Authorization": f"{scheme} {created.token}"}
        assert client.get("/v1/algorithms", headers=headers).status_code == 200


@on_one_engine
def test_a_wrong_revoked_or_expired_key_is_refused(connect: ConnectAs, context: Context) -> None:
    client = connect()
    created = service.create_key(context, "test", [Scope.ADMIN])
    assert created is not None
    token = created.token
    last = "a" if token[-1] != "a" else "b"
    for wrong in (token[:-1] + last, token[:-1], token + "a", token.upper(), "epsilond_", "", "x" * 10_000, "é"):
        response = client.get("/v1/algorithms", headers={"Authorization": f"Bearer {wrong}".encode("latin-1")})
        assert_problem(response, 401, "invalid_key")
        assert "invalid_token" in response.headers["www-authenticate"]
    both = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
    assert_problem(client.get("/v1/algorithms", headers=both), 401, "unauthenticated")
    assert_problem(client.get("/v1/algorithms", headers={"Authorization": f"Basic {token}"}), 401, "unauthenticated")
    assert client.get("/v1/algorithms", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert service.revoke_key(context, created.id)
    response = client.get("/v1/algorithms", headers={"Authorization": f"Bearer {token}"})
    assert_problem(response, 401, "invalid_key")


@on_one_engine
def test_revoking_the_last_key_does_not_open_the_server(connect: ConnectAs, context: Context) -> None:
    created = service.create_key(context, "test", [Scope.ADMIN])
    assert created is not None
    assert service.revoke_key(context, created.id)
    assert_problem(connect().get("/v1/algorithms"), 401, "unauthenticated")


@on_one_engine
def test_the_first_key_ends_the_keyless_mode_of_a_running_server(connect: ConnectAs, context: Context) -> None:
    client = connect()
    assert client.get("/v1/algorithms").status_code == 200
    service.create_key(context, "first", [Scope.OWNER])
    assert_problem(client.get("/v1/algorithms"), 401, "unauthenticated")


@on_one_engine
def test_without_a_schema_nothing_is_answered_but_health(settings: Settings, databases: DatabaseFactory) -> None:
    database = Database(databases.empty())
    client = TestClient(
        create_app(fenced_context(settings, database)), base_url="http://127.0.0.1:8000", client=LOOPBACK_PEER
    )
    assert_problem(client.get("/v1/algorithms"), 503, "database_unavailable")
    assert_problem(client.get("/health/ready"), 503, "database_unavailable")
    assert client.get("/health/live").json() == {"status": "ok"}
    database.dispose()


def test_a_database_that_is_away_is_503(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = "postgresql+psycopg://nobody:secret@127.0.0.1:1/nothing"
    database = Database(url)
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=url, workers=0)
    client = TestClient(
        create_app(fenced_context(settings, database)), base_url="http://127.0.0.1:8000", client=LOOPBACK_PEER
    )
    for path in ("/v1/algorithms", "/health/ready"):
        response = client.get(path)
        assert_problem(response, 503, "database_unavailable")
        assert "secret" not in response.text
    database.dispose()
