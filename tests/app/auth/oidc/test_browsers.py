"""Signing browsers in by a provider: there and back, and everything that must not sign anybody in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from app.auth import database_secrets, service
from app.auth.oidc import configuration
from app.auth.oidc import provider as providers
from app.auth.oidc.flow import BACK, LIFETIME, START, finish
from app.auth.oidc.tokens import Refused
from app.auth.sessions import COOKIE, COOKIE_OF_HTTPS, COOKIE_OF_HTTPS_BELOW, SIGN_IN
from app.context import Context
from app.fence.watching import fenced_context
from app.main import create_app
from app.secrets.material import Purpose
from app.settings import Settings
from tests.app.auth.oidc.conftest import PUBLIC_URL, RIGHTS, write_configuration
from tests.app.auth.oidc.provider_of_tests import CLIENT_ID, FaultyProvider, new_key
from tests.app.conftest import ConnectAs

ATTEMPT = f"{COOKIE_OF_HTTPS}_attempt"
PAGE = "/dashboard/budgets"


@pytest.fixture
def browser(connect: ConnectAs) -> TestClient:
    return connect(base_url=PUBLIC_URL, peer=("10.0.0.1", 1), is_local=False)


def led_to(browser: TestClient, address: str = START) -> str:
    """Return the address to which the browser is sent to sign in."""
    answer = browser.get(address)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def signed_in(browser: TestClient, provider: FaultyProvider, **claims: Any) -> Any:
    return browser.get(BACK, params=provider.sign_in(led_to(browser), **claims))


def shows(browser: TestClient) -> int:
    return browser.get(PAGE).status_code


def test_a_browser_is_led_there_and_back_to_the_page_that_was_wanted(
    browser: TestClient, provider: FaultyProvider
) -> None:
    asked = browser.get(PAGE)
    assert (asked.status_code, asked.headers["location"]) == (303, f"{SIGN_IN}?next=%2Fdashboard%2Fbudgets")
    form = browser.get(asked.headers["location"]).text
    assert "Sign in with Example" in form
    link = re.search(r'href="(/dashboard/sign-in/provider[^"]*)"', form)
    assert link is not None
    address = led_to(browser, link[1])
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    assert query["redirect_uri"] == f"{PUBLIC_URL}{BACK}"
    assert query["scope"] == "openid profile"
    answer = browser.get(BACK, params=provider.sign_in(address))
    assert answer.status_code == 200, answer.text
    assert f'content="0;url={PAGE}"' in answer.text
    cookies = answer.headers.get_list("set-cookie")
    session, attempt = (
        next(each for each in cookies if each.startswith(f"{name}=")) for name in (COOKIE_OF_HTTPS, ATTEMPT)
    )
    assert all(word in session for word in ("HttpOnly", "Secure", "SameSite=strict", "Path=/", "Max-Age=28800"))
    assert "Max-Age=0" in attempt
    assert shows(browser) == 200
    # Pages alone: the cookie opens nothing under /v1.
    assert browser.get("/v1/budgets").status_code == 401


def test_the_cookie_of_an_attempt_is_sent_back_from_the_provider_and_kept_from_scripts(browser: TestClient) -> None:
    cookie = browser.get(START).headers["set-cookie"]
    assert all(word in cookie for word in (f"{ATTEMPT}=", "HttpOnly", "Secure", "SameSite=lax", "Max-Age=600"))


def test_below_a_path_the_attempt_and_the_session_are_sent_to_that_path_alone(
    context: Context, provider: FaultyProvider
) -> None:
    """There browsers take no cookie with the stricter prefix, which is for the whole host."""
    given = context.settings.model_dump(exclude_unset=True) | {"public_url": f"{PUBLIC_URL}/privacy"}
    app = create_app(fenced_context(Settings(**given), context.database))
    browser = TestClient(app, base_url=PUBLIC_URL, client=("10.0.0.1", 1), follow_redirects=False)
    begun = browser.get(START)
    cookie = begun.headers["set-cookie"]
    name = f"{COOKIE_OF_HTTPS_BELOW}_attempt"
    assert all(word in cookie for word in (f"{name}=", "HttpOnly", "Secure", "SameSite=lax", "Path=/privacy"))
    assert "domain" not in cookie.lower()
    address = begun.headers["location"]
    assert parse_qs(urlsplit(address).query)["redirect_uri"] == [f"{PUBLIC_URL}/privacy{BACK}"]
    # A proxy takes the path away; the browser sends cookies of the path that it sees.
    sent = {"Cookie": cookie.partition(";")[0]}
    browser.cookies.clear()
    back = provider.sign_in(address)
    assert browser.get(BACK, params=back).status_code == 401, "without the cookie"
    planted = {"Cookie": sent["Cookie"].replace(name, ATTEMPT)}
    assert browser.get(BACK, params=back, headers=planted).status_code == 401, "of another place"
    answer = browser.get(BACK, params=back, headers=sent)
    assert answer.status_code == 200, answer.text
    session, attempt = sorted(answer.headers.get_list("set-cookie"), key=lambda each: "_attempt" in each)
    for each in (session, attempt):
        assert each.startswith(COOKIE_OF_HTTPS_BELOW)
        assert "Path=/privacy" in each
    assert "Max-Age=0" in attempt
    browser.cookies.clear()
    assert browser.get(PAGE, headers={"Cookie": session.partition(";")[0]}).status_code == 200


def test_looking_alone_signs_nobody_in_and_uses_nothing_up(browser: TestClient, provider: FaultyProvider) -> None:
    """Programs that preview addresses send HEAD."""
    for path, status in ((SIGN_IN, 200), (START, 303)):
        assert browser.head(path).status_code == status
    back = provider.sign_in(led_to(browser))
    looked = browser.head(BACK, params=back)
    assert (looked.status_code, looked.headers["allow"], "set-cookie" in looked.headers) == (405, "GET", False)
    posted = browser.post(BACK, params=back, headers={"Origin": PUBLIC_URL})
    assert (posted.status_code, posted.headers["allow"], posted.json()["code"]) == (405, "GET", "method_not_allowed")
    elsewhere = browser.post(BACK, data=back, headers={"Origin": provider.issuer})
    assert (elsewhere.status_code, "set-cookie" in elsewhere.headers) == (403, False)
    assert browser.get(BACK, params=back).status_code == 200
    assert shows(browser) == 200


def test_a_method_that_is_not_taken_is_answered_with_all_that_are(browser: TestClient) -> None:
    for path, allowed in ((SIGN_IN, "GET, HEAD, POST"), (START, "GET, HEAD"), (BACK, "GET")):
        answer = browser.put(path, headers={"Origin": PUBLIC_URL})
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another-client"}, "another audience"),
        ({"aud": ["epsilond", "another-client"]}, "another client"),
        ({"azp": "another-client"}, "another client"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"exp": 1}, "it has expired"),
        ({"groups": []}, "neither you nor your groups have rights"),
    ],
)
def test_an_id_token_that_is_not_of_this_attempt_signs_nobody_in(
    browser: TestClient, provider: FaultyProvider, claims: dict[str, Any], reason: str
) -> None:
    answer = signed_in(browser, provider, **claims)
    assert answer.status_code in (401, 403)
    assert reason in answer.text
    assert COOKIE_OF_HTTPS not in browser.cookies
    assert shows(browser) == 303


@pytest.mark.parametrize(
    "claims", [{"aud": [CLIENT_ID]}, {"aud": [CLIENT_ID, "another"], "azp": CLIENT_ID}, {"azp": CLIENT_ID}]
)
def test_an_id_token_may_list_its_audiences(
    browser: TestClient, provider: FaultyProvider, claims: dict[str, Any]
) -> None:
    assert signed_in(browser, provider, **claims).status_code == 200
    assert shows(browser) == 200


def test_an_answer_without_an_id_token_signs_nobody_in(
    browser: TestClient, provider: FaultyProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "exchange", lambda *_: {"access_token": provider.token()})
    assert signed_in(browser, provider).status_code == 503
    assert shows(browser) == 303


def test_a_right_of_a_person_gives_a_session_its_scopes(
    browser: TestClient, provider: FaultyProvider, context: Context, tmp_path: Path
) -> None:
    _start_anew(context, tmp_path, provider.issuer, RIGHTS.replace('scopes = ["metrics"]', 'scopes = ["analyst"]'))
    assert signed_in(browser, provider, sub="robot-1", groups=[]).status_code == 200
    assert shows(browser) == 200
    # What the file takes from the person is taken from the session.
    _start_anew(context, tmp_path, provider.issuer)
    assert shows(browser) == 403


def test_what_another_browser_began_signs_nobody_in(
    browser: TestClient, connect: ConnectAs, provider: FaultyProvider
) -> None:
    """An address with somebody else's code and state, opened by a victim, must not sign the victim in as them."""
    victim = connect(base_url=PUBLIC_URL, peer=("10.0.0.2", 1), is_local=False)
    sent_back = provider.sign_in(led_to(browser))
    for _ in range(2):  # without an attempt of one's own, and with one
        answer = victim.get(BACK, params=sent_back)
        assert (answer.status_code, "another browser" in answer.text) == (401, True)
        assert len(provider.codes) == 1  # the code is not even shown to the provider
        led_to(victim)
    assert shows(victim) == 303


