"""Prices of charges are found anew: whoever appends whole entries that charge too little is named (P14)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from accounting import ENGINE_VERSION
from accounting.events import (
    MECHANISMS,
    SAMPLINGS,
    ApproximateDp,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RenyiDp,
    WithReplacement,
)
from accounting.filters import FILTERS
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED, Amounts
from app.context import Context
from app.kit.ids import new_id
from app.ledger import exports
from app.ledger.commands import Charge, Commit, Correct, GivenUp, Quote, Reserve, Start
from app.ledger.export_verification import verify_export
from app.ledger.exports import ExportFormat
from app.ledger.journal import Instruction, carry_out
from app.ledger.price_search import PriceSearch
from app.ledger.price_verification import Ends, PriceClass, Priced, PriceReport, PriceVerification, judge
from app.ledger.states import ReservationState
from app.ledger.transitions import Transition
from app.ledger.verdicts import Verdict
from app.ledger.verification import verify
from tests.app.budgets.conftest import Api, zcdp
from tests.app.ledger import attacks
from tests.app.ledger.test_cli_ledger import ok, run
from tests.app.ledger.verdicts import first_bad
from tests.databases import on_one_engine

#: A million steps with next to no noise.
LOUD = (Event(Gaussian(0.01), count=10**6),)
RELATION = "replace_one"
LIMITS: dict[str, dict[str, Any]] = {
    "pure_dp": {"epsilon": 100.0},
    "approximate_dp": {"epsilon": 100.0, "delta": 0.01},
    "approximate_gaussian_dp": {"epsilon": 100.0, "delta": 0.01},
    "zcdp": {"rho": 1e6},
    "gaussian_dp": {"mu": 1e3},
    "renyi_dp": {"epsilon": 1e3, "delta": 1e-5, "orders": [1.5, 2.0, 8.0, 32.0]},
}


def price_of(kind: str, events: Sequence[Event], delta: float | None = None) -> Ends:
    budget = FILTERS[kind].from_json({"kind": kind, **LIMITS[kind]})
    relation = NeighboringRelation(RELATION)
    return Ends(budget.least_cost(events, relation, delta), budget.cost(events, relation, delta).amounts)


class Forger:
    """Writes whole entries with any amounts, by the ledger's own code."""

    def __init__(self, context: Context, api: Api, kind: str = "zcdp") -> None:
        self.context = context
        self.budget: str = api.budget({"kind": kind, **LIMITS[kind]}, neighboring_relation=RELATION)["id"]

    def do(self, command: Any, target: str | None = None) -> ReservationState:
        instruction = Instruction(command, "loopback", target or self.budget)
        with self.context.database.write() as session:
            (outcome,) = carry_out(session, self.context.database, [instruction], self.context.clock())
        assert isinstance(outcome, Transition), outcome
        assert outcome.reservation is not None
        return outcome.reservation

    def reserve(self, events: tuple[Event, ...], amounts: Amounts, delta: float | None = None) -> ReservationState:
        expires_at = self.context.clock() + timedelta(hours=1)
        return self.do(Reserve(new_id("res"), events, Quote(amounts, ENGINE_VERSION), expires_at, charge_delta=delta))

    def commit(self, held: ReservationState, events: tuple[Event, ...] | None = None, amounts: Amounts = ()) -> str:
        self.do(Start(), held.id)
        quote = None if events is None else Quote(amounts, ENGINE_VERSION)
        return self.do(Commit(events, quote, nothing_released=True), held.id).id


def verified(context: Context, **bounds: int) -> Verdict:
    charges = PriceVerification(PriceSearch(context.processes, at_once=2), **bounds)
    with context.database.read() as session:
        verdict = verify(session, charges=charges)
    assert verdict.valid, verdict.in_words()
    return verdict.with_prices(charges)


def counts(report: PriceReport | None) -> tuple[int, int, int, int]:
    """Too low, undecided, right, high."""
    assert report is not None
    low, undecided, right, high = (report.entries[each] for each in PriceClass)
    return low, undecided, right, high


@pytest.fixture
def forger(context: Context, api: Api) -> Forger:
    return Forger(context, api)


