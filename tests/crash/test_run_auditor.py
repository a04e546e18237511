"""The auditor of runs finds each way in which the promise could be broken, and nothing where it was kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.crash.history import Kind
from tests.crash.orders import Order
from tests.crash.run_auditor import WORKERS_A_RUN_MAY_COST, audit_runs
from tests.crash.run_books import Books, RunView, StoredModel
from tests.crash.test_auditor import BUDGET, Step, rho, shown

#: One step whose noise is five times its sensitivity costs a rho of 1/50.
UNITS = 2
LOST = {"code": "worker_lost", "detail": "The worker is lost."}


def charged(name: str, *ends: Kind) -> list[Step]:
    return [(kind, name, UNITS) for kind in (Kind.RESERVE, *ends)]


def run_of(name: str, claims: int = 1, lost: int = 0, *, is_charged: bool = True) -> RunView:
    """A run that has succeeded."""
    run_id, plan_hash = f"run_{name}", f"plan of {name}"
    event = {"mechanism": {"kind": "gaussian", "noise_multiplier": 5}, "sampling": {"kind": "full_batch"}, "count": 1}
    body = {
        "id": run_id,
        "state": "succeeded",
        "problem": None,
        "progress": {"done": 1, "total": 1},
        "plan": {"phases": [{"event": event}]},
        "plan_hash": plan_hash,
        "result": {"held_out": None},
        "reservation_id": f"res_{name}" if is_charged else None,
        "budget_id": BUDGET if is_charged else None,
    }
    model = StoredModel(f"{run_id}.{claims}.npz", plan_hash, run_id, {"weights": b"noise"}, is_finite=True)
    return RunView(body, 200, claims, lost, [model])


def failed(name: str) -> RunView:
    run = run_of(name, WORKERS_A_RUN_MAY_COST, WORKERS_A_RUN_MAY_COST)
    return replace(run, body=run.body | {"state": "failed", "problem": LOST, "result": None}, released=409, models=[])


def honest() -> tuple[list[Order], Books]:
    """Four runs: one that was not disturbed, its twin that lost a worker, a free one, and one that lost too many."""
    orders = [
        Order("calm", {}, "calm", {"run_calm"}),
        Order("twin", {}, "calm", {"run_twin"}),
        Order("free", {}, None, {"run_free"}),
        Order("lost", {}, None, {"run_lost"}),
    ]
    runs = [run_of("calm"), run_of("twin", 2, 1), run_of("free", is_charged=False), failed("lost")]
    return orders, Books({run.body["id"]: run for run in runs}, [budget()], [], is_valid=True)


def budget(of_twin: tuple[Kind, ...] = (Kind.START, Kind.COMMIT), *more: Step) -> Any:
    """What the budget shows, which adds up, whatever has happened to the twin."""
    steps = [(Kind.CREATE, "", 100), *charged("calm", Kind.START, Kind.COMMIT), *charged("twin", *of_twin)]
    view = shown(*steps, *charged("lost", Kind.START, Kind.COMMIT), *more)
    for reservation in view.reservations:
        name = reservation["id"].removeprefix("res_")
        reservation |= {"run_id": f"run_{name}", "budget_id": BUDGET, "plan_hash": f"plan of {name}"}
    return view


def test_a_promise_that_was_kept_has_no_faults() -> None:
    assert audit_runs(*honest()) == []


def test_a_run_that_was_never_started_may_give_its_hold_back() -> None:
    orders, books = honest()
    books.runs["run_twin"] = failed("twin")
    books.budgets = [budget((Kind.VOID,))]
    assert audit_runs(orders, books) == []


def spoil_body(name: str, **changes: Any) -> Callable[[list[Order], Books], None]:
    return lambda _orders, books: books.runs[f"run_{name}"].body.update(changes)


#: A plan like that of `run_of`, and an evaluation that costs as much again.
EVALUATED = {"phases": run_of("twin").body["plan"]["phases"], "evaluation": {"noise_multiplier": 5}}


def spoil_model(**changes: Any) -> Callable[[list[Order], Books], None]:
    def spoil(_orders: list[Order], books: Books) -> None:
        books.runs["run_twin"].models = [replace(books.runs["run_twin"].models[0], **changes)]

    return spoil


def spoil_run(name: str, **changes: Any) -> Callable[[list[Order], Books], None]:
    def spoil(_orders: list[Order], books: Books) -> None:
        books.runs[f"run_{name}"] = replace(books.runs[f"run_{name}"], **changes)

    return spoil


def spoil_budget(*given: Any) -> Callable[[list[Order], Books], None]:
    def spoil(_orders: list[Order], books: Books) -> None:
        books.budgets = [budget(*given)]

    return spoil


def spoil_reservation(**changes: Any) -> Callable[[list[Order], Books], None]:
    return lambda _orders, books: books.budgets[0].reservations[1].update(changes)


BROKEN: dict[str, tuple[Callable[[list[Order], Books], Any], str]] = {
    "a ledger that does not verify": (lambda _, books: setattr(books, "is_valid", False), "the ledger does not verify"),
    "a checkpoint that is left": (
        lambda _, books: books.left_over.append("run_calm.stream.1.checkpoint"),
        "run_calm.stream.1.checkpoint is left over",
    ),
    "an order that nobody acknowledged": (
        lambda orders, _: orders.append(Order("new", {})),
        "new: was acknowledged as []",
    ),
    "an order that made two runs": (
        lambda orders, _: orders[0].run_ids.add("run_free"),
        "calm: was acknowledged as ['run_calm', 'run_free']",
    ),
    "a run of two orders": (
        lambda orders, _: orders.append(Order("new", {}, None, {"run_free"})),
        "run_free: is of 2 orders",
    ),
    "a run that is lost": (lambda _, books: books.runs.pop("run_free"), "free: run_free is lost"),
    "a run that nobody ordered": (lambda orders, _: orders.pop(), "run_lost: was ordered by nobody"),
    "a run that has not ended": (spoil_body("free", state="queued"), "run_free: is queued"),
    "a success that is not at its end": (
        spoil_body("free", progress={"done": 0, "total": 1}),
        "run_free: has succeeded with None after",
    ),
    "a failure without a reason": (
        lambda _, books: books.runs.update(run_lost=replace(failed("lost"), workers_lost=2)),
        "run_lost: failed with {'code': 'worker_lost'",
    ),
    "a failure for another reason": (
        spoil_body("lost", problem={"code": "run_failed"}),
        "run_lost: lost its workers and says {'code': 'run_failed'}",
    ),
    "more workers lost than claims": (spoil_run("twin", workers_lost=3), "run_twin: lost 3 workers in 2 claims"),
    "a model of an earlier claim": (
        spoil_model(file="run_twin.1.npz"),
        "run_twin: has succeeded in claim 2, and the models ['run_twin.1.npz']",
    ),
    "no model": (spoil_run("twin", models=[]), "run_twin: has succeeded in claim 2, and the models []"),
    "a model of a run that failed": (
        lambda _, books: books.runs["run_lost"].models.append(run_of("lost").models[0]),
        "run_lost: has failed in claim 3, and the models ['run_lost.1.npz']",
    ),
    "a model that is not released": (
        spoil_run("twin", released=404),
        "run_twin: has succeeded, and its model is answered 404",
    ),
    "a model that is released too early": (
        spoil_run("lost", released=200),
        "run_lost: has failed, and its model is answered 200",
    ),
    "a model of another plan": (spoil_model(plan_hash="x"), "run_twin.2.npz: is of plan x and run run_twin"),
    "a model that is not a number": (spoil_model(is_finite=False), "run_twin.2.npz: holds no model"),
    "a model that cannot be read": (spoil_model(parameters={}), "run_twin.2.npz: holds no model"),
    "another model than its twin's": (
        spoil_model(parameters={"weights": b"other noise"}),
        "twin: its model is another than that of calm",
    ),
    "an evaluation that was not charged": (
        spoil_body("twin", plan=EVALUATED, result={"held_out": {"accuracy": 1}}),
        "run_twin: costs 40000000, and 20000000 is held",
    ),
    "scores that nobody was charged for": (
        spoil_body("twin", result={"held_out": {"accuracy": 1}}),
        "run_twin: has succeeded with no evaluation in its plan, and shows scores",
    ),
    "scores of a run that failed": (
        spoil_body("lost", plan=EVALUATED, result={"held_out": {"accuracy": 1}}),
        "run_lost: has failed with an evaluation in its plan, and shows scores",
    ),
    "scores that are lost": (
        spoil_body("twin", plan=EVALUATED),
        "run_twin: has succeeded with an evaluation in its plan, and shows no scores",
    ),
    "a charge that is missing": (
        spoil_budget((Kind.START,)),
        "run_twin: has succeeded, and its charge was ['reserve', 'start']",
    ),
    "a charge that is given back": (
        spoil_budget((Kind.VOID,)),
        "run_twin: has succeeded, and its charge was ['reserve', 'void']",
    ),
    "two charges": (
        spoil_budget((Kind.START, Kind.COMMIT, Kind.COMMIT)),
        "run_twin: has succeeded, and its charge was ['reserve', 'start', 'commit', 'commit']",
    ),
    "a charge for no run": (spoil_budget((Kind.START, Kind.COMMIT), *charged("none")), "res_none: was reserved for no"),
    "a reservation of another run": (spoil_reservation(run_id="run_calm"), "run_twin: its reservation is of {'run_id'"),
    "a price that is too low": (spoil_reservation(cost=rho(1)), "run_twin: costs 20000000, and 10000000 is held"),
    "spending that is not the sum": (
        lambda _, books: books.budgets[0].budget["amounts"].update(spent=rho(5)),
        "bud_1: shows {'rho': Decimal('0.05')}",
    ),
    "a chain that is broken": (
        lambda _, books: books.budgets[0].entries[3].update(previous_hash="x"),
        "bud_1: the chain is broken at sequence 4",
    ),
}


@pytest.mark.parametrize(("spoil", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_broken_is_said(spoil: Callable[[list[Order], Books], Any], words: str) -> None:
    orders, books = honest()
    spoil(orders, books)
    assert any(re.search(re.escape(words), fault) for fault in audit_runs(orders, books)), audit_runs(orders, books)
