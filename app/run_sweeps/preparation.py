"""The work on a sweep that needs no transaction: calibrating its cells and finding its charge."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from accounting.effort import is_quick
from accounting.errors import AccountingError
from accounting.events import Event, Gaussian
from accounting.filters import RenyiFilter
from accounting.intervals import Answer
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, PureDpTarget
from accounting.tuning import DEFAULT_ORDERS, selection_charge, selection_event, trials_of
from accounting.tuning.candidates import bounding_events
from accounting.tuning.cost import MAX_STATED
from accounting.tuning.drawing import most_trials
from accounting.tuning.trials import FixedTrials, RandomTrials
from app.algorithms.targets import achieved_body
from app.auth.principal import SERVICE, Principal
from app.context import Context
from app.kit.process_pool import JobFailed
from app.ledger.repository import get_budget
from app.problems import Problem, from_accounting, unprocessable
from app.run_sweeps.grid import Grid, read_grid
from app.run_sweeps.schemas import NoisyScore, RunSweepRequest
from app.runs import preparation as runs
from app.runs.sweep_charges import QUANTILE, composed, composition_cost, hash_of, quantile_of, selection_cost
from app.tables.runs import RunSweep
from trainer.models import TASKS, Task

P = ParamSpec("P")
T = TypeVar("T")

#: The seconds after which the calibrations of a grid are given up.
MOST_SECONDS = 60.0
#: The most bytes that the cells of a sweep may take in the database: with very many columns, few cells are possible.
MOST_STORED = 64 * 2**20


@dataclass(frozen=True)
class Prepared:
    """A sweep that is calibrated, checked and priced, but neither charged nor queued.

    Attributes:
        grid: The parsed request.
        columns: The columns of the rows of each cell's runs that hold its request and its plan.
        events: The events that are charged.
        sweep: The columns of the sweep's row that follow from the request.
        price: The price in the sweep's budget, if it has one. An approximate_dp budget prices it at the largest delta
            of the cells.
    """

    grid: Grid
    columns: tuple[dict[str, Any], ...]
    events: tuple[Event, ...]
    sweep: RunSweep
    price: runs.Price | None


@dataclass(frozen=True)
class _Charge:
    events: tuple[Event, ...]
    guarantee: dict[str, Any] | None
    warnings: tuple[str, ...] = ()


def prepare(context: Context, request: RunSweepRequest, principal: Principal = SERVICE) -> Prepared:
    """Read, calibrate and price a sweep.

    Raises:
        Problem: 422 with a pointer to the field that is malformed or does not fit; 404 for an unknown data set or
            budget.
    """
    grid = read_grid(request)
    law = _check_terms(grid)
    ready = _calibrate_all(context, grid, principal)
    columns = tuple(runs.columns_of(cell.request, each) for cell, each in zip(grid.cells, ready, strict=True))
    _check_size(columns)
    plans = [each.calibration.plan for each in ready]
    relation = plans[0].neighboring_relation
    warnings: list[str] = []
    if law is None:
        charge = _charge_of_all(context, grid, [plan.events for plan in plans], relation)
    else:
        _check_score(grid, is_public=ready[0].is_public)
        warnings += _check_release(grid, law, is_public=ready[0].is_public)
        charge = _charge_of_best(context, grid, [plan.events for plan in plans], relation, law)
    terms, first = grid.terms, grid.cells[0].request
    sweep = RunSweep(
        select=terms.select,
        request=request.root,
        fields=grid.fields,
        budget_id=first.budget_id,
        guarantee=charge.guarantee,
        trials=None if law is None else law.to_json(),
        score=None if terms.score is None else terms.score.model_dump(mode="json"),
        warnings=[*warnings, *charge.warnings],
    )
    sweep.sweep_hash = hash_of(sweep, [plan.plan_hash for plan in plans], charge.events)
    if terms.expected_sweep_hash not in (None, sweep.sweep_hash):
        detail = f"this request makes the sweep {sweep.sweep_hash}, not the expected one; nothing was charged"
        raise unprocessable("sweep_hash_mismatch", detail, "expected_sweep_hash")
    price = None
    if first.budget_id is not None:
        target = max((cell.request.target for cell in grid.cells), key=lambda each: _delta(each) or 0.0)
        price = runs.price(context, first.budget_id, charge.events, relation, target, certificate=first.certificate)
    return Prepared(grid, columns, charge.events, sweep, price)


def _check_terms(grid: Grid) -> RandomTrials | None:
    """Check the sweep's own fields, and return the law of the number of trials; None if all runs are released."""
    terms = grid.terms
    if terms.select == "all":
        for name in ("trials", "score", "release_after_s"):
            if getattr(terms, name) is not None:
                detail = (
                    f"{name} is only for select best; with select all, every cell runs once and every result is shown"
                )
                raise unprocessable("overdetermined", detail, name)
        return None
    needed = {"trials": "the law of the number of trials", "score": "the score by which the best run is chosen"}
    for name, what in needed.items():
        if getattr(terms, name) is None:
            raise unprocessable("missing", f"select best needs {name}: {what}", name)
    assert terms.trials is not None, "checked above"
    first = grid.cells[0].request
    if any(cell.request.seed is not None for cell in grid.cells):
        detail = "with a seed, all trials of a cell would be the same run: leave seed out, or use select all"
        raise unprocessable("unsupported", detail, "seed")
    if TASKS[first.model.kind] is Task.MEAN:
        detail = "a mean predicts no label, so its runs have no score: use select all"
        raise unprocessable("unsupported", detail, "model", "kind")
    for cell in grid.cells:
        if cell.request.target.kind not in (ApproximateDpTarget.kind, PureDpTarget.kind):
            detail = "the cost of a selection is stated at a delta: use an approximate_dp or a pure_dp target"
            raise unprocessable("unsupported", detail, "target", "kind")
        if getattr(cell.request.target, "group_size", 1) > 1:
            detail = "the cost of a selection is known only for single records: leave group_size out, or use select all"
            raise unprocessable("unsupported", detail, "target", "group_size")
    if len({_delta(cell.request.target) for cell in grid.cells}) > 1:
        detail = "the selection has one guarantee, at one delta: use the same delta in all cells"
        raise unprocessable("unsupported", detail, "target", "delta")
    try:
        law = trials_of(**terms.trials.model_dump(exclude_none=True))
        assert not isinstance(law, FixedTrials), "the schema has no such law"
        most_trials(law)
    except AccountingError as error:
        prefix = () if error.pointer[:1] == ("trials",) else ("trials",)
        raise from_accounting(error, *prefix) from None
    return law