def test_a_ledger_in_which_everything_has_happened_has_right_prices(root: dict[str, Any], context: Context) -> None:
    verdict = verified(context)
    assert verdict.valid
    assert counts(verdict.prices)[:2] == (0, 0)
    kinds = [row["kind"] for row in attacks.entries(context.database)]
    charging = sum(kinds.count(kind) for kind in ("reserve", "commit", "correct"))
    assert verdict.prices is not None
    assert charging >= sum(verdict.prices.entries.values()) >= kinds.count("reserve") + kinds.count("commit")
    assert "different prices of" in verdict.in_words()


def test_an_appended_entry_that_charges_a_loud_million_with_a_unit_is_named(
    root: dict[str, Any], context: Context, forger: Forger
) -> None:
    forger.reserve((Event(Gaussian(50.0)),), price_of("zcdp", (Event(Gaussian(50.0)),)).most)
    forger.reserve(LOUD, (1,))
    forger.reserve(LOUD, (1,))
    verdict = verified(context)
    bad = verdict.first_bad
    assert bad is not None
    row = attacks.entries(context.database)[-2]
    assert (bad.budget_id, bad.sequence, bad.leaf_index) == (forger.budget, 3, row["leaf_index"])
    assert bad.reason == (
        f"the price is too low: the entry charges rho 1e-09, and engine {ENGINE_VERSION} finds that its events cost at "
        "least rho 20000000000.0 (1 more entries charge the same)"
    ).replace("20000000000.0", str(min(SATURATED, 2 * 10**10 * 10**9) / 1e9))
    assert not verdict.valid
    assert (verdict.head, verdict.tree) == (None, None)
    assert verdict.in_words().startswith(f"not valid: budget {forger.budget}, entry 3, leaf index {row['leaf_index']}:")
    assert counts(verdict.prices)[0] == 2


CHARGES: dict[str, tuple[tuple[Event, ...], float | None]] = {
    "pure_dp": ((Event(Laplace(4.0), count=3),), None),
    "approximate_dp": ((Event(Gaussian(4.0), count=3),), 1e-6),
    "approximate_gaussian_dp": ((Event(Gaussian(4.0), Poisson(0.05), 1000),), None),
    "zcdp": ((Event(PureDp(0.5)), Event(Gaussian(4.0))), None),
    "gaussian_dp": ((Event(Gaussian(4.0), count=3),), None),
    "renyi_dp": ((Event(Gaussian(4.0), Poisson(0.05), 1000), Event(PureDp(0.1))), None),
}


@on_one_engine
@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.one_in(3)
def test_a_unit_less_than_the_lower_end_is_too_low_in_any_amount(context: Context, api: Api, kind: str) -> None:
    forger, (events, delta) = Forger(context, api, kind), CHARGES[kind]
    least, most = price_of(kind, events, delta)
    forger.reserve(events, most, delta)
    forger.reserve(events, least, delta)
    forger.reserve(events, tuple(amount + 1 for amount in most), delta)
    verdict = verified(context)
    assert verdict.valid
    assert counts(verdict.prices) == ((0, 0, 2, 1) if least == most else (0, 1, 1, 1))
    for place in range(len(least)):
        forger.reserve(events, tuple(amount - (index == place) for index, amount in enumerate(least)), delta)
        bad = verified(context).first_bad
        assert bad is not None
        assert bad.sequence == 5, "the first one, whichever amount of it is too low"
        assert counts(verified(context).prices)[0] == place + 1


def test_commits_charge_what_was_held_or_the_part_that_happened(context: Context, forger: Forger) -> None:
    events = (Event(Gaussian(4.0), count=10),)
    part = (Event(Gaussian(4.0), count=4),)
    whole, less = price_of("zcdp", events).most, price_of("zcdp", part).most
    forger.commit(forger.reserve(events, whole))
    forger.commit(forger.reserve(events, whole), part, less)
    # Held as less than today's price of a part, and above that of the whole: undecided nowhere, too low nowhere.
    forger.commit(forger.reserve(part, (less[0] + 5,)), part, (less[0] + 9,))
    assert counts(verified(context).prices) == (0, 0, 4, 2)
    forger.commit(forger.reserve(events, whole), part, (less[0] - 1,))
    verdict = verified(context)
    assert verdict.first_bad is not None
    assert verdict.first_bad.sequence == 13
    assert counts(verdict.prices) == (1, 0, 5, 2)