def test_an_attempt_is_over_after_its_use_and_after_ten_minutes(
    browser: TestClient, provider: FaultyProvider, context: Context
) -> None:
    late, sent_back = context.clock() + LIFETIME + timedelta(seconds=1), provider.sign_in(led_to(browser))
    known = providers.provider_of(context)
    assert known is not None
    with pytest.raises(Refused, match="is over"):
        finish(replace(context, clock=lambda: late), known, browser.cookies[ATTEMPT], sent_back)
    assert len(provider.codes) == 1  # the code was not even shown to the provider
    address = led_to(browser)
    kept = browser.cookies[ATTEMPT]
    sent_back = provider.sign_in(address)
    assert browser.get(BACK, params=sent_back).status_code == 200
    assert ATTEMPT not in browser.cookies
    browser.cookies.set(ATTEMPT, kept, domain="epsilond.example")
    assert browser.get(BACK, params=sent_back).status_code == 503  # the provider knows the code no more


def test_a_cookie_of_an_attempt_that_was_changed_is_none(browser: TestClient, provider: FaultyProvider) -> None:
    address = led_to(browser)
    kept = browser.cookies[ATTEMPT]
    text, _, code = kept.rpartition(".")
    for changed in (f"{text}.{code[::-1]}", f"{text[:-1]}A.{code}", text, "", ".", "é", f".{code}"):
        browser.cookies.clear()
        headers = {"Cookie": f"{ATTEMPT}={changed}".encode()}
        assert browser.get(BACK, params=provider.sign_in(address), headers=headers).status_code == 401


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "another"},
        {"state": None},
        {"code": None},
        {"error": "access_denied"},
        {"code": None, "error": "access_denied", "error_description": "<script>alert(1)</script>"},
        {"iss": "https://evil.example"},
    ],
)
def test_a_way_back_that_is_not_right_is_refused(
    browser: TestClient, provider: FaultyProvider, changed: dict[str, str | None]
) -> None:
    sent = {**provider.sign_in(led_to(browser)), **changed}
    answer = browser.get(BACK, params={name: value for name, value in sent.items() if value is not None})
    assert answer.status_code == 401
    assert "<script>alert" not in answer.text
    assert shows(browser) == 303


