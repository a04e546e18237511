"""What happens to a run in the database while workers are at it: claim, start, end. Each is one transaction.

Locks are taken in one order everywhere, the run's row before its budget's.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from app.budgets import service as budgets
from app.kit.context import Context
from app.ledger.states import ReservationStatus
from app.problems import Problem
from app.runs import repository
from app.runs.models import IN_PROGRESS, Run, RunState
from calibrators.plan import Plan, plan_from_canonical

log = structlog.get_logger()

FAILED = {
    "code": "run_failed",
    "detail": "The run did not finish. Its charge stands in full; the operator's log has the run's id.",
}
WORKER_LOST = {
    "code": "worker_lost",
    "detail": "The worker process ended before the run did. What was started stays charged: noise may have been drawn.",
}
NOT_STARTED = {
    "code": "run_not_started",
    "detail": "The run could not be started. Nothing was charged; the operator's log has the run's id.",
}
HOLD_LOST = {
    "code": "reservation_lost",
    "detail": "The run waited longer than its hold on the budget lasts. Nothing was charged; ask for it again.",
}
DATASET_GONE = {
    "code": "dataset_deleted",
    "detail": "A data set of the run was deleted before it was loaded. Nothing was charged.",
}
PLAN_REFUSED = {
    "code": "plan_hash_mismatch",
    "detail": "The stored plan is not the one that was charged, so the worker refused it. Nothing was charged.",
}


@dataclass(frozen=True)
class Ending:
    """How a run ended: its state, the constant text that says why it failed, and what is stored of its result."""

    state: RunState
    problem: dict[str, str] | None = None
    result: dict[str, Any] | None = None


class RefusedError(Exception):
    """A run that must not start, with the constant text that says why; None where it was cancelled."""

    def __init__(self, problem: dict[str, str] | None) -> None:
        super().__init__("cancelled" if problem is None else problem["code"])
        self.problem = problem


def claim(context: Context, worker_id: str) -> Run | None:
    """Take the oldest queued run for this worker; its budget is still only held."""
    with context.database.read() as session:
        if not repository.has_queued(session):
            return None
    with context.database.write() as session:
        run = repository.next_queued(session)
        if run is not None:
            run.worker_id, run.started_at, run.state = worker_id, context.clock(), RunState.RUNNING
    return run


def read_plan(run: Run) -> Plan:
    """The run's plan.

    Raises:
        RefusedError: its bytes do not have the hash that was charged, or are no plan.
    """
    try:
        return plan_from_canonical(run.plan, run.plan_hash)
    except AccountingError:
        raise RefusedError(PLAN_REFUSED) from None


def start(context: Context, claimed: Run, plan: Plan) -> None:
    """Start the reservation: once this returns, noise may be drawn and the charge stands.

    Raises:
        RefusedError: the run was cancelled, its hold is lost, or it holds another plan. Nothing is written then.
    """
    with context.database.write() as session:
        run = repository.find_for_update(session, claimed.id)
        assert run is not None, "runs are never deleted"
        if run.state != RunState.RUNNING or run.worker_id != claimed.worker_id:
            raise RefusedError(None)
        if run.reservation_id is None:
            return
        try:
            reservation = budgets.start(session, context, run.reservation_id)
        except Problem:
            raise RefusedError(HOLD_LOST) from None
        if (reservation.events, reservation.plan_hash) != (plan.events, plan.plan_hash):
            raise RefusedError(PLAN_REFUSED)


def end(context: Context, claimed: Run, ending: Ending) -> bool:
    """End a run and settle its charge; False when it is not this worker's any more, and nothing was written."""
    with context.database.write() as session:
        run = repository.find_for_update(session, claimed.id)
        assert run is not None, "runs are never deleted"
        if run.state not in IN_PROGRESS or run.worker_id != claimed.worker_id:
            log.warning("run_taken_away", run_id=run.id)
            return False
        if ending.result is not None:
            run.result, run.steps_done = ending.result, run.steps_total
        _settle(session, context, run, ending)
    log.info("run_ended", run_id=claimed.id, state=str(ending.state))
    return True


def give_up_runs_of(context: Context, worker_id: str) -> int:
    """Settle what a worker that is gone left behind. Returns how many runs there were."""
    with context.database.write() as session:
        lost = repository.in_progress_of(session, worker_id)
        for run in lost:
            log.warning("worker_lost", run_id=run.id, worker_id=worker_id)
            _settle(session, context, run, Ending(RunState.FAILED, WORKER_LOST))
    return len(lost)


def _settle(session: Session, context: Context, run: Run, ending: Ending) -> None:
    """A started reservation is committed in full, whatever became of the run; one that never started is released."""
    run.state, run.problem, run.finished_at = ending.state, ending.problem, context.clock()
    if run.reservation_id is None:
        return
    if budgets.get_reservation(session, run.reservation_id).state == ReservationStatus.STARTED:
        budgets.commit(session, context, run.reservation_id)
    else:
        with suppress(Problem), session.begin_nested():  # a hold that ran out is released already
            budgets.void(session, context, run.reservation_id)
