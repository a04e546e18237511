"""Charges with certificates: kept with the reservation, named by its entry, downloaded, and verified anew."""

from __future__ import annotations

import json
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from epsilond_verifier import check
from sqlalchemy import text

from accounting.canonical import sha256_hex
from accounting.filters import filter_from_json
from app.context import Context
from app.kit.process_pool import JobFailed
from app.ledger.certificate_verification import states_more, verify_certificates
from app.ledger.verdicts import CertificateReport
from app.reservations import certification
from tests.app.budgets.conftest import Api, made
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

APPROXIMATE = {"kind": "approximate_dp", "epsilon": 8, "delta": "1e-4"}
FILTERS: list[dict[str, Any]] = [
    APPROXIMATE,
    {"kind": "approximate_gaussian_dp", "epsilon": 8, "delta": "1e-5"},
    {"kind": "renyi_dp", "epsilon": 8, "delta": "1e-5"},
]
#: Budgets whose charges are certified as Gaussians.
GAUSSIANS: list[dict[str, Any]] = [FILTERS[1], {"kind": "gaussian_dp", "mu": 3}]
#: In an approximate_dp budget this is the delta that is charged.
CHARGE = {"charge": {"delta": 1e-5}}
EVENT = {
    "mechanism": {"kind": "gaussian", "noise_multiplier": 2.0},
    "sampling": {"kind": "poisson", "sampling_probability": 0.01},
    "count": 100,
}
#: Closed form, no sampled step.
QUICK = {"mechanism": {"kind": "gaussian", "noise_multiplier": 4.0}, "count": 1}
LAPLACE = {"kind": "laplace", "noise_multiplier": 8.0}
LARGE = {"kind": "approximate_dp", "epsilon": 1e6, "delta": "1e-4"}
LONG = [
    {
        "mechanism": {"kind": "gaussian", "noise_multiplier": 0.003},
        "sampling": {"kind": "poisson", "sampling_probability": 0.5},
    },
    {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}},
]
OTHER = {"mechanism": {"kind": "gaussian", "noise_multiplier": 5.0}, "count": 1}


def report(context: Context) -> CertificateReport:
    with context.database.read() as session:
        return verify_certificates(session)


def fault(context: Context) -> str:
    found = report(context)
    assert found.first_bad is not None
    return found.first_bad.reason


@pytest.mark.parametrize("budget_filter", FILTERS, ids=lambda each: each["kind"])
def test_a_charge_is_certified_and_its_entry_names_the_certificate(
    api: Api, context: Context, budget_filter: dict[str, Any]
) -> None:
    budget = api.budget(budget_filter)
    fields = CHARGE if budget_filter["kind"] == "approximate_dp" else {}
    held = api.hold(budget["id"], [EVENT], certificate=True, **fields)
    assert held["warnings"] == []
    answer = api.get(f"/v1/reservations/{held['id']}/certificate")
    assert sha256_hex(answer.content) == held["certificate"]
    assert check(answer.content).verdict == "verified"
    stated = json.loads(answer.content)["statement"]
    assert stated["claim"] == "at_most"
    if budget_filter["kind"] != "approximate_gaussian_dp":
        assert stated["delta"] == "1e-05"
    if fields:
        assert 0 <= Fraction(str(held["cost"]["epsilon"])) - Fraction(stated["epsilon"]) < Fraction(1, 10**12)
    entries = {entry["kind"]: entry["certificate"] for entry in api.entries(budget["id"])}
    assert entries == {"create": None, "reserve": held["certificate"]}
    made(api.resolve(held, "start"))
    made(api.resolve(held, "commit"))
    assert {entry["kind"]: entry["certificate"] for entry in api.entries(budget["id"])} == entries | {
        "start": None,
        "commit": None,
    }
    assert api.get(f"/v1/reservations/{held['id']}").json()["certificate"] == held["certificate"]
    assert report(context) == CertificateReport(1, 1, None)


