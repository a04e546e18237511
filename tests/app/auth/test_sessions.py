"""Sessions of browsers: who is let in to pages, for how long, and that a session is nothing else than that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from app.auth import local_token, service, sessions, sign_in_codes
from app.auth.principal import Scope
from app.auth.service import CreatedKey
from app.auth.sessions import COOKIE, COOKIE_OF_HTTPS, SIGN_IN, own_address
from app.context import Context, utc_now
from app.db.database import Database
from app.fence.watching import fenced_context
from app.settings import Settings
from tests.app.conftest import ConnectAs
from tests.app.problem_assertions import assert_problem
from tests.databases import DatabaseFactory

BASE_URL = "https://epsilond.example"
ORIGIN = {"Origin": BASE_URL}
#: That an address has before it is slowed down.
FAILURES = 20
PAGE = "/dashboard/algorithms/dp_sgd"


@dataclass
class Clock:
    """Stands still until it is put on."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock(utc_now())


@pytest.fixture
def context(sqlite_databases: DatabaseFactory, tmp_path: Path, clock: Clock) -> Iterator[Context]:
    """Yield a context on SQLite, because nothing here differs between the engines."""
    database = Database(sqlite_databases.migrated())
    settings = Settings(
        data_dir=tmp_path / "data", database_url=database.url, workers=0, failed_authentications_per_minute=FAILURES
    )
    yield fenced_context(settings, database, clock)
    database.dispose()


@pytest.fixture
def key(context: Context) -> CreatedKey:
    created = service.create_key(context, "somebody's browser", [Scope.ANALYST])
    assert created is not None
    return created


@pytest.fixture
def browser(connect: ConnectAs, key: CreatedKey) -> TestClient:
    """A browser on another machine, to which the server speaks https; not signed in."""
    return connect(base_url=BASE_URL, peer=("10.0.0.1", 1))


def sign_in(browser: TestClient, token: str, **form: str) -> Any:
    return browser.post(SIGN_IN, data={"key": token, **form}, headers=ORIGIN)


def shows(browser: TestClient, cookie: str, name: str = COOKIE_OF_HTTPS, page: str = PAGE) -> int:
    """Return the status with which a page answers a cookie."""
    browser.cookies.clear()
    status: int = browser.get(page, headers={"Cookie": f"{name}={cookie}"}).status_code
    return status


def test_whoever_shows_a_key_has_a_session_without_it(
    browser: TestClient, key: CreatedKey, context: Context, clock: Clock
) -> None:
    assert browser.get(PAGE).status_code == 303
    response = sign_in(browser, key.token, next=PAGE)
    assert (response.status_code, response.headers["location"]) == (303, PAGE)
    header = response.headers["set-cookie"]
    assert header.startswith(f"{COOKIE_OF_HTTPS}={key.id}.{int(clock.now.timestamp()) + 12 * 3600}.")
    assert {"HttpOnly", "Secure", "Path=/", "SameSite=strict", "Max-Age=43200"} <= set(header.split("; "))
    assert "domain" not in header.lower()
    assert key.token.rpartition("_")[2] not in header
    page = browser.get(PAGE)
    assert page.status_code == 200
    assert key.id in page.text
    assert "analyst" in page.text
    out = browser.post("/dashboard/sign-out", headers=ORIGIN)
    assert (out.status_code, out.headers["location"]) == (303, SIGN_IN)
    assert browser.get(PAGE).status_code == 303


def test_a_page_asks_with_the_rights_of_the_key(browser: TestClient, context: Context, key: CreatedKey) -> None:
    created = service.create_key(context, "reads metrics", [Scope.METRICS])
    assert created is not None
    sign_in(browser, created.token)
    page = browser.get("/dashboard/budgets")
    assert page.status_code == 403
    assert "scope" in page.text


