"""What happens to a run in the database while workers are at it: claim, start, end, take over. Each is one transaction.

A claim raises the run's epoch. What a worker writes names the epoch of its claim and is refused under any other, so a
worker that was taken for lost and comes back can neither start, nor commit, nor release anything.

Locks are taken in one order everywhere, the run's row before its budget's.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from app.kit.context import Context
from app.ledger.states import ReservationStatus
from app.problems import Problem
from app.reservations import service as reservations
from app.runs import repository
from app.runs.models import IN_PROGRESS, Run, RunState
from app.runs.repository import Lease
from calibrators.plan import Plan, plan_from_canonical

log = structlog.get_logger()

FAILED = {
    "code": "run_failed",
    "detail": "The run did not finish. Its charge stands in full; the operator's log has the run's id.",
}
WORKER_LOST = {
    "code": "worker_lost",
    "detail": "The worker process ended or stalled before the run was done. What was started stays charged: noise may "
    "have been drawn.",
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

#: A run that costs so many workers their lives before it starts is not given to another.
MAX_CLAIMS = 3


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
            run.epoch += 1
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
        RefusedError: the run was cancelled or taken over, its hold is lost, or it holds another plan. Nothing is
            written then.
    """
    with context.database.write() as session:
        run = repository.find_for_update(session, claimed.id)
        assert run is not None, "runs are never deleted"
        if not _is_held(run, claimed):
            raise RefusedError(WORKER_LOST)
        if run.state == RunState.CANCELLING:
            raise RefusedError(None)
        if run.reservation_id is None:
            return
        try:
            reservation = reservations.start(session, context, run.reservation_id)
        except Problem as problem:
            # Started already: this claim did, and did not hear of it. The charge stands.
            raise RefusedError(FAILED if problem.code == "already_started" else HOLD_LOST) from None
        if (reservation.events, reservation.plan_hash) != (plan.events, plan.plan_hash):
            raise RefusedError(PLAN_REFUSED)


def end(context: Context, claimed: Run, ending: Ending) -> bool:
    """End a run and settle its charge; False when it is not this claim's any more, and nothing was written."""
    with context.database.write() as session:
        run = repository.find_for_update(session, claimed.id)
        assert run is not None, "runs are never deleted"
        if not _is_held(run, claimed):
            if run.epoch == claimed.epoch and run.state == RunState.SUCCEEDED:
                return True  # by this very call: it is made again where its answer was lost
            log.warning("run_taken_away", run_id=run.id, epoch=claimed.epoch)
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
            _give_up(session, context, run)
    return len(lost)


def take_over(context: Context, lease: Lease) -> bool:
    """Take a run from a worker whose lease has lapsed; False where the worker was heard of since, or is writing."""
    with context.database.write() as session:
        run = repository.find_unchanged(session, lease)
        if run is None:
            return False
        _give_up(session, context, run)
    return True


def _is_held(run: Run, claimed: Run) -> bool:
    return run.state in IN_PROGRESS and (run.epoch, run.worker_id) == (claimed.epoch, claimed.worker_id)


def _give_up(session: Session, context: Context, run: Run) -> None:
    """What becomes of a run without its worker: queued again where no noise can have been drawn, else settled."""
    log.warning("worker_lost", run_id=run.id, worker_id=run.worker_id, epoch=run.epoch)
    ending = Ending(RunState.FAILED, WORKER_LOST)
    # Nothing tells whether a run without a reservation was started.
    if run.reservation_id is not None and not _is_started(session, run.reservation_id):
        if run.state == RunState.CANCELLING:
            ending = Ending(RunState.CANCELLED)
        elif run.epoch < MAX_CLAIMS:
            run.state, run.worker_id, run.started_at = RunState.QUEUED, None, None
            return
    _settle(session, context, run, ending)


def _is_started(session: Session, reservation_id: str) -> bool:
    return reservations.get_reservation(session, reservation_id).state == ReservationStatus.STARTED


def _settle(session: Session, context: Context, run: Run, ending: Ending) -> None:
    """A started reservation is committed in full, whatever became of the run; one that never started is released."""
    run.state, run.problem, run.finished_at = ending.state, ending.problem, context.clock()
    if run.reservation_id is None:
        return
    if _is_started(session, run.reservation_id):
        reservations.commit(session, context, run.reservation_id)
    else:
        with suppress(Problem), session.begin_nested():  # a hold that ran out is released already
            reservations.void(session, context, run.reservation_id)