@pytest.mark.parametrize("budget_filter", GAUSSIANS, ids=lambda each: each["kind"])
def test_a_gaussian_budget_certifies_the_amounts_that_it_charges(
    api: Api, context: Context, budget_filter: dict[str, Any]
) -> None:
    held = api.hold(api.budget(budget_filter)["id"], [QUICK], certificate=True)
    answer = api.get(f"/v1/reservations/{held['id']}/certificate")
    stated = json.loads(answer.content)["statement"]
    assert stated["nano_mu_squared"] == "62500000"
    assert Fraction(str(held["cost"]["mu_squared"])) == Fraction(1, 16)
    assert report(context) == CertificateReport(1, 1, None)


def test_a_price_above_the_charge_is_found() -> None:
    stated = {"nano_mu_squared": "62500001", "atto_failure": "0"}
    for cost, found in ((62_500_000, True), (62_500_001, False)):
        row = SimpleNamespace(filter=filter_from_json({"kind": "gaussian_dp", "mu": 3}), cost=(cost,))
        assert states_more(stated, row) is found


def test_what_is_asked_for_twice_is_kept_once_and_named_twice(api: Api, context: Context) -> None:
    budget = api.budget(APPROXIMATE)
    first, second = (api.hold(budget["id"], [QUICK], certificate=True, **CHARGE) for _ in range(2))
    assert first["certificate"] == second["certificate"]
    assert report(context) == CertificateReport(2, 1, None)


def test_nothing_is_kept_unless_it_is_asked_for(api: Api, context: Context) -> None:
    held = api.hold(api.budget(APPROXIMATE)["id"], [QUICK], **CHARGE)
    assert held["certificate"] is None
    answer = api.get(f"/v1/reservations/{held['id']}/certificate")
    assert_problem(answer, 404, "not_found")
    assert "ask for one with `certificate` when you reserve" in answer.json()["detail"]
    assert report(context) == CertificateReport(0, 0, None)


def test_a_dry_run_and_a_denial_keep_none(api: Api, context: Context) -> None:
    small = api.budget({"kind": "approximate_dp", "epsilon": "0.001", "delta": "1e-4"})
    denied = api.reserve(small["id"], [QUICK], certificate=True, **CHARGE)
    assert denied.status_code == 409
    api.client.post(
        f"/v1/budgets/{api.budget(APPROXIMATE)['id']}/reservations?dry_run=true",
        json={"events": [QUICK], "purpose": "mean", "certificate": True, **CHARGE},
    )
    with context.database.read() as session:
        assert session.execute(text("SELECT count(*) FROM certificates")).scalar() == 0


@on_one_engine
@pytest.mark.parametrize(
    ("budget_filter", "event", "said"),
    [
        (APPROXIMATE, {"mechanism": {"kind": "pure_dp", "epsilon": 0.1}}, ""),
        ({"kind": "zcdp", "rho": "1"}, QUICK, "the budget has no delta, and neither have its reports"),
        (
            {"kind": "renyi_dp", "epsilon": 8, "delta": "1e-5"},
            {"mechanism": {"kind": "zcdp", "rho": 0.1}},
            "no certificate covers zcdp",
        ),
    ],
    ids=["proved", "no_delta", "not_covered"],
)
def test_a_charge_without_a_certificate_says_why_and_stands(
    api: Api, budget_filter: dict[str, Any], event: dict[str, Any], said: str
) -> None:
    fields = CHARGE if budget_filter["kind"] == "approximate_dp" else {}
    held = api.hold(api.budget(budget_filter)["id"], [event], certificate=True, **fields)
    warned = [each["detail"] for each in held["warnings"] if each["code"] == "no_certificate"]
    assert (held["certificate"] is None) == bool(warned) == bool(said)
    assert all(said in each and "The charge stands." in each for each in warned)