def test_without_https_the_cookie_has_no_prefix_that_needs_it(connect: ConnectAs, key: CreatedKey) -> None:
    client = connect(base_url="http://epsilond.example", peer=("10.0.0.1", 1))
    response = client.post(SIGN_IN, data={"key": key.token}, headers={"Origin": "http://epsilond.example"})
    header = response.headers["set-cookie"]
    assert header.startswith(f"{COOKIE}=")
    assert "Secure" not in header
    assert client.get(PAGE).status_code == 200
    client.post("/dashboard/sign-out", headers={"Origin": "http://epsilond.example"})
    assert client.get(PAGE).status_code == 303


def test_behind_a_proxy_the_browsers_word_is_what_counts(connect: ConnectAs, key: CreatedKey) -> None:
    client = connect(base_url="http://epsilond.example", peer=("10.0.0.1", 1))
    response = client.post(SIGN_IN, data={"key": key.token}, headers={"Origin": "https://epsilond.example"})
    assert response.headers["set-cookie"].startswith(f"{COOKIE_OF_HTTPS}=")
    assert "Secure" in response.headers["set-cookie"]


def test_the_cookie_that_https_alone_may_set_comes_before_the_other(browser: TestClient, key: CreatedKey) -> None:
    """A site beside this one, or somebody on the way, can set the other cookie in a browser."""
    sign_in(browser, key.token)
    [own] = (f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar)
    browser.cookies.clear()
    planted = f"{COOKIE}={key.id}.9999999999.{'0' * 64}"
    for header in (f"{own}; {planted}", f"{planted}; {own}"):
        assert browser.get(PAGE, headers={"Cookie": header}).status_code == 200


def test_a_session_opens_no_path_of_the_interface(browser: TestClient, key: CreatedKey) -> None:
    sign_in(browser, key.token)
    cookie = browser.cookies[COOKIE_OF_HTTPS]
    assert browser.get(PAGE).status_code == 200
    for path in ("/v1/algorithms", "/v1/budgets", "/metrics", "/v1/dashboard/", "/nothing"):
        assert_problem(browser.get(path), 401, "unauthenticated")
        assert_problem(browser.get(path, headers={"Authorization": f"Bearer {cookie}"}), 401, "invalid_key")
    assert_problem(
        browser.post("/v1/budgets", json={}, headers={"Idempotency-Key": "k", **ORIGIN}), 401, "unauthenticated"
    )


def test_a_key_is_no_session(browser: TestClient, key: CreatedKey) -> None:
    assert browser.get("/v1/algorithms", headers={"Authorization": f"Bearer {key.token}"}).status_code == 200
    assert browser.get(PAGE, headers={"Authorization": f"Bearer {key.token}"}).status_code == 303
    assert shows(browser, key.token) == 303


def test_whatever_is_changed_in_a_cookie_ends_it(browser: TestClient, context: Context, key: CreatedKey) -> None:
    other = service.create_key(context, "another", [Scope.ADMIN])
    assert other is not None
    begun = sessions.begin(context, key.id, None)
    assert begun is not None
    assert shows(browser, begun.cookie) == 200
    named, moment, code = begun.cookie.split(".")
    forged = [
        f"{other.id}.{moment}.{code}",
        f"{named}.{int(moment) + 1}.{code}",
        f"{named}.{moment}.{'0' * 64}",
        f"{named}.{moment}.{code[:-1]}{'0' if code[-1] != '0' else '1'}",
        f"{named}.{moment}.{code.upper()}",
    ]
    for cookie in forged:
        assert sessions.authenticate(context, cookie) is None, cookie
    for malformed in ("", "x", f"{named}.{moment}", f"{begun.cookie}.", f"{begun.cookie}\n", f"key_{'a' * 24}.1.x"):
        assert sessions.authenticate(context, malformed) is None, malformed
    assert shows(browser, forged[0]) == 303


def test_a_cookie_of_another_secret_is_nothing(
    browser: TestClient, context: Context, key: CreatedKey, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path / "elsewhere", database_url=context.settings.database_url)
    elsewhere = sessions.begin(replace(context, settings=settings), key.id, None)
    assert elsewhere is not None
    assert settings.secret != context.settings.secret
    assert shows(browser, elsewhere.cookie) == 303


