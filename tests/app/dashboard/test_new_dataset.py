"""The pages that declare and upload data sets and their versions: a form, its faults, and the file as it is."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest

from app.dashboard.new_dataset import PATH
from app.settings import Settings
from tests.app.dashboard.documents import Document
from tests.app.dashboard.test_new_budget import marked
from tests.app.runs.conftest import COLUMNS, ROWS, Service, quick

__all__ = ["quick"]

HERE = {"Origin": "http://127.0.0.1:8000"}
TYPED = "a: 0 to 10\nb: -1 to 1\n\ncolor: red, green\ny: no, yes\n"
FORM = {"name": "visits", "declared_size": "1000", "columns": TYPED, "label": "y"}
EVIL = "\"'></textarea><script>alert(1)</script>{{ 7001 * 7001 }}"


_FRESH = itertools.count(1)


def fresh_rows() -> str:
    """Rows that no data set of the module has: private ones belong to one root budget for ever."""
    return f"{ROWS}{next(_FRESH) / 1000},0,red,no\n"


def declared(quick: Service, path: str = PATH, **form: str) -> Any:
    data = (FORM if path == PATH else {}) | form
    return quick.client.post(path, data=data, headers=HERE)


def sent(quick: Service, page: str, rows: str | None = None, *, headers: Mapping[str, str] = HERE) -> Any:
    """The answer to the file that a page asks for, sent as a browser does."""
    (action,) = re.findall(r'action="([^"]*)" enctype="multipart/form-data"', page)
    (metadata,) = re.findall(r'name="metadata" value="([^"]*)"', page)
    return quick.client.post(
        unescape(action),
        data={"metadata": unescape(metadata)},
        files={"file": ("visits.csv", (fresh_rows() if rows is None else rows).encode(), "text/csv")},
        headers=dict(headers),
    )


def uploaded(quick: Service, answer: Any) -> dict[str, Any]:
    """The data set to which an answer leads."""
    assert Document(answer.text).faults == []
    (at,) = re.findall(r'href="(/dashboard/datasets/ds_[^"]+)"', answer.text)
    return dict(quick.get(at.replace("/dashboard", "/v1")))


def test_what_is_typed_is_declared_and_the_file_is_uploaded_once(quick: Service) -> None:
    assert f'href="{PATH}"' in quick.client.get("/dashboard/datasets").text
    assert Document(quick.client.get(PATH).text).faults == []
    budget = quick.budget(privacy_unit="person")
    page = declared(quick, budget_id=budget["id"], held_out_share="0.25")
    assert (page.status_code, Document(page.text).faults) == (200, [])
    rows = fresh_rows()
    answer = sent(quick, page.text, rows)
    assert answer.status_code == 201, answer.text
    dataset = uploaded(quick, answer)
    assert dataset["columns"] == COLUMNS
    assert (dataset["budget_id"], dataset["privacy_unit"], dataset["public"]) == (budget["id"], "person", False)
    assert dataset["held_out_share"] == 0.25
    assert "25 % of its rows" in quick.client.get(f"/dashboard/datasets/{dataset['id']}").text
    document = Document(answer.text)
    tiles = {each.text for each in document.all("dd")}
    assert {"5", "0"} <= tiles, "the owner's report"
    again = sent(quick, page.text, rows)
    assert uploaded(quick, again)["id"] == dataset["id"]


def test_the_owners_report_is_in_the_answer_to_the_upload_alone(quick: Service) -> None:
    page = declared(quick, who="public")
    dataset = uploaded(quick, sent(quick, page.text, ROWS + "99,0,red,no\n"))
    assert "Numbers outside" not in quick.client.get(f"/dashboard/datasets/{dataset['id']}").text


def test_faults_of_the_declaration_are_at_their_fields_before_any_file(quick: Service) -> None:
    page = declared(quick, declared_size="many", label="z", columns="a: 9 to 1\nb\nc: x, x")
    found = marked(page.text)
    assert page.status_code == 422
    assert set(found) == {"declared_size", "columns"}
    assert "a: The upper bound must not be below the lower one." in found["columns"]
    assert "c: Every category must be listed once." in found["columns"]
    assert "b: Which values does it have?" in found["columns"]
    assert "a: 9 to 1\nb\nc: x, x</textarea>" in page.text, "what was typed stays"


def test_private_data_without_a_budget_are_refused_and_nothing_is_stored(quick: Service) -> None:
    before = quick.get("/v1/datasets")
    answer = sent(quick, declared(quick).text)
    assert answer.status_code == 422
    assert "budget" in answer.text
    assert quick.get("/v1/datasets") == before


@pytest.mark.parametrize(
    ("rows", "status"),
    [("a,b,color,y\n1,0,blue,no\n", 422), ("a,b,color\n", 422), ("", 422)],
    ids=["category", "column", "empty"],
)
def test_a_file_that_is_not_as_declared_is_refused_with_the_place(quick: Service, rows: str, status: int) -> None:
    budget = quick.budget()
    answer = sent(quick, declared(quick, budget_id=budget["id"]).text, rows)
    assert answer.status_code == status
    assert Document(answer.text).faults == []
    assert "Nothing was stored" in answer.text
    assert "blue" not in answer.text, "a value of a row is shown to nobody"


def test_what_is_typed_is_escaped_on_both_pages(quick: Service) -> None:
    for page in (declared(quick, name=EVIL, label=EVIL), declared(quick, name=EVIL)):
        assert "<script>alert" not in page.text
        assert "49014001" not in page.text
        assert Document(page.text).faults == []


def test_a_page_of_another_site_uploads_nothing(quick: Service) -> None:
    before = quick.get("/v1/datasets")
    page = declared(quick, who="public").text
    for headers in ({"Origin": "http://evil.example"}, {}):
        assert sent(quick, page, headers=headers).status_code == 403
    assert quick.get("/v1/datasets") == before


def test_a_file_beyond_the_limit_is_refused_while_it_arrives(quick: Service) -> None:
    settings: Settings = quick.context.settings
    page = declared(quick, who="public").text
    answer = sent(quick, page, ROWS + "1,0,red,no\n" * (settings.max_upload_bytes // 11 + 1))
    assert answer.status_code == 413


def test_another_version_is_declared_and_uploaded(quick: Service) -> None:
    budget = quick.budget()
    dataset = quick.dataset(fresh_rows(), budget_id=budget["id"])
    at = f"/dashboard/datasets/{dataset['id']}"
    assert f'href="{at}/versions/new"' in quick.client.get(at).text
    assert Document(quick.client.get(f"{at}/versions/new").text).faults == []
    fault = declared(quick, f"{at}/versions/new", change="appended", capacity="-1")
    assert set(marked(fault.text)) == {"reason", "capacity"}
    page = declared(quick, f"{at}/versions/new", change="deleted", reason="May", erase_earlier="yes").text
    answer = sent(quick, page)
    assert answer.status_code == 201, answer.text
    assert uploaded(quick, answer)["version"] == 2
    versions = quick.get(f"/v1/datasets/{dataset['id']}/versions")["items"]
    assert [(each["change"], each["reason"], each["erased"]) for each in versions] == [
        (None, None, True),
        ("deleted", "May", False),
    ]


def test_the_second_page_shows_what_the_first_declared(quick: Service) -> None:
    page = declared(quick, who="public", capacity="2000", person_column="", rows_per_person="").text
    (metadata,) = re.findall(r'name="metadata" value="([^"]*)"', page)
    assert json.loads(unescape(metadata)) == {
        "name": "visits",
        "label": "y",
        "declared_size": 1000,
        "capacity": 2000,
        "public": True,
        "columns": COLUMNS,
    }
