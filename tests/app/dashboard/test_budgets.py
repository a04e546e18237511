"""The pages of budgets say what the interface answers: in words, rounded the safe way, each budget under its parent."""

from __future__ import annotations

import csv
import re
from decimal import Decimal
from typing import Any

import pytest

from app.dashboard.amounts import segments
from app.dashboard.budgets import _burn_down, in_tree_order
from app.dashboard.wording import at_least
from tests.app.runs.conftest import Service, quick

__all__ = ["quick"]

FILTERS: dict[str, dict[str, Any]] = {
    "approximate_gaussian_dp": {"kind": "approximate_gaussian_dp", "epsilon": 4, "delta": 1e-6},
    "renyi_dp": {"kind": "renyi_dp", "epsilon": 8, "delta": 1e-6},
    "zcdp": {"kind": "zcdp", "rho": 1},
    "pure_dp": {"kind": "pure_dp", "epsilon": 3},
    "approximate_dp": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-6},
    "gaussian_dp": {"kind": "gaussian_dp", "mu": 2},
}
LAPLACE = {"mechanism": {"kind": "laplace", "noise_multiplier": 3.0}}
GAUSSIAN = {"mechanism": {"kind": "gaussian", "noise_multiplier": 7.0}}


def reserve(service: Service, budget: dict[str, Any], state: str, purpose: str = "mean", **more: Any) -> dict[str, Any]:
    """A reservation that is pending, started or committed."""
    kind = budget["filter"]["kind"]
    body: dict[str, Any] = {"events": [LAPLACE if kind == "pure_dp" else GAUSSIAN], "purpose": purpose} | more
    if kind == "approximate_dp":
        body["charge"] = {"delta": 1e-7}
    made = service.post(f"/v1/budgets/{budget['id']}/reservations", body)
    assert made.status_code == 201, made.text
    moves = {"pending": [], "started": ["start"], "committed": ["commit"]}[state]
    for move in moves:
        assert service.post(f"/v1/reservations/{made.json()['id']}/{move}", {}).status_code == 200
    return dict(made.json())


def use_of(budget: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """The number that a budget's limit is stated in, and what became of the limit."""
    return next((name, budget[name]) for name in ("epsilon", "rho", "mu") if budget[name] is not None)


@pytest.mark.parametrize("kind", FILTERS)
def test_what_is_left_is_rounded_down_and_what_is_used_up(quick: Service, kind: str) -> None:
    budget = quick.budget(name=f"rounded {kind}", filter=FILTERS[kind])
    for state in ("committed", "started", "pending"):
        reserve(quick, budget, state)
    said = quick.get(f"/v1/budgets/{budget['id']}")
    page = quick.client.get(f"/dashboard/budgets/{budget['id']}").text
    name, use = use_of(said)
    tiles = dict(re.findall(rf"<dt>([^<]+)</dt><dd>{name} ([\d.e-]+)", page))
    assert Decimal(tiles["Left"]) <= Decimal(str(use["left"]))
    assert Decimal(tiles["Spent: committed"]) >= Decimal(str(use["spent"]))
    assert Decimal(tiles["Held: reserved"]) >= Decimal(str(use["reserved"]))
    assert Decimal(tiles["Limit"]) == Decimal(str(use["limit"]))
    for tile, part in (("Left", "left"), ("Spent: committed", "spent"), ("Held: reserved", "reserved")):
        assert float(tiles[tile]) == pytest.approx(use[part], rel=1e-5)
    # The whole limit, and no number beside it that says otherwise.
    assert use["spent"] + use["reserved"] + use["left"] == pytest.approx(use["limit"], rel=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", FILTERS)
def test_the_bar_says_what_the_tiles_say(quick: Service, kind: str) -> None:
    budget = quick.budget(filter=FILTERS[kind])
    assert budget["share"]["used"] == 0
    for state in ("committed", "started", "started", "pending", "pending", "pending"):
        reserve(quick, budget, state)
    said = quick.get(f"/v1/budgets/{budget['id']}")
    (_, use), share = use_of(said), said["share"]
    if kind != "approximate_dp":  # its delta is fuller
        parts = {"used": use["limit"] - use["left"], "spent": use["spent"], "started": use["started"]}
        assert {name: share[name] for name in parts} == pytest.approx({n: p / use["limit"] for n, p in parts.items()})
    assert share["used"] == pytest.approx(share["spent"] + share["started"] + share["pending"])
    page = quick.client.get(f"/dashboard/budgets/{budget['id']}").text
    told = re.search(r'aria-label="Of the limit, ([\d.]+) % is used: ([\d.]+) % is spent', page)
    assert told is not None
    assert [float(each) for each in told.groups()] == pytest.approx(
        [100 * share["used"], 100 * share["spent"]], rel=1e-3
    )
    assert f"{told[1]} % of the limit is used" in page
    assert f"{told[1]} %" in quick.client.get("/dashboard/budgets").text
    ends = [begins + width for _, begins, width in segments(share)]
    sums = share["spent"], share["spent"] + share["started"], share["used"]
    assert ends == pytest.approx([100 * each for each in sums], abs=0.02)


def test_a_renyi_budget_has_room_as_long_as_one_of_its_orders_has(quick: Service) -> None:
    budget = quick.budget(filter=FILTERS["renyi_dp"])
    sampled = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.2}, "count": 1000}
    sampled["sampling"] = {"kind": "poisson", "sampling_probability": 0.01}
    made = quick.post(f"/v1/budgets/{budget['id']}/reservations", {"events": [sampled], "purpose": "model"})
    assert made.status_code == 201, made.text
    said = quick.get(f"/v1/budgets/{budget['id']}")
    assert min(said["amounts"]["remaining"]["epsilons"]) == 0, "the large orders have none"
    assert 0 < said["share"]["used"] < 1


