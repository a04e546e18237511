"""Trees of budgets: every charge must fit its budget and all those above it, whatever order it came in."""

from __future__ import annotations

import random
from typing import Any

import pytest

from app.budgets.schemas import MAX_DEPTH
from tests.app.budgets.conftest import Api, Clock, gaussian, made, zcdp
from tests.app.problem_assertions import assert_problem


def rho(value: float) -> dict[str, Any]:
    return {"kind": "zcdp", "rho": value}


def test_a_charge_counts_in_its_budget_and_in_all_above_it(api: Api) -> None:
    root = api.budget()
    child, sibling = api.child(root, rho(0.5)), api.child(root, rho(0.5))
    grandchild = api.child(child, rho(0.4))
    held = api.hold(grandchild["id"], [zcdp(0.1, 3)])
    for budget, remaining in ((grandchild, 0.1), (child, 0.2), (root, 0.7)):
        assert api.rho(budget["id"]) == (0, 0.3, remaining)
    assert api.rho(sibling["id"]) == (0, 0, 0.5)
    made(api.resolve(held, "start"))
    assert [api.read(budget["id"])["amounts"]["started"]["rho"] for budget in (grandchild, child, root)] == [0.3] * 3
    made(api.resolve(held, "commit", {"events": [zcdp(0.1, 2)]}))
    for budget, remaining in ((grandchild, 0.2), (child, 0.3), (root, 0.8)):
        assert api.rho(budget["id"]) == (0.2, 0, remaining)
    # One entry each, in the chain of the budget that was asked.
    assert api.kinds(grandchild["id"]) == ["create", "reserve", "start", "commit"]
    assert api.kinds(child["id"]) == api.kinds(root["id"]) == ["create"]
    assert api.get(f"/v1/budgets/{root['id']}/reservations").json()["items"] == []


def test_a_child_says_where_it_stands(api: Api) -> None:
    root = api.budget(privacy_unit="patient")
    child = api.child(root)
    grandchild = api.child(child, privacy_unit="patient")
    assert (root["parent_id"], root["path"]) == (None, [root["id"]])
    assert (child["parent_id"], child["path"]) == (root["id"], [root["id"], child["id"]])
    assert grandchild["path"] == [root["id"], child["id"], grandchild["id"]]
    assert child["privacy_unit"] == grandchild["privacy_unit"] == "patient"
    assert api.child(api.budget())["privacy_unit"] == "record"


def test_children_share_the_kind_and_the_orders_of_their_parent(api: Api) -> None:
    root = api.budget({"epsilon": 3, "delta": 1e-5, "orders": [8, 16, 32]})
    child = api.child(root, {"epsilon": 1.5, "delta": 1e-6})  # the parent's kind, not the default
    assert child["filter"] == {
        "kind": "renyi_dp",
        "epsilon": 1.5,
        "delta": 1e-6,
        "orders": [8, 16, 32],
        "conversion": "canonne_2020",
    }
    same = api.child(root, {"kind": "renyi_dp", "epsilon": 2, "delta": 1e-5, "orders": [8.0, 16, 32]})
    assert same["filter"]["orders"] == [8, 16, 32]
    chosen = api.budget({"kind": "renyi_dp", "epsilon": 1.6, "delta": 1e-5})
    assert api.child(chosen, {"epsilon": 0.8, "delta": 1e-4})["filter"]["orders"] == chosen["filter"]["orders"]
    default, rate = api.budget({"epsilon": 1.6, "delta": 1e-5}), "delta_per_mu_squared"
    assert api.child(default, {"epsilon": 0.8, "delta": 1e-4})["filter"][rate] == default["filter"][rate]


REFUSED = """
child                                      answer
no such parent                             422 unknown_budget         /parent_id
another relation                           422 relation_mismatch      /neighboring_relation
another unit                               422 privacy_unit_mismatch  /privacy_unit
another kind                               422 invalid_value          /filter/kind
the default kind, which is another         422 invalid_value          /filter/kind
other orders                               422 invalid_value          /filter/orders
another rate                               422 invalid_value          /filter/delta_per_mu_squared
too many orders                            422 invalid_value          /filter/orders
no open order                              422 invalid_value          /filter/epsilon
no such parent, another kind               422 unknown_budget         /parent_id
another relation, unit and kind            422 relation_mismatch      /neighboring_relation
another unit and kind                      422 privacy_unit_mismatch  /privacy_unit
"""