def test_a_code_needs_the_verifier_of_the_browser_that_began(browser: TestClient, provider: FaultyProvider) -> None:
    first = provider.sign_in(led_to(browser))
    second = provider.sign_in(led_to(browser))
    stolen = browser.get(BACK, params={**second, "code": first["code"]})
    assert stolen.status_code == 503
    assert shows(browser) == 303


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example", "/v1/keys", "/\\evil.example", SIGN_IN])
def test_nobody_is_led_elsewhere_afterwards(browser: TestClient, provider: FaultyProvider, wanted: str) -> None:
    address = browser.get(START, params={"next": wanted}).headers["location"]
    answer = browser.get(BACK, params=provider.sign_in(address))
    assert 'content="0;url=/dashboard"' in answer.text


def _start_anew(context: Context, folder: Path, issuer: str, rights: str = RIGHTS) -> None:
    """Change what a new start with another file would change."""
    write_configuration(folder / "oidc.toml", issuer, rights)
    configuration._read.cache_clear()
    service.tell_of_change(context)


def test_a_session_ends_with_its_account_its_right_and_the_secret(
    browser: TestClient, provider: FaultyProvider, context: Context, tmp_path: Path
) -> None:
    assert signed_in(browser, provider).status_code == 200
    assert shows(browser) == 200
    # The right is taken out of the file, and the server started anew.
    _start_anew(context, tmp_path, provider.issuer, RIGHTS.replace('"analysts"', '"others"'))
    assert shows(browser) == 303
    _start_anew(context, tmp_path, provider.issuer)
    assert shows(browser) == 200
    # Another provider's accounts are others.
    _start_anew(context, tmp_path, "https://another.example")
    assert shows(browser) == 303
    _start_anew(context, tmp_path, provider.issuer)
    assert shows(browser) == 200
    # The secret of keys is replaced: sessions end, the account does not.
    database_secrets.rotate(context, Purpose.KEYS)
    retired = database_secrets.retire(context, Purpose.KEYS, 1)
    service.tell_of_change(context)
    assert retired.revoked == []
    assert shows(browser) == 303
    assert signed_in(browser, provider).status_code == 200
    assert shows(browser) == 200
    # The account is barred.
    (account,) = service.list_keys(context)
    assert service.revoke_key(context, account.id)
    assert shows(browser) == 303
    assert (signed_in(browser, provider).status_code, shows(browser)) == (403, 303)