def test_a_bar_ends_at_the_limit_where_a_correction_went_beyond_it(quick: Service) -> None:
    budget = quick.budget(filter={"kind": "zcdp", "rho": 0.02})
    body = {"events": [{"mechanism": {"kind": "zcdp", "rho": 0.05}}], "reason": "was not recorded"}
    assert quick.post(f"/v1/budgets/{budget['id']}/corrections", body).status_code == 201
    share = quick.get(f"/v1/budgets/{budget['id']}")["share"]
    assert share["used"] == 2.5
    assert segments(share) == [("spent", 0.0, 100.0), ("started", 100.0, 0.0), ("pending", 100.0, 0.0)]
    assert "Overdrawn" in quick.client.get(f"/dashboard/budgets/{budget['id']}").text


def test_a_budget_stands_under_the_one_above_it(quick: Service) -> None:
    root = quick.budget(name="the root")
    child = quick.budget(name="the child", parent_id=root["id"])
    other = quick.budget(name="another")
    grandchild = quick.budget(name="the grandchild", parent_id=child["id"])
    newest_first = [quick.get(f"/v1/budgets/{each['id']}") for each in (grandchild, other, child, root)]
    rows = [(row.budget["name"], row.depth) for row in in_tree_order(newest_first)]
    assert rows == [("another", 0), ("the root", 0), ("the child", 1), ("the grandchild", 2)]
    # Where the budget above is not within reach, its children stand for themselves.
    assert [(row.budget["name"], row.depth) for row in in_tree_order(newest_first[:3])] == [
        ("another", 0), ("the child", 0), ("the grandchild", 1)
    ]  # fmt: skip
    page = quick.client.get("/dashboard/budgets").text
    assert page.index("the root") < page.index("the child") < page.index("the grandchild")
    assert "the child" in quick.client.get(f"/dashboard/budgets/{root['id']}").text


def test_what_people_have_named_is_text_on_every_page(quick: Service) -> None:
    evil = "<script>alert(1)</script>"
    budget = quick.budget(name=evil, privacy_unit=evil, labels={evil: evil})
    reserve(quick, budget, "committed", evil)
    at = f"/dashboard/budgets/{budget['id']}"
    entries = f"/dashboard/ledger/entries?budget_id={budget['id']}"
    for address in ("/dashboard/budgets", at, f"{at}/spending", f"{at}/reservations", "/dashboard/ledger", entries):
        text = quick.client.get(address).text
        assert evil not in text, address
        assert "&lt;script&gt;alert(1)" in text, address


