"""The stored parts of a run: its plan, its charge and its state, for answers about it and for other resources."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from app.algorithms.model_choice import MODEL_CHOICE
from app.algorithms.plans import plan_body
from app.algorithms.schemas import DtypeName
from app.problems import Problem
from app.reservations import service as reservations
from app.runs.schemas import ProgressBody, ResultBody, RunBody, RunProblem
from app.tables.ledger import Reservation
from app.tables.runs import Run, RunSweep
from app.tables.states import RunState
from app.wire.answers import ChoiceBody
from calibrators.plan import Plan, plan_from_canonical

PLAN_ALTERED = "The run's stored plan does not have its hash any more: somebody else has changed the database."


def stored_plan(run: Run) -> Plan:
    """Return the run's plan.

    Raises:
        Problem: 500 ``stored_plan_altered`` if its bytes no longer have their hash.
    """
    plan = plan_if_intact(run)
    if plan is None:
        raise Problem(500, "stored_plan_altered", PLAN_ALTERED)
    return plan


def plan_if_intact(run: Run) -> Plan | None:
    try:
        return plan_from_canonical(run.plan, run.plan_hash)
    except AccountingError:
        return None


def sweep_of(session: Session, run: Run) -> RunSweep | None:
    """Return the sweep whose charge the run is part of; None if it is in no sweep."""
    return None if run.sweep_id is None else session.get_one(RunSweep, run.sweep_id)


def reservation_id_of(session: Session, run: Run) -> str | None:
    """Return the id of the reservation that holds what the run costs: its own, or its sweep's."""
    sweep = sweep_of(session, run)
    return run.reservation_id if sweep is None else sweep.reservation_id


def reservation_of(session: Session, run: Run) -> Reservation | None:
    reservation_id = reservation_id_of(session, run)
    return None if reservation_id is None else reservations.get_reservation(session, reservation_id)


def charge_of(session: Session, run: Run) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return what the run's reservation holds or has spent, and what was given back for steps that the run gave up.

    Both are in the fields of the budget's filter, and None without a budget. For a run of a sweep, the first is the
    charge of the whole sweep, and the second is None.
    """
    reservation_id = reservation_id_of(session, run)
    if reservation_id is None:
        return None, None
    charge, given_back = reservations.charge(session, reservation_id)
    return charge, given_back if reservation_id == run.reservation_id else None


def choices_of(run: Run) -> list[ChoiceBody]:
    """Return the values that were chosen because the request left them out. Runs from before presets existed have
    none."""
    return [ChoiceBody.model_validate(item) for item in run.provenance.get("choices", ())]


def run_body(session: Session, run: Run) -> RunBody:
    """Return the run with its state, progress and result."""
    plan = plan_if_intact(run)
    charge, given_back = charge_of(session, run)
    return RunBody(
        id=run.id,
        state=RunState(run.state),
        algorithm=run.algorithm,
        progress=ProgressBody(done=run.steps_done, total=run.steps_total),
        dataset_id=run.dataset_id,
        dataset_version=run.dataset_version,
        test_dataset_id=run.test_dataset_id,
        model=MODEL_CHOICE.validate_python(run.model),
        budget_id=run.budget_id,
        reservation_id=reservation_id_of(session, run),
        sweep_id=run.sweep_id,
        plan=None if plan is None else plan_body(plan),
        plan_hash=run.plan_hash,
        dtype=None if plan is None else cast(DtypeName, plan.dtype),
        dtype_reason=run.provenance.get("dtype_reason"),
        choices=choices_of(run),
        theorem_note=run.provenance.get("theorem_note"),
        charge=charge,
        given_back=given_back,
        result=None if run.result is None else ResultBody.model_validate(run.result),
        problem=None if run.problem is None else RunProblem.model_validate(run.problem),
        warnings=run.warnings if plan is not None else [PLAN_ALTERED, *run.warnings],
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        release_at=run.release_at,
    )