def test_a_session_ends_after_its_time(browser: TestClient, key: CreatedKey, clock: Clock) -> None:
    sign_in(browser, key.token)
    cookie = browser.cookies[COOKIE_OF_HTTPS]
    clock.now += timedelta(hours=12) - timedelta(seconds=1)
    assert shows(browser, cookie) == 200
    clock.now += timedelta(seconds=1)
    assert shows(browser, cookie) == 303


def test_a_session_lasts_no_longer_than_its_key(browser: TestClient, context: Context, clock: Clock) -> None:
    created = service.create_key(context, "short", [Scope.ANALYST], expires_at=clock.now + timedelta(minutes=10))
    assert created is not None
    response = sign_in(browser, created.token)
    assert "Max-Age=600;" in response.headers["set-cookie"]
    cookie = browser.cookies[COOKIE_OF_HTTPS]
    clock.now += timedelta(minutes=10)
    assert shows(browser, cookie) == 303


def test_revoking_the_key_ends_its_sessions_at_once(browser: TestClient, context: Context, key: CreatedKey) -> None:
    sign_in(browser, key.token)
    cookie = browser.cookies[COOKIE_OF_HTTPS]
    assert shows(browser, cookie) == 200
    assert service.revoke_key(context, key.id)
    assert shows(browser, cookie) == 303
    assert sessions.begin(context, key.id, None) is None, "and no other one begins"


@pytest.mark.parametrize("overlap", [timedelta(0), timedelta(hours=1)])
def test_rotating_the_key_ends_its_sessions_at_once(
    browser: TestClient, context: Context, key: CreatedKey, overlap: timedelta
) -> None:
    sign_in(browser, key.token)
    cookie = browser.cookies[COOKIE_OF_HTTPS]
    assert shows(browser, cookie) == 200
    with context.database.write() as session:
        _, token = service.rotate_key(session, context, key.id, overlap)
    service.tell_of_change(context)
    assert shows(browser, cookie) == 303
    sign_in(browser, token)
    assert browser.get(PAGE).status_code == 200


def test_whoever_is_signed_in_signs_in_by_the_key_alone(browser: TestClient, context: Context, key: CreatedKey) -> None:
    other = service.create_key(context, "another", [Scope.AUDITOR])
    assert other is not None
    sign_in(browser, key.token)
    assert browser.get(PAGE).status_code == 200
    refused = sign_in(browser, other.token[:-1] + ("a" if other.token[-1] != "a" else "b"))
    assert (refused.status_code, refused.headers.get("set-cookie")) == (401, None)
    assert f"={other.id}." in sign_in(browser, other.token).headers["set-cookie"]


def test_attempts_that_fail_are_counted_as_everywhere(browser: TestClient, key: CreatedKey) -> None:
    wrong = key.token[:-1] + ("a" if key.token[-1] != "a" else "b")
    for _ in range(FAILURES):
        response = sign_in(browser, wrong)
        assert response.status_code == 401
        assert "unknown, revoked or expired" in response.text
        assert wrong not in response.text
        assert "set-cookie" not in response.headers
    assert sign_in(browser, wrong).status_code == 429
    assert sign_in(browser, key.token).status_code == 303, "a good key is never locked out"


def test_forged_cookies_are_counted_and_old_ones_are_not(
    browser: TestClient, context: Context, key: CreatedKey, clock: Clock
) -> None:
    begun = sessions.begin(context, key.id, None)
    assert begun is not None
    clock.now += timedelta(hours=13)
    assert {shows(browser, begun.cookie) for _ in range(FAILURES + 2)} == {303}
    later = int(clock.now.timestamp()) + 60
    forged = [shows(browser, f"{key.id}.{later}.{'0' * 64}") for _ in range(FAILURES + 2)]
    assert forged == [303] * FAILURES + [429] * 2


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://["},
        {"Origin": "null", "Host": ""},
        {"Origin": "https://epsilond.example.evil.example"},
        {"Origin": "https://epsilond.example:8443"},
        {"Origin": BASE_URL, "Sec-Fetch-Site": "cross-site"},
        {"Origin": BASE_URL, "Sec-Fetch-Site": "same-site"},
    ],
)
def test_commands_of_other_sites_are_refused(browser: TestClient, key: CreatedKey, headers: dict[str, str]) -> None:
    sign_in(browser, key.token)
    for path in ("/dashboard/sign-out", SIGN_IN, "/dashboard/runs/run_1/cancel"):
        refused = browser.post(path, data={"key": key.token}, headers=headers)
        assert_problem(refused, 403, "other_origin")
        assert "set-cookie" not in refused.headers
    assert browser.get(PAGE, headers=headers).status_code == 200, "what only shows is shown"