def test_a_delta_that_cannot_be_is_told_at_its_field_and_the_rest_is_shown(quick: Service) -> None:
    budget = quick.budget(name="with a report")
    answer = quick.client.get(f"/dashboard/budgets/{budget['id']}?delta=2")
    assert answer.status_code == 200
    assert re.search(r'<input id="delta"[^>]*value="2" aria-invalid="true" aria-describedby="delta-fault"', answer.text)
    assert 'id="delta-fault"' in answer.text
    right = quick.client.get(f"/dashboard/budgets/{budget['id']}?delta=0.001").text
    assert 'value="0.001"' in right
    assert "aria-invalid" not in right


def test_a_budget_that_is_not_there_is_a_page_that_says_so(quick: Service) -> None:
    answer = quick.client.get("/dashboard/budgets/bud_none")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "bud_none" in answer.text
    for part in ("burn-down", "spending", "reservations"):
        answer = quick.client.get(f"/dashboard/budgets/bud_none/{part}")
        assert 'role="alert"' in answer.text, part


def test_spending_and_reservations_are_those_of_the_interface(quick: Service) -> None:
    budget = quick.budget(filter=FILTERS["zcdp"])
    for purpose in ("mean", "mean", "median"):
        reserve(quick, budget, "committed", purpose)
    reserve(quick, budget, "started", "late", expires_in=1)
    at = f"/dashboard/budgets/{budget['id']}"
    rows = re.findall(
        r'<th scope="row">(\w+)</th><td class="number">(\d+)</td><td>rho ([\d.]+)',
        quick.client.get(f"{at}/spending").text,
    )
    assert [(key, count) for key, count, _ in rows] == [("mean", "2"), ("median", "1")]
    assert quick.client.get(f"{at}/spending?group_by=colour").text.count('role="alert"') == 1
    started = quick.client.get(f"{at}/reservations?state=started").text
    assert ("late" in started, "median" in started) == (True, False)
    assert quick.client.get(f"{at}/reservations").text.count("<tr>") == 1 + 4


def test_spending_is_a_table_for_a_spreadsheet_too(quick: Service) -> None:
    budget = quick.budget(filter=FILTERS["zcdp"])
    for purpose in ("mean", "=1+1", "mean"):
        reserve(quick, budget, "committed", purpose)
    at = f"/dashboard/budgets/{budget['id']}/spending"
    answer = quick.client.get(f"{at}.csv?group_by=purpose")
    assert answer.headers["content-type"].startswith("text/csv")
    header, *rows = list(csv.reader(answer.text.splitlines()))
    assert header == ["purpose", "charges", "rho"]
    said = quick.get(f"/v1/budgets/{budget['id']}/spending?group_by=purpose")["items"]
    assert rows == [
        [f"'{each['key']}" if each["key"] == "=1+1" else each["key"], str(each["charges"]), str(each["amount"]["rho"])]
        for each in said
    ]
    by_key = list(csv.reader(quick.client.get(f"{at}.csv?group_by=principal").text.splitlines()))
    assert [row[:3] for row in by_key] == [["principal", "name", "charges"], ["loopback", "this machine", "3"]]
    assert f'href="{at}.csv?group_by=purpose"' in quick.client.get(at).text


