"""The page that starts runs: data, model and target are enough, and each fault is at its field."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import unquote_plus

import pytest

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
    assert run["theorem_note"] in unescape(page)
    for choice in run["choices"]:
        assert choice["reason"] in unescape(page)
        assert choice["theorem_reason"] in unescape(page)


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


def test_private_rows_are_charged_to_their_own_budget_unless_another_is_chosen(quick: Service) -> None:
    budget = quick.budget(filter={"kind": "zcdp", "rho": "1"})
    dataset = quick.dataset(budget_id=budget["id"])
    answer = sent(quick, dataset_id=dataset["id"], epsilon="0.5")
    run = quick.get(answer.headers["location"].replace("/dashboard", "/v1"))
    assert (run["dataset_id"], run["budget_id"]) == (dataset["id"], budget["id"])


def test_a_run_is_scored_on_the_public_rows_that_are_chosen(quick: Service) -> None:
    answer = sent(quick, test_dataset_id="ds_breast_cancer")
    run = quick.get(answer.headers["location"].replace("/dashboard", "/v1"))
    assert run["test_dataset_id"] == "ds_breast_cancer"
    other = sent(quick, test_dataset_id="ds_digits")
    assert set(marked(other.text)) == {"test_dataset_id"}


def test_a_run_that_the_budget_does_not_admit_is_told_in_the_words_of_the_page(quick: Service) -> None:
    budget = quick.budget(filter={"kind": "zcdp", "rho": "0.0001"})
    answer = sent(quick, budget_id=budget["id"])
    assert answer.status_code == 409
    assert "largest_count_that_fits" not in answer.text
    assert re.search(r"does not admit these events. [0-9]+ of its steps would fit. Ask for a smaller", answer.text)


def test_each_fault_is_at_its_field_and_what_was_typed_stays(quick: Service) -> None:
    answer = sent(quick, epsilon="many", dataset_id="ds_nothing")
    assert answer.status_code == 422
    assert set(marked(answer.text)) == {"epsilon"}
    assert 'value="many"' in answer.text
    assert "ds_nothing" in answer.text
    label = sent(quick, model="linear_regression")
    assert set(marked(label.text)) == {"model"}


def test_classes_are_weighted_by_the_shares_that_are_typed(quick: Service) -> None:
    answer = sent(quick, class_priors="malignant = 0.4\n\nbenign=0.6\n")
    assert answer.status_code == 303, answer.text
    run = quick.get(answer.headers["location"].replace("/dashboard", "/v1"))
    assert run["model"]["class_priors"] == {"malignant": 0.4, "benign": 0.6}
    page = quick.client.get(answer.headers["location"]).text
    assert "by the shares malignant 0.4, benign 0.6." in page
    assert "class_priors" not in quick.get(sent(quick).headers["location"].replace("/dashboard", "/v1"))["model"]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("malignant=0.4", "one share for each category"),
        ("malignant=0.4\nbenign=0.7", "must sum to 1"),
        ("malignant=much\nbenign=0.7", "valid number"),
        ("malignant", "valid number"),
    ],
)
def test_shares_that_are_none_are_told_at_their_field_and_stay(quick: Service, typed: str, told: str) -> None:
    answer = sent(quick, class_priors=typed)
    assert answer.status_code == 422
    (detail,) = marked(answer.text).values()
    assert told in detail
    assert set(marked(answer.text)) == {"class_priors"}
    [area] = [each for each in Document(answer.text).all("textarea") if each.attributes["name"] == "class_priors"]
    assert area.text.split() == typed.split()


def test_a_model_of_numbers_has_no_classes_to_weigh(quick: Service) -> None:
    answer = sent(quick, model="linear_regression", class_priors="malignant=0.4\nbenign=0.6")
    assert answer.status_code == 422
    assert set(marked(answer.text)) == {"class_priors"}


CALIBRATED = {
    "algorithm": "dp_nsgd",
    "sampling": "full_batch",
    "dataset_size": "1000",
    "iterations": "7",
    "neighboring_relation": "replace_one",
    "gradient_bound": "normalize",
    "regularizer": "0.5",
    "target": "approximate_dp",
    "epsilon": "1",
    "delta": "1e-6",
    "solve_for": "noise_multiplier",
}


def address_after(quick: Service, **fields: str) -> list[str]:
    """Return the address to which the page of a calibration leads to start a run."""
    page = quick.client.get("/", params=CALIBRATED | fields).text
    return [unescape(each) for each in re.findall(r'href="([^"]*/runs/new[^"]*)"', page)]


def test_a_run_is_started_with_what_was_calibrated(quick: Service) -> None:
    (address,) = address_after(quick)
    page = quick.client.get(address)
    assert (page.status_code, Document(page.text).faults) == (200, [])
    assert 'name="epsilon"' not in page.text, "the target was calibrated"
    (calibration,) = re.findall(r'name="calibration" value="([^"]+)"', page.text)
    shares = {"class_priors": "malignant=0.4\nbenign=0.6"}
    form = {"calibration": unescape(calibration), "key": key_of(page.text), **FORM, **shares}
    answer = quick.client.post(PATH, data=form, headers=HERE, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    run = quick.get(answer.headers["location"].replace("/dashboard", "/v1"))
    assert (run["algorithm"], run["progress"]["total"], run["plan"]["dataset_size"]) == ("dp_nsgd", 7, 569)
    assert run["plan"]["neighboring_relation"] == "replace_one"
    assert run["model"]["class_priors"] == {"malignant": 0.4, "benign": 0.6}
    assert run["choices"] == [] or {each["name"] for each in run["choices"]}.isdisjoint({"iterations", "algorithm"})


@pytest.mark.parametrize(
    ("fields", "stated"),
    [
        ({"target": "advantage", "advantage": "0.2"}, "advantage at most 0.2"),
        ({"target": "true_positive_rate", "tpr": "0.2", "fpr": "0.1"}, "false positive rate 0.1"),
        ({"target": "bayes_risk", "bayes_risk": "0.4", "prior": "0.5"}, "Bayes risk at least 0.4"),
    ],
)
def test_a_calibrated_limit_on_attacks_is_what_the_run_guarantees(
    quick: Service, fields: dict[str, str], stated: str
) -> None:
    (address,) = address_after(quick, **fields)
    page = quick.client.get(address).text
    (calibration,) = re.findall(r'name="calibration" value="([^"]+)"', page)
    form = {"calibration": unescape(calibration), "key": key_of(page), **FORM}
    answer = quick.client.post(PATH, data=form, headers=HERE, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    card = quick.get(answer.headers["location"].replace("/dashboard", "/v1") + "/report")
    assert "limits every membership attack (" in card["statement"]
    assert stated in card["statement"]


def test_a_budget_that_prices_at_a_delta_is_offered_only_to_a_target_with_one(quick: Service) -> None:
    filters = {
        "at a delta": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
        "squared": {"kind": "zcdp", "rho": 1},
    }
    for name, budget_filter in filters.items():
        quick.budget(name=name, filter=budget_filter)
    offered = {
        target: "at a delta" in quick.client.get(*address_after(quick, target=target, rho="1")).text
        for target in ("approximate_dp", "zcdp")
    }
    assert offered == {"approximate_dp": True, "zcdp": False}


def test_a_calibration_that_solved_for_something_else_leads_to_no_run(quick: Service) -> None:
    assert address_after(quick, solve_for="epsilon", noise_multiplier="9") == []
    (address,) = address_after(quick, solve_for="iterations", noise_multiplier="9")
    assert '"iterations": ' in unquote_plus(address)


def test_what_is_no_calibration_is_left_out(quick: Service) -> None:
    for text in ("{", "[]", "7", "[" * 5000):
        page = quick.client.get(PATH, params={"calibration": text})
        assert (page.status_code, 'name="calibration"' in page.text) == (200, False)
    page = quick.client.get(PATH, params={"calibration": '{"<script>": {"kind": "<b>"}}'})
    assert Document(page.text).faults == []
    assert "<b>" not in page.text


def test_a_guarantee_that_was_emptied_is_missing_and_not_what_stood_there_at_first(quick: Service) -> None:
    for name in ("epsilon", "delta"):
        answer = sent(quick, **{name: " "})
        assert answer.status_code == 422, answer.headers.get("location")
        assert set(marked(answer.text)) == {name}
        assert f'name="{name}" value=""' in answer.text