def test_a_command_of_two_origins_is_refused(browser: TestClient, key: CreatedKey) -> None:
    sign_in(browser, key.token)
    for origins in (["https://evil.example", BASE_URL], [BASE_URL, "https://evil.example"]):
        headers = [("Origin", origin) for origin in origins]
        assert_problem(browser.post("/dashboard/sign-out", headers=headers), 403, "other_origin")


def test_a_session_that_is_remembered_takes_no_command_of_another_site(browser: TestClient, key: CreatedKey) -> None:
    sign_in(browser, key.token)
    assert browser.get(PAGE).status_code == 200, "and for a second the database is not asked"
    for headers in ({}, {"Origin": "https://evil.example"}):
        assert_problem(browser.post("/dashboard/sign-out", headers=headers), 403, "other_origin")


def test_commands_of_other_sites_are_refused_without_keys_too(connect: ConnectAs) -> None:
    client = connect()
    assert_problem(client.post("/dashboard/sign-out"), 403, "other_origin")
    headers = {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "cross-site"}
    assert_problem(client.post("/dashboard/sign-out", headers=headers), 403, "other_origin")
    assert client.post("/dashboard/sign-out", headers={"Origin": "http://127.0.0.1:8000"}).status_code == 303


@pytest.mark.parametrize(
    "address",
    [
        "//evil.example/dashboard",
        "/\\evil.example",
        "https://evil.example/",
        "https:/dashboard",
        "javascript:alert(1)",
        "dashboard",
        "/dashboard/../v1/keys/\r\nSet-Cookie: a=b",
        "/v1/ledger/export",
        "/docs",
        "/dashboardx",
        "/dashboard/sign-in?next=/dashboard/sign-in",
        "/" + "a" * 5000,
        "",
    ],
)
def test_nobody_is_led_elsewhere(browser: TestClient, key: CreatedKey, address: str) -> None:
    assert own_address(address) == "/"
    assert sign_in(browser, key.token, next=address).headers["location"] == "/dashboard"
    form = browser.get(f"{SIGN_IN}?next={quote(address, safe='')}")
    assert 'name="next" value="/"' in form.text


def test_a_page_leads_to_the_sign_in_and_back(browser: TestClient, key: CreatedKey) -> None:
    wanted = "/dashboard/compare?shape=convex&epsilon=2"
    address = browser.get(wanted).headers["location"]
    assert address == f"{SIGN_IN}?next={quote(wanted, safe='')}"
    [shown] = re.findall(r'name="next" value="([^"]*)"', browser.get(address).text)
    assert shown.replace("&amp;", "&") == wanted
    assert sign_in(browser, key.token, next=wanted).headers["location"] == wanted
    for start in ("/", "/?epsilon=2"):
        browser.cookies.clear()
        assert browser.get(start).headers["location"].startswith(SIGN_IN)


def test_a_part_of_a_page_leads_the_whole_page_there(browser: TestClient) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": f"{BASE_URL}/dashboard/compare?shape=convex"}
    response = browser.get("/dashboard/compare", headers=headers)
    assert response.status_code == 401
    assert response.headers["hx-redirect"] == f"{SIGN_IN}?next=%2Fdashboard%2Fcompare%3Fshape%3Dconvex"
    elsewhere = browser.get("/dashboard/compare", headers=headers | {"HX-Current-URL": "https://evil.example//x"})
    assert elsewhere.headers["hx-redirect"] == SIGN_IN
    nowhere = browser.get("/dashboard/compare", headers=headers | {"HX-Current-URL": "https://["})
    assert (nowhere.status_code, nowhere.headers["hx-redirect"]) == (401, SIGN_IN)


