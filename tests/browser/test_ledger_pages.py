"""Budgets, the ledger, runs and sweeps in a browser: live progress, search, verification, maps, for every reader."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from tests.browser.conftest import OpenPage, Serve
from tests.browser.pages import PATIENCE_S, WatchedPage
from tests.crash.connection import Connection

pytestmark = pytest.mark.thorough

NARROW = {"width": 390, "height": 800}
GAUSSIAN = {"mechanism": {"kind": "gaussian", "noise_multiplier": 5.0}}
RUN = {
    "algorithm": "dp_sgd",
    "dataset_id": "ds_breast_cancer",
    "model": {"kind": "logistic_regression"},
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
    "hyperparameters": {"step_size": 0.5},
}
_keys = itertools.count()


#: So long a server on a busy machine has for the start of what is late afterwards.
LATE_AFTER_S = 5


@pytest.fixture(scope="module")
def worker_server(serve: Serve) -> str:
    """Address of a server that carries runs out."""
    return serve(EPSILOND_WORKERS="1")


def post(server: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    host, port = server.removeprefix("http://").split(":")
    with Connection((host, int(port))) as connection:
        answer = connection.send("POST", path, body, f"key {next(_keys)}")
        assert answer.status_code < 300, answer.json()
        return dict(answer.json())


@pytest.fixture(scope="module")
def budget(worker_server: str) -> dict[str, Any]:
    """With a charge, a reservation that has begun and is late, and one that has not begun."""
    made = post(
        worker_server,
        "/v1/budgets",
        {"name": "Visits", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}},
    )
    for purpose, moves, seconds in (("mean", ["commit"], 60), ("median", ["start"], LATE_AFTER_S), ("mode", [], 60)):
        body = {"events": [GAUSSIAN], "purpose": purpose, "expires_in": seconds}
        reservation = post(worker_server, f"/v1/budgets/{made['id']}/reservations", body)
        for move in moves:
            post(worker_server, f"/v1/reservations/{reservation['id']}/{move}", {})
    time.sleep(LATE_AFTER_S)
    return made


def fits(watched: WatchedPage) -> bool:
    """Whether nobody has to scroll sideways."""
    return bool(watched.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize("path", ["", "/{id}"])
def test_budgets_are_for_every_reader_and_every_width(
    open_page: OpenPage, worker_server: str, budget: dict[str, Any], path: str
) -> None:
    watched = open_page(f"{worker_server}/dashboard/budgets{path.format(**budget)}")
    watched.page.get_by_text("Visits").first.wait_for()
    if path:
        # The parts that come after the page.
        watched.page.get_by_role("cell", name="rho 0.02").first.wait_for()
        watched.page.locator("figure.chart svg").wait_for()
    watched.check_accessibility()
    watched.screenshot("budget" if path else "budgets")
    watched.page.set_viewport_size(NARROW)
    assert fits(watched)


def test_reservations_are_shown_by_their_state(open_page: OpenPage, worker_server: str, budget: dict[str, Any]) -> None:
    page = open_page(f"{worker_server}/dashboard/budgets/{budget['id']}").page
    rows = page.locator("#reservation-list tbody tr")
    # One is late, and those are shown at first.
    page.locator("#reservation-list").get_by_text("median").wait_for()
    assert rows.count() == 1
    page.get_by_label("State").select_option("any")
    page.locator("#reservation-list").get_by_text("mode").wait_for()
    assert rows.count() == 3


def test_the_ledger_is_searched_verified_and_proved_by_keyboard(
    open_page: OpenPage, worker_server: str, budget: dict[str, Any]
) -> None:
    watched = open_page(f"{worker_server}/dashboard/ledger")
    page = watched.page
    page.get_by_label("Budget").select_option("Visits")
    page.get_by_role("cell", name="create").wait_for()
    page.get_by_label("Purpose, exactly").fill("mean")
    page.keyboard.press("Enter")
    page.get_by_role("cell", name="create").wait_for(state="detached")
    assert page.locator("#entries tbody tr").count() == 2
    page.get_by_role("link", name="proof of entry 2").focus()
    page.keyboard.press("Enter")
    page.locator("details.proof").wait_for()
    page.get_by_role("button", name="Verify all entries").focus()
    page.keyboard.press("Enter")
    page.get_by_text("The books are whole").wait_for()
    page.get_by_role("button", name="Show a signed checkpoint").click()
    page.get_by_text("Checkpoint of").wait_for()
    watched.check_accessibility()
    watched.screenshot("ledger")
    page.set_viewport_size(NARROW)
    assert fits(watched)


def test_a_run_is_followed_to_its_end_without_a_hand(open_page: OpenPage, worker_server: str) -> None:
    run = post(worker_server, "/v1/runs", RUN | {"iterations": 600})
    watched = open_page(f"{worker_server}/dashboard/runs/{run['id']}")
    watched.page.get_by_text("succeeded").wait_for(timeout=1000 * PATIENCE_S)
    watched.page.get_by_text("600 of 600").wait_for()
    watched.page.get_by_text("Scores on public rows").wait_for()
    watched.check_accessibility()
    watched.screenshot("run")
    watched.page.set_viewport_size(NARROW)
    assert fits(watched)
    watched.page.get_by_role("button", name="Predict").click()
    watched.page.get_by_role("status").wait_for()
    watched.check_accessibility()
    watched.screenshot("run_try")
    watched.page.go_back()
    watched.page.get_by_role("link", name="Privacy card").click()
    watched.page.get_by_text("-differentially private").first.wait_for()
    watched.check_accessibility()


def test_a_sweep_becomes_a_map(open_page: OpenPage, worker_server: str) -> None:
    body = RUN | {"iterations": 3, "hyperparameters": {"step_size": [0.25, 0.5]}, "select": "all"}
    sweep = post(worker_server, "/v1/run-sweeps", body)
    watched = open_page(f"{worker_server}/dashboard/run-sweeps/{sweep['id']}")
    picture = watched.page.locator("img.heat-map")
    picture.wait_for(timeout=1000 * PATIENCE_S)
    watched.page.wait_for_function("document.querySelector('img.heat-map').naturalWidth > 100")
    watched.check_accessibility()
    watched.screenshot("sweep")
    watched.page.goto(f"{worker_server}/dashboard/run-sweeps")
    watched.page.get_by_role("link", name=sweep["id"]).wait_for()
    watched.check_accessibility()
