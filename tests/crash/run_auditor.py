"""The auditor of runs: one order is one run, one charge, one model, whatever was killed meanwhile.

Independent of the service: it knows the contract, adds integers, and imports nothing of the application. Every fault is
a sentence.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

from tests.crash.auditor import account_faults, chain_faults
from tests.crash.history import Json
from tests.crash.ledger_view import NANO, BudgetView, nano_units
from tests.crash.orders import Order
from tests.crash.run_books import Books, RunView

#: A run that has cost so many workers their lives fails, and no other does.
WORKERS_A_RUN_MAY_COST = 3
#: What happens to a hold, by how its run ended.
CHARGED, RELEASED = ["reserve", "start", "commit"], ["reserve", "void"]


def audit_runs(orders: Sequence[Order], books: Books) -> list[str]:
    """Everything that contradicts "one order, one run, one charge, one model"; empty where nothing does."""
    return [
        *([] if books.is_valid else ["the ledger does not verify"]),
        *(f"{file} is left over" for file in books.left_over),
        *_order_faults(orders, books),
        *(
            fault
            for run in books.runs.values()
            for fault in (*_ending_faults(run), *_model_faults(run), *_score_faults(run))
        ),
        *(fault for view in books.budgets for fault in (*chain_faults(view), *account_faults(view))),
        *_charge_faults(books),
        *_twin_faults(orders, books),
    ]


def price(run: Json) -> int:
    """What a run costs in nano-units of rho: steps on full batches, and an evaluation, of sensitivity 1; rounded up."""
    rho = Fraction(0)
    evaluation = run["plan"].get("evaluation")
    if evaluation is not None:
        rho += 1 / (2 * Fraction(float(evaluation["noise_multiplier"])) ** 2)
    for phase in run["plan"]["phases"]:
        event = phase["event"]
        assert (event["mechanism"]["kind"], event["sampling"]["kind"]) == ("gaussian", "full_batch"), event
        # The shortest decimal that names a double is read as that double.
        rho += event["count"] / (2 * Fraction(float(event["mechanism"]["noise_multiplier"])) ** 2)
    return -(-rho.numerator * NANO // rho.denominator)


def _order_faults(orders: Sequence[Order], books: Books) -> Iterator[str]:
    """Each order was acknowledged as one run, which is there, and nobody ordered another."""
    ordered: Counter[str] = Counter()
    for order in orders:
        if len(order.run_ids) != 1:
            yield f"{order.key}: was acknowledged as {sorted(order.run_ids)}"
        ordered.update(order.run_ids)
        yield from (f"{order.key}: {run_id} is lost" for run_id in sorted(order.run_ids - books.runs.keys()))
    yield from (f"{run_id}: is of {count} orders" for run_id, count in ordered.items() if count > 1)
    yield from (f"{run_id}: was ordered by nobody" for run_id in books.runs.keys() - ordered.keys())


def _ending_faults(run: RunView) -> Iterator[str]:
    """Every run has succeeded, unless it cost as many workers their lives as it may."""
    body = run.body
    state, problem, progress = body["state"], body["problem"], body["progress"]
    if state == "succeeded":
        if problem is not None or progress["done"] != progress["total"]:
            yield f"{body['id']}: has succeeded with {problem} after {progress}"
    elif state != "failed":
        yield f"{body['id']}: is {state}"
    elif run.workers_lost < WORKERS_A_RUN_MAY_COST:
        yield f"{body['id']}: failed with {problem} and lost {run.workers_lost} workers"
    elif problem["code"] != "worker_lost":
        yield f"{body['id']}: lost its workers and says {problem}"
    if run.workers_lost > min(run.epoch, WORKERS_A_RUN_MAY_COST):
        yield f"{body['id']}: lost {run.workers_lost} workers in {run.epoch} claims"


def _model_faults(run: RunView) -> Iterator[str]:
    """A run that succeeded has one model, of its last claim; another has none."""
    body, files = run.body, [model.file for model in run.models]
    has_succeeded = body["state"] == "succeeded"
    if files != ([f"{body['id']}.{run.epoch}.npz"] if has_succeeded else []):
        yield f"{body['id']}: has {body['state']} in claim {run.epoch}, and the models {files}"
    if (run.released == 200) != has_succeeded:
        yield f"{body['id']}: has {body['state']}, and its model is answered {run.released}"
    for model in run.models:
        if (model.plan_hash, model.run_id) != (body["plan_hash"], body["id"]):
            yield f"{model.file}: is of plan {model.plan_hash} and run {model.run_id}"
        if not model.parameters or not model.is_finite:
            yield f"{model.file}: holds no model"


def _score_faults(run: RunView) -> Iterator[str]:
    """Scores on held-out rows are shown of a run that has succeeded and was charged for them, and of no other."""
    body = run.body
    shown = (body["result"] or {}).get("held_out") is not None
    if shown != (body["state"] == "succeeded" and "evaluation" in body["plan"]):
        charged = "an evaluation" if "evaluation" in body["plan"] else "no evaluation"
        yield f"{body['id']}: has {body['state']} with {charged} in its plan, and shows {'' if shown else 'no '}scores"


def _charge_faults(books: Books) -> Iterator[str]:
    """One charge for each run that a budget pays for, of what its plan costs; the budget has spent their sum."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    reservations = {each["id"]: each for view in books.budgets for each in view.reservations}
    for view in books.budgets:
        for entry in view.entries:
            if entry["reservation_id"] is not None:
                kinds[entry["reservation_id"]].append(entry["kind"])
    spent: Counter[str] = Counter()
    explained: set[str] = set()
    for run in books.runs.values():
        body = run.body
        if body["reservation_id"] is None:
            continue
        explained.add(body["reservation_id"])
        happened = kinds[body["reservation_id"]]
        if happened != CHARGED and (body["state"] == "succeeded" or happened != RELEASED):
            yield f"{body['id']}: has {body['state']}, and its charge was {happened}"
        reservation = reservations.get(body["reservation_id"])
        if reservation is None:
            yield f"{body['id']}: its reservation is lost"
            continue
        own = {"run_id": body["id"], "budget_id": body["budget_id"], "plan_hash": body["plan_hash"]}
        held = {name: reservation[name] for name in own}
        if held != own:
            yield f"{body['id']}: its reservation is of {held}"
        cost = price(body)
        # The service rounds up, too, after a computation in doubles.
        if not cost <= nano_units(reservation["cost"]) <= cost + 1:
            yield f"{body['id']}: costs {cost}, and {nano_units(reservation['cost'])} is held"
        if happened == CHARGED:
            spent[body["budget_id"]] += nano_units(reservation["cost"])
    yield from (f"{each}: was reserved for no run" for each in sorted(reservations.keys() - explained))
    yield from (fault for view in books.budgets for fault in _spending_faults(view, spent))


def _spending_faults(view: BudgetView, spent: Counter[str]) -> Iterator[str]:
    budget, amounts = view.budget, view.budget["amounts"]
    if (nano_units(amounts["spent"]), nano_units(amounts["reserved"])) != (spent[budget["id"]], 0):
        yield f"{budget['id']}: shows {amounts['spent']} and {amounts['reserved']}, its runs cost {spent[budget['id']]}"


def _twin_faults(orders: Sequence[Order], books: Books) -> Iterator[str]:
    """A run whose noise is chosen has the model that it has where nothing is killed."""
    by_key = {order.key: order for order in orders}
    for order in orders:
        if order.twin is None:
            continue
        found = [_parameters(each, books) for each in (order, by_key[order.twin])]
        if found[0] is not None and found[0] != found[1]:
            yield f"{order.key}: its model is another than that of {order.twin}"


def _parameters(order: Order, books: Books) -> dict[str, bytes] | None:
    """Of the one model of an order; None where there is none, or several, which is said elsewhere."""
    models = [model for run_id in order.run_ids if run_id in books.runs for model in books.runs[run_id].models]
    return models[0].parameters if len(models) == 1 else None