def _calibrate_all(context: Context, grid: Grid, principal: Principal) -> list[runs.Preparation]:
    deadline = time.monotonic() + MOST_SECONDS
    ready: list[runs.Preparation] = []
    for number, cell in enumerate(grid.cells):
        if time.monotonic() > deadline:
            detail = (
                f"after {MOST_SECONDS:g} s {number} of {len(grid.cells)} cells were calibrated: sweep fewer values, or "
                "use full batches, which are calibrated at once"
            )
            raise unprocessable("too_much_work", detail, *grid.swept[-1].path)
        try:
            # All cells use the version that is the newest when the first one is prepared.
            version = ready[0].version if ready else cell.request.dataset_version
            request = cell.request.model_copy(update={"dataset_version": version})
            ready.append(runs.calibrate(context, request, principal))
        except Problem as problem:
            raise grid.in_cell(number, problem) from None
        except AccountingError as error:
            raise grid.in_cell(number, from_accounting(error)) from None
    relations = {each.calibration.plan.neighboring_relation for each in ready}
    if len(relations) > 1:
        detail = (
            f"the algorithms have different relations of their own ({', '.join(sorted(map(str, relations)))}): "
            "give neighboring_relation, which then applies to all"
        )
        raise unprocessable("relation_mismatch", detail, "neighboring_relation")
    return ready


def _check_size(columns: Sequence[dict[str, Any]]) -> None:
    described = sum(len(json.dumps(each["description"])) + len(each["plan"]) for each in columns)
    if described > MOST_STORED:
        detail = (
            f"the records of {len(columns)} runs on this data set take {described / 2**20:.0f} MiB, and at most "
            f"{MOST_STORED / 2**20:.0f} MiB are allowed: sweep fewer values at a time"
        )
        raise unprocessable("too_much_work", detail, "dataset_id")


def _check_score(grid: Grid, *, is_public: bool) -> None:
    score, first = grid.terms.score, grid.cells[0].request
    if not isinstance(score, NoisyScore) and not is_public and first.test_dataset_id is None:
        detail = (
            "a public score needs public rows: give a test_dataset_id, or a noisy score, which is a charged release "
            "about the training rows"
        )
        raise unprocessable("missing", detail, "test_dataset_id")


def _check_release(grid: Grid, law: RandomTrials, *, is_public: bool) -> list[str]:
    after = grid.terms.release_after_s
    most = quantile_of(law)
    if after is None and not is_public:
        detail = (
            "the duration of a sweep reveals the number of its trials, which must stay secret: give the number of "
            f"seconds after which all trials have surely ended. Trials run one after the other, and {QUANTILE:.1%} "
            f"of sweeps with this law make at most {most}: so {most} times the duration of one run is enough"
        )
        raise unprocessable("missing", detail, "release_after_s")
    if after is None or is_public:
        return []
    least = max(most, 1)
    if after < least:
        detail = (
            f"{after} s would hide nothing: a run on private data takes at least one second, and {QUANTILE:.1%} of "
            f"sweeps with this law make at most {most}, one after the other. Give at least {least} s; {least} "
            "times the duration of one run is enough"
        )
        raise unprocessable("out_of_range", detail, "release_after_s")
    return [
        f"Nothing is told before {after} s have passed, or before {least} trials have ended, which are made whatever "
        f"number is drawn; {QUANTILE:.1%} of sweeps need no more. Other runs that wait meanwhile may wait longer."
    ]