def test_what_a_child_cannot_be_is_refused_in_this_order(api: Api) -> None:
    zcdp_root = api.budget(privacy_unit="patient")["id"]
    renyi_root = api.budget({"epsilon": 3, "delta": 1e-5, "orders": [8, 16]})["id"]
    gaussian_root = api.budget({"epsilon": 3, "delta": 1e-5})["id"]
    relation: dict[str, Any] = {"neighboring_relation": "replace_one"}
    unit: dict[str, Any] = {"privacy_unit": "visit"}
    pure: dict[str, Any] = {"kind": "pure_dp", "epsilon": 1}
    renyi: dict[str, Any] = {"epsilon": 3, "delta": 1e-5}
    asked: dict[str, Any] = {
        "no such parent": lambda: api.ask_budget(parent_id="bud_nope"),
        "another relation": lambda: api.ask_budget(parent_id=zcdp_root, **relation),
        "another unit": lambda: api.ask_budget(parent_id=zcdp_root, **unit),
        "another kind": lambda: api.ask_budget(pure, parent_id=zcdp_root),
        "the default kind, which is another": lambda: api.ask_budget(renyi, parent_id=zcdp_root),
        "other orders": lambda: api.ask_budget({**renyi, "orders": [8, 17]}, parent_id=renyi_root),
        "another rate": lambda: api.ask_budget({**renyi, "delta_per_mu_squared": 1e-9}, parent_id=gaussian_root),
        "too many orders": lambda: api.ask_budget({**renyi, "orders": [8, 16, 32]}, parent_id=renyi_root),
        "no open order": lambda: api.ask_budget({**renyi, "epsilon": 0.1}, parent_id=renyi_root),
        "no such parent, another kind": lambda: api.ask_budget(pure, parent_id="bud_nope"),
        "another relation, unit and kind": lambda: api.ask_budget(pure, parent_id=zcdp_root, **relation, **unit),
        "another unit and kind": lambda: api.ask_budget(pure, parent_id=zcdp_root, **unit),
    }
    lines = REFUSED.strip().splitlines()[1:]
    assert [line[:43].strip() for line in lines] == list(asked)
    for line in lines:
        status, code, pointer = line[43:].split()
        assert_problem(asked[line[:43].strip()](), int(status), code, pointer)
    assert len(api.get("/v1/budgets").json()["items"]) == 3


def test_eight_budgets_above_one_another_work_and_nine_are_refused(api: Api) -> None:
    path = [api.budget()]
    while len(path) < MAX_DEPTH:
        path.append(api.child(path[-1], rho(1 - len(path) / 100)))
    assert path[-1]["path"] == [budget["id"] for budget in path]
    assert MAX_DEPTH == 8
    assert_problem(api.ask_budget(parent_id=path[-1]["id"]), 422, "tree_too_deep", "/parent_id")
    api.spend(path[-1]["id"], [zcdp(0.5)])
    assert [api.rho(budget["id"])[0] for budget in path] == [0.5] * 8
    # The root is in the way in the end, seven levels up.
    api.spend(path[0]["id"], [zcdp(0.45)])
    denied = assert_problem(api.reserve(path[-1]["id"], [zcdp(0.06)]), 409, "budget_exceeded")
    assert denied["budget_id"] == path[0]["id"]


