"""A budget is opened in a browser: by keyboard, for every reader, and without scripts, too."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from app.auth.sessions import COOKIE
from tests.browser.conftest import OpenPage, Serve
from tests.local_access import session_cookie

pytestmark = pytest.mark.thorough

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATH = "/dashboard/budgets/new"
NARROW = {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def own_server(serve: Serve) -> str:
    """Address of a server whose budgets are in nobody's way."""
    return serve()


def test_the_amounts_follow_the_filter_and_a_fault_is_led_to(open_page: OpenPage, own_server: str) -> None:
    watched = open_page(own_server + "/dashboard/budgets")
    page = watched.page
    page.get_by_role("link", name="Open one").click()
    page.get_by_label("Name").fill("Visits")
    page.get_by_label("Privacy unit").fill("person")
    page.get_by_label("Filter").focus()
    page.get_by_label("Filter").select_option("zCDP")
    page.get_by_label("Epsilon").wait_for(state="detached")
    assert page.get_by_label("Name").input_value() == "Visits"
    assert page.evaluate("document.activeElement.name") == "kind"
    watched.check_accessibility()
    page.get_by_label("Name").press("Enter")
    watched.expect_fault("console: .*422")
    summary = page.get_by_role("alert").get_by_role("link", name="Rho")
    watched.check_accessibility()
    watched.screenshot("new-budget")
    summary.press("Enter")
    page.keyboard.type("0.5")
    page.keyboard.press("Enter")
    page.get_by_text("zCDP filter").wait_for()
    assert page.get_by_role("heading", level=1).inner_text() == "Visits"
    page.goto(own_server + PATH)
    page.get_by_label("Under the budget").select_option("Visits")
    page.set_viewport_size(NARROW)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_double_click_opens_one_budget_and_leads_to_it(open_page: OpenPage, own_server: str) -> None:
    page = open_page(own_server + PATH).page
    page.get_by_label("Name").fill("Clicked twice")
    page.get_by_label("Privacy unit").fill("person")
    page.get_by_label("Filter").select_option("zCDP")
    page.get_by_label("Epsilon").wait_for(state="detached")
    page.get_by_label("Rho").fill("0.5")
    page.get_by_role("button", name="Open").dblclick()
    page.get_by_text("zCDP filter").wait_for()
    assert page.get_by_role("heading", level=1).inner_text() == "Clicked twice"
    page.goto(own_server + "/dashboard/budgets")
    assert page.get_by_role("link", name="Clicked twice").count() == 1


def test_without_scripts_a_button_shows_the_amounts(browser: Browser, own_server: str) -> None:
    # Not a watched page: its watch runs scripts.
    with browser.new_context(java_script_enabled=False) as context:
        cookie = session_cookie(urlsplit(own_server).port or 80)
        context.add_cookies([{"name": COOKIE, "value": str(cookie), "url": own_server}])
        page = context.new_page()
        page.goto(own_server + PATH)
        page.get_by_label("Name").fill("by hand")
        page.get_by_label("Privacy unit").fill("person")
        page.get_by_label("Filter").select_option("pure DP")
        page.get_by_role("button", name="Show the amounts").click()
        page.get_by_label("Delta", exact=True).wait_for(state="detached")
        assert page.get_by_role("alert").count() == 0, "nothing was sent to be opened"
        page.get_by_label("Epsilon").fill("2")
        page.get_by_label("Name").press("Enter")
        page.get_by_text("pure DP filter").wait_for()
        assert page.get_by_role("heading", level=1).inner_text() == "by hand"
