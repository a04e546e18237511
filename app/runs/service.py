"""Use cases of runs: queue a run and hold its charge, read it, cancel it, return its model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from app.algorithms.binding import DataDescription
from app.algorithms.model_choice import MODEL_CHOICE
from app.algorithms.targets import (
    ApproximateDpTargetBody,
    RunTargetBody,
)
from app.auth.principal import Principal
from app.context import Context
from app.datasets import service as datasets
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.kit import spans
from app.kit.ids import new_id
from app.kit.pagination import cut_page, decode_cursor
from app.problems import Problem, not_found
from app.reservations import service as reservations
from app.reservations.commands import reserve
from app.reservations.schemas import PlanPriceBody
from app.runs import artifacts, repository
from app.runs import sweep_progression as progression
from app.runs import sweep_repository as run_sweeps
from app.runs.guarantee import guarantee_of, round_up
from app.runs.model_schemas import ModelBody, hash_of_card
from app.runs.preparation import Preparation, columns_of, explained
from app.runs.report import model_card
from app.runs.schemas import RunRequest
from app.runs.settling import Ending, settle
from app.tables.runs import Run
from app.tables.states import RunState
from trainer.models import Parameters

#: No warning is given if the charge differs from the target's epsilon by at most this share of that epsilon.
AS_ASKED = 1e-3


def check_queue(context: Context, principal_id: str, more: int = 1) -> None:
    """Refuse a key that has too many runs waiting. Simultaneous requests may exceed the limit, since each may take the
    last place.

    Args:
        context: The process's context.
        principal_id: The key.
        more: The number of runs that are to be queued.

    Raises:
        Problem: 429 ``queue_full``.
    """
    most = context.settings.queued_runs_per_key
    with context.database.read() as session:
        queued = repository.count_queued(session, principal_id) + run_sweeps.count_waiting(session, principal_id)
    if queued + more > most:
        detail = (
            f"{queued} runs of this key wait for a worker, {more} more {'is' if more == 1 else 'are'} asked for, "
            f"and the limit is {most}. Try again when workers have taken some of them, or cancel some."
        )
        raise Problem(429, "queue_full", detail, headers={"Retry-After": "60"})


def create(session: Session, context: Context, principal_id: str, request: RunRequest, ready: Preparation) -> Run:
    """Reserve the plan's cost and queue the run, in the caller's transaction.

    Raises:
        Problem: 409 when the budget is not the data set's own.
        Exceeded: the budget does not admit the plan.
    """
    plan = ready.calibration.plan
    run_id = new_id("run")
    reservation_id = None
    registering.lock(session)
    warnings = list(ready.calibration.warnings)
    if request.budget_id is not None:
        assert ready.price is not None, "what is charged has a price"
        charged = datasets.charged_by_run(session, request.dataset_id, ready.version, request.budget_id)
        asked = ready.price.asked(f"{plan.algorithm} run {run_id}", run_id, plan.plan_hash, charged)
        reservation_id = reserve(session, context, principal_id, asked, ready.price.quote)
        warnings += ready.price.warnings
        warnings += _charged_otherwise(request.target, ready.explanation)
    run = Run(
        **{**columns_of(request, ready), "warnings": warnings},
        id=run_id,
        principal_id=principal_id,
        state=RunState.QUEUED,
        reservation_id=reservation_id,
        steps_done=0,
        trace_parent=spans.current_as_text(),
        created_at=context.clock(),
    )
    session.add(run)
    entered = Registration(EntryKind.REGISTER, Subject.RUN, run_id, principal_id)
    registering.enter(session, run.created_at, [entered])
    return run


def _charged_otherwise(target: RunTargetBody, price: PlanPriceBody | None) -> list[str]:
    """Return a warning if the budget charges a different epsilon than the run's target."""
    if not isinstance(target, ApproximateDpTargetBody) or price is None or price.charged is None:
        return []
    if target.group_size > 1:
        return [
            f"The run's epsilon is for groups of {target.group_size} records; its budget charges what the plan costs "
            f"one record, epsilon {round_up(price.charged)} at delta {price.delta:g}."
        ]
    if abs(price.charged - target.epsilon) <= AS_ASKED * target.epsilon:
        return []
    tight = "" if price.tight.upper is None else f", where its tight epsilon is at most {round_up(price.tight.upper)}"
    return [
        f"The run asks for epsilon {target.epsilon:g} at delta {target.delta:g}, and its budget charges the plan as "
        f"epsilon {round_up(price.charged)} at delta {price.delta:g}{tight}. {price.why}"
    ]


