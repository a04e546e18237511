"""The report: what everything that may have been released amounts to at one delta."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian, Laplace, Poisson, ZcDp
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from app.budgets import report as reports
from app.context import Context
from app.kit.process_pool import ProcessPool
from app.main import create_app
from tests.app.budgets.conftest import Api, gaussian, laplace, made, zcdp
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine
from tests.local_access import local_client

DELTA = 1e-5
RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE
RENYI = {"kind": "renyi_dp", "epsilon": 4, "delta": DELTA}


def tight(*events: Event, delta: float = DELTA) -> Interval:
    """What the accounting engine says of the same events."""
    return epsilon_for_delta(events, RELATION, delta).value


def interval(report: dict[str, Any]) -> tuple[float, float]:
    return report["epsilon"]["lower"], report["epsilon"]["upper"]


@on_one_engine
def test_of_a_budget_without_charges_there_is_nothing_to_report(api: Api) -> None:
    budget = api.budget(RENYI)
    api.hold(budget["id"], [gaussian(10.0)])
    voided = api.hold(budget["id"], [gaussian(10.0)])
    made(api.resolve(voided, "void"))
    report = api.read(budget["id"])["report"]
    assert report["epsilon"] == {"lower": 0, "estimate": 0, "upper": 0}
    assert (report["method"], report["filter_epsilon"]) == ("nothing_charged", 0)
    assert (report["delta"], report["different_steps"], report["warnings"]) == (DELTA, 0, [])


@on_one_engine
def test_the_interval_is_the_engines_own_for_everything_charged(api: Api) -> None:
    budget = api.budget(RENYI)
    sampled, plain, pure = gaussian(5.0, 100, 0.1), gaussian(30.0, 4), laplace(20.0, 2)
    api.spend(budget["id"], [sampled, pure])
    api.spend(budget["id"], [plain])
    made(api.resolve(api.hold(budget["id"], [plain, sampled]), "start"))
    body = api.read(budget["id"])
    expected = tight(
        Event(Gaussian(5.0), Poisson(0.1), 200), Event(Laplace(20.0), count=2), Event(Gaussian(30.0), count=8)
    )
    lower, upper = interval(body["report"])
    assert (lower, upper) == pytest.approx((expected.lower, expected.upper), rel=1e-9)
    assert lower <= upper
    assert body["report"]["different_steps"] == 3
    assert body["report"]["filter_epsilon"] >= upper, "the filter's number holds for charges fixed in advance, too"
    assert body["epsilon"]["spent"] < body["report"]["filter_epsilon"], "what is started counts"


@on_one_engine
def test_however_the_same_steps_are_charged_the_report_is_the_same(api: Api) -> None:
    whole, pieces = api.budget(RENYI), api.budget(RENYI)
    api.spend(whole["id"], [gaussian(10.0, 12), laplace(20.0)])
    for count in (5, 1, 6):
        api.spend(pieces["id"], [gaussian(10.0, count)])
    api.spend(pieces["id"], [laplace(20.0)])
    one, other = api.read(whole["id"])["report"], api.read(pieces["id"])["report"]
    assert (one["epsilon"], one["method"], one["different_steps"]) == (
        other["epsilon"],
        other["method"],
        other["different_steps"],
    )


FILTERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "pure_dp", "epsilon": 3}, laplace(10.0, 5)),
    ({"kind": "zcdp", "rho": 1}, gaussian(10.0, 9)),
    ({"kind": "gaussian_dp", "mu": 1}, gaussian(10.0, 9)),
    ({"kind": "renyi_dp", "epsilon": 3, "delta": DELTA}, gaussian(10.0, 9)),
    ({"kind": "approximate_dp", "epsilon": 9, "delta": DELTA}, gaussian(10.0, 9)),
]


@on_one_engine
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("budget_filter", "event"), FILTERS, ids=[case[0]["kind"] for case in FILTERS])
def test_the_filters_number_is_never_below_the_tight_one_for_charges_fixed_in_advance(
    api: Api, budget_filter: dict[str, Any], event: dict[str, Any]
) -> None:
    budget = api.budget(budget_filter, report_delta=DELTA)
    terms: dict[str, Any] = {"charge": {"delta": 1e-6}} if budget_filter["kind"] == "approximate_dp" else {}
    api.spend(budget["id"], [event], **terms)
    made(api.resolve(api.hold(budget["id"], [event], **terms), "start"))
    body = api.read(budget["id"])
    report = body["report"]
    lower, upper = interval(report)
    assert 0 < lower <= report["filter_epsilon"]
    # Where both bound the same number, each is rounded up from it for itself.
    assert lower <= upper <= report["filter_epsilon"] * (1 + 1e-12)
    # What the limit means, less what is used.
    limit = api.read(budget["id"])["report"]["left"] + report["filter_epsilon"]
    stated = {"pure_dp": 3, "renyi_dp": 3, "approximate_dp": 9}.get(budget_filter["kind"])
    if stated is not None:
        assert limit == pytest.approx(stated, rel=1e-9)
    assert 0 < body["report"]["left"] < limit


@on_one_engine
def test_a_report_is_stated_at_the_delta_that_is_asked_for(api: Api) -> None:
    budget = api.budget(RENYI, report_delta=1e-7)
    api.spend(budget["id"], [gaussian(10.0, 9)])
    own = api.read(budget["id"])
    assert own["report"]["delta"] == 1e-7
    epsilons = []
    for delta in (1e-9, 1e-7, 1e-5, 0.1):
        body = api.read(budget["id"], delta=repr(delta))
        expected = tight(Event(Gaussian(10.0), count=9), delta=delta)
        assert body["report"]["delta"] == delta
        assert interval(body["report"]) == pytest.approx((expected.lower, expected.upper), rel=1e-9)
        epsilons.append(body["report"]["epsilon"]["upper"])
    assert epsilons == sorted(epsilons, reverse=True)
    assert api.read(budget["id"], delta="1e-7") == own


@on_one_engine
def test_the_delta_is_the_requests_then_the_budgets_then_the_filters(api: Api) -> None:
    assert api.read(api.budget(RENYI)["id"])["report"]["delta"] == DELTA
    assert api.read(api.budget(RENYI, report_delta=1e-6)["id"])["report"]["delta"] == 1e-6
    without = api.budget({"kind": "zcdp", "rho": 1})
    body = api.read(without["id"])
    assert body["report"] is None
    asked = api.read(without["id"], delta="1e-6")
    assert asked["report"]["delta"] == 1e-6
    assert asked["report"]["left"] > 1
    for wrong in ("0", "0.6", "x", "-1", "nan"):
        assert_problem(api.get(f"/v1/budgets/{without['id']}", delta=wrong), 422, "invalid_request", "/query/delta")


@on_one_engine
def test_of_a_part_the_report_counts_the_whole_and_the_filter_what_was_charged(api: Api) -> None:
    part, whole = api.budget(RENYI), api.budget(RENYI)
    for budget, commit in ((part, {"events": [gaussian(10.0, 2)]}), (whole, None)):
        held = api.hold(budget["id"], [gaussian(10.0, 9), laplace(20.0)])
        made(api.resolve(held, "start"))
        made(api.resolve(held, "commit", commit))
    one, other = api.read(part["id"])["report"], api.read(whole["id"])["report"]
    assert one["epsilon"] == other["epsilon"]
    assert one["different_steps"] == 2
    assert one["filter_epsilon"] < other["filter_epsilon"]
    assert "the whole" in one["caveat"]


@on_one_engine
def test_a_pending_commit_of_a_part_counts_in_full_too(api: Api) -> None:
    budget = api.budget(RENYI)
    held = api.hold(budget["id"], [gaussian(10.0, 9)])
    made(api.resolve(held, "commit", {"events": [gaussian(10.0)]}))
    expected = tight(Event(Gaussian(10.0), count=9))
    assert interval(api.read(budget["id"])["report"]) == pytest.approx((expected.lower, expected.upper), rel=1e-9)


@on_one_engine
def test_steps_without_a_closed_form_are_composed_in_a_process_within_its_time(context: Context) -> None:
    """A thread that is at a few steps of Laplace noise for ten seconds could not be stopped."""
    impatient = replace(context, processes=ProcessPool(1, 0.0, 2**31))
    with (
        local_client(create_app(impatient)) as client,
        local_client(create_app(context)) as patient,
    ):
        api = Api(client)
        plain, slow = api.budget(RENYI), api.budget(RENYI)
        api.spend(plain["id"], [gaussian(30.0 + number) for number in range(5)])
        api.spend(slow["id"], [laplace(20.5), laplace(21.5, 2)])
        assert api.read(plain["id"])["report"]["epsilon"]["upper"] > 0, "there is a closed form"
        report = api.read(slow["id"])["report"]
        assert (report["epsilon"], report["method"]) == (None, None)
        assert report["warnings"] == [
            "no tight number: composing 2 different steps takes more than 20 s, or too much memory; only the filter "
            "has a number"
        ]
        assert report["filter_epsilon"] > 0
        assert impatient.processes.failures["time"] == 1
        found = Api(patient).read(slow["id"])["report"]
        assert found["epsilon"]["upper"] > 0
        assert api.read(slow["id"])["report"] == found, "it is remembered"


@on_one_engine
@pytest.mark.parametrize(("sampled", "most"), [(False, "MAX_STEPS"), (True, "MAX_SAMPLED_STEPS")])
def test_of_too_many_different_steps_there_is_no_tight_number(
    api: Api, monkeypatch: pytest.MonkeyPatch, sampled: bool, most: str
) -> None:
    monkeypatch.setattr(reports, most, 3)
    budget = api.budget(RENYI)
    for number in range(3):
        api.spend(budget["id"], [gaussian(40.0 + number, 2, 0.5 if sampled else None)])
    assert api.read(budget["id"])["report"]["epsilon"]["upper"] > 0
    api.spend(budget["id"], [gaussian(40.0, 1, 0.5 if sampled else None)])
    assert api.read(budget["id"])["report"]["different_steps"] == 3
    api.spend(budget["id"], [gaussian(50.0, 2, 0.5 if sampled else None)])
    report = api.read(budget["id"])["report"]
    assert (report["epsilon"], report["method"], report["different_steps"]) == (None, None, 4)
    assert "no tight number" in report["warnings"][0]
    assert report["filter_epsilon"] > 0


@on_one_engine
def test_of_more_repetitions_than_the_engine_composes_the_filters_number_stands_alone(api: Api) -> None:
    budget = api.budget({"kind": "zcdp", "rho": 1000}, report_delta=DELTA)
    api.spend(budget["id"], [zcdp(1e-7, 10**8)])
    expected = tight(Event(ZcDp(10.0)))
    assert interval(api.read(budget["id"])["report"]) == pytest.approx((expected.lower, expected.upper), rel=1e-6)
    api.spend(budget["id"], [zcdp(1e-7, 10**8)])
    report = api.read(budget["id"])["report"]
    assert (report["epsilon"], report["different_steps"]) == (None, 1)
    assert report["warnings"][0].startswith("no tight number")
    assert report["filter_epsilon"] > tight(Event(ZcDp(20.0))).lower


@on_one_engine
def test_a_delta_below_what_was_charged_has_no_epsilon(api: Api) -> None:
    budget = api.budget({"kind": "approximate_dp", "epsilon": 9, "delta": 1e-4})
    api.spend(budget["id"], [{"mechanism": {"kind": "approximate_dp", "epsilon": 0.5, "delta": 1e-6}}])
    for delta, epsilon in ((1e-5, 0.5), (1e-6, 0.5), (1e-7, None)):
        body = api.read(budget["id"], delta=repr(delta))
        assert body["report"]["filter_epsilon"] == epsilon
        assert body["report"]["left"] is None, "of the limit's delta, 1e-4, no less"
    assert api.read(budget["id"])["report"]["left"] == pytest.approx(8.5, rel=1e-12)
    report = api.read(budget["id"], delta="1e-7")["report"]
    assert report["epsilon"]["upper"] is None
    assert report["epsilon"]["lower"] is None or report["epsilon"]["lower"] > 0


@on_one_engine
def test_nothing_remains_of_an_overdrawn_budget(api: Api) -> None:
    budget = api.budget({"kind": "pure_dp", "epsilon": 1}, report_delta=DELTA)
    made(api.correct(budget["id"], events=[{"mechanism": {"kind": "pure_dp", "epsilon": 3}}]))
    body = api.read(budget["id"])
    assert (body["report"]["left"], body["amounts"]["remaining"]) == (0, {"epsilon": 0})
    assert body["report"]["filter_epsilon"] == 3