def test_a_long_list_leads_on(quick: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.dashboard.budgets._SHOWN", 2)
    budget = quick.budget(filter=FILTERS["zcdp"])
    for purpose in ("first", "second", "third"):
        reserve(quick, budget, "pending", purpose)
    address, seen = f"/dashboard/budgets/{budget['id']}/reservations", []
    for _ in range(2):
        text = quick.client.get(address).text
        seen += re.findall(r'<th scope="row">(\w+)<br>', text)
        more = re.search(r'href="([^"]+)" hx-get', text)
        address = more[1].replace("&amp;", "&") if more else ""
    assert (seen, address) == (["third", "second", "first"], "")


def test_the_burn_down_ends_at_what_is_left_after_all_commits(quick: Service) -> None:
    budget = quick.budget(filter=FILTERS["zcdp"])
    at = f"/dashboard/budgets/{budget['id']}/burn-down"
    assert "Nothing was committed yet" in quick.client.get(at).text
    reserve(quick, budget, "committed")
    reserve(quick, budget, "pending")
    text = quick.client.get(at).text
    left = 1 - quick.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"]["rho"]
    last = re.findall(r'<tr><th scope="row" class="number">[^<]+</th><td class="number">([\d.]+)</td></tr>', text)[-1]
    assert left - 1e-5 <= float(last) <= left
    assert "<svg" in text


def test_the_burn_down_puts_a_days_charges_where_the_first_of_them_was() -> None:
    budget = {"filter": FILTERS["zcdp"], "rho": {"limit": 4.0}, "created_at": "2020-01-01T00:00:00Z"}
    days = [
        {"key": "2020-01-02", "first_at": "2020-01-02T09:30:00Z", "cumulative": {"rho": 0.5}},
        {"key": "2020-01-04", "first_at": "2020-01-04T17:00:00Z", "cumulative": {"rho": 3.3}},
    ]
    chart = _burn_down(budget, days)
    assert chart is not None
    *shown, (_, now) = chart.rows
    assert shown == [("2020-01-01 00:00", "4"), ("2020-01-02 09:30", "3.5"), ("2020-01-04 17:00", "0.7")]
    assert now == "0.7"
    assert "0.7 now" in chart.description


@pytest.mark.parametrize("kind", FILTERS)
def test_the_burn_down_ends_at_what_the_tiles_say(quick: Service, kind: str) -> None:
    budget = quick.budget(filter=FILTERS[kind])
    for _ in range(2):
        reserve(quick, budget, "committed")
    _, use = use_of(quick.get(f"/v1/budgets/{budget['id']}"))
    text = quick.client.get(f"/dashboard/budgets/{budget['id']}/burn-down").text
    last = re.findall(r'<tr><th scope="row" class="number">[^<]+</th><td class="number">([\d.]+)</td></tr>', text)[-1]
    assert use["reserved"] == 0
    assert last == at_least(use["left"])


def test_the_burn_down_goes_on_beyond_a_page_of_days(quick: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.dashboard.budgets._SHOWN", 1)
    budget = quick.budget(filter=FILTERS["zcdp"])
    for day in ("2020-01-02", "2020-01-03"):
        held = reserve(quick, budget, "committed")
        with quick.context.database.write() as session:
            session.connection().exec_driver_sql(
                "UPDATE reservations SET resolved_at = ? WHERE id = ?", (f"{day} 00:00:00.000000", held["id"])
            )
    text = quick.client.get(f"/dashboard/budgets/{budget['id']}/burn-down").text
    left = 1 - quick.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"]["rho"]
    last = re.findall(r'<tr><th scope="row" class="number">[^<]+</th><td class="number">([\d.]+)</td></tr>', text)[-1]
    assert left - 1e-5 <= float(last) <= left


def test_a_reservation_says_for_which_of_its_steps_it_was_charged(quick: Service) -> None:
    budget = quick.budget(name="steps taken", filter=FILTERS["zcdp"])
    taken = {"all": {}, "some": {"events": [GAUSSIAN | {"count": 7}]}}
    for purpose, body in taken.items():
        held = reserve(quick, budget, "started", purpose, events=[GAUSSIAN | {"count": 20}])
        assert quick.post(f"/v1/reservations/{held['id']}/commit", body).status_code == 200
    page = quick.client.get(f"/dashboard/budgets/{budget['id']}/reservations").text
    rows = {purpose: row for row in page.split("<tr>") for purpose in taken if f">{purpose}<br>" in row}
    assert all("20 × Gaussian" in row for row in rows.values())
    assert "charged for" not in rows["all"]
    assert "charged for 7 × Gaussian" in rows["some"]
    cost, charged = (Decimal(amount) for amount in re.findall(r"<td>rho ([\d.]+)</td>", rows["some"]))
    assert charged == pytest.approx(cost * 7 / 20, rel=Decimal("1e-4"))
