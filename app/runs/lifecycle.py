"""The transactions in which workers claim, start, end and take over runs.

A claim raises the run's epoch. Every write of a worker names the epoch of its claim and is refused under another epoch.
So a worker that was considered lost and comes back can neither start, nor commit, nor release anything.

A run that was started continues under its next claim, with the same noise and the same charge, as long as there is a
checkpoint of its stream. It never draws other noise.

A run of a sweep has no reservation of its own. The sweep's reservation is started with the first of the sweep's runs,
and settled when all have ended (`app.runs.sweep_progression`). A run of a sweep was started if its row names a random
stream.

Locks are taken in one order everywhere: a sweep's row, a run's, the register's, its budget's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from app.context import Context
from app.fence.service import touch
from app.fence.watching import fence_of
from app.ledger.commands import Start
from app.ledger.journal import path_of
from app.ledger.states import ReservationState
from app.problems import Problem
from app.reservations import service as reservations
from app.runs import marks, repository
from app.runs.checkpoint_files import CheckpointFiles
from app.runs.failures import HOLD_LOST, PLAN_REFUSED, WORKER_LOST, RefusedError
from app.runs.marks import Rest
from app.runs.repository import Lease
from app.runs.schedule import Schedule
from app.runs.settling import Ending, is_started, settle
from app.runs.sweep_charges import hash_of, law_of, quantile_of
from app.runs.sweep_progression import advance
from app.runs.sweep_repository import find_for_update as find_sweep_for_update
from app.runs.sweep_repository import plan_hashes
from app.tables.ledger import Reservation
from app.tables.runs import Run, RunSweep
from app.tables.states import IN_PROGRESS, ReservationStatus, RunState
from calibrators.plan import Plan, plan_from_canonical

log = structlog.get_logger()

#: A run that has lost this many workers is not given to another.
MAX_WORKERS_LOST = 3


def claim(context: Context, worker_id: str) -> Run | None:
    """Take the next queued run for this worker. Its charge is only held until it starts."""
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
    """Store the schedule of a run on private data, and the time at which its end is shown.

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
    """Check that the plan of a run is the one that is charged.

    Raises:
        RefusedError: it is another plan.
    """
    if (charged.events, charged.plan_hash) != (plan.events, plan.plan_hash):
        raise RefusedError(PLAN_REFUSED)


def check_plan_of_sweep(
    session: Session, sweep: RunSweep, run: Run, plan: Plan, charged: Reservation | ReservationState
) -> None:
    """Check that the plan and the score of a sweep's run are part of what the sweep's charge covers.

    Raises:
        RefusedError: the charge does not cover them.
    """
    assert run.sweep_cell is not None, "a run that waits has a cell"
    hashes = plan_hashes(session, sweep.id)
    said = hash_of(sweep, hashes, charged.events)
    if hashes[run.sweep_cell] != plan.plan_hash or not sweep.sweep_hash == charged.plan_hash == said:
        raise RefusedError(PLAN_REFUSED)
    if run.score_noise_multiplier != (sweep.score or {}).get("noise_multiplier"):
        # The charge also covers the release of a score, which is not part of the plan.
        raise RefusedError(PLAN_REFUSED)


def start(
    context: Context, claimed: Run, plan: Plan, stream_id: str, steps_done: int = 0, *, mark: int | None = None
) -> int | None:
    """Start the reservation. Once this returns, noise of this stream may be drawn, and the charge can no longer be
    released.

    If the charge has already started, the run continues, but only under the stream with which the charge was started.

    Args:
        stream_id: The name of the stream of randomness, whose keys are already on the disk.
        steps_done: The steps that earlier claims took under this stream.
        mark: How many steps may draw noise before the claim marks more (`app.runs.marks`); None if it marks none.

    Returns:
        How many steps are marked; None if all of them count.

    Guarantees:
        - one_charge_is_one_stream: once a charge has started with one stream, every other stream is refused.

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
            # The release time was counted from the request. It is counted from the start instead, because a sweep makes
            # no trials while it waits in the queue.
            sweep.release_at = sweep.started_at + max(sweep.release_at - sweep.created_at, _time_of_trials(sweep, run))


def _time_of_trials(sweep: RunSweep, first: Run) -> timedelta:
    """Return how long all trials take one after the other. This time is public, since it does not depend on the number
    of trials drawn."""
    if first.schedule is None or sweep.trials is None:
        return timedelta(0)
    trials = max(1, quantile_of(law_of(sweep.trials)))
    return timedelta(seconds=math.ceil(trials * Schedule.from_json(first.schedule).bound_s()))


def _start_charge(session: Session, context: Context, reservation_id: str, plan: Plan, is_same_stream: bool) -> bool:
    """Start the charge of a run; return False if it had started already."""
    reservation = reservations.get_reservation(session, reservation_id)
    check_plan(plan, reservation)
    if reservation.state == ReservationStatus.STARTED:
        # The charge was started by an earlier claim, or by this one if the answer was lost.
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
        False if nothing of the run is released. Either another claim has the run, and nothing was written; or its
        charge differs from the ledger's entries, and the run has failed.
    """
    ends = {} if claimed.budget_id is None else fence_of(context).heads([claimed.budget_id])
    if ending.state != RunState.SUCCEEDED:
        ending = replace(ending, rest=marks.rest(context, claimed.id))
    with context.database.write() as session:
        run = repository.find_for_update(session, claimed.id)
        assert run is not None, "runs are never deleted"
        if not _is_held(run, claimed):
            if run.epoch == claimed.epoch and run.state == RunState.SUCCEEDED:
                return True  # this call ended the run before, but its answer was lost
            log.warning("run_taken_away", run_id=run.id, epoch=claimed.epoch)
            return False
        # The run was compared with the register as it was claimed. Later changes of the row were not compared, so they
        # are undone.
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
    """Settle the runs of a worker that is gone, and return how many runs there were."""
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
    """Take a run from a worker whose lease has lapsed. Return False if the worker has shown life since, or is
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
    """Leave a run that lost its worker to another worker, unless so many workers were lost that the run seems to be the
    cause."""
    log.warning("worker_lost", run_id=run.id, worker_id=run.worker_id, epoch=run.epoch)
    if not was_told_to_stop:
        run.workers_lost += 1
    _leave_to_another(session, context, run, rest)


def _leave_to_another(session: Session, context: Context, run: Run, rest: Rest | None) -> None:
    """Queue a run again if it then cannot release anything twice. Otherwise settle it."""
    if run.state == RunState.CANCELLING:
        settle(session, context, run, Ending(RunState.CANCELLED, rest=rest))
    elif run.workers_lost < MAX_WORKERS_LOST and _can_go_on(session, context, run):
        run.state, run.worker_id, run.started_at = RunState.QUEUED, None, None
    else:
        settle(session, context, run, Ending(RunState.FAILED, WORKER_LOST, rest=rest))


def _can_go_on(session: Session, context: Context, run: Run) -> bool:
    """Return whether the run can continue, because it has drawn no noise that counts or can draw the same noise
    again."""
    if not run.is_charged or not is_started(session, run):
        return True
    return run.stream_id is not None and CheckpointFiles(context).exist(run.id, run.stream_id)