def _charge_of_all(
    context: Context, grid: Grid, events: Sequence[tuple[Event, ...]], relation: NeighboringRelation
) -> _Charge:
    try:
        together = composed(events)
        deltas = {_delta(cell.request.target) for cell in grid.cells}
        if None in deltas:
            return _Charge(together, None)
        delta = max(each for each in deltas if each is not None)
        answer = _within_limits(context, together, composition_cost, together, relation, delta)
    except AccountingError as error:
        raise unprocessable(error.code, f"all runs together: {error.detail}", *grid.swept[-1].path) from None
    except JobFailed as failure:
        return _Charge(together, None, (f"The guarantee of all runs together was not found: {failure}.",))
    return _Charge(together, _guarantee(answer, delta), tuple(answer.warnings))


def _charge_of_best(
    context: Context,
    grid: Grid,
    events: Sequence[tuple[Event, ...]],
    relation: NeighboringRelation,
    law: RandomTrials,
) -> _Charge:
    try:
        bound = bounding_events(events)
    except AccountingError as error:
        raise grid.in_cell(
            int(error.pointer[0]), unprocessable(error.code, error.detail, *grid.swept[-1].path)
        ) from None
    if isinstance(grid.terms.score, NoisyScore):
        bound = (*bound, Event(Gaussian(grid.terms.score.noise_multiplier)))
    delta = _delta(grid.cells[0].request.target)
    assert delta is not None, "checked with the terms"
    budget_id = grid.cells[0].request.budget_id
    kind, orders = _filter_of(context, budget_id)
    if kind == "pure_dp" and delta > 0.0:
        detail = "a pure_dp budget charges the cost of a selection at delta 0: use a pure_dp target"
        raise unprocessable("no_cost_in_filter", detail, "target", "kind")
    try:
        cost = _within_limits(context, bound, selection_cost, bound, relation, law, delta, orders)
    except AccountingError as error:
        raise unprocessable(error.code, error.detail, "budget_id" if orders else "target") from None
    except JobFailed as failure:
        detail = f"the price of the selection was given up: {failure}; use full batches, or fewer phases"
        raise unprocessable("too_much_work", detail, "sampling") from None
    epsilon = cost.epsilon.value.upper
    if not epsilon <= MAX_STATED:
        detail = (
            f"the selection has no epsilon of at most {MAX_STATED:g} at this delta: use a smaller target for each run"
        )
        raise unprocessable("unreachable_target", detail, "target")
    event = selection_charge(epsilon, delta) if cost.moments is None else selection_event(cost.moments)
    return _Charge((event,), _guarantee(cost.epsilon, delta), tuple(cost.epsilon.warnings))


def _filter_of(context: Context, budget_id: str | None) -> tuple[str | None, tuple[float, ...] | None]:
    """Return the kind of the budget's filter, and the orders of the moments by which it prices a selection, if any."""
    if budget_id is None:
        return None, None
    with context.database.read() as session:
        budget_filter = get_budget(session, budget_id).filter
    if budget_filter.kind in ("zcdp", "gaussian_dp"):
        detail = (
            f"no cost of a selection is proved in {budget_filter.kind}: charge it to a renyi_dp, approximate_dp or "
            "pure_dp budget, or select all"
        )
        raise unprocessable("no_cost_in_filter", detail, "budget_id")
    if isinstance(budget_filter, RenyiFilter):
        return budget_filter.kind, budget_filter.orders
    return budget_filter.kind, DEFAULT_ORDERS if budget_filter.kind == "approximate_gaussian_dp" else None


def _within_limits(
    context: Context, events: Sequence[Event], function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    if is_quick(events):
        with context.numerics:
            return function(*args, **kwargs)
    return context.processes.run(function, *args, **kwargs)


def _delta(target: Any) -> float | None:
    if target.kind == ApproximateDpTarget.kind:
        return float(target.delta)
    return 0.0 if target.kind == PureDpTarget.kind else None


def _guarantee(answer: Answer, delta: float) -> dict[str, Any]:
    upper = answer.value.upper
    target = PureDpTarget(upper) if delta == 0.0 else ApproximateDpTarget(upper, delta)
    body = achieved_body(target, replace(answer))
    return body.model_dump(mode="json")
