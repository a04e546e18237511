"""The pages of the ledger: search, verification, checkpoints and proofs, as the interface answers them."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import unquote

import pytest
from sqlalchemy import text

from accounting import ENGINE_VERSION
from accounting.events import Event, Gaussian
from app.dashboard.ledger import _as_moment
from app.kit.ids import new_id
from app.ledger.commands import Quote, Reserve
from app.ledger.journal import Instruction, carry_out
from tests.app.runs.conftest import Service, quick, service

__all__ = ["quick", "service"]

GAUSSIAN = {"mechanism": {"kind": "gaussian", "noise_multiplier": 7.0}}
#: Forms of pages come from pages.
HERE = {"Origin": "http://127.0.0.1:8000"}


def charged(service: Service, *purposes: str) -> str:
    """The id of a budget with a reservation for each purpose."""
    budget_id: str = service.budget(name="charged", filter={"kind": "zcdp", "rho": 1})["id"]
    for purpose in purposes:
        body = {"events": [GAUSSIAN], "purpose": purpose}
        assert service.post(f"/v1/budgets/{budget_id}/reservations", body).status_code == 201
    return budget_id


def kinds(page: str) -> list[str]:
    return re.findall(r'<th scope="row" class="number">\d+</th>\s*<td>(\w+)</td>', page)


def test_entries_are_searched(quick: Service) -> None:
    budget_id = charged(quick, "mean", "median")
    at = f"/dashboard/ledger/entries?budget_id={budget_id}"
    assert kinds(quick.client.get(at).text) == ["reserve", "reserve", "create"], "the newest first"
    assert kinds(quick.client.get(f"{at}&kind=create").text) == ["create"]
    assert kinds(quick.client.get(f"{at}&purpose=median&kind=&mechanism=").text) == ["reserve"]
    assert kinds(quick.client.get(f"{at}&mechanism=laplace").text) == []
    assert kinds(quick.client.get(f"{at}&after=2020-01-01&before=2999-01-01").text) == ["reserve", "reserve", "create"]
    assert kinds(quick.client.get(f"{at}&before=2020-01-01T10:30").text) == []
    assert kinds(quick.client.get(f"{at}&made_by=this+machine&kind=create").text) == ["create"]
    assert kinds(quick.client.get(f"{at}&made_by=the+service").text) == []
    assert "Choose a budget" in quick.client.get("/dashboard/ledger/entries?budget_id=").text
    wrong = quick.client.get(f"{at}&kind=colour").text
    assert 'role="alert"' in wrong
    assert "/query/kind" in wrong


@pytest.mark.parametrize("name", ["after", "before"])
def test_a_day_and_a_minute_are_their_beginnings(name: str) -> None:
    assert _as_moment(name, "2026-01-02") == "2026-01-02T00:00:00Z"
    assert _as_moment(name, "2026-01-02T03:04") == "2026-01-02T03:04:00Z"
    assert _as_moment(name, "2026-01-02T03:04:05Z") == "2026-01-02T03:04:05Z"
    assert _as_moment("purpose", "2026-01-02") == "2026-01-02"


def test_a_long_search_leads_on_and_keeps_what_was_asked(quick: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.dashboard.ledger._SHOWN", 1)
    budget_id = charged(quick, "mean", "median", "mean")
    address, seen = f"/dashboard/ledger/entries?budget_id={budget_id}&purpose=mean", []
    for _ in range(2):
        page = quick.client.get(address).text
        seen += re.findall(r"<td>(mean|median)</td>", page)
        more = re.search(r'href="([^"]+cursor[^"]+)"', page)
        address = more[1].replace("&amp;", "&") if more else ""
    assert (seen, address) == (["mean", "mean"], "")


def test_the_search_is_in_the_address(quick: Service) -> None:
    budget_id = charged(quick)
    page = quick.client.get(f"/dashboard/ledger?budget_id={budget_id}&kind=limit&purpose=a%22b").text
    assert f'<option value="{budget_id}" selected>' in page
    assert "<option selected>limit</option>" in page
    assert 'value="a&#34;b"' in page


def test_a_proof_and_a_checkpoint_are_those_of_the_interface(quick: Service) -> None:
    budget_id = charged(quick, "mean")
    entry = quick.get(f"/v1/budgets/{budget_id}/entries")["items"][0]
    proof = quick.client.get(f"/dashboard/ledger/entries/{entry['id']}/proof").text
    asked = quick.get(f"/v1/ledger/entries/{entry['id']}/proof")
    assert re.findall(r"<code>([0-9a-f]{64})</code>", proof) == [asked["leaf_hash"], *asked["path"], asked["root_hash"]]
    assert 'role="alert"' in quick.client.get("/dashboard/ledger/entries/ent_none/proof").text
    checkpoint = quick.get("/v1/ledger/checkpoint")
    shown = quick.client.get("/dashboard/ledger/checkpoint").text
    assert checkpoint["note"].strip() in shown.replace("&#43;", "+")


def test_a_certificate_is_checked_and_can_be_downloaded(quick: Service) -> None:
    budget = quick.budget(filter={"kind": "approximate_dp", "epsilon": 8, "delta": "1e-4"})
    body = {"events": [GAUSSIAN], "purpose": "mean", "charge": {"delta": 1e-5}, "certificate": True}
    held = quick.post(f"/v1/budgets/{budget['id']}/reservations", body).json()
    address = f"/dashboard/ledger/reservations/{held['id']}/certificate"
    assert address in quick.client.get(f"/dashboard/ledger/entries?budget_id={budget['id']}").text
    page = quick.client.get(address).text
    assert "verified: epsilon &lt;= " in page
    [download] = re.findall(r'href="data:application/json,([^"]*)"', page)
    certificate = quick.client.get(f"/v1/reservations/{held['id']}/certificate").content
    assert unquote(download).encode() == certificate
    assert held["certificate"] in page
    without = quick.post(f"/v1/budgets/{budget['id']}/reservations", body | {"certificate": False}).json()
    refused = quick.client.get(address.replace(held["id"], without["id"])).text
    assert 'role="alert"' in refused


def test_verification_tells_a_whole_ledger_from_another_one(service: Service) -> None:
    charged(service, "mean")
    whole = service.client.post("/dashboard/ledger/verify", headers=HERE)
    assert whole.status_code == 200
    assert "The books are whole" in whole.text
    assert "Prices" not in whole.text
    priced = service.client.post("/dashboard/ledger/verify", data={"prices": "true"}, headers=HERE).text
    assert "The books are whole" in priced
    assert "<strong>0 are too low</strong>" in priced
    with service.context.database.write() as session:
        session.execute(text("UPDATE reservations SET purpose = 'median'"))
    other = service.client.post("/dashboard/ledger/verify", headers=HERE).text
    assert "The books were changed after the ledger wrote them" in other
    assert "the column purpose of the reservation" in other


def test_a_charge_that_is_too_low_is_shown_with_what_it_costs(service: Service) -> None:
    budget_id, context = charged(service, "mean"), service.context
    cheap = Reserve(
        new_id("res"), (Event(Gaussian(0.01)),), Quote((1,), ENGINE_VERSION), context.clock() + timedelta(hours=1)
    )
    with context.database.write() as session:
        carry_out(session, context.database, [Instruction(cheap, "loopback", budget_id)], context.clock())
    assert "The books are whole" in service.client.post("/dashboard/ledger/verify", headers=HERE).text
    priced = service.client.post("/dashboard/ledger/verify", data={"prices": "true"}, headers=HERE).text
    assert "the price is too low" in priced
    assert "<strong>1 are too low</strong>" in priced
    assert "<td>rho 1e-09</td>" in priced
