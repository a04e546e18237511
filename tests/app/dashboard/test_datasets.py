"""Pages of data sets: what was declared, each version, and nothing of any row."""

from __future__ import annotations

from html import unescape

from tests.app.dashboard.documents import Document
from tests.app.dashboard.test_new_dataset import fresh_rows
from tests.app.runs.conftest import COLUMNS, Service, quick

__all__ = ["quick"]


def test_the_list_has_every_data_set_that_the_service_lists(quick: Service) -> None:
    budget = quick.budget()
    quick.dataset(fresh_rows(), name="visits", budget_id=budget["id"])
    page = quick.client.get("/dashboard/datasets")
    document = Document(page.text)
    assert (page.status_code, document.faults) == (200, [])
    for each in quick.get("/v1/datasets")["items"]:
        assert f'href="/dashboard/datasets/{each["id"]}"' in page.text
        assert each["name"] in unescape(page.text)


def test_a_private_data_set_shows_what_was_declared_and_who_pays(quick: Service) -> None:
    budget = quick.budget(name="clinic")
    dataset = quick.dataset(fresh_rows(), name="visits", budget_id=budget["id"])
    quick.version(dataset["id"], fresh_rows(), reason="withdrawals of May")
    page = quick.client.get(f"/dashboard/datasets/{dataset['id']}").text
    document = Document(page)
    assert document.faults == []
    for column in COLUMNS:
        assert str(column["name"]) in page
    assert "red, green" in page
    assert "withdrawals of May" in page
    assert f'href="/dashboard/budgets/{budget["id"]}"' in page
    start = f'href="/dashboard/runs/new?dataset_id={dataset["id"]}&amp;budget_id={budget["id"]}"'
    assert start in page
    assert quick.client.get(unescape(start[6:-1])).status_code == 200


def test_public_data_cost_nothing_and_have_one_version(quick: Service) -> None:
    page = quick.client.get("/dashboard/datasets/ds_digits").text
    assert Document(page).faults == []
    assert "costs no privacy" in page
    assert "versions/new" not in page
    assert "25 more" in page, "the columns of 8 x 8 pixels, and the label, beyond the first forty"
    assert quick.client.get("/dashboard/datasets/ds_none").status_code == 404
