"""The page that starts runs: data, model and target are enough, and each fault is at its field."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from app.dashboard.new_run import PATH
from tests.app.dashboard.documents import Document
from tests.app.dashboard.test_new_budget import marked
from tests.app.runs.conftest import Service, quick

__all__ = ["quick"]

HERE = {"Origin": "http://127.0.0.1:8000"}
FORM = {"dataset_id": "ds_breast_cancer", "model": "logistic_regression", "epsilon": "3", "delta": "1e-5"}


def key_of(page: str) -> str:
    (key,) = re.findall(r'name="key" value="([^"]+)"', page)
    return str(key)


def sent(quick: Service, key: str = "", **form: str) -> Any:
    """The answer to a form; under a fresh key, as a page has it, unless one is given."""
    data = FORM | {"key": key or key_of(quick.client.get(PATH).text)} | form
    return quick.client.post(PATH, data=data, headers=HERE, follow_redirects=False)


def test_the_page_is_a_form_and_the_page_of_runs_leads_to_it(quick: Service) -> None:
    assert f'href="{PATH}"' in quick.client.get("/dashboard/runs").text
    answer = quick.client.get(PATH)
    document = Document(answer.text)
    assert (answer.status_code, document.faults) == (200, [])
    assert [link.text for link in document.all("a", aria_current="page")] == ["Runs"]
    assert marked(answer.text) == {}


def test_what_is_filled_in_becomes_a_run_whose_page_says_what_was_chosen(quick: Service) -> None:
    answer = sent(quick)
    assert answer.status_code == 303, answer.text
    at = answer.headers["location"]
    run = quick.get(at.replace("/dashboard", "/v1"))
    assert (run["algorithm"], run["dataset_id"], run["budget_id"]) == ("dp_adam", "ds_breast_cancer", None)
    page = quick.client.get(at).text
    assert Document(page).faults == []
    for choice in run["choices"]:
        assert choice["reason"] in unescape(page)


def test_a_form_that_is_sent_twice_starts_one_run(quick: Service) -> None:
    key = key_of(quick.client.get(PATH).text)
    places = {sent(quick, key).headers["location"] for _ in range(2)}
    assert len(places) == 1
    again = sent(quick, key, epsilon="2")
    assert again.status_code == 422
    assert key_of(again.text) != key


def test_a_named_algorithm_and_a_budget_go_with_it(quick: Service) -> None:
    budget = quick.budget()
    answer = sent(quick, algorithm="dp_nsgd", budget_id=budget["id"], epsilon="0.2")
    run = quick.get(answer.headers["location"].replace("/dashboard", "/v1"))
    assert (run["algorithm"], run["budget_id"]) == ("dp_nsgd", budget["id"])


def test_each_fault_is_at_its_field_and_what_was_typed_stays(quick: Service) -> None:
    answer = sent(quick, epsilon="many", dataset_id="ds_nothing")
    assert answer.status_code == 422
    assert set(marked(answer.text)) == {"epsilon"}
    assert 'value="many"' in answer.text
    assert "ds_nothing" in answer.text
    label = sent(quick, model="linear_regression")
    assert set(marked(label.text)) == {"model"}


def test_a_guarantee_that_was_emptied_is_missing_and_not_what_stood_there_at_first(quick: Service) -> None:
    for name in ("epsilon", "delta"):
        answer = sent(quick, **{name: " "})
        assert answer.status_code == 422, answer.headers.get("location")
        assert set(marked(answer.text)) == {name}
        assert f'name="{name}" value=""' in answer.text
