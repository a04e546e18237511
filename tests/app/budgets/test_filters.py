"""The five kinds of filter over HTTP: what a charge costs in each, what fits, and what a part of it is charged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.app.budgets.conftest import Api, gaussian, made, zcdp
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

LAPLACE = {"mechanism": {"kind": "laplace", "noise_multiplier": 10}}


@dataclass(frozen=True)
class Case:
    """A budget, a step, and what four of them cost.

    Attributes:
        fits: How many steps fit beside the four.
        field: Of the amounts, the one that is compared.
    """

    budget_filter: dict[str, Any]
    step: dict[str, Any]
    field: str
    cost: float
    fits: int
    charge: dict[str, float] | None = None

    def events(self, count: int) -> list[Any]:
        return [{**self.step, "count": count}]

    @property
    def terms(self) -> dict[str, Any]:
        """The other fields of its reservations."""
        return {} if self.charge is None else {"charge": self.charge}


APPROXIMATE = {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5}
CASES = {
    "pure_dp": Case({"kind": "pure_dp", "epsilon": 1}, LAPLACE, "epsilon", 0.4, 6),
    # Of pure events the sum, without a delta of its own.
    "approximate_dp of pure events": Case(APPROXIMATE, LAPLACE, "epsilon", 0.4, 36),
    "approximate_dp": Case(APPROXIMATE, gaussian(10.0), "epsilon", 0.8341, 46, {"delta": 1e-6}),
    "zcdp": Case({"kind": "zcdp", "rho": "0.5"}, gaussian(10.0), "rho", 0.02, 96),
    "gaussian_dp": Case({"kind": "gaussian_dp", "mu": 1}, gaussian(10.0), "mu_squared", 0.04, 96),
    "renyi_dp": Case({"epsilon": 2, "delta": 1e-5, "orders": [16, 32]}, gaussian(10.0), "epsilons", 0.32, 13),
}
every_filter = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def amount(case: Case, amounts: dict[str, Any]) -> float:
    value = amounts[case.field]
    return float(value[0] if isinstance(value, list) else value)


@on_one_engine
@every_filter
@pytest.mark.one_in(4)
def test_what_fits_is_admitted_and_one_step_more_is_not(api: Api, case: Case) -> None:
    budget = api.budget(case.budget_filter)
    held = api.hold(budget["id"], case.events(4), **case.terms)
    assert amount(case, held["cost"]) == pytest.approx(case.cost, rel=2e-3)
    limit, remaining = amount(case, budget["amounts"]["limit"]), amount(case, held["remaining"])
    assert remaining == pytest.approx(limit - amount(case, held["cost"]), abs=2e-9)
    denied = assert_problem(api.reserve(budget["id"], case.events(10**6), **case.terms), 409, "budget_exceeded")
    assert denied["largest_count_that_fits"] == case.fits
    assert denied["remaining"] == held["remaining"] == api.read(budget["id"])["amounts"]["remaining"]
    assert amount(case, denied["cost"]) > amount(case, denied["remaining"])
    assert_problem(api.reserve(budget["id"], case.events(case.fits + 1), **case.terms), 409, "budget_exceeded")
    made(api.reserve(budget["id"], case.events(case.fits), **case.terms))
    assert_problem(api.reserve(budget["id"], case.events(1), **case.terms), 409, "budget_exceeded")


@on_one_engine
@every_filter
@pytest.mark.one_in(4)
def test_spending_moves_what_was_held_in_the_filters_own_fields(api: Api, case: Case) -> None:
    budget = api.budget(case.budget_filter)
    amounts = budget["amounts"]
    assert amount(case, amounts["spent"]) == amount(case, amounts["reserved"]) == 0
    assert amounts["remaining"].keys() == amounts["limit"].keys() == amounts["spent"].keys()
    held = api.hold(budget["id"], case.events(4), **case.terms)
    assert api.read(budget["id"])["amounts"]["reserved"] == held["cost"]
    made(api.resolve(held, "start"))
    body = api.read(budget["id"])
    assert body["amounts"]["started"] == body["amounts"]["reserved"] == held["cost"]
    committed = made(api.resolve(held, "commit"))
    assert committed["charged"] == held["cost"]
    body = api.read(budget["id"])
    assert (body["amounts"]["spent"], amount(case, body["amounts"]["reserved"])) == (held["cost"], 0)


@on_one_engine
@every_filter
@pytest.mark.one_in(4)
def test_a_part_is_charged_for_itself_except_where_it_may_have_been_chosen(api: Api, case: Case) -> None:
    budget = api.budget(case.budget_filter)
    held = api.hold(budget["id"], case.events(4), **case.terms)
    made(api.resolve(held, "start"))
    for events in (case.events(5), [*case.events(4), *case.events(1)], [zcdp(0.001)]):
        assert_problem(api.resolve(held, "commit", {"events": events}), 422, "not_a_prefix", "/events")
    committed = made(api.resolve(held, "commit", {"events": case.events(1)}))
    assert committed["charged_events"][0]["count"] == 1
    one = amount(case, committed["charged"])
    if case.budget_filter.get("kind") == "approximate_dp":
        assert committed["charged"] == held["cost"]
    else:
        assert one == pytest.approx(case.cost / 4, rel=1e-6)
    assert amount(case, api.read(budget["id"])["amounts"]["spent"]) == one


@on_one_engine
@pytest.mark.parametrize(
    ("kind", "fields", "warned"),
    [
        ("zcdp", {"rho": 1}, True),
        ("gaussian_dp", {"mu": 2}, True),
        ("renyi_dp", {"epsilon": 2, "delta": 1e-5}, False),
        ("approximate_dp", {"epsilon": 2, "delta": 1e-5}, False),
    ],
)
def test_a_budget_that_charges_a_sampled_step_in_full_warns(
    api: Api, kind: str, fields: dict[str, Any], warned: bool
) -> None:
    budget = api.budget({"kind": kind, **fields})
    charge: dict[str, Any] = {"charge": {"delta": 1e-6}} if kind == "approximate_dp" else {}
    sampled = gaussian(10.0, count=10, sampling_probability=0.01)
    held = api.hold(budget["id"], [sampled], **charge)
    codes = ["no_amplification"] if warned else []
    assert [warning["code"] for warning in held["warnings"]] == codes
    assert api.get(f"/v1/reservations/{held['id']}").json()["warnings"] == held["warnings"]
    denied = assert_problem(api.reserve(budget["id"], [{**sampled, "count": 10**7}], **charge), 409, "budget_exceeded")
    assert [warning["code"] for warning in denied["warnings"]] == codes
    # Without sampling it costs the same where it is charged in full, and more elsewhere.
    plain = api.hold(budget["id"], [gaussian(10.0, count=10)], **charge)
    field = {"zcdp": "rho", "gaussian_dp": "mu_squared"}.get(kind, "epsilon")
    assert (plain["cost"][field] == held["cost"][field]) is warned
    assert plain["warnings"] == []


@on_one_engine
def test_amounts_of_gaussian_dp_are_told_as_mu_and_as_its_square(api: Api) -> None:
    budget = api.budget({"kind": "gaussian_dp", "mu": "0.5"})
    assert budget["amounts"]["limit"] == {"mu": 0.5, "mu_squared": 0.25}
    held = api.hold(budget["id"], [gaussian(10.0, count=9)])
    assert held["cost"] == {"mu": 0.3, "mu_squared": 0.09}
    assert held["remaining"] == {"mu": 0.2, "mu_squared": 0.16}
    other = api.budget({"kind": "gaussian_dp", "mu": 0.5}, neighboring_relation="replace_one")
    assert_problem(api.reserve(other["id"], [gaussian(10.0, count=9)]), 409, "budget_exceeded")
    assert api.hold(other["id"], [gaussian(20.0, count=9)])["cost"] == {"mu": 0.3, "mu_squared": 0.09}


@on_one_engine
def test_epsilon_and_delta_of_approximate_dp_have_both_to_fit(api: Api) -> None:
    budget = api.budget({"kind": "approximate_dp", "epsilon": 1, "delta": "1e-5"})
    assert budget["amounts"]["limit"] == {"epsilon": 1, "delta": 1e-5}
    stated = {"mechanism": {"kind": "approximate_dp", "epsilon": 0.01, "delta": 2e-6}}
    held = api.hold(budget["id"], [{**stated, "count": 4}])
    assert held["cost"] == {"epsilon": 0.04, "delta": 8e-6}
    assert held["remaining"] == {"epsilon": 0.96, "delta": 2e-6}
    denied = assert_problem(api.reserve(budget["id"], [{**stated, "count": 2}]), 409, "budget_exceeded")
    assert denied["largest_count_that_fits"] == 1
    # A delta of its own is charged beside those that the events state.
    mixed = api.hold(budget["id"], [LAPLACE, gaussian(60.0)], charge={"delta": 1e-6})
    assert (mixed["cost"]["delta"], mixed["charge_delta"]) == (1e-6, 1e-6)
    assert 0.1 < mixed["cost"]["epsilon"] < 0.25
    made(api.reserve(budget["id"], [LAPLACE]))


@on_one_engine
@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (1, 1.0),
        ("1", 1.0),
        (0.1234567899, 0.123456789),
        ("0.1234567899", 0.123456789),
        ("123456.7890123456", 123456.789012345),
        (1e-9, 1e-9),
        ("1e-9", 1e-9),
        ("1000000", 1e6),
    ],
)
@pytest.mark.one_in(4)
def test_limits_are_numbers_or_decimal_strings_rounded_down(api: Api, limit: Any, kept: float) -> None:
    for budget_filter, field in (
        ({"kind": "zcdp", "rho": limit}, "rho"),
        ({"kind": "pure_dp", "epsilon": limit}, "epsilon"),
        ({"kind": "approximate_dp", "epsilon": limit, "delta": limit if kept < 0.5 else "0.25"}, "epsilon"),
    ):
        assert api.budget(budget_filter)["amounts"]["limit"][field] == kept


@on_one_engine
def test_costs_are_rounded_up_and_limits_down_to_the_unit(api: Api) -> None:
    # A limit of a hair less than 3 units has room for 2; a step of a hair more than 1 unit costs 2.
    budget = api.budget({"kind": "pure_dp", "epsilon": "2.99999e-9"})
    assert budget["amounts"]["limit"] == {"epsilon": 2e-9}
    hair_more = {"mechanism": {"kind": "pure_dp", "epsilon": 1.00001e-9}}
    assert api.hold(budget["id"], [hair_more])["cost"] == {"epsilon": 2e-9}
    assert_problem(
        api.reserve(budget["id"], [{"mechanism": {"kind": "pure_dp", "epsilon": 1e-30}}]), 409, "budget_exceeded"
    )
    delta = api.budget({"kind": "approximate_dp", "epsilon": 1, "delta": "2.9e-18"})
    stated = {"mechanism": {"kind": "approximate_dp", "epsilon": 0.01, "delta": 1.1e-18}}
    assert api.hold(delta["id"], [stated])["cost"] == {"epsilon": 0.01, "delta": 2e-18}
    assert_problem(api.reserve(delta["id"], [stated]), 409, "budget_exceeded")


@on_one_engine
def test_a_hundred_charges_of_a_hundredth_fill_1_exactly(api: Api) -> None:
    budget = api.budget({"kind": "pure_dp", "epsilon": 1})
    step = {"mechanism": {"kind": "pure_dp", "epsilon": 0.01}}
    for _ in range(20):
        last = api.hold(budget["id"], [{**step, "count": 5}])
    assert last["remaining"] == {"epsilon": 0}
    assert_problem(api.reserve(budget["id"], [step]), 409, "budget_exceeded")
    nothing = {"mechanism": {"kind": "pure_dp", "epsilon": 0}}
    assert api.hold(budget["id"], [nothing])["cost"] == {"epsilon": 0}, "what costs nothing fits a full budget"