@on_one_engine
def test_a_part_may_cost_what_was_held_where_that_is_less(context: Context, api: Api) -> None:
    """Rounding may make a part dearer by a unit than the whole; what was held bounds its loss, too."""
    assert judge((5, 9), (5, 9), Ends((6, 6), (6, 6))) is PriceClass.HIGH
    assert judge((5, 6), (5, 9), Ends((6, 6), (6, 6))) is PriceClass.RIGHT
    assert judge((4, 6), (5, 9), Ends((6, 6), (6, 6))) is PriceClass.TOO_LOW
    assert judge((5, 6), None, Ends((6, 6), (6, 6))) is PriceClass.TOO_LOW
    forger, part = Forger(context, api, "renyi_dp"), (Event(Gaussian(4.0), count=4),)
    events = (Event(Gaussian(4.0), count=10),)
    whole, less = price_of("renyi_dp", events).most, price_of("renyi_dp", part).most
    forger.commit(forger.reserve(events, (less[0] - 7, *whole[1:])), part, less)
    verdict = verified(context)
    assert counts(verdict.prices) == (1, 0, 1, 0)
    assert verdict.first_bad is not None
    assert verdict.first_bad.sequence == 2, "too little was held, and the part costs that"


@on_one_engine
def test_a_part_that_an_approximate_dp_budget_does_not_sell_is_named(context: Context, api: Api) -> None:
    """Its price is right for a list that was fixed before outputs were seen, and a part is not one."""
    forger, part = Forger(context, api, "approximate_dp"), (Event(Gaussian(4.0), count=4),)
    events = (Event(Gaussian(4.0), count=10),)
    whole, less = price_of("approximate_dp", events, 1e-6).most, price_of("approximate_dp", part, 1e-6).most
    forger.commit(forger.reserve(events, whole, 1e-6))
    forger.commit(forger.reserve(events, whole, 1e-6), part, whole)
    assert counts(verified(context).prices)[:2] == (0, 0)
    forger.commit(forger.reserve(events, whole, 1e-6), part, less)
    bad = first_bad(context.database)
    assert (bad.sequence, bad.reason) == (
        10,
        "the entry charges a part, but the budget's filter charges a part like the whole",
    )
    # The books are audited at the end of each test.
    for table in ("entries", "exposed_steps", "reservations"):
        attacks.run(context.database, f"DELETE FROM {table} WHERE budget_id = '{forger.budget}'")
    attacks.run(context.database, "DELETE FROM budgets")


def test_corrections_charge_new_events_or_raise_the_price_of_the_old_ones(context: Context, forger: Forger) -> None:
    events, others = (Event(Gaussian(4.0), count=10),), (Event(Gaussian(2.0)),)
    whole, less = price_of("zcdp", events).most, price_of("zcdp", others).most
    done = forger.commit(forger.reserve(events, (whole[0] - 1,)))
    assert counts(verified(context).prices) == (2, 0, 0, 0)
    forger.do(Correct(Quote(whole, ENGINE_VERSION), "priced again", priced=events), done)
    forger.do(Correct(Quote(less, ENGINE_VERSION), "other events", others, may_lower=True), done)
    forger.do(Charge(new_id("res"), others, Quote(less, ENGINE_VERSION), "by hand"))
    assert counts(verified(context).prices) == (2, 0, 3, 0)
    forger.do(Correct(Quote((less[0] - 1,), ENGINE_VERSION), "lowered", others, may_lower=True), done)
    forger.do(Charge(new_id("res"), others, Quote((less[0] - 1,), ENGINE_VERSION), "by hand"))
    forger.do(Correct(Quote((0,), ENGINE_VERSION), "nothing happened", (), may_lower=True), done)
    assert counts(verified(context).prices) == (4, 0, 3, 0)


def test_a_hold_that_was_raised_is_priced_for_what_it_holds(context: Context, forger: Forger) -> None:
    events = (Event(Gaussian(4.0), count=10),)
    whole = price_of("zcdp", events).most
    held = forger.reserve(events, (1,))
    forger.do(Correct(Quote(whole, ENGINE_VERSION), "priced again", priced=events), held.id)
    forger.commit(held)
    assert counts(verified(context).prices) == (1, 0, 2, 0)