def test_a_denial_names_the_budget_that_stands_in_the_way(api: Api) -> None:
    root = api.budget()
    child = api.child(root, rho(0.75))
    grandchild = api.child(child, rho(0.5))
    for budget, held, asked, in_the_way, fits in (
        (grandchild, 0.25, 0.3, grandchild, 8),
        (child, 0.25, 0.2, None, 10),
        (child, 0.1, 0.2, child, 7),
        (root, 0.35, 0.1, root, 5),
        (root, 0.05, 0.1, root, 0),
    ):
        api.hold(budget["id"], [zcdp(held)])
        answer = api.reserve(grandchild["id"], [zcdp(asked / 10, 10)])
        if in_the_way is None:
            made(answer)
            made(api.resolve(answer.json(), "void"))
            continue
        denied = assert_problem(answer, 409, "budget_exceeded")
        assert denied["budget_id"] == in_the_way["id"], (asked, denied)
        assert denied["largest_count_that_fits"] == fits
        assert denied["remaining"] == api.read(grandchild["id"])["amounts"]["remaining"]
        dry = api.post(
            f"/v1/budgets/{grandchild['id']}/reservations",
            {"events": [zcdp(asked / 10, 10)], "purpose": "p"},
            dry_run="true",
        )
        assert assert_problem(dry, 409, "budget_exceeded")["budget_id"] == in_the_way["id"]


def test_what_fits_and_what_remains_is_the_least_over_the_path(api: Api) -> None:
    root = api.budget({"kind": "gaussian_dp", "mu": 1})
    child = api.child(root, {"kind": "gaussian_dp", "mu": 5})
    assert child["amounts"]["remaining"] == root["amounts"]["remaining"] == {"mu": 1, "mu_squared": 1}
    held = api.hold(child["id"], [gaussian(10.0, 36)])
    assert held["remaining"] == {"mu": 0.4, "mu_squared": 0.64}
    denied = assert_problem(api.reserve(child["id"], [gaussian(10.0, 100)]), 409, "budget_exceeded")
    assert (denied["largest_count_that_fits"], denied["budget_id"]) == (64, root["id"])


def test_of_renyi_orders_the_least_remains_order_by_order(api: Api) -> None:
    root = api.budget({"epsilon": 3, "delta": 1e-5, "orders": [8, 64]})
    wide = api.child(root, {"epsilon": 6, "delta": 1e-5})
    narrow = api.child(root, {"epsilon": 2, "delta": 1e-5})
    for budget in (wide, narrow):
        amounts = budget["amounts"]
        limits = amounts["limit"]["epsilons"], root["amounts"]["limit"]["epsilons"]
        assert amounts["remaining"]["epsilons"] == [min(pair) for pair in zip(*limits, strict=True)]
        assert amounts["remaining"]["epsilon"] == budget["epsilon"]["left"] == min(budget["epsilon"]["limit"], 3)
        assert amounts["remaining"]["orders"] == [8, 64]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.one_in(3)
def test_however_children_split_it_the_parents_limit_holds(api: Api, seed: int) -> None:
    luck = random.Random(seed)
    root = api.budget()
    leaves = []
    for _ in range(3):
        child = api.child(root, rho(luck.choice([0.4, 0.7, 5])))
        leaves += [child, api.child(child, rho(luck.choice([0.2, 5])))]
    admitted = 0
    for _ in range(60):
        hundredths = luck.randint(1, 9)
        answer = api.reserve(luck.choice(leaves)["id"], [zcdp(0.01, hundredths)])
        assert answer.status_code in (201, 409)
        admitted += hundredths if answer.status_code == 201 else 0
        assert admitted <= 100
    for leaf in leaves:
        # Until the root is full to the last hundredth, or all children are.
        while api.reserve(leaf["id"], [zcdp(0.01)]).status_code == 201:
            admitted += 1
    assert api.rho(root["id"])[1] == admitted / 100
    # Each child is in the way itself, or the root is full.
    assert admitted == 100 or all(api.rho(leaf["id"])[2] == 0 for leaf in leaves)


