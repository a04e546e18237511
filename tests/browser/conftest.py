"""A server and a Chromium for tests of pages: both start once, and every test has a fresh profile in a page of its own.

Playwright keeps an event loop in its thread while it runs, which no other test may find there: hence it ends with this
package's tests, not with the session.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import pytest

from app.auth.sessions import COOKIE
from tests.browser.pages import PATIENCE_S, WatchedPage
from tests.crash.server_process import running_server
from tests.databases import DatabaseFactory
from tests.local_access import session_cookie

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = "chromium"
WIDE = {"width": 1280, "height": 900}
ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Whatever a page or the browser itself asks of another machine has no address.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]

OpenPage = Callable[..., WatchedPage]
Serve = Callable[..., str]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    executable = shutil.which(CHROMIUM)
    if executable is None:
        pytest.skip("Chromium is missing: apt install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The profile is a new folder, which goes with the browser. Root has no sandbox.
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS, chromium_sandbox=False)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def serve(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Start a server on a fresh database: ``serve(EPSILOND_WORKERS="1")``, with the settings it is to have."""
    with ExitStack() as stack:

        def start(**settings: str) -> str:
            folder = tmp_path_factory.mktemp("server")
            server = stack.enter_context(running_server(sqlite_databases.migrated(), folder, **settings))
            host, port = server.address
            return f"http://{host}:{port}"

        yield start


@pytest.fixture(scope="package")
def server(serve: Serve) -> str:
    """Address of a server without workers, for tests that leave nothing in others' way."""
    return serve()


@pytest.fixture
def open_page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Open an address: ``open_page(server + "/docs", viewport=NARROW, color_scheme="dark")``.

    It is signed in to a server without keys, unless it is told otherwise. Options are those of Playwright's
    `Browser.new_context`. When the test ends, a fault of any page fails it.
    """
    with ExitStack() as stack:
        opened: list[WatchedPage] = []

        def start(url: str, *, is_signed_in: bool = True, **options: Any) -> WatchedPage:
            # What moves is measured on its way, and not where it ends.
            options = {"viewport": WIDE, "reduced_motion": "reduce"} | options
            context = stack.enter_context(browser.new_context(**options))
            context.set_default_timeout(PATIENCE_S * 1000)
            cookie = session_cookie(urlsplit(url).port or 80)
            if cookie is not None and is_signed_in:
                # For every page: the path of a cookie would be that of its address.
                context.add_cookies([{"name": COOKIE, "value": cookie, "url": urljoin(url, "/")}])
            opened.append(WatchedPage(context.new_page(), url))
            return opened[-1]

        yield start
        for each in opened:
            each.check()