@pytest.mark.parametrize(
    ("kind", "events", "why"),
    [
        ("pure_dp", LOUD, "a gaussian event has no proved additive cost in a pure_dp budget"),
        ("approximate_dp", LOUD, "gaussian"),
        ("zcdp", (Event(Gaussian(4.0), WithReplacement(10, 100)),), "with with_replacement batches has no proved"),
        ("renyi_dp", (Event(ApproximateDp(1.0, 1e-6)),), "approximate_dp event has no proved"),
    ],
)
@pytest.mark.one_in(4)
def test_what_a_budget_cannot_pay_for_is_too_low(
    context: Context, api: Api, kind: str, events: tuple[Event, ...], why: str
) -> None:
    """Whatever it charges: no version of the ledger could have admitted it."""
    forger = Forger(context, api, kind)
    sizes = {"approximate_dp": 2, "renyi_dp": 4}
    forger.reserve(events, (10**9,) * sizes.get(kind, 1))
    verdict = verified(context)
    assert not verdict.valid
    assert counts(verdict.prices) == (1, 0, 0, 0)
    assert verdict.prices is not None
    (judgement,) = verdict.prices.listed
    assert judgement.reason is not None
    assert judgement.reason.startswith("this budget cannot pay for such events at any price: ")
    assert why in judgement.reason
    assert (judgement.least, judgement.price) == (None, None)
    assert verdict.first_bad is not None
    assert (verdict.first_bad.budget_id, verdict.first_bad.sequence) == (forger.budget, 2)
    assert "cannot pay for such events at any price" in verdict.first_bad.reason


def test_a_correction_may_have_had_a_delta_that_was_not_entered(context: Context, api: Api) -> None:
    """Versions from before wrote such books honestly: the charge is undecided, and one with a delta is compared."""
    forger = Forger(context, api, "approximate_dp")
    pure, noisy = (Event(PureDp(1.0)),), (Event(Gaussian(4.0)),)
    without, with_one = (forger.commit(forger.reserve(pure, (10**9, 0))) for _ in range(2))
    forger.do(Correct(Quote((1, 1), ENGINE_VERSION), "other events", noisy, may_lower=True), without)
    forger.do(
        Correct(Quote((1, 1), ENGINE_VERSION), "other events", noisy, may_lower=True, charge_delta=1e-6), with_one
    )
    verdict = verified(context)
    assert counts(verdict.prices) == (1, 1, 4, 0)
    assert verdict.prices is not None
    undecided = next(each for each in verdict.prices.listed if each.verdict is PriceClass.UNDECIDED)
    assert undecided.reason is not None
    assert "at a delta that is in no entry" in undecided.reason


@on_one_engine
def test_what_today_does_not_find_is_undecided_with_the_reason(context: Context) -> None:
    zcdp_price = Priced(FILTERS["zcdp"].from_json({"rho": 1.0}), LOUD, NeighboringRelation(RELATION), None)
    (found,) = PriceSearch(context.processes, most=0, seconds=60.0)([zcdp_price])
    assert str(found).startswith("it was not computed: the limit here is 0 prices and 60.0 seconds")
    swr = (Event(Gaussian(4.0), WithReplacement(10, 100)),)
    wrong = Priced(
        FILTERS["approximate_dp"].from_json({"epsilon": 1.0, "delta": 0.1}),
        swr,
        NeighboringRelation.ADD_OR_REMOVE_ONE,
        1e-6,
    )
    (found,) = PriceSearch(context.processes)([wrong])
    assert isinstance(found, str)
    assert found.startswith("today's engine refuses it: ")


#: What each kind of budget has had a cost for in some version of the engine: of mechanisms, and of samplings that fewer
#: kinds take than the mechanism.
EVER_PAYABLE = {
    "pure_dp": {"discrete_laplace", "exponential", "laplace", "pure_dp", "randomized_response", "report_noisy_max"},
    "zcdp": {
        *("discrete_gaussian", "discrete_laplace", "exponential", "gaussian", "gaussian_mixture"),
        *("generalized_gaussian", "laplace", "pure_dp", "randomized_response", "report_noisy_max"),
        *("tree_aggregation", "zcdp"),
    },
    "gaussian_dp": {
        *("discrete_laplace", "exponential", "gaussian", "gaussian_mixture", "laplace", "pure_dp"),
        *("randomized_response", "report_noisy_max", "tree_aggregation"),
    },
    "renyi_dp": {
        *("discrete_gaussian", "discrete_laplace", "exponential", "gaussian", "gaussian_mixture"),
        *("generalized_gaussian", "laplace", "pure_dp", "randomized_response", "renyi_dp", "report_noisy_max"),
        *("tree_aggregation", "zcdp"),
    },
    "approximate_dp": set(MECHANISMS),
}
RESTRICTED = {"with_replacement", "truncated_poisson", "shuffle_model"}


