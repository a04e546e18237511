"""Chromium signs in by a provider that is another program at another site: what browsers do with the cookies."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.app.runs.executors.clusters import free_port
from tests.browser.conftest import Serve
from tests.browser.pages import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.thorough

PEOPLE = ({"sub": "ada", "name": "Ada", "groups": ["officers"]}, {"sub": "eve", "name": "Eve", "groups": ["guests"]})
FILE = """
issuer = "{issuer}"
client_id = "epsilond"
client_secret_file = "{secret}"
name = "Example"

[[rights]]
group = "officers"
scopes = ["admin"]
budgets = "all"
"""


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A provider with two people. ``localhost`` is another site than 127.0.0.1."""
    port = free_port()
    people = [each for person in PEOPLE for each in ("--user-claims", json.dumps(person))]
    with (tmp_path_factory.mktemp("provider") / "log").open("wb") as log:
        program = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port), *people]
        process = subprocess.Popen(program, stdout=log, stderr=log)
        try:
            _wait_for(f"http://127.0.0.1:{port}/.well-known/openid-configuration")
            yield f"http://localhost:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def server(serve: Serve, issuer: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    port = free_port()
    folder = tmp_path_factory.mktemp("settings")
    file, secret = folder / "oidc.toml", folder / "client-secret"
    file.write_text(FILE.format(issuer=issuer, secret=secret))
    secret.write_text("any secret will do")
    return serve(EPSILOND_PORT=str(port), EPSILOND_PUBLIC_URL=f"http://127.0.0.1:{port}", EPSILOND_OIDC_FILE=str(file))


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_S * 1000)
    yield context.new_page()
    context.close()


def sign_in(page: Page, server: str, person: str) -> None:
    page.goto(f"{server}/dashboard/keys")
    page.get_by_role("link", name="Sign in with Example").click()
    page.get_by_role("button", name=person, exact=True).click()


def test_whoever_signs_in_is_shown_the_page_that_they_wanted(page: Page, server: str) -> None:
    sign_in(page, server, "ada")
    page.wait_for_url(f"{server}/dashboard/keys")
    row = page.get_by_role("row").filter(has_text="Ada")
    assert "account" in row.inner_text()
    (cookie,) = page.context.cookies(server)
    assert (cookie["sameSite"], cookie["httpOnly"]) == ("Strict", True)
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{server}/dashboard/sign-in*")
    assert page.context.cookies(server) == []


def test_whoever_has_no_rights_is_told_so(page: Page, server: str) -> None:
    sign_in(page, server, "eve")
    page.get_by_role("heading", name="You are not signed in").wait_for()
    assert "EPSILOND_OIDC_FILE" in page.get_by_role("alert").inner_text()
    assert page.context.cookies(server) == []


def test_whoever_says_no_at_the_provider_is_back_where_one_signs_in(page: Page, server: str) -> None:
    page.goto(f"{server}/dashboard/sign-in")
    page.get_by_role("link", name="Sign in with Example").click()
    page.get_by_role("button", name="Deny").click()
    page.get_by_role("link", name="Back to signing in").click()
    page.wait_for_url(f"{server}/dashboard/sign-in")


def _wait_for(address: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            return httpx2.get(address).raise_for_status()
        except httpx2.HTTPError:
            time.sleep(0.1)
    raise AssertionError(f"{address} does not answer")
