"""Swagger UI at /docs, as somebody uses it: an example is chosen, Execute is pressed, and the answer is there."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import OpenPage, Serve
from tests.browser.pages import WatchedPage
from tests.local_access import authorization

pytestmark = pytest.mark.thorough

#: Findings inside Swagger UI that no style or attribute of ours mends: the line of an operation is one large button
#: with a link to copy its path in it.
OF_SWAGGER_UI = {"nested-interactive": r"opblock-summary-control"}
NARROW = {"width": 390, "height": 844}
KEY = "idempotency-key"


class Docs:
    """The page, its operations by their names."""

    def __init__(self, watched: WatchedPage) -> None:
        self.watched = watched
        self.page = watched.page
        self.page.locator(".opblock-tag").first.wait_for()

    def authorize(self, token: str) -> None:
        """Type a token into the dialog of the button Authorize."""
        self.page.locator(".btn.authorize").first.click()
        self.page.locator(".modal-ux input").fill(token)
        self.page.locator(".modal-ux .btn.authorize").click()
        self.page.locator(".modal-ux .btn-done").click()

    def open(self, tag: str, name: str) -> Any:
        """Open an operation by its address, and return its part of the page."""
        self.page.evaluate("address => { location.hash = address }", f"#/{tag}/{name}")
        part = self.page.locator(f"[id='operations-{tag.replace(' ', '_')}-{name}']")
        part.locator(".btn.execute").wait_for()
        return part

    def execute(self, part: Any, example: str | None = None) -> tuple[Any, Any]:
        """Choose an example in the drop-down, press Execute, and return the request that was sent and its answer."""
        if example is not None:
            part.locator(".examples-select-element").select_option(example)
        with self.page.expect_response(lambda answer: "/v1/" in answer.url) as waiting:
            part.locator(".btn.execute").click()
        # An earlier answer may still be shown.
        shown = part.locator(".live-responses-table .response-col_status", has_text=str(waiting.value.status))
        shown.last.wait_for()
        return waiting.value.request, waiting.value.json()


@pytest.fixture
def docs(open_page: OpenPage, server: str) -> Docs:
    docs = Docs(open_page(server + "/docs"))
    docs.authorize(local_token_of(server))
    return docs


def local_token_of(server: str) -> str:
    """What the file of a server without keys says behind the word Bearer."""
    return authorization(urlsplit(server).port or 80)["Authorization"].removeprefix("Bearer ")


def test_from_a_calibration_to_a_run_with_every_id_filled_in(docs: Docs) -> None:
    _, calibrated = docs.execute(docs.open("Calibration", "calibrate"), "dp_gd_theorem")
    assert calibrated["solution"]["noise_multiplier"] > 0
    _, accounted = docs.execute(docs.open("Accounting", "account"), "selection")
    assert accounted["epsilon"]["upper"] > 0
    _, budget = docs.execute(docs.open("Budgets", "create_budget"), "renyi_dp")
    assert budget["filter"]["kind"] == "renyi_dp"
    part = docs.open("Reservations", "create_reservation")
    assert part.locator("tr[data-param-name=budget_id] input").input_value() == budget["id"]
    _, reservation = docs.execute(part, "dp_sgd")
    assert reservation["budget_id"] == budget["id"]
    _, started = docs.execute(docs.open("Reservations", "start_reservation"))
    assert (started["id"], started["state"]) == (reservation["id"], "started")
    _, run = docs.execute(docs.open("Runs", "create_run"), "breast_cancer")
    _, same = docs.execute(docs.open("Runs", "get_run"))
    assert same["id"] == run["id"]
    _, algorithm = docs.execute(docs.open("Calibration", "get_algorithm"))
    assert algorithm["name"] == "dp_sgd"


def test_each_click_sends_a_key_of_its_own_and_a_typed_one_is_sent_as_it_is(docs: Docs) -> None:
    part = docs.open("Budgets", "create_budget")
    sent = [docs.execute(part) for _ in range(2)]
    keys = [request.headers[KEY] for request, _ in sent]
    assert len(set(keys)) == 2
    assert all(re.fullmatch("docs-[0-9a-f]{32}", key) for key in keys)
    assert len({budget["id"] for _, budget in sent}) == 2
    part.locator("tr[data-param-name=Idempotency-Key] input").fill("my own key: 1")
    typed = [docs.execute(part) for _ in range(2)]
    assert [request.headers[KEY] for request, _ in typed] == ["my own key: 1"] * 2
    assert len({budget["id"] for _, budget in typed}) == 1, "the second is a replay"


def test_a_refusal_is_shown_with_its_code(docs: Docs) -> None:
    part = docs.open("Budgets", "get_budget")
    part.locator("tr[data-param-name=budget_id] input").fill("bud_none")
    _, problem = docs.execute(part)
    assert problem["code"] == "not_found"
    docs.watched.expect_fault("404")
    assert part.locator(".responses-wrapper").get_by_text("Nothing is at this path").is_visible()


def test_operations_are_found_by_any_word_of_theirs(docs: Docs) -> None:
    shown = "count => document.querySelectorAll('.opblock').length === count"
    docs.page.wait_for_function(shown, arg=0)
    docs.page.get_by_label("Find an operation").fill("reservation void")
    docs.page.wait_for_function(shown, arg=1)
    assert docs.page.locator(".opblock").get_attribute("id") == "operations-Reservations-void_reservation"
    docs.page.get_by_label("Find an operation").fill("")
    docs.page.wait_for_function(shown, arg=0)


def test_the_keyboard_skips_what_is_above_and_shows_where_it_is(open_page: OpenPage, server: str) -> None:
    page = Docs(open_page(server + "/docs")).page
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the operations")
    assert skip.evaluate("each => each === document.activeElement")
    assert skip.evaluate("each => each.getBoundingClientRect().top") >= 0, "it is seen"
    assert skip.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.closest('#swagger-ui') !== null")
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("viewport", [None, NARROW], ids=["wide", "narrow"])
def test_nothing_is_out_of_reach_light_or_dark(
    open_page: OpenPage, server: str, viewport: dict[str, int] | None
) -> None:
    docs = Docs(open_page(server + "/docs", **({"viewport": viewport} if viewport else {})))
    docs.watched.screenshot(f"docs-{'narrow' if viewport else 'wide'}")
    # Few operations, each of another kind: axe looks at every part of a page, and all of them are alike.
    docs.page.get_by_label("Find an operation").fill("upload")
    docs.open("Data sets", "upload_dataset")
    docs.watched.check_accessibility(OF_SWAGGER_UI)
    docs.page.get_by_label("Find an operation").fill("/v1/convert")
    docs.execute(docs.open("Accounting", "convert"))
    docs.watched.check_accessibility(OF_SWAGGER_UI)
    docs.page.get_by_label("Find an operation").fill("")
    docs.open("Reservations", "list_reservations")
    width = docs.page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], "the page is wider than the window"


def test_dark_follows_the_system_while_the_page_is_open(docs: Docs) -> None:
    wanted = (
        "([name, ground]) => document.documentElement.className === name"
        " && getComputedStyle(document.body).backgroundColor === ground"
    )
    for scheme, name, ground in (("light", "", "rgb(255, 255, 255)"), ("dark", "dark-mode", "rgb(28, 32, 34)")):
        docs.page.emulate_media(color_scheme=scheme)
        # What is asserted: it ends as soon as this is so, and fails where it never is.
        docs.page.wait_for_function(wanted, arg=[name, ground])


def test_a_key_opens_a_server_that_has_keys_and_is_kept_nowhere(open_page: OpenPage, serve: Serve) -> None:
    url = serve()
    first = Docs(open_page(url + "/docs"))
    first.authorize(local_token_of(url))
    part = first.open("Keys", "create_key")
    body = '{"name": "ops", "scopes": ["admin"]}'
    part.locator("textarea.body-param__text").fill(body)
    _, key = first.execute(part)
    second = Docs(open_page(url + "/docs"))
    _, problem = second.execute(second.open("Keys", "get_own_key"))
    assert problem["code"] == "unauthenticated"
    second.watched.expect_fault("401")
    second.authorize(key["token"])
    _, own = second.execute(second.open("Keys", "get_own_key"))
    assert own["id"] == key["id"]
    assert second.page.evaluate("() => [localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