@on_one_engine
@pytest.mark.parametrize("fields", [{}, CHARGE], ids=["no_delta", "a_delta_that_is_not_charged"])
def test_epsilons_that_add_up_are_certified_at_the_delta_that_is_charged(
    api: Api, context: Context, fields: dict[str, Any]
) -> None:
    """It is 0, whatever delta was given."""
    events = [{"mechanism": {"kind": "pure_dp", "epsilon": 0.25}}, {"mechanism": LAPLACE, "count": 3}]
    held = api.hold(api.budget(APPROXIMATE)["id"], events, certificate=True, **fields)
    assert (held["cost"], held["warnings"]) == ({"epsilon": 0.625, "delta": 0.0}, [])
    stated = json.loads(api.get(f"/v1/reservations/{held['id']}/certificate").content)["statement"]
    assert (stated["epsilon"], stated["delta"]) == ("0.625", "0")
    assert report(context) == CertificateReport(1, 1, None)


@on_one_engine
def test_events_whose_search_would_take_too_long_are_reserved(api: Api) -> None:
    """The engine answers without the quadrature that a certificate would need."""
    held = api.hold(api.budget(LARGE)["id"], LONG, certificate=True, **CHARGE)
    assert held["certificate"] is None
    assert "There is no certificate of this charge: " in held["warnings"][-1]["detail"]