def test_no_budget_has_lost_a_cost() -> None:
    """What an engine has priced once stays payable: honest books of its time would be called too low else."""
    for kind, payable in EVER_PAYABLE.items():
        assert payable <= {name for name, each in MECHANISMS.items() if kind in each.filters}, kind
    assert {name for name, each in SAMPLINGS.items() if each.filters is not None} <= RESTRICTED


@on_one_engine
def test_a_price_that_takes_too_long_is_undecided(context: Context) -> None:
    priced = Priced(FILTERS["zcdp"].from_json({"rho": 1.0}), LOUD, NeighboringRelation(RELATION), None)
    context.processes.close()
    (found,) = PriceSearch(context.processes)([priced])
    assert found == "it was given up: the service is stopping"


@on_one_engine
def test_orders_that_a_guarantee_does_not_reach_are_closed_and_not_free(context: Context, api: Api) -> None:
    """Whoever states a divergence at small orders alone is charged everything at others."""
    forger, events = Forger(context, api, "renyi_dp"), (Event(RenyiDp((2.0,), (0.5,))),)
    least, most = price_of("renyi_dp", events)
    assert least[2:] == most[2:] == (SATURATED, SATURATED)
    forger.reserve(events, most)
    forger.reserve(events, (*most[:2], 1, 1))
    assert counts(verified(context).prices) == (1, 0, 1, 0)


@on_one_engine
def test_little_memory_gives_the_same_report(context: Context, api: Api) -> None:
    forger = Forger(context, api)
    for number in range(12):
        events = (Event(Gaussian(float(4 + number % 3)), count=1 + number % 2),)
        (most,) = price_of("zcdp", events).most
        forger.reserve(events, (most + number % 4 - 1,))
    reports = [verified(context, **bounds).prices for bounds in ({}, {"most_held": 1}, {"most_events": 0})]
    assert counts(reports[0]) == (3, 0, 3, 6)
    assert [counts(each) for each in reports] == [counts(reports[0])] * 3
    firsts = [None if each is None else each.first_too_low for each in reports]
    assert all(each is not None and each.sequence == 2 for each in firsts)


@on_one_engine
@pytest.mark.thorough
def test_an_export_is_priced_from_the_file_alone(
    context: Context, api: Api, forger: Forger, tmp_path: Path, client: TestClient
) -> None:
    forger.reserve(CHARGES["zcdp"][0], price_of("zcdp", CHARGES["zcdp"][0]).most)
    path = tmp_path / "export.ndjson"

    def write() -> None:
        path.write_bytes(b"".join(exports.export(context).parts(ExportFormat.NDJSON, "0")))

    write()
    line = ok(context.settings, "verify", "--export", str(path), "--prices")
    assert "1 different prices of 1 charges: 0 too low" in line
    forger.reserve(LOUD, (1,))
    write()
    charges = PriceVerification(PriceSearch(context.processes))
    verdict = verify_export(path, charges=charges)
    assert verdict.valid, "the file is what a ledger would have written, but for its prices"
    bad = verdict.with_prices(charges).first_bad
    assert bad is not None
    assert (bad.budget_id, bad.sequence) == (forger.budget, 3)


@pytest.mark.thorough
@on_one_engine
def test_the_command_line_names_it_with_status_1(context: Context, api: Api, forger: Forger) -> None:
    Api(api.client).spend(forger.budget, [zcdp(0.01)])
    assert ok(context.settings, "verify", "--prices").startswith("valid: ")
    forger.reserve(LOUD, (1,))
    assert ok(context.settings, "verify").startswith("valid: "), "chains and columns are whole"
    result = run(context.settings, "verify", "--prices")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"not valid: budget {forger.budget}, entry 5, ")
    assert "too low" in result.stdout.splitlines()[-1]
    as_json = run(context.settings, "verify", "--prices", "--json")
    assert as_json.exit_code == 1
    body = json.loads(as_json.stdout)
    assert (body["valid"], body["prices"]["too_low"], body["prices"]["right"]) == (False, 1, 2)
    assert body["prices"]["listed"][0]["charged"] == {"rho": 1e-9}
    assert body == api.client.post("/v1/ledger/verify", json={"prices": True}).json()


