"""Calibrating, comparing and signing in, in a browser: live, by keyboard alone, without scripts, for every reader."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.conftest import OpenPage, Serve
from tests.browser.pages import PATIENCE_S, WatchedPage
from tests.crash.connection import Connection

NARROW = {"width": 390, "height": 800}
#: Of full batches, whose answers take no time.
QUICK = (
    "/?algorithm=dp_sgd&sampling=full_batch&dataset_size=1000&iterations=100&gradient_bound=clip&epsilon=1&delta=1e-6"
)
NOISE = re.compile(r"Noise multiplier ([\d.]+)")


def noise(watched: WatchedPage) -> float:
    """The answer, as it is said."""
    found = NOISE.search(watched.page.locator("#summary").inner_text())
    assert found
    return float(found[1])


def await_charts(watched: WatchedPage, count: int = 3) -> None:
    charts = watched.page.locator("figure.chart svg")
    charts.nth(count - 1).wait_for(timeout=1000 * PATIENCE_S)


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "path",
    ["/", "/dashboard/calibrate/events", "/dashboard/import", "/dashboard/compare", "/dashboard/algorithms/dp_svrg_pp"],
)
def test_a_page_is_for_every_reader_and_every_width(open_page: OpenPage, server: str, path: str, width: int) -> None:
    watched = open_page(server + path, viewport={"width": width, "height": 900})
    if path in ("/", "/dashboard/compare"):
        await_charts(watched, 3 if path == "/" else 1)
    watched.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    watched.check_accessibility()
    assert watched.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if width == 1280:
        watched.screenshot(f"page{path.replace('/', '-')}")


def test_the_answer_the_charts_and_the_address_follow_what_is_typed(open_page: OpenPage, server: str) -> None:
    watched = open_page(server + QUICK)
    page = watched.page
    await_charts(watched)
    before = noise(watched)
    page.get_by_label("Epsilon", exact=True).fill("2")
    page.locator("#summary", has_text="epsilon at most 2 ").wait_for()
    assert noise(watched) < before
    page.locator("figure.chart", has_text="target 2").wait_for()
    assert parse_qs(urlsplit(page.url).query)["epsilon"] == ["2"]
    assert page.evaluate("document.activeElement.name") == "epsilon", "whoever types is not interrupted"
    page.reload()
    page.locator("#summary", has_text="epsilon at most 2 ").wait_for()


@pytest.mark.thorough
def test_a_fault_is_told_at_its_field_and_goes_when_it_is_mended(open_page: OpenPage, server: str) -> None:
    watched = open_page(server + QUICK)
    field = watched.page.get_by_label("Steps", exact=True)
    field.fill("0")
    fault = watched.page.locator("#field-iterations-fault")
    fault.filter(has_text="greater than or equal to 1").wait_for()
    assert watched.page.locator("#summary").inner_text().startswith("No answer")
    field.fill("200")
    watched.page.locator("#summary", has_text="for 200 steps").wait_for()
    assert fault.text_content() == ""


@pytest.mark.thorough
def test_fields_come_and_go_with_what_is_chosen(open_page: OpenPage, server: str) -> None:
    watched = open_page(server + QUICK)
    page = watched.page
    page.get_by_label("Guarantee", exact=True).select_option("zcdp")
    page.get_by_label("Rho", exact=True).wait_for()
    assert page.get_by_label("Epsilon", exact=True).count() == 0
    page.get_by_label("Algorithm", exact=True).focus()
    page.get_by_label("Algorithm", exact=True).select_option("dp_fw")
    page.get_by_text("constants of an example").wait_for()
    assert page.get_by_label("lipschitz", exact=True).input_value() == "2"
    assert page.get_by_label("Clip norm C", exact=True).count() == 0
    assert page.evaluate("document.activeElement.name") == "algorithm"


@pytest.mark.thorough
def test_all_of_it_is_reached_and_done_by_keyboard(open_page: OpenPage, server: str) -> None:
    watched = open_page(server + QUICK)
    page = watched.page
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.name || document.activeElement.textContent.trim()"))
        if reached[-1] == "epsilon":
            break
    assert "HTTP interface" not in reached, "the navigation was skipped"
    outline: Any = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is seen"
    page.keyboard.press("Control+a")
    page.keyboard.type("0.5")
    page.locator("#summary", has_text="epsilon at most 0.5 ").wait_for()
    with page.expect_response(lambda response: urlsplit(response.url).path == "/") as sent:
        page.keyboard.press("Enter")
    assert parse_qs(urlsplit(sent.value.url).query)["epsilon"] == ["0.5"], "the form is sent"


@pytest.mark.thorough
def test_without_scripts_the_form_is_sent_as_it_is(open_page: OpenPage, server: str) -> None:
    page = open_page(server + "/dashboard/algorithms/dp_sgd").page
    # Playwright does not come back from a browser whose scripts are off: this page's only script is empty instead.
    page.route("**/htmx.min.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
    page.goto(server + QUICK)
    page.get_by_label("Epsilon", exact=True).fill("2")
    page.get_by_role("button", name="Calibrate").click()
    page.locator("#summary", has_text="epsilon at most 2 ").wait_for()
    assert parse_qs(urlsplit(page.url).query)["epsilon"] == ["2"]
    page.get_by_role("link", name="Epsilon over steps").click()
    page.locator("figure.chart svg").wait_for()
    assert urlsplit(page.url).path == "/dashboard/calibrate/steps"


@pytest.mark.thorough
def test_the_comparison_follows_what_is_chosen(open_page: OpenPage, server: str) -> None:
    watched = open_page(f"{server}/dashboard/compare")
    page = watched.page
    page.get_by_label("Shape of the objective", exact=True).select_option("strongly_convex")
    page.get_by_label("strong convexity", exact=True).wait_for()
    page.get_by_label("Records", exact=True).fill("20000")
    page.get_by_text("at 20000 records").wait_for()
    page.locator("#answer tbody a").first.click()
    page.get_by_role("heading", name="Calibrate").wait_for()
    assert "dataset_size=20000" in page.url


@pytest.mark.thorough
def test_signing_in_and_out(open_page: OpenPage, serve: Serve) -> None:
    server = serve()
    host, port = server.removeprefix("http://").split(":")
    with Connection((host, int(port))) as connection:
        made = connection.send("POST", "/v1/keys", {"name": "browser", "scopes": ["auditor"]}, "first").json()
    watched = open_page(f"{server}/dashboard/compare?epsilon=3")
    page = watched.page
    page.get_by_role("heading", name="Sign in").wait_for()
    watched.check_accessibility()
    watched.screenshot("sign-in")
    page.get_by_label("API key").fill("epsilond_wrong")
    page.keyboard.press("Enter")
    page.get_by_text("unknown, revoked or expired").wait_for()
    watched.check_accessibility()
    watched.expect_fault("401")
    page.get_by_label("API key").fill(made["token"])
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Compare").wait_for()
    assert page.get_by_label("Epsilon", exact=True).input_value() == "3", "where one wanted to go"
    assert "browser auditor" in page.locator("header").inner_text(), "whose session it is"
    [cookie] = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("epsilond_session", True, "Strict")
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("fetch('/v1/algorithms').then(answer => answer.status)") == 401
    watched.expect_fault("401")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert page.context.cookies() == []


@pytest.mark.thorough
def test_a_session_that_has_ended_leads_to_the_sign_in(open_page: OpenPage, serve: Serve) -> None:
    server = serve()
    host, port = server.removeprefix("http://").split(":")
    watched = open_page(server + QUICK)
    await_charts(watched)
    with Connection((host, int(port))) as connection:
        connection.send("POST", "/v1/keys", {"name": "browser", "scopes": ["auditor"]}, "first")
    watched.page.get_by_label("Epsilon", exact=True).fill("2")
    watched.page.get_by_role("heading", name="Sign in").wait_for()
    watched.expect_fault("401")
    assert "next=" in watched.page.url


@pytest.mark.thorough
def test_a_pasted_call_is_answered_as_it_is_typed(open_page: OpenPage, server: str) -> None:
    watched = open_page(f"{server}/dashboard/import")
    page = watched.page
    page.locator("#summary", has_text="which is too little").wait_for()
    call = page.get_by_label("Your call", exact=True)
    call.fill("engine.make_private(\n    noise_multiplier=4.0)")
    page.locator("#summary", has_text="which is more than is needed").wait_for()
    page.get_by_label("Records", exact=True).fill("")
    page.locator("#field-dataset_size-fault", has_text="does not say how many records there are").wait_for()
    assert page.evaluate("document.activeElement.name") == "dataset_size", "whoever types is not interrupted"
    assert "make_private(\n" in parse_qs(urlsplit(page.url).query)["code"][0]
    page.get_by_label("Records", exact=True).fill("60000")
    page.get_by_role("link", name=re.compile("Calibrate: the noise")).click()
    page.locator("#summary", has_text="Noise multiplier").wait_for()


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1280, 390])
def test_formulas_are_drawn_by_the_browser_itself(open_page: OpenPage, server: str, width: int) -> None:
    watched = open_page(f"{server}/dashboard/algorithms/dp_sgd", viewport={"width": width, "height": 900})
    fractions = watched.page.locator("math mfrac")
    for fraction in fractions.all():
        above, below = (fraction.locator("xpath=*").nth(place).bounding_box() for place in (0, 1))
        assert above is not None
        assert below is not None
        assert above["y"] + above["height"] <= below["y"] + 1, "the one stands above the other"
    assert fractions.count() > 0
    names = [each.get_attribute("aria-label") for each in watched.page.locator("math").all()]
    assert "x ← x − (η/B)(∑_i min(1,c/‖g_i‖) g_i + c σZ)" in names
    assert watched.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