def test_due_holds_of_siblings_are_released_when_the_parent_needs_room(api: Api, clock: Clock) -> None:
    root = api.budget()
    first, second = api.child(root), api.child(root)
    other = api.budget()
    stale = [api.hold(first["id"], [zcdp(0.4)], expires_in=60), api.hold(root["id"], [zcdp(0.2)], expires_in=60)]
    elsewhere = api.hold(other["id"], [zcdp(0.5)], expires_in=60)
    clock.advance(60)
    held = api.hold(second["id"], [zcdp(0.3)])
    assert [api.state(hold) for hold in stale] == ["pending"] * 2, "there is room without them"
    made(api.reserve(second["id"], [zcdp(0.6)]))
    assert [api.state(hold) for hold in (*stale, held, elsewhere)] == ["expired", "expired", "pending", "pending"]
    assert api.rho(root["id"]) == (0, 0.9, 0.1)
    assert api.kinds(first["id"]) == ["create", "reserve", "expire"]


def test_room_is_made_at_each_level_that_stands_in_the_way_in_turn(api: Api, clock: Clock) -> None:
    root = api.budget(rho(0.9))
    child, sibling = api.child(root, rho(0.5)), api.child(root)
    stale = [api.hold(child["id"], [zcdp(0.4)], expires_in=60), api.hold(sibling["id"], [zcdp(0.5)], expires_in=60)]
    clock.advance(60)
    path, request = f"/v1/budgets/{child['id']}/reservations", {"events": [zcdp(0.45)], "purpose": "p"}
    dry = made(api.post(path, request, dry_run="true"))
    assert {**made(api.post(path, request)), "id": None} == dry
    assert [api.state(hold) for hold in stale] == ["expired"] * 2


def test_holds_that_are_not_in_the_way_stay(api: Api, clock: Clock) -> None:
    root = api.budget()
    child, sibling = api.child(root, rho(0.5)), api.child(root)
    mine = api.hold(child["id"], [zcdp(0.4)], expires_in=60)
    theirs = api.hold(sibling["id"], [zcdp(0.1)], expires_in=60)
    clock.advance(60)
    made(api.reserve(child["id"], [zcdp(0.2)]))
    assert (api.state(mine), api.state(theirs)) == ("expired", "pending"), "the child was in the way, the root was not"


def test_children_are_listed_by_their_parent(api: Api, clock: Clock) -> None:
    root = api.budget()
    children = []
    for _ in range(3):
        clock.advance(1)
        children.append(api.child(root)["id"])
    grandchild = api.child({"id": children[0]})["id"]

    def listed(**parameters: Any) -> list[str]:
        return [item["id"] for item in api.get("/v1/budgets", **parameters).json()["items"]]

    assert listed(parent_id=root["id"]) == children[::-1]
    assert listed(parent_id=children[0]) == [grandchild]
    assert listed(parent_id=grandchild) == listed(parent_id="bud_nope") == []
    page = api.get("/v1/budgets", parent_id=root["id"], limit=2).json()
    assert [item["id"] for item in page["items"]] == children[:0:-1]
    assert listed(parent_id=root["id"], cursor=page["next_cursor"]) == children[:1]
    assert len(listed()) == 5


def test_the_report_of_a_parent_covers_its_children(api: Api) -> None:
    root = api.budget(report_delta=1e-5)
    child = api.child(root, report_delta=1e-5)
    grandchild = api.child(child)
    alike = api.budget(report_delta=1e-5)
    for budget in (root, child, grandchild):
        api.spend(budget["id"], [gaussian(10.0, 2)])
    api.spend(alike["id"], [gaussian(10.0, 6)])
    report = api.read(root["id"])["report"]
    assert report == api.read(alike["id"])["report"]
    assert report["different_steps"] == 1
    below, own = api.read(child["id"])["report"], api.read(grandchild["id"], delta=1e-5)["report"]
    for name in ("lower", "upper"):
        assert own["epsilon"][name] < below["epsilon"][name] < report["epsilon"][name]
    assert own["filter_epsilon"] < below["filter_epsilon"] < report["filter_epsilon"]


def test_the_epsilon_that_remains_is_the_least_of_the_path(api: Api) -> None:
    parent = api.budget({"kind": "pure_dp", "epsilon": 1})
    child = api.budget({"kind": "pure_dp", "epsilon": 10}, parent_id=parent["id"])
    assert 1 - 1e-9 <= api.read(child["id"], delta=1e-5)["report"]["left"] <= 1
