"""The page of keys: they are made with what was chosen, their tokens are shown once, and they end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.auth import service
from app.auth.principal import Scope
from app.context import Context
from app.dashboard.keys import SCOPES
from tests.app.auth.test_sessions import BASE_URL, ORIGIN, sign_in
from tests.app.conftest import ConnectAs
from tests.app.dashboard.documents import Document
from tests.app.dashboard.test_new_budget import marked
from tests.databases import on_one_engine

PATH = "/dashboard/keys"
Browser = Callable[[Scope], TestClient]


@pytest.fixture
def browser(connect: ConnectAs, context: Context) -> Browser:
    """A browser in which somebody has signed in with a key of this scope."""

    def opened(scope: Scope) -> TestClient:
        created = service.create_key(context, "somebody", [scope])
        assert created is not None
        found = connect(base_url=BASE_URL, peer=("10.0.0.1", 1))
        sign_in(found, created.token)
        return found

    return opened


@pytest.fixture
def admin(browser: Browser) -> TestClient:
    return browser(Scope.ADMIN)


@pytest.fixture
def own(connect: ConnectAs) -> Callable[[str], Any]:
    """What a token allows."""
    client = connect(base_url=BASE_URL, peer=("10.0.0.1", 1), is_local=False)
    return lambda token: client.get("/v1/keys/self", headers={"Authorization": f"Bearer {token}"})


def made(admin: TestClient, **form: str) -> Any:
    key = re.findall(r'name="key" value="([^"]+)"', admin.get(PATH).text)[-1]
    return admin.post(PATH, data={"key": key, "name": "notebook", "days": "90"} | form, headers=ORIGIN)


def token_in(page: str) -> str:
    (token,) = re.findall(r"<code>(epsilond_[^<]+)</code>", page)
    return str(token)


def test_every_scope_is_there_to_choose() -> None:
    assert set(SCOPES) == set(Scope)


@on_one_engine
def test_a_key_is_made_with_what_was_chosen_and_its_token_is_shown_once(
    admin: TestClient, own: Callable[[str], Any]
) -> None:
    chosen = {"scope.analyst": "on", "scope.auditor": "on", "key": "page-0123456789abcdef"}
    answer = made(admin, **chosen)
    assert (answer.status_code, Document(answer.text).faults) == (200, [])
    token = token_in(answer.text)
    allowed = own(token).json()
    assert (allowed["scopes"], allowed["budgets"]) == (["analyst", "auditor"], None)
    assert allowed["valid_until"] is not None
    assert "<code>epsilond_" not in made(admin, **chosen).text, "sent twice, it is made once"
    page = admin.get(PATH).text
    assert token not in page
    assert page.count("notebook<br>") == 1


@on_one_engine
def test_faults_are_at_their_fields(admin: TestClient) -> None:
    answer = made(admin, name="", days="soon", budgets="bud_none")
    assert answer.status_code == 422
    assert set(marked(answer.text)) == {"name", "days"}
    assert Document(answer.text).text_of("scopes-fault") != ""
    answer = made(admin, budgets="bud_none", **{"scope.analyst": "on"})
    assert set(marked(answer.text)) == {"budgets"}
    assert 'name="scope.analyst" checked' in answer.text, "what was chosen stays"
    assert 'name="scope.owner" checked' not in answer.text


@on_one_engine
def test_a_key_gets_another_token_and_ends(admin: TestClient, own: Callable[[str], Any]) -> None:
    token = token_in(made(admin, **{"scope.analyst": "on"}).text)
    key = own(token).json()["id"]

    def do(what: str) -> Any:
        page = admin.get(PATH).text
        (form,) = re.findall(rf'action="{PATH}/{key}/{what}"><input type="hidden" name="key" value="([^"]+)"', page)
        return admin.post(f"{PATH}/{key}/{what}", data={"key": form}, headers=ORIGIN, follow_redirects=False)

    assert token_in(do("rotate").text) != token
    assert do("revoke").headers["location"] == PATH
    assert own(token).status_code == 401
    assert "revoked" in admin.get(PATH).text


@on_one_engine
def test_nobody_else_is_led_there_or_let_in(admin: TestClient, browser: Browser) -> None:
    other = browser(Scope.OWNER)
    link = f'href="{PATH}"'
    assert (link in admin.get("/dashboard/budgets").text, link in other.get("/dashboard/budgets").text) == (True, False)
    assert other.get(PATH).status_code == 403
    elsewhere = {"Origin": "https://elsewhere.example"}
    assert admin.post(PATH, data={"name": "x", "scope.admin": "on"}, headers=elsewhere).status_code == 403


def test_budgets_are_chosen_and_shown_by_their_names(
    admin: TestClient, own: Callable[[str], Any], connect: ConnectAs, context: Context
) -> None:
    created = service.create_key(context, "owner", [Scope.OWNER])
    assert created is not None
    client = connect(base_url=BASE_URL, peer=("10.0.0.1", 1), is_local=False)
    ids = [
        client.post(
            "/v1/budgets",
            json={"name": name, "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1.0}},
            headers={"Authorization": f"Bearer {created.token}", "Idempotency-Key": name},
        ).json()["id"]
        for name in ("ward 7", "ward 8")
    ]
    answer = made(admin, budgets=f"ward 7, {ids[1]}", **{"scope.analyst": "on"})
    assert answer.status_code == 200, answer.text
    assert sorted(own(token_in(answer.text)).json()["budgets"]) == sorted(ids)
    reached = Document(admin.get(PATH).text).all("a", href=f"/dashboard/budgets/{ids[0]}")
    assert [each.text for each in reached] == ["ward 7"]
    assert set(marked(made(admin, budgets="ward 9", **{"scope.analyst": "on"}).text)) == {"budgets"}