@on_one_engine
def test_over_http_prices_have_a_limit(
    context: Context, api: Api, forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.client.post("/v1/ledger/verify").json()["prices"] is None
    for noise in (2.0, 3.0, 4.0):
        events = (Event(Gaussian(noise)),)
        forger.reserve(events, price_of("zcdp", events).most)
    found = api.client.post("/v1/ledger/verify", json={"prices": True}).json()
    assert (found["valid"], found["prices"]["prices"], found["prices"]["right"]) == (True, 3, 3)
    monkeypatch.setattr("app.ledger.transparency.MOST_OVER_HTTP", 2)
    found = api.client.post("/v1/ledger/verify", json={"prices": True}).json()
    assert (found["valid"], found["prices"]["right"], found["prices"]["undecided"]) == (True, 2, 1)
    assert "was not computed: the limit here is 2 prices" in found["prices"]["listed"][0]["reason"]
    of_tree = api.client.post("/v1/ledger/verify", json={"prices": True, "budget_id": forger.budget}).json()
    assert of_tree["prices"]["prices"] == 3


@on_one_engine
def test_books_that_are_not_valid_are_not_priced(context: Context, api: Api, forger: Forger) -> None:
    forger.reserve(LOUD, (1,))
    attacks.run(context.database, "UPDATE entries SET principal_id = 'x' WHERE leaf_index = 1")
    body = api.client.post("/v1/ledger/verify", json={"prices": True}).json()
    assert (body["valid"], body["prices"]) == (False, None)
    assert "principal_id" in body["first_bad"]["reason"]


def children(pid: int) -> list[int]:
    """The processes that a process has started itself, on Linux."""
    found = [Path(f"/proc/{pid}/task/{task.name}/children") for task in Path(f"/proc/{pid}/task").iterdir()]
    return [int(each) for path in found if path.exists() for each in path.read_text().split()]


@on_one_engine
@pytest.mark.thorough
def test_ctrl_c_ends_the_search_and_its_processes(context: Context, api: Api) -> None:
    """While prices are found that take long."""
    forger = Forger(context, api, "approximate_dp")
    for number in range(4):
        steps = tuple(Event(Gaussian(1.0 + 0.01 * step + number), Poisson(0.3), 1000) for step in range(300))
        forger.reserve(steps, (1, 10**12), 1e-6)
    environment = {**os.environ, "EPSILOND_DATABASE_URL": context.database.url}
    environment["EPSILOND_DATA_DIR"] = str(context.settings.data_dir)
    command = [sys.executable, "-c", "from app.cli.main import main; main()", "ledger", "verify", "--prices"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            deadline = time.monotonic() + 60.0
            while not (workers := children(process.pid)) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            assert workers, process.communicate()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, (out, err)
    assert out == ""
    assert "Traceback" not in err
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_a_tail_that_gives_more_back_than_it_is_worth_is_named(context: Context, api: Api) -> None:
    forger, events = Forger(context, api, "approximate_gaussian_dp"), (Event(Gaussian(4.0), Poisson(0.05), 1000),)
    kept, most = (Event(Gaussian(4.0), Poisson(0.05), 500),), price_of("approximate_gaussian_dp", events).most
    back = FILTERS["approximate_gaussian_dp"].from_json({"kind": "", **LIMITS["approximate_gaussian_dp"]})
    worth = back.given_back(most, events, kept, NeighboringRelation(RELATION))
    assert worth is not None
    for more in (0, worth.most[0] - worth.amounts[0] + most[0] // 1000):
        held = forger.reserve(events, most)
        forger.do(Start(), held.id)
        amounts = (worth.amounts[0] + more, *worth.amounts[1:])
        forger.do(Commit(kept, given_up=GivenUp(most, amounts, ENGINE_VERSION)), held.id)
        verdict = verified(context)
        assert counts(verdict.prices)[0] == (1 if more else 0)
    assert verdict.first_bad is not None
    assert verdict.first_bad.sequence == 7
