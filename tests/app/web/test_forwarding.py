"""What is believed of proxies, and where answers lead below a path; with real proxies in tests/e2e/test_proxies.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from app.auth import service
from app.auth.principal import Scope
from app.auth.sessions import COOKIE_OF_HTTPS_BELOW, SIGN_IN
from app.context import Context
from app.main import create_app
from app.settings import Settings
from tests.app.problem_assertions import assert_problem

PUBLIC = "https://example.org/epsilond"
ORIGIN = {"Origin": "https://example.org"}
PROXY = ("10.0.0.7", 4711)
FAILURES = 3


@pytest.fixture
def behind(context: Context) -> Iterator[TestClient]:
    """The service below a path, asked by a trusted proxy."""
    given = context.settings.model_dump() | {
        "public_url": PUBLIC,
        "trusted_proxies": "10.0.0.0/29",
        "failed_authentications_per_minute": FAILURES,
    }
    changed = replace(context, settings=Settings(**given))
    with TestClient(
        create_app(changed), base_url="http://10.0.0.1:8000", client=PROXY, follow_redirects=False
    ) as client:
        yield client


@pytest.fixture
def token(context: Context) -> str:
    key = service.create_key(context, "web", [Scope.ADMIN])
    assert key is not None
    return key.token


def wrong(client: TestClient, *forwarded: str) -> int:
    headers = [("Authorization", "Bearer no"), *(("X-Forwarded-For", each) for each in forwarded)]
    return client.get("/v1/keys/self", headers=headers).status_code


def test_attempts_are_counted_by_the_last_address_that_no_trusted_proxy_has(behind: TestClient, token: str) -> None:
    for number in range(FAILURES):
        # Whatever a client writes further left; a second proxy appends the first.
        assert wrong(behind, f"198.51.100.{number}, 203.0.113.9", "10.0.0.6") == 401
    assert wrong(behind, "192.0.2.1, 203.0.113.9") == 429
    assert wrong(behind, "203.0.113.8") == 401
    assert wrong(behind, "203.0.113.9, 203.0.113.10") == 401, "the one before is not believed"
    # What is no address is not believed, and ends the search: the proxy itself is counted.
    assert [wrong(behind, f"203.0.113.9, nonsense{number}") for number in range(FAILURES + 1)] == [401] * FAILURES + [
        429
    ]


def test_nobody_else_is_believed(context: Context, behind: TestClient, token: str) -> None:
    stranger = TestClient(behind.app, base_url="http://10.0.0.1:8000", client=("10.0.0.8", 1))
    assert [wrong(stranger, f"203.0.113.{number}") for number in range(FAILURES + 1)] == [401] * FAILURES + [429]


def test_a_server_without_keys_is_not_opened_by_a_header(behind: TestClient) -> None:
    for headers in ({"X-Forwarded-For": "127.0.0.1"}, {"X-Forwarded-For": "127.0.0.1", "Host": "localhost"}):
        assert_problem(behind.get("/v1/algorithms", headers=headers), 403, "loopback_only")


def signed_in(client: TestClient, token: str) -> str:
    answer = client.post(SIGN_IN, data={"key": token, "next": "/dashboard/runs"}, headers=ORIGIN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/epsilond/dashboard/runs")
    cookie = answer.headers["set-cookie"]
    name, _, value = cookie.partition(";")[0].partition("=")
    assert name == COOKIE_OF_HTTPS_BELOW
    assert "; Path=/epsilond;" in cookie
    assert "; Secure" in cookie
    assert "; HttpOnly" in cookie
    return f"{name}={value}"


def test_every_address_in_a_page_and_in_a_header_is_below_the_path(behind: TestClient, token: str) -> None:
    away = behind.get("/dashboard/runs?state=failed")
    assert away.headers["location"] == "/epsilond/dashboard/sign-in?next=%2Fdashboard%2Fruns%3Fstate%3Dfailed"
    part = {"HX-Request": "true", "HX-Current-URL": f"{PUBLIC}/dashboard/budgets"}
    asked = behind.get("/dashboard/runs", headers=part)
    assert asked.headers["hx-redirect"] == "/epsilond/dashboard/sign-in?next=%2Fdashboard%2Fbudgets"
    cookie = {"Cookie": signed_in(behind, token)}
    for page in ("/", "/dashboard/calibrate/dp_sgd", "/dashboard/compare", "/dashboard/budgets/new", "/dashboard/runs"):
        shown = behind.get(page, headers=cookie)
        assert shown.status_code == 200, page
        found = re.findall(r'[\s"]([a-z-]+)="(/[^"]*)"', shown.text)
        outside = [(name, address) for name, address in found if not address.startswith("/epsilond/")]
        # Fields keep addresses as the service itself knows them.
        assert [each for each in outside if each[0] not in {"value", "d", "points"}] == [], page
        assert len(found) > 15
    made = behind.post(
        "/v1/budgets",
        json={"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}},
        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": "b"},
    )
    assert made.headers["location"] == f"/epsilond/v1/budgets/{made.json()['id']}"


def test_commands_come_from_pages_of_the_public_address_alone(behind: TestClient, token: str) -> None:
    cookie = {"Cookie": signed_in(behind, token)}
    for origin in (
        "http://example.org",
        "https://example.org:8443",
        "http://10.0.0.1:8000",
        "https://evil.example",
        "null",
    ):
        spoofed = {"Origin": origin, "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"}
        assert behind.post("/dashboard/sign-out", headers=cookie | spoofed).status_code == 403, origin
    assert behind.post("/dashboard/sign-out", headers=cookie | ORIGIN).status_code == 303


def test_the_cookie_of_a_service_at_the_root_is_not_taken_below_a_path(behind: TestClient, token: str) -> None:
    value = signed_in(behind, token).partition("=")[2]
    assert behind.get("/dashboard/runs", headers={"Cookie": f"__Host-epsilond_session={value}"}).status_code == 303


@pytest.mark.parametrize("given", ["example.org", "https://example.org/a?b", "https://example.org/a//b", "ftp://a"])
def test_what_is_no_public_address_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        Settings(data_dir=tmp_path, public_url=given)
    assert Settings(data_dir=tmp_path, public_url="https://example.org/").public_path == ""