@on_one_engine
def test_a_verifier_that_is_out_of_time_leaves_the_charge_and_is_asked_again(
    api: Api, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise JobFailed("it took longer than 20 s")

    budget = api.budget(APPROXIMATE)
    with monkeypatch.context() as patch:
        patch.setattr(context.processes, "run_within", fail)
        held = api.hold(budget["id"], [OTHER], certificate=True, **CHARGE)
    assert held["certificate"] is None
    assert "it took longer than 20 s" in held["warnings"][-1]["detail"]
    assert api.hold(budget["id"], [OTHER], certificate=True, **CHARGE)["certificate"] is not None


@on_one_engine
def test_amounts_whose_certificate_takes_too_long_leave_one_of_the_epsilon_and_a_warning(
    api: Api, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another time there may be one of the amounts."""
    event = EVENT | {"count": 101}
    budget = api.budget(FILTERS[1])
    with monkeypatch.context() as patch:
        patch.setattr(certification, "_SHARE_OF_AMOUNTS", 1e-6)
        held = api.hold(budget["id"], [event], certificate=True)
    assert [each["detail"] for each in held["warnings"] if each["code"] == "no_certificate"] == [
        "The amounts that are charged have no certificate: it took longer than 2e-05 s. The certificate states the "
        "tight epsilon of the events, at delta 1e-05. The charge stands."
    ]
    stated = json.loads(api.get(f"/v1/reservations/{held['id']}/certificate").content)["statement"]
    assert (stated["delta"], "nano_mu_squared" in stated) == ("1e-05", False)
    again = api.hold(budget["id"], [event], certificate=True)
    assert again["warnings"] == []
    assert again["certificate"] != held["certificate"]
    assert report(context) == CertificateReport(2, 2, None)


@on_one_engine
def test_amounts_and_epsilon_without_a_certificate_say_why(api: Api) -> None:
    event = {"mechanism": {"kind": "exponential", "epsilon": 0.1}, "count": 1}
    held = api.hold(api.budget(GAUSSIANS[1])["id"], [event], certificate=True)
    assert held["certificate"] is None
    (warned,) = [each["detail"] for each in held["warnings"] if each["code"] == "no_certificate"]
    assert warned.startswith("The amounts that are charged have no certificate: the verifier says cannot check: ")
    no_delta = "There is no certificate of this charge: the budget has no delta, and neither have its reports."
    assert warned.endswith(f" {no_delta} The charge stands.")


@on_one_engine
def test_a_charge_waits_for_both_searches_no_longer_than_for_one(
    api: Api, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, float]] = []
    now = [1000.0]

    def out_of_time(seconds: float, function: Any, *_: Any) -> None:
        given.append((function.__name__, seconds))
        now[0] += seconds
        raise JobFailed(f"it took longer than {seconds:g} s")

    budget = api.budget(FILTERS[1])
    with monkeypatch.context() as patch:
        patch.setattr(certification, "time", SimpleNamespace(monotonic=lambda: now[0]))
        patch.setattr(context.processes, "run_within", out_of_time)
        held = api.hold(budget["id"], [OTHER], certificate=True)
    assert given == [("certified_price", 10.0), ("certify_upper", 10.0)]
    assert held["certificate"] is None


def _change(context: Context, statement: str, **values: Any) -> None:
    with context.database.write() as session:
        session.execute(text(statement), values)


@on_one_engine
def test_whatever_is_wrong_with_a_certificate_is_found(api: Api, context: Context) -> None:
    budget = api.budget(APPROXIMATE)
    held, other = (api.hold(budget["id"], [each], certificate=True, **CHARGE) for each in (QUICK, OTHER))
    data = api.get(f"/v1/reservations/{held['id']}/certificate").content

    def swapped(certificate: str, reservation: dict[str, Any] = held) -> str:
        statement = "UPDATE reservations SET certificate = :certificate WHERE id = :id"
        _change(context, statement, certificate=certificate, id=reservation["id"])
        reason = fault(context)
        _change(context, statement, certificate=reservation["certificate"], id=reservation["id"])
        assert report(context).first_bad is None
        return reason

    def stored(changed: bytes) -> str:
        hashed = sha256_hex(changed)
        _change(context, "INSERT INTO certificates (sha256, data) VALUES (:hashed, :data)", hashed=hashed, data=changed)
        return hashed

    assert "is missing" in swapped("0" * 64)
    assert "is about other events" in swapped(other["certificate"])
    assert "is not verified" in swapped(stored(b"{}"))
    stated = json.loads(data)["statement"]["epsilon"]
    too_low = data.replace(f'"{stated}"'.encode(), f'"{float(stated) * 0.9!r}"'.encode())
    assert "the verifier says refuted" in swapped(stored(too_low))
    more = data.replace(f'"{stated}"'.encode(), f'"{float(stated) * 1.1!r}"'.encode())
    assert check(more).verdict == "verified"
    assert "states more than it charges" in swapped(stored(more))
    other_delta = data.replace(b'"1e-05"', b'"2e-05"')
    assert check(other_delta).verdict == "verified"
    assert "states more than it charges" in swapped(stored(other_delta))
    other_relation = data.replace(b"add_or_remove_one", b"replace_special")
    assert check(other_relation).verdict == "verified"
    assert "something else than an upper end" in swapped(stored(other_relation))
    _change(
        context, "UPDATE certificates SET data = :data WHERE sha256 = :hashed", data=b"{}", hashed=held["certificate"]
    )
    assert "has been changed" in fault(context)
    _change(
        context, "UPDATE certificates SET data = :data WHERE sha256 = :hashed", data=data, hashed=held["certificate"]
    )


def test_another_certificate_in_the_row_is_another_one_than_the_entry_names(api: Api, context: Context) -> None:
    held = api.hold(api.budget(APPROXIMATE)["id"], [QUICK], certificate=True, **CHARGE)
    statement = "UPDATE reservations SET certificate = :certificate WHERE id = :id"
    _change(context, statement, certificate="0" * 64, id=held["id"])
    verdict = api.post("/v1/ledger/verify", {}).json()
    assert "the column certificate of the reservation" in verdict["first_bad"]["reason"]
    _change(context, statement, certificate=held["certificate"], id=held["id"])


@pytest.mark.parametrize("nearest_is_above", [True, False])
def test_no_rounding_states_more_than_is_charged(nearest_is_above: bool) -> None:
    own = filter_from_json({"kind": "approximate_dp", "epsilon": "8", "delta": "1e-4"})
    for nano in range(123_456_789, 123_456_889):
        charged = Fraction(nano, 10**9)
        if (Fraction(float(charged)) > charged) == nearest_is_above:
            stated = Fraction(certification._charge(own, (nano, 1))[0])
            assert charged - Fraction(1, 10**15) < stated <= charged
