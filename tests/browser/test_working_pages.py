"""What people work with, in a browser: data are uploaded, trained on and attacked; keys are made; for every reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.runs.conftest import ROWS
from tests.browser.conftest import OpenPage, Serve
from tests.browser.pages import PATIENCE_S
from tests.browser.test_ledger_pages import NARROW, RUN, fits, post

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def worker_server(serve: Serve) -> str:
    """Address of a server that executes runs."""
    return serve(EPSILOND_WORKERS="1")


def test_a_file_is_declared_uploaded_and_trained_on(open_page: OpenPage, worker_server: str, tmp_path: Path) -> None:
    watched = open_page(f"{worker_server}/dashboard/datasets")
    page = watched.page
    watched.check_accessibility()
    page.get_by_role("link", name="Upload a data set").click()
    page.get_by_label("Name").fill("Visits")
    page.get_by_label("Who may see the rows").select_option("public: every row may be published")
    page.get_by_label("Rows, about").fill("4")
    page.get_by_label("Columns", exact=True).fill("a: 0 to 10\nb: -1 to 1\ncolor: red, green\ny: no, yes")
    page.get_by_label("Column that a model predicts").fill("y")
    watched.check_accessibility()
    watched.screenshot("new-dataset")
    page.get_by_role("button", name="Go on to the file").click()
    file = tmp_path / "visits.csv"
    file.write_text(ROWS)
    page.get_by_label("File: CSV with a header row").set_input_files(file)
    watched.check_accessibility()
    page.get_by_role("button", name="Upload").click()
    page.get_by_role("heading", name="Uploaded").wait_for()
    page.get_by_role("link", name="Go to the data set").click()
    watched.check_accessibility()
    watched.screenshot("dataset")
    page.set_viewport_size(NARROW)
    assert fits(watched)
    page.get_by_role("link", name="Train a model on it").click()
    assert page.get_by_label("Data set").evaluate("each => each.selectedOptions[0].text").startswith("Visits")


def test_a_run_is_started_with_weighted_classes(open_page: OpenPage, worker_server: str) -> None:
    """A share that is no number is told at the field, where it stays until it is right."""
    watched = open_page(f"{worker_server}/dashboard/runs/new")
    page = watched.page
    page.get_by_label("Data set").select_option("ds_breast_cancer")
    page.get_by_label("Model").select_option("logistic_regression")
    shares = page.get_by_label("Class shares")
    shares.fill("malignant=0.4\nbenign=most")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("valid number").first.wait_for()
    watched.expect_fault("console: .*422")
    watched.check_accessibility()
    assert shares.input_value() == "malignant=0.4\nbenign=most"
    shares.fill("malignant=0.4\nbenign=0.6")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("by the shares malignant 0.4, benign 0.6.").wait_for()
    watched.check_accessibility()


def test_a_run_is_attacked_from_its_page(open_page: OpenPage, worker_server: str) -> None:
    run = post(worker_server, "/v1/runs", RUN | {"iterations": 3})
    watched = open_page(f"{worker_server}/dashboard/runs/{run['id']}")
    page = watched.page
    page.get_by_role("button", name="Attack it with canaries").click(timeout=1000 * PATIENCE_S)
    page.get_by_text("found nothing against the claim").wait_for(timeout=1000 * PATIENCE_S)
    watched.check_accessibility()
    page.goto(f"{worker_server}/dashboard/audits")
    watched.check_accessibility()


@pytest.mark.parametrize("path", ["keys", "algorithms", "runs/new", "budgets/new"])
def test_pages_are_for_every_reader_and_every_width(open_page: OpenPage, worker_server: str, path: str) -> None:
    watched = open_page(f"{worker_server}/dashboard/{path}")
    watched.check_accessibility()
    watched.screenshot(path.replace("/", "-"))
    watched.page.set_viewport_size(NARROW)
    assert fits(watched)