def test_the_group_in_a_session_cannot_be_changed(browser: TestClient, provider: FaultyProvider) -> None:
    assert signed_in(browser, provider).status_code == 200
    cookie = browser.cookies[COOKIE_OF_HTTPS]
    found = re.fullmatch(r"(key_[a-z2-7]+)~([A-Za-z0-9_-]*)\.(.*)", cookie)
    assert found is not None
    for forged in (f"{found[1]}~b2ZmaWNlcnM.{found[3]}", f"{found[1]}~.{found[3]}", f"{found[1]}.{found[3]}"):
        browser.cookies.clear()
        assert browser.get(PAGE, headers={"Cookie": f"{COOKIE_OF_HTTPS}={forged}"}).status_code == 303


def test_rights_of_the_dashboard_are_those_of_the_group(browser: TestClient, provider: FaultyProvider) -> None:
    signed_in(browser, provider)
    assert browser.get("/dashboard/keys").status_code == 403
    browser.cookies.clear()
    signed_in(browser, provider, sub="officer", groups=["officers"])
    page = browser.get("/dashboard/keys")
    assert page.status_code == 200
    assert "officer" in page.text


def test_a_confidential_client_shows_its_secret_and_a_new_one_needs_no_start(
    browser: TestClient, provider: FaultyProvider, context: Context, configure: Callable[..., Path], tmp_path: Path
) -> None:
    file = tmp_path / "client-secret"
    file.write_text("a:secret +1\n")
    configure(client_secret_file=str(file))
    configuration._read.cache_clear()
    provider.secret = "a%3Asecret%20%2B1"  # RFC 6749, 2.3.1
    assert signed_in(browser, provider).status_code == 200
    provider.secret = "second"
    assert signed_in(browser, provider).status_code == 503
    file.write_text("second")
    assert signed_in(browser, provider).status_code == 200


def test_a_provider_that_is_down_is_said(browser: TestClient, provider: FaultyProvider) -> None:
    provider.is_down = True
    answer = browser.get(START)
    assert answer.status_code == 503
    assert "does not answer" in answer.text
    assert "Or with a key" in browser.get(SIGN_IN).text


def test_keys_that_the_provider_has_rotated_meanwhile_are_fetched(
    browser: TestClient, provider: FaultyProvider, context: Context
) -> None:
    clock = [1000.0]
    known = providers.provider_of(context)
    assert known is not None
    known.clock = lambda: clock[0]
    address = led_to(browser)
    provider.keys = {"two": new_key()}
    clock[0] += providers.ASKED_AGAIN_AFTER_S
    assert browser.get(BACK, params=provider.sign_in(address)).status_code == 200


def test_a_server_with_a_provider_answers_nobody_for_being_on_its_machine(connect: ConnectAs) -> None:
    """No local token, no calculation without a key: whoever is at the proxy is not the operator."""
    local = connect(is_local=False)
    assert local.get("/v1/budgets").status_code == 401
    assert local.get("/v1/algorithms").status_code == 401


def test_a_long_address_does_not_keep_anybody_from_signing_in(browser: TestClient, provider: FaultyProvider) -> None:
    """Browsers keep no cookie above 4096 characters, and the address stands in one."""
    for wanted, shown in (
        ("/dashboard/runs?name=" + "a" * 1000, None),
        ("/dashboard/runs?name=" + '"' * 3900, "/dashboard"),
    ):
        answer = browser.get(START, params={"next": wanted})
        assert len(answer.headers["set-cookie"].partition(";")[0]) <= 4096
        answer = browser.get(BACK, params=provider.sign_in(answer.headers["location"]))
        assert f'content="0;url={shown or wanted}"' in answer.text


def test_a_token_of_the_provider_is_no_key_in_the_form(browser: TestClient, provider: FaultyProvider) -> None:
    """A session that it began would not know of the groups, and would outlive the configuration."""
    origin = {"Origin": PUBLIC_URL}
    answer = browser.post(SIGN_IN, data={"key": provider.token()}, headers=origin)
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    assert "This key is unknown" in answer.text


def test_a_cookie_that_plain_http_may_set_is_not_taken_over_https(
    browser: TestClient, provider: FaultyProvider
) -> None:
    """Another server of the domain, or whoever is on the way, could sign somebody in as themselves."""
    signed_in(browser, provider)
    cookie = browser.cookies[COOKIE_OF_HTTPS]
    browser.cookies.clear()
    assert browser.get(PAGE, headers={"Cookie": f"{COOKIE_OF_HTTPS}={cookie}"}).status_code == 200
    assert browser.get(PAGE, headers={"Cookie": f"{COOKIE}={cookie}"}).status_code == 303
