"""The page that opens budgets: what was typed is what the interface then says, once, or each fault at its field."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from typing import Any

import pytest

from app.auth import service
from app.auth.principal import Scope
from app.context import Context
from app.dashboard.new_budget import PATH
from app.idempotency.records import in_flight
from tests.app.auth.test_sessions import BASE_URL, ORIGIN, sign_in
from tests.app.conftest import ConnectAs
from tests.app.dashboard.documents import Document
from tests.app.dashboard.test_budgets import FILTERS
from tests.app.runs.conftest import Service, quick
from tests.databases import on_one_engine

__all__ = ["quick"]

HERE = {"Origin": "http://127.0.0.1:8000"}
#: Sure of it: the tests share a server, and with it the names of budgets.
FORM = {"name": "visits", "neighboring_relation": "replace_one", "privacy_unit": "person", "sure": "yes"}
#: Of every kind; only those of the chosen one count.
AMOUNTS = {"epsilon": "0.30000000049", "delta": "1e-6", "rho": "0.25", "mu": "0.5"}
EVIL = "\"'><script>alert(1)</script>{{ 7001 * 7001 }}"


def key_of(page: str) -> str:
    (key,) = re.findall(r'name="key" value="([^"]+)"', page)
    return str(key)


def sent(quick: Service, key: str = "", **form: str) -> Any:
    """The answer to a form; under a fresh key, as a page has it, unless one is given."""
    data = FORM | {"key": key or key_of(quick.client.get(PATH).text)} | form
    return quick.client.post(PATH, data=data, headers=HERE, follow_redirects=False)


def opened(quick: Service, answer: Any) -> dict[str, Any]:
    """The budget to which an answer leads."""
    assert answer.status_code == 303, answer.text
    at = answer.headers["location"]
    assert quick.client.get(at).status_code == 200
    return dict(quick.get(at.replace("/dashboard", "/v1")))


def names(page: str) -> set[str]:
    """The fields of a page's form."""
    return set(re.findall(r'<(?:input|select) id="field-[^"]*" name="([^"]*)"', page))


def marked(page: str) -> dict[str, str]:
    """Return the text at each field that has a fault."""
    document = Document(page)
    assert document.faults == []
    fields = [each.attributes for each in document.elements if each.attributes.get("aria-invalid") == "true"]
    return {each["name"]: document.text_of(f"{each['id']}-fault") for each in fields}


def test_the_page_is_a_form_and_the_page_of_budgets_leads_to_it(quick: Service) -> None:
    assert f'href="{PATH}"' in quick.client.get("/dashboard/budgets").text, "without budgets"
    quick.budget()
    assert f'href="{PATH}"' in quick.client.get("/dashboard/budgets").text, "with budgets"
    answer = quick.client.get(PATH)
    document = Document(answer.text)
    assert (answer.status_code, document.faults) == (200, [])
    assert [link.text for link in document.all("a", aria_current="page")] == ["Budgets"]
    assert marked(answer.text) == {}
    assert key_of(answer.text) != key_of(quick.client.get(PATH).text), "every form that is shown has a key of its own"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", FILTERS)
def test_each_kind_has_its_amounts_and_is_opened_with_them_alone(quick: Service, kind: str) -> None:
    amounts = set(FILTERS[kind]) - {"kind"}
    asked = {"kind": kind, "name": "kept", **AMOUNTS}
    for headers in ({}, {"HX-Request": "true", "HX-Target": "new-budget"}):
        page = quick.client.get(PATH, params=asked, headers=headers).text
        assert Document(page, is_part=bool(headers)).faults == []
        assert ("<!DOCTYPE html>" in page) is not bool(headers), "htmx changes the form alone"
        assert names(page) & set(AMOUNTS) == amounts
        assert 'name="name" value="kept"' in page
        assert all(f'name="{name}" value="{AMOUNTS[name]}"' in page for name in amounts)
    budget = opened(quick, sent(quick, kind=kind, **AMOUNTS))
    assert {name: budget[name] for name in FORM if name != "sure"} == {n: v for n, v in FORM.items() if n != "sure"}
    terms = ("orders", "conversion", "reserve_share", "delta_per_mu_squared")
    said = {name: value for name, value in budget["filter"].items() if name not in terms}
    assert said == {"kind": kind, **{name: float(AMOUNTS[name].replace("00049", "")) for name in amounts}}
    assert (budget["parent_id"], budget["report_delta"]) == (None, None)


def test_an_amount_is_the_decimal_that_was_typed(quick: Service) -> None:
    # Less than one, though the nearest binary fraction is one: the limit is rounded down.
    assert opened(quick, sent(quick, kind="zcdp", rho="0.99999999999999999999"))["rho"]["limit"] == 0.999999999