def get(session: Session, run_id: str) -> Run:
    run = repository.find(session, run_id)
    if run is None:
        raise not_found("run", run_id)
    return run


def list_page(
    session: Session, cursor: str | None, limit: int, within: ColumnElement[bool]
) -> tuple[Sequence[Run], str | None]:
    """Return the runs that the reader may see, newest first, and the next page's cursor."""
    before = cast(tuple[datetime, str] | None, decode_cursor(cursor, datetime, str))
    found = repository.page(session, before, limit + 1, within)
    return cut_page(found, limit, lambda run: (run.created_at, run.id))


def price_of(context: Context, run_id: str) -> PlanPriceBody | None:
    """Return the cost of a run's plan by itself. None if the run has no charge of its own, or if computing the cost may
    take long."""
    with context.database.read() as session:
        run = get(session, run_id)
        if run.reservation_id is None or run.budget_id is None:
            return None
        held = reservations.get_reservation(session, run.reservation_id)
        asked = run.budget_id, held.events, held.cost
    return explained(context, *asked, may_take_long=False)


def cancel(session: Session, context: Context, run_id: str, principal: Principal) -> Run:
    """Cancel a queued run, or ask the worker of a running one to stop. A run that was ever started is charged in full.

    Raises:
        Problem: 403 ``not_your_run``; 409 when the run has ended.
    """
    run = repository.find_for_update(session, run_id)
    if run is None or run.is_withheld:
        raise not_found("run", run_id)
    if not principal.acts_for(run.principal_id):
        raise not_your_run("run")
    if run.state == RunState.QUEUED:
        settle(session, context, run, Ending(RunState.CANCELLED))
    elif run.state == RunState.RUNNING:
        run.state = RunState.CANCELLING
    elif run.state != RunState.CANCELLING:
        raise Problem(409, "run_has_ended", f"The run has {run.state}; it can no longer be cancelled.")
    session.flush()
    return run


def not_your_run(what: str) -> Problem:
    """Return the refusal of a key that would cancel a run or sweep of another key."""
    return Problem(
        403,
        "not_your_run",
        (f"Another key made this {what}. Only that key, or a key with the scope owner, can cancel it."),
    )


def go_on_with_sweep(context: Context, run_id: str) -> None:
    """Settle the run's sweep, if it has one and this was the last of its runs."""
    with context.database.read() as session:
        run = repository.find(session, run_id)
    if run is not None:
        progression.advance(context, {run.sweep_id})


def released(session: Session, context: Context, run_id: str) -> Run:
    """Return a run that has released its model.

    Raises:
        Problem: 404; 409 ``model_not_released``.
    """
    run = get(session, run_id)
    if run.state != RunState.SUCCEEDED:
        raise Problem(409, "model_not_released", f"The run has not succeeded (it is {run.state}): there is no model.")
    if not artifacts.model_path(context, run).exists():
        raise Problem(409, "model_not_released", "The run has released no model.")
    return run


def model_body(session: Session, context: Context, run: Run) -> ModelBody:
    """Return the model of a run that succeeded, with everything that is needed to use it."""
    return _model_body(session, run, artifacts.read_parameters(context, run))


def model_file(session: Session, context: Context, run: Run) -> bytes:
    """Return the model as an NPZ file."""
    document = _model_body(session, run, {}).model_dump(mode="json", exclude={"parameters"})
    return artifacts.model_file(context, run, document)


def _model_body(session: Session, run: Run, parameters: Parameters) -> ModelBody:
    data, card = DataDescription.model_validate(run.description), model_card(session, run)
    return ModelBody(
        run_id=run.id,
        algorithm=run.algorithm,
        kind=run.model["kind"],
        model=MODEL_CHOICE.validate_python(run.model),
        plan_hash=run.plan_hash,
        features=[column.model_dump(mode="json") for column in data.features],
        classes=list(data.classes),
        label=data.label.model_dump(mode="json"),
        guarantee=guarantee_of(session, run),
        card=card,
        card_hash=None if card is None else hash_of_card(card),
        parameters={name: array.tolist() for name, array in parameters.items()},
    )
