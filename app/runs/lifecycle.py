"""The transactions in which workers claim, start, end and take over runs.

A claim raises the run's epoch. Every write of a worker names the epoch of its claim and is refused under another epoch.
So a worker that was considered lost and comes back can neither start, nor commit, nor release anything.

A run that was started continues under its next claim, with the same noise and the same charge, as long as there is a
checkpoint of its stream. It never draws other noise.

A run of a sweep has no reservation of its own: the reservation of its sweep is started with the first run, and settled
when all have ended (`app.runs.sweep_progression`). A run of a sweep was started if it has a stream.

Locks are taken in one order everywhere: a sweep's row, a run's, the register's, its budget's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from app.context import Context
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.fence.marks import Head
from app.fence.service import touch
from app.fence.watching import fence_of
from app.ledger.commands import Commit, Start, Void
from app.ledger.journal import path_of
from app.ledger.states import ReservationState
from app.problems import Problem
from app.reservations import service as reservations
from app.runs import charges, marks, repository
from app.runs.charges import ChargeAltered
from app.runs.checkpoint_files import CheckpointFiles
from app.runs.marks import Rest
from app.runs.repository import Lease
from app.runs.schedule import Schedule
from app.runs.sweep_charges import hash_of, law_of, quantile_of
from app.runs.sweep_progression import advance
from app.runs.sweep_repository import find_for_update as find_sweep_for_update
from app.runs.sweep_repository import plan_hashes
from app.tables.ledger import Reservation
from app.tables.runs import Run, RunSweep
from app.tables.states import IN_PROGRESS, ReservationStatus, RunState
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
    "detail": "A data set of the run, or its version, was deleted before it was loaded. Nothing was charged.",
}
DATASET_TOO_FULL = {
    "code": "dataset_too_full",
    "detail": "The data set has more rows than its capacity, so no run on it can hide their number. Nothing was "
    "charged. Its owner can upload the file again with a larger capacity.",
}
DEVICE_TOO_SMALL = {
    "code": "device_too_small",
    "detail": "The worker's device has too little memory for as many rows as the data set has room for, and this "
    "model. Nothing was charged. A worker that computes on its processor can take such runs.",
}
PLAN_REFUSED = {
    "code": "plan_hash_mismatch",
    "detail": "The stored plan is not the one that was charged, so the worker refused it. Nothing was charged.",
}
DECLARATION_ALTERED = {
    "code": "declaration_altered",
    "detail": "The run, its charge or one of its data sets is not what the books say, so the worker refused "
    "it. Nothing was charged. Somebody has changed the database: `epsilond ledger verify` names the place.",
}

#: These say that nothing was charged, and are not said where something was.
_UNCHARGED = (
    NOT_STARTED,
    HOLD_LOST,
    DATASET_GONE,
    DATASET_TOO_FULL,
    DEVICE_TOO_SMALL,
    PLAN_REFUSED,
    DECLARATION_ALTERED,
)

#: A run that has cost so many workers their lives is not given to another.
MAX_WORKERS_LOST = 3


@dataclass(frozen=True)
class Ending:
    """The end of a run.

    Attributes:
        state: Its final state.
        problem: The constant text that says why it failed.
        result: The stored part of its result.
        rest: The steps that it gives up if it ends early. Their worth is given back as long as no further step was
            marked.
    """

    state: RunState
    problem: dict[str, str] | None = None
    result: dict[str, Any] | None = None
    rest: Rest | None = None


class RefusedError(Exception):
    """A run must not start. The error has the constant text that says why, or None if the run was cancelled."""

    def __init__(self, problem: dict[str, str] | None) -> None:
        super().__init__("cancelled" if problem is None else problem["code"])
        self.problem = problem


def claim(context: Context, worker_id: str) -> Run | None:
    """Claim the oldest queued run for this worker. Its reservation does not start yet."""
    with context.database.read() as session:
        if not repository.has_queued(session):
            return None
    with context.database.write() as session:
        run = repository.next_queued(session)
        if run is not None:
            run.worker_id, run.started_at, run.state = worker_id, context.clock(), RunState.RUNNING
            run.epoch += 1
    return run


def schedule(context: Context, claimed: Run, stored: dict[str, Any], release_at: datetime) -> None:
    """Store the schedule of a run on private data, and the time at which the end of this claim is shown.

    Raises:
        RefusedError: the run was taken over.
    """
    with context.database.write() as session:
        run = repository.find_for_update(session, claimed.id)
        assert run is not None, "runs are never deleted"
        if not _is_held(run, claimed):
            raise RefusedError(WORKER_LOST)
        run.schedule, run.release_at = stored, release_at


def read_plan(run: Run) -> Plan:
    """Return the run's plan.

    Raises:
        RefusedError: its bytes do not have the hash that was charged, or are not a plan.
    """
    try:
        return plan_from_canonical(run.plan, run.plan_hash)
    except AccountingError:
        raise RefusedError(PLAN_REFUSED) from None


def check_plan(plan: Plan, charged: Reservation | ReservationState) -> None:
    """Check that a run is about to do what is charged for it.

    Raises:
        RefusedError: it is something else.
    """
    if (charged.events, charged.plan_hash) != (plan.events, plan.plan_hash):
        raise RefusedError(PLAN_REFUSED)


def check_plan_of_sweep(
    session: Session, sweep: RunSweep, run: Run, plan: Plan, charged: Reservation | ReservationState
) -> None:
    """Check that a run of a sweep is about to do what is charged for the sweep.

    Raises:
        RefusedError: it is something else.
    """
    assert run.sweep_cell is not None, "a run that waits has a cell"
    hashes = plan_hashes(session, sweep.id)
    said = hash_of(sweep, hashes, charged.events)
    if hashes[run.sweep_cell] != plan.plan_hash or not sweep.sweep_hash == charged.plan_hash == said:
        raise RefusedError(PLAN_REFUSED)
    if run.score_noise_multiplier != (sweep.score or {}).get("noise_multiplier"):
        # A score is a release too, and no part of the plan.
        raise RefusedError(PLAN_REFUSED)


def start(
    context: Context, claimed: Run, plan: Plan, stream_id: str, steps_done: int = 0, *, mark: int | None = None
) -> int | None:
    """Start the reservation: once this returns, noise of this stream may be drawn and the charge stands.

    A charge that has already started continues under the stream with which it was started.

    Args:
        stream_id: The name of the random stream, whose keys are already kept.
        steps_done: The steps that earlier claims took under this stream.
        mark: How many steps of this claim may draw noise before it marks more; None if it marks none.

    Returns:
        The number of marked steps; None if all steps count.

    Guarantees:
        - one_charge_is_one_stream: a charge that has started is refused to every other stream.

    Raises:
        RefusedError: the run was cancelled or taken over, its hold is lost, it was started with another stream, or it
            holds another plan. Nothing is written then.
    """
    with context.database.write() as session:
        sweep = None if claimed.sweep_id is None else find_sweep_for_update(session, claimed.sweep_id)
        run = repository.find_for_update(session, claimed.id)
        assert run is not None, "runs are never deleted"
        if not _is_held(run, claimed):
            raise RefusedError(WORKER_LOST)
        if run.state == RunState.CANCELLING:
            raise RefusedError(None)
        if sweep is not None:
            _start_charge_of_sweep(session, context, sweep, run, plan, stream_id)
        elif run.reservation_id is not None:
            is_first = _start_charge(session, context, run.reservation_id, plan, run.stream_id == stream_id)
            if is_first and _gives_back(session, run):
                marks.begin(session, run, mark)
            elif not is_first:
                marks.go_on(session, run, mark)
        run.stream_id, run.steps_done = stream_id, steps_done
        session.flush()
        if sweep is not None:
            touch(session.connection(), run.id, None)
        return marks.of(session, run.id)


def _gives_back(session: Session, run: Run) -> bool:
    path = None if run.budget_id is None else path_of(session, run.budget_id)
    return path is not None and path[0].filter.gives_back


def _start_charge_of_sweep(
    session: Session, context: Context, sweep: RunSweep, run: Run, plan: Plan, stream_id: str
) -> None:
    if sweep.reservation_id is not None:
        if run.stream_id not in (None, stream_id):
            raise RefusedError(WORKER_LOST)
        reservation = reservations.get_reservation(session, sweep.reservation_id)
        check_plan_of_sweep(session, sweep, run, plan, reservation)
        if reservation.state == ReservationStatus.STARTED:
            touch(session.connection(), reservation.budget_id, None)
        else:
            try:
                reservations.resolve(session, context, sweep.reservation_id, Start(by_run=True))
            except Problem:
                raise RefusedError(HOLD_LOST) from None
    if sweep.started_at is None:
        sweep.started_at = context.clock()
        if sweep.release_at is not None:
            # It was counted from the request; but time in which the sweep waited in the queue hides no trial.
            sweep.release_at = sweep.started_at + max(sweep.release_at - sweep.created_at, _time_of_trials(sweep, run))


def _time_of_trials(sweep: RunSweep, first: Run) -> timedelta:
    """Return the time that all trials take one after the other, a public time that does not depend on the number
    drawn."""
    if first.schedule is None or sweep.trials is None:
        return timedelta(0)
    trials = max(1, quantile_of(law_of(sweep.trials)))
    return timedelta(seconds=math.ceil(trials * Schedule.from_json(first.schedule).bound_s()))


def _start_charge(session: Session, context: Context, reservation_id: str, plan: Plan, is_same_stream: bool) -> bool:
    """Start the charge of a run; return False if it had already started."""
    reservation = reservations.get_reservation(session, reservation_id)
    check_plan(plan, reservation)
    if reservation.state == ReservationStatus.STARTED:
        # By an earlier claim, or by this one, which did not hear of it.
        if not is_same_stream:
            raise RefusedError(WORKER_LOST)
        touch(session.connection(), reservation.budget_id, None)
        return False
    try:
        reservations.resolve(session, context, reservation_id, Start(by_run=True))
    except Problem:
        raise RefusedError(HOLD_LOST) from None
    return True


def end(context: Context, claimed: Run, ending: Ending) -> bool:
    """End a run and settle its charge.

    Returns:
        False if nothing of the run is released: either another claim has it, and nothing was written, or its charge
        differs from what was entered, and it has failed.
    """
    ends = {} if claimed.budget_id is None else fence_of(context).heads([claimed.budget_id])
    if ending.state != RunState.SUCCEEDED:
        ending = replace(ending, rest=marks.rest(context, claimed.id))
    with context.database.write() as session:
        run = repository.find_for_update(session, claimed.id)
        assert run is not None, "runs are never deleted"
        if not _is_held(run, claimed):
            if run.epoch == claimed.epoch and run.state == RunState.SUCCEEDED:
                return True  # by this very call: it is made again where its answer was lost
            log.warning("run_taken_away", run_id=run.id, epoch=claimed.epoch)
            return False
        # The claim was compared with the register, and what somebody has written since was not.
        run.is_withheld = claimed.is_withheld
        if ending.result is not None:
            run.result, run.steps_done = ending.result, run.steps_total
        settle(session, context, run, ending, ends)
    log.info("run_ended", run_id=claimed.id, state=str(run.state))
    advance(context, {claimed.sweep_id})
    return run.state == ending.state


def hand_back(context: Context, claimed: Run) -> None:
    """Hand a run back to the next worker, because this one was told to stop."""
    rest = marks.rest(context, claimed.id)
    with context.database.write() as session:
        run = repository.find_for_update(session, claimed.id)
        assert run is not None, "runs are never deleted"
        if not _is_held(run, claimed):
            log.warning("run_taken_away", run_id=run.id, epoch=claimed.epoch)
            return
        _leave_to_another(session, context, run, rest)
    log.info("run_handed_back", run_id=claimed.id)
    advance(context, {claimed.sweep_id})


def give_up_runs_of(context: Context, worker_id: str, *, was_told_to_stop: bool = False) -> int:
    """Settle the runs that a dead worker left behind, and return their number."""
    with context.database.read() as session:
        ids = [lease.run_id for lease in repository.leases(session) if lease.worker_id == worker_id]
    rests = {run_id: marks.rest(context, run_id) for run_id in ids}
    with context.database.write() as session:
        lost = repository.in_progress_of(session, worker_id)
        for run in lost:
            _give_up(session, context, run, rests.get(run.id), was_told_to_stop=was_told_to_stop)
    advance(context, {run.sweep_id for run in lost})
    return len(lost)


def take_over(context: Context, lease: Lease) -> bool:
    """Take a run from a worker whose lease has lapsed; return False if the worker has shown life since, or is
    writing."""
    rest = marks.rest(context, lease.run_id)
    with context.database.write() as session:
        run = repository.find_unchanged(session, lease)
        if run is None:
            return False
        _give_up(session, context, run, rest)
    advance(context, {run.sweep_id})
    return True


def _is_held(run: Run, claimed: Run) -> bool:
    return run.state in IN_PROGRESS and (run.epoch, run.worker_id) == (claimed.epoch, claimed.worker_id)


def _give_up(
    session: Session, context: Context, run: Run, rest: Rest | None, *, was_told_to_stop: bool = False
) -> None:
    """Leave a run without a worker to another one, unless the run itself seems to kill workers."""
    log.warning("worker_lost", run_id=run.id, worker_id=run.worker_id, epoch=run.epoch)
    if not was_told_to_stop:
        run.workers_lost += 1
    _leave_to_another(session, context, run, rest)


def _leave_to_another(session: Session, context: Context, run: Run, rest: Rest | None) -> None:
    """Queue a run again if that cannot make a second release; otherwise settle it."""
    if run.state == RunState.CANCELLING:
        settle(session, context, run, Ending(RunState.CANCELLED, rest=rest))
    elif run.workers_lost < MAX_WORKERS_LOST and _can_go_on(session, context, run):
        run.state, run.worker_id, run.started_at = RunState.QUEUED, None, None
    else:
        settle(session, context, run, Ending(RunState.FAILED, WORKER_LOST, rest=rest))


def _can_go_on(session: Session, context: Context, run: Run) -> bool:
    """Return whether the run can continue, because it has drawn no noise that counts or can draw the same noise
    again."""
    if not run.is_charged or not _is_started(session, run):
        return True
    return run.stream_id is not None and CheckpointFiles(context).exist(run.id, run.stream_id)


def _is_started(session: Session, run: Run) -> bool:
    if run.reservation_id is None:
        return run.stream_id is not None
    return reservations.get_reservation(session, run.reservation_id).state == ReservationStatus.STARTED


def settle(
    session: Session, context: Context, run: Run, ending: Ending, ends: Mapping[str, Head] | None = None
) -> None:
    """End a run in the caller's transaction, which has locked the run's row.

    A started reservation is committed in full whatever happened to the run, or less the worth of the steps that were
    not marked. A reservation that never started is released. The reservation of a sweep is settled when all its runs
    have ended.

    Args:
        session: A write session.
        context: The process's context.
        run: Which one.
        ending: How it ends. A run that has succeeded fails if its charge differs from what was entered.
        ends: The ends that the fence has, the budget's among them, from before the session. Without them the charge is
            not compared with its entries, which is right if nothing of the run is released.
    """
    registering.lock(session)
    run.state, run.problem, run.finished_at = ending.state, ending.problem, context.clock()
    if run.sweep_id is not None and run.problem in _UNCHARGED:
        run.problem = _with_charge(run.problem, "The charge is the sweep's")
    if run.reservation_id is not None:
        _settle_charge(session, context, run, run.reservation_id, ending.rest, ends)
    if not run.is_withheld:
        registering.enter(session, run.finished_at, [Registration(EntryKind.END, Subject.RUN, run.id)])


def _settle_charge(
    session: Session,
    context: Context,
    run: Run,
    reservation_id: str,
    rest: Rest | None,
    ends: Mapping[str, Head] | None,
) -> None:
    try:
        # A run that succeeded has started, whatever its row says.
        if run.state == RunState.SUCCEEDED or _is_started(session, run):
            if run.problem == DECLARATION_ALTERED:
                run.problem = _with_charge(run.problem, "Its charge stands")
            elif run.problem in _UNCHARGED:
                run.problem = WORKER_LOST
            _commit(session, context, run, reservation_id, rest, ends)
        else:
            with suppress(Problem):  # a hold that ran out is released already
                charges.resolve(session, context, reservation_id, Void(by_run=True), ends)
    except ChargeAltered as error:
        # The held amounts stay held, and count as spent.
        log.error("charge_altered", run_id=run.id, reservation_id=reservation_id, reason=str(error))
        run.state, run.result = RunState.FAILED, None
        run.problem = _with_charge(DECLARATION_ALTERED, "What is held for it stays held")


def _commit(
    session: Session,
    context: Context,
    run: Run,
    reservation_id: str,
    rest: Rest | None,
    ends: Mapping[str, Head] | None,
) -> None:
    """Commit a charge less what is given up, or in full if a step was marked meanwhile or giving up is denied."""
    if rest is not None and rest.marked == marks.of(session, run.id):
        with suppress(ChargeAltered):  # there may be no room for what giving up costs
            command = Commit(rest.kept, by_run=True, given_up=rest.given_up)
            charges.resolve(session, context, reservation_id, command, ends)
            return
    charges.resolve(session, context, reservation_id, Commit(by_run=True), ends)


def _with_charge(problem: dict[str, str], charge: str) -> dict[str, str]:
    """Return the problem with this sentence about its charge in place of "Nothing was charged"."""
    return {**problem, "detail": problem["detail"].replace("Nothing was charged", charge)}