def test_style_sheets_and_the_sign_in_are_open_and_nothing_else_is(browser: TestClient) -> None:
    for path in ("/dashboard/assets/dashboard.css", "/dashboard/assets/colours.css", SIGN_IN):
        assert browser.get(path).status_code == 200, path
    for path in ("/", "/dashboard/budgets", "/dashboard/nothing", "/dashboard/", "/dashboard", "/dashboard/assetsx"):
        assert browser.get(path).status_code == 303, path


@pytest.mark.parametrize(
    ("scope", "first"),
    [
        (Scope.OWNER, "/dashboard/budgets"),
        (Scope.AUDITOR, "/dashboard/budgets"),
        (Scope.ADMIN, "/dashboard/budgets"),
        (Scope.ANALYST, "/dashboard/runs"),
        (Scope.LIMITS, "/"),
    ],
)
def test_whoever_signs_in_is_led_to_their_own_first_page(
    browser: TestClient, context: Context, scope: Scope, first: str
) -> None:
    created = service.create_key(context, "test", [scope])
    assert created is not None
    leads_to = sign_in(browser, created.token).headers["location"]
    assert browser.get(leads_to).headers["location"] == first


def test_the_dashboard_begins_at_the_start(connect: ConnectAs) -> None:
    response = connect().get("/dashboard")
    assert (response.status_code, response.headers["location"]) == (303, "/")


@pytest.fixture
def local_browser(connect: ConnectAs, context: Context) -> TestClient:
    """A browser of the operator's, on the machine of a server without keys; not signed in."""
    local_token.settle(context)
    return connect(is_local=False)


LOCAL_ORIGIN = {"Origin": "http://127.0.0.1:8000"}


def redeem(browser: TestClient, code: str, **headers: str) -> Any:
    form = {"code": code, "next": "/dashboard/budgets"}
    return browser.post(SIGN_IN, data=form, headers=LOCAL_ORIGIN | headers)


def test_a_code_signs_in_once(local_browser: TestClient, context: Context) -> None:
    code = sign_in_codes.issue(context)
    address = sessions.address_with_code("http://127.0.0.1:8000", code)
    for _ in range(3):  # a preview, a prefetch, a reload: looking uses nothing up
        shown = local_browser.get(address)
        assert (shown.status_code, shown.headers["cache-control"]) == (200, "no-store")
        assert f'name="code" value="{code}"' in shown.text
        assert "<script>" not in shown.text
        assert "set-cookie" not in shown.headers
    assert local_browser.get("/dashboard/budgets").status_code == 303
    response = redeem(local_browser, code)
    assert (response.status_code, response.headers["location"]) == (303, "/dashboard/budgets")
    assert "HttpOnly" in response.headers["set-cookie"]
    assert "SameSite=strict" in response.headers["set-cookie"]
    token = local_token.read(context.settings)
    assert token is not None
    assert token not in response.headers["set-cookie"]
    assert local_browser.get("/dashboard/budgets").status_code == 200
    local_browser.cookies.clear()
    again = redeem(local_browser, code)
    assert again.status_code == 401
    assert "epsilond sign-in" in again.text
    assert "set-cookie" not in again.headers


def test_a_code_is_over_after_five_minutes(local_browser: TestClient, context: Context, clock: Clock) -> None:
    early, late = sign_in_codes.issue(context), sign_in_codes.issue(context)
    clock.now += timedelta(minutes=5) - timedelta(seconds=1)
    assert redeem(local_browser, early).status_code == 303
    clock.now += timedelta(seconds=1)
    assert redeem(local_browser, late).status_code == 401


def test_of_many_that_use_a_code_at_once_one_is_signed_in(context: Context) -> None:
    code = sign_in_codes.issue(context)
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(lambda _: sign_in_codes.redeem(context, code), range(8))) == [False] * 7 + [True]