def test_a_budget_is_opened_under_another_and_takes_its_unit_over(quick: Service) -> None:
    parents = [quick.budget(name="twins", privacy_unit="household", filter=FILTERS["zcdp"]) for _ in range(2)]
    page = quick.client.get(PATH).text
    for each in parents:
        assert f'<option value="{each["id"]}">twins (…{each["id"][-4:]})</option>' in page
    form = {"kind": "zcdp", "rho": "0.5", "parent_id": parents[0]["id"], "report_delta": "1e-7", "privacy_unit": ""}
    refused = sent(quick, **form)
    assert "must use the same relation" in marked(refused.text)["neighboring_relation"]
    assert f'<option value="{parents[0]["id"]}" selected>twins' in refused.text
    budget = opened(quick, sent(quick, **form, neighboring_relation="add_or_remove_one"))
    assert (budget["parent_id"], budget["privacy_unit"], budget["report_delta"]) == (
        parents[0]["id"],
        "household",
        1e-7,
    )


def test_a_parent_that_is_not_in_the_list_is_asked_for_all_the_same(
    quick: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [quick.budget(name="of one second", filter=FILTERS["zcdp"])["id"] for _ in range(2)]
    monkeypatch.setattr("app.dashboard.new_budget._PARENTS", 1)
    form = {"kind": "zcdp", "rho": "0.5", "neighboring_relation": "add_or_remove_one", "privacy_unit": ""}
    page = quick.client.get(PATH).text
    assert "The newest 1 are listed." in page
    parent = next(each for each in made if each not in page)
    assert opened(quick, sent(quick, **form, parent_id=parent))["parent_id"] == parent
    assert "there is no budget with the id" in marked(sent(quick, **form, parent_id="bud_none").text)["parent_id"]


def test_each_fault_is_at_its_field_and_what_was_typed_stays(quick: Service) -> None:
    before = len(quick.get("/v1/budgets?limit=200")["items"])
    typed = {"name": "", "privacy_unit": "a\tb", "kind": "approximate_dp", "epsilon": "much", "delta": "0.6"}
    answer = sent(quick, **typed, report_delta="0,1")
    assert answer.status_code == 422
    assert marked(answer.text) == {
        "name": "This field is required.",
        "privacy_unit": "Control characters, such as tabs and line breaks, are not allowed here.",
        "epsilon": 'Input should be a number, or a decimal string such as "0.25".',
        "delta": "Input should be less than or equal to 0.5.",
        "report_delta": "Input should be a valid number, not a text.",
    }
    document = Document(answer.text)
    (summary,) = document.all("div", role="alert")
    assert "No budget is opened until these fields have other values: Name: This field is required." in " ".join(
        summary.text.split()
    )
    assert document.all("a", href="#field-epsilon")
    for name, value in {**typed, "report_delta": "0,1"}.items():
        if name not in ("kind", "privacy_unit"):
            assert f'name="{name}" value="{value}"' in answer.text
    assert '<option value="approximate_dp" selected>' in answer.text
    assert '<option value="replace_one" selected>' in answer.text
    assert len(quick.get("/v1/budgets?limit=200")["items"]) == before


def test_what_the_filter_refuses_is_told_at_its_kind_or_its_amount(quick: Service) -> None:
    parent = quick.budget(filter=FILTERS["zcdp"], neighboring_relation="replace_one")
    answer = sent(quick, kind="pure_dp", epsilon="1", parent_id=parent["id"], privacy_unit="")
    assert set(marked(answer.text)) == {"kind"}
    assert set(marked(sent(quick, kind="renyi_dp", epsilon="0.000001", delta="1e-12").text)) == {"epsilon"}


@pytest.mark.parametrize(("name", "value"), [("kind", "guess"), ("neighboring_relation", "none")])
def test_a_choice_that_is_none_is_refused_and_not_replaced(quick: Service, name: str, value: str) -> None:
    answer = sent(quick, **({"kind": "zcdp", "rho": "1"} | {name: value}))
    assert answer.status_code == 422
    assert set(marked(answer.text)) == {name}
    assert f'<option value="{value}" selected>' in answer.text


def test_a_form_that_is_sent_twice_opens_one_budget(quick: Service) -> None:
    page = sent(quick, kind="zcdp", rho="no number").text
    form = {"kind": "zcdp", "rho": "1", "name": "sent twice", "sure": ""}
    first, again = sent(quick, key_of(page), **form), sent(quick, key_of(page), **form)
    assert opened(quick, first)["id"] == opened(quick, again)["id"]
    asked = sent(quick, **form)
    assert "There is a budget with the name sent twice already." in asked.text, "another form asks first"
    other = sent(quick, key_of(page), kind="zcdp", rho="2")
    assert other.status_code == 422
    assert "has opened a budget. Sent again, it opens another." in other.text
    assert marked(other.text) == {}
    assert opened(quick, sent(quick, key_of(other.text), kind="zcdp", rho="2"))["rho"]["limit"] == 2


def test_the_second_of_two_equal_requests_waits_for_the_first(quick: Service) -> None:
    key = key_of(quick.client.get(PATH).text)
    with ExitStack() as first:
        assert first.enter_context(in_flight(quick.context.database, ("loopback", key)))
        ended = threading.Timer(0.3, first.close)
        ended.start()
        answer = sent(quick, key, kind="zcdp", rho="1", name="clicked twice")
        assert ended.finished.is_set()
    assert opened(quick, answer)["name"] == "clicked twice"


def test_what_speaks_against_a_limit_is_said_before_it_is_opened(quick: Service) -> None:
    weak = {"kind": "renyi_dp", "epsilon": "500", "delta": "0.01", "name": "weak"}
    asked = sent(quick, sure="", **weak)
    assert asked.status_code == 422
    assert "weak" not in {each["name"] for each in quick.get("/v1/budgets")["items"]}
    assert "With epsilon 500 the limit proves nothing" in asked.text
    assert "A delta of 0.01 is large" in asked.text
    assert Document(asked.text).faults == []
    assert '<button type="submit" name="sure" value="yes">Open it anyway</button>' in asked.text
    assert opened(quick, sent(quick, key_of(asked.text), **weak))["epsilon"]["limit"] == 500


def test_beside_the_fields_stands_what_a_limit_means_for_one_person(quick: Service) -> None:
    def said(**form: str) -> str:
        return str(quick.client.get(f"{PATH}/meaning", params=FORM | form).text)

    assert (
        "whether one person took part, and finds both equally likely, guesses right in at most 88.1 % of cases."
        in said(kind="renyi_dp", epsilon="2", delta="1e-5")
    )
    assert "at most 69.2 %" in said(kind="gaussian_dp", mu="1")
    assert "at most 67.7 %" in said(kind="zcdp", rho="0.25")
    assert "cases" not in said(kind="zcdp", rho="half")
    assert "the name known already" not in said(kind="zcdp", rho="0.5", name="known")
    opened(quick, sent(quick, kind="zcdp", rho="1", name="known"))
    assert "the name known already" in said(kind="zcdp", rho="0.5", name="known")


def test_a_budget_is_not_opened_before_somebody_says_what_it_protects(quick: Service) -> None:
    answer = sent(quick, kind="zcdp", rho="1", privacy_unit="", name="of nobody")
    assert (answer.status_code, set(marked(answer.text))) == (422, {"privacy_unit"})
    assert "Say what one record stands for, such as person" in marked(answer.text)["privacy_unit"]
    several = sent(quick, kind="zcdp", rho="much", privacy_unit="", name="of nobody")
    assert (several.status_code, set(marked(several.text))) == (422, {"privacy_unit", "rho"})
    assert "of nobody" not in {each["name"] for each in quick.get("/v1/budgets")["items"]}


def test_a_form_without_a_key_opens_nothing_and_comes_back_with_one(quick: Service) -> None:
    answer = quick.client.post(PATH, data=FORM | {"kind": "zcdp", "rho": "1"}, headers=HERE, follow_redirects=False)
    assert answer.status_code == 400
    assert "Idempotency-Key" in answer.text
    opened(quick, sent(quick, key_of(answer.text), kind="zcdp", rho="1"))


@pytest.mark.thorough  # test_pages.py tries some pages
def test_what_is_typed_is_only_ever_text_on_the_page(quick: Service) -> None:
    fields = [*FORM, *AMOUNTS, "kind", "parent_id", "report_delta", "key", EVIL]
    for name in fields:
        form = {"kind": "renyi_dp" if name in ("epsilon", "delta") else {"rho": "zcdp"}.get(name, "gaussian_dp")}
        for answer in (
            quick.client.get(PATH, params=form | {name: EVIL}),
            sent(quick, **({"report_delta": "9"} | form | {name: EVIL})),
        ):
            assert "<script>alert" not in answer.text, name
            assert "49014001" not in answer.text, name
            assert Document(answer.text).faults == [], name


def test_a_form_of_another_site_opens_nothing(quick: Service) -> None:
    form = FORM | {"kind": "zcdp", "rho": "1", "key": "elsewhere"}
    assert quick.client.post(PATH, data=form, headers={"Origin": "http://evil.example"}).status_code == 403
    assert quick.client.post(PATH, data=form).status_code == 403


@on_one_engine
def test_a_key_that_may_not_open_budgets_gets_the_interface_s_own_refusal(connect: ConnectAs, context: Context) -> None:
    created = service.create_key(context, "reader", [Scope.AUDITOR])
    assert created is not None
    browser = connect(base_url=BASE_URL, peer=("10.0.0.1", 1))
    sign_in(browser, created.token)
    assert 'id="new-budget"' not in browser.get(PATH).text
    assert f'href="{PATH}"' not in browser.get("/dashboard/budgets").text
    form = FORM | {"kind": "zcdp", "rho": "1", "key": "page-1"}
    answer = browser.post(PATH, data=form, headers=ORIGIN)
    said = connect(base_url=BASE_URL, headers={"Authorization": f"Bearer {created.token}"}).post(
        "/v1/budgets", json={"name": "x"}, headers={"Idempotency-Key": "x"}
    )
    assert (answer.status_code, said.status_code) == (403, 403)
    (summary,) = Document(answer.text).all("div", role="alert")
    assert said.json()["detail"] in " ".join(summary.text.split())
    assert 'name="name" value="visits"' in answer.text
    assert marked(answer.text) == {}