def test_codes_lie_as_hashes_for_this_user_alone_and_old_ones_go(context: Context, clock: Clock) -> None:
    code = sign_in_codes.issue(context)
    folder = context.settings.data_dir / "sign-in-codes"
    (file,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert code not in file.name + file.read_text()
    clock.now += timedelta(minutes=5)
    sign_in_codes.issue(context)
    assert file not in list(folder.iterdir())


@pytest.mark.parametrize("code", ["", "x", "../local-token", "a" * 43, "a" * 42 + "/", "a" * 1000])
def test_what_is_no_code_is_refused(local_browser: TestClient, code: str, context: Context) -> None:
    assert redeem(local_browser, code).status_code == 401
    assert context.settings.local_token_file.exists()


def test_no_other_site_and_no_other_machine_uses_a_code(
    local_browser: TestClient, connect: ConnectAs, context: Context
) -> None:
    code = sign_in_codes.issue(context)
    assert redeem(local_browser, code, Origin="http://evil.example").status_code == 403
    assert redeem(local_browser, code, Via="proxy").status_code == 403
    assert redeem(connect(peer=("10.0.0.1", 1)), code).status_code == 403
    assert redeem(local_browser, code).status_code == 303


def test_the_token_signs_in_too(local_browser: TestClient, context: Context) -> None:
    token = local_token.read(context.settings)
    assert token is not None
    assert "Token" in local_browser.get(SIGN_IN).text
    wrong = local_browser.post(SIGN_IN, data={"key": token + "a"}, headers=LOCAL_ORIGIN)
    assert wrong.status_code == 401
    signed_in = local_browser.post(SIGN_IN, data={"key": token}, headers=LOCAL_ORIGIN)
    assert signed_in.status_code == 303
    assert local_browser.get("/dashboard/budgets").status_code == 200


def test_a_session_of_the_token_ends_with_the_first_key(local_browser: TestClient, context: Context) -> None:
    codes = [sign_in_codes.issue(context) for _ in range(2)]
    assert redeem(local_browser, codes[0]).status_code == 303
    assert local_browser.get("/dashboard/budgets").status_code == 200
    assert service.create_key(context, "first", [Scope.ADMIN]) is not None
    assert local_browser.get("/dashboard/budgets").status_code == 303
    late = redeem(local_browser, codes[1])
    assert late.status_code == 401
    assert "has keys now" in late.text


def test_a_session_of_the_token_ends_with_its_time_and_with_its_token(
    local_browser: TestClient, context: Context, clock: Clock
) -> None:
    session = sessions.begin_with_local_token(context)
    assert session is not None
    assert shows(local_browser, session.cookie, COOKIE, "/dashboard/budgets") == 200
    name, moment, code = session.cookie.split(".")
    last = "0" if code[-1] != "0" else "1"
    for forged in (f"{name}.{int(moment) + 1}.{code}", f"{name}.{moment}.{code[:-1]}{last}", f"{name}.{moment}."):
        assert shows(local_browser, forged, COOKIE, "/dashboard/budgets") == 303
    context.settings.local_token_file.unlink()
    local_token.settle(context)
    assert shows(local_browser, session.cookie, COOKIE, "/dashboard/budgets") == 303, "another token"
    session = sessions.begin_with_local_token(context)
    assert session is not None
    clock.now += timedelta(hours=12)
    assert shows(local_browser, session.cookie, COOKIE, "/dashboard/budgets") == 303


def test_a_session_of_the_token_opens_pages_alone(local_browser: TestClient, context: Context) -> None:
    assert redeem(local_browser, sign_in_codes.issue(context)).status_code == 303
    assert_problem(local_browser.get("/v1/budgets"), 401, "unauthenticated")


def test_forms_are_small_and_for_pages_alone(browser: TestClient, key: CreatedKey) -> None:
    assert_problem(sign_in(browser, "x" * 20_000), 413, "body_too_large")
    headers = {"Authorization": f"Bearer {key.token}", "Idempotency-Key": "k", **ORIGIN}
    assert_problem(browser.post("/v1/budgets", data={"a": "b"}, headers=headers), 415, "unsupported_media_type")
