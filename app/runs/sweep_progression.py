"""Continue a sweep when one of its runs has ended, with the next trial or with the end of the sweep.

Each step is a transaction of its own under the lock of the sweep's row, and depends only on stored data. So if a
process dies before a step, the next caller makes the step. The next caller is the worker that ends another run, or the
supervisor, which looks at all sweeps from time to time.

A sweep for the best run makes one trial after the other, so that neither the queue nor the answer to the request
reveals their number. The number and the cells are secret, and stored nowhere (`app.runs.sweep_trials`). If the number
is 0, one trial is made that does not count. Without that trial, the ledger would show at once that nothing is run.

If there is a release time, as many trials are made as a public quantile of their distribution says (on public data, as
many as the time allows). Trials beyond the number drawn are extra, and are thrown away. Without them, people who wait
for the same workers could count the trials. On private data each trial takes the same public time
(`app.runs.schedule`), and the release time is not before the end of the last trial.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

import structlog
from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from accounting.events import Event
from app.context import Context
from app.db.failures import DATABASE_FAILURES
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.fence.marks import Head
from app.ledger.commands import Commit, Quote, Void
from app.ledger.vouched import Vouched, vouched_ends
from app.observability.stack import stack_lines
from app.problems import Problem
from app.reservations import quotes
from app.reservations import service as reservations
from app.runs import artifacts, charges, doorbell
from app.runs import sweep_repository as repository
from app.runs.charges import ChargeAltered
from app.runs.sweep_charges import composed, part_of_composed
from app.runs.sweep_ranking import best_of
from app.runs.sweep_trials import Trials, is_as_entered, trials_of
from app.tables.runs import Run, RunSweep
from app.tables.states import REGISTER, ReservationStatus, RunState, Select, SweepState
from calibrators.plan import plan_from_canonical

log = structlog.get_logger()


def advance(context: Context, sweep_ids: Collection[str | None]) -> None:
    """Continue these sweeps as far as possible; the supervisor tries again if the database is unavailable.

    The supervisor also tries again if the ledger does not accept a sweep's charge, or if its files cannot be removed;
    nothing of the sweep is released before. No such fault delays another sweep or a run that has ended.
    """
    for sweep_id in sorted(each for each in sweep_ids if each is not None):
        try:
            _advance(context, sweep_id)
        except (*DATABASE_FAILURES, Problem, ChargeAltered) as error:
            log.error("run_sweep_not_advanced", sweep_id=sweep_id, error_type=type(error).__name__)
        except Exception as error:
            log.error("run_sweep_not_advanced", sweep_id=sweep_id, stack_trace=stack_lines(error))


def advance_all(context: Context) -> None:
    """Continue every sweep that has not ended and has a next step, for example because its release time has come or a
    process was lost."""
    try:
        with context.database.read() as session:
            sweep_ids = repository.unfinished(session)
    except DATABASE_FAILURES as error:
        log.error("run_sweeps_not_advanced", error_type=type(error).__name__)
        return
    advance(context, sweep_ids)


def _advance(context: Context, sweep_id: str) -> None:
    with context.database.read() as session:
        if repository.has_open_runs(session, sweep_id):
            return
        sweep = repository.find(session, sweep_id)
        assert sweep is not None, "sweeps are never deleted"
        if sweep.finished_at is not None or _waits_for_its_time(session, context, sweep):
            return
        part = _part_that_started(session, sweep)
        chains = [REGISTER, *([] if sweep.budget_id is None else [sweep.budget_id])]
    # Ended runs never change, so this part of the events will be the same once the sweep is locked.
    quote = None
    if part is not None and sweep.reservation_id is not None:
        with suppress(Problem):  # if the part cannot be priced, the whole is charged
            quote = quotes.quote_part(context, sweep.reservation_id, part)
    ends = vouched_ends(context, chains)
    with context.database.write() as session:
        sweep = repository.find_for_update(session, sweep_id)
        conclude(session, context, sweep, ends, part if quote is not None else None, quote)
    doorbell.ring(context.settings.data_dir)


def conclude(
    session: Session,
    context: Context,
    sweep: RunSweep,
    ends: Mapping[str, Head] | None = None,
    part: tuple[Event, ...] | None = None,
    quote: Quote | None = None,
) -> None:
    """Queue the next trial, or end the sweep and settle its charge, or do nothing, in the caller's transaction.

    Args:
        session: A write session that has locked the sweep's row.
        context: The process's context.
        sweep: The sweep.
        ends: The last hashes of the register's and the budget's chains (`app.ledger.vouched.vouched_ends`), from before
            the session. Without them no trial is made and nothing is released. A cancelled sweep needs none.
        part: The part of its events that is charged, if not all are.
        quote: The price of that part.

    Raises:
        ChargeAltered: its reservation differs from its entries. The sweep does not end before this is repaired.
    """
    if sweep.finished_at is not None or repository.has_open_runs(session, sweep.id):
        return
    registering.lock(session)
    registering.begin(session, context.clock())
    has_started = repository.has_started_runs(session, sweep.id)
    # If somebody has altered the rows, no trial is made and nothing is released.
    is_whole = sweep.select != Select.BEST or (
        ends is not None and is_as_entered(session, Vouched(session, context.database, ends), sweep)
    )
    if sweep.select == Select.BEST and has_started and is_whole:
        if _queue_next_trial(session, context, sweep):
            return
        if _waits_for_its_time(session, context, sweep):
            return
    # The charge is settled first. If that is refused, nothing is released.
    _settle(session, context, sweep, ends, part, quote, has_started=has_started)
    runs = repository.runs(session, sweep.id)
    if sweep.select == Select.BEST:
        outcome = _release_best(context, sweep, runs, trials_of(context, session, sweep) if is_whole else None)
    else:
        states = {run.state for run in runs}
        in_order = (SweepState.SUCCEEDED, SweepState.CANCELLED, SweepState.FAILED)
        outcome = next(state for state in in_order if state in states)
    sweep.outcome, sweep.finished_at = outcome, context.clock()
    ended = [] if sweep.best_run_id is None else _show(session, sweep)
    ended.append(Registration(EntryKind.END, Subject.SWEEP, sweep.id))
    registering.enter(session, context.clock(), ended)
    log.info("run_sweep_ended", sweep_id=sweep.id, outcome=str(outcome))


def _waits_for_its_time(session: Session, context: Context, sweep: RunSweep) -> bool:
    """Return whether no further trial will be made and nothing may be shown yet."""
    if sweep.started_at is None or not _is_early(context, sweep):
        return False
    return sweep.is_cancelled or _next_trial(session, context, sweep, trials_of(context, session, sweep)) is None


def _next_trial(session: Session, context: Context, sweep: RunSweep, trials: Trials) -> int | None:
    """Return the number of the next trial, which may be an extra one. None if no more trials are made.

    On private data as many trials are made as the public quantile says, however long they take. If a late sweep stopped
    earlier, its end would reveal the number drawn.
    """
    number = trials.next(repository.run_ids(session, sweep.id))
    if number < trials.drawn:
        return number
    is_wanted = _is_early(context, sweep) or repository.schedule_of_trials(session, sweep.id) is not None
    return number if number < trials.most and is_wanted else None


def _is_early(context: Context, sweep: RunSweep) -> bool:
    return sweep.release_at is not None and context.clock() < sweep.release_at


def _settle(
    session: Session,
    context: Context,
    sweep: RunSweep,
    ends: Mapping[str, Head] | None,
    part: tuple[Event, ...] | None,
    quote: Quote | None,
    *,
    has_started: bool,
) -> None:
    if sweep.reservation_id is None:
        return
    if has_started:
        charges.resolve(session, context, sweep.reservation_id, Commit(part, quote, by_run=True), ends)
    elif reservations.get_reservation(session, sweep.reservation_id).state == ReservationStatus.PENDING:
        charges.resolve(session, context, sweep.reservation_id, Void(by_run=True), ends)


def _part_that_started(session: Session, sweep: RunSweep) -> tuple[Event, ...] | None:
    """Return the events of the runs that started, if the sweep releases all runs and some never started; otherwise
    None."""
    if sweep.select != Select.ALL or sweep.reservation_id is None:
        return None
    runs = repository.runs(session, sweep.id)
    started = [run.stream_id is not None for run in runs]
    if all(started) or not any(started):
        return None
    try:
        events = [plan_from_canonical(run.plan, run.plan_hash).events for run in runs]
    except AccountingError:  # the plan was altered in the database
        return None
    if composed(events) != reservations.get_reservation(session, sweep.reservation_id).events:
        return None
    return part_of_composed(events, started)


def _queue_next_trial(session: Session, context: Context, sweep: RunSweep) -> bool:
    if sweep.is_cancelled:
        return False
    trials = trials_of(context, session, sweep)
    number = _next_trial(session, context, sweep, trials)
    if number is None:
        return False
    _add_trial(session, context, sweep, trials, number)
    return True


def add_first_trial(session: Session, context: Context, sweep: RunSweep) -> None:
    """Queue the first trial, which is made even if the number drawn is 0."""
    _add_trial(session, context, sweep, trials_of(context, session, sweep), 0)


def _add_trial(session: Session, context: Context, sweep: RunSweep, trials: Trials, number: int) -> None:
    cell = trials.cell_of(number)
    draft = repository.cell(session, sweep.id, cell).draft
    assert draft is not None, "trials are drawn of cells with drafts"
    session.add(
        Run(
            **{**draft, "plan": draft["plan"].encode()},
            id=trials.id_of(number),
            principal_id=sweep.principal_id,
            state=RunState.QUEUED,
            steps_done=0,
            sweep_id=sweep.id,
            sweep_cell=cell,
            is_withheld=True,
            created_at=context.clock(),
        )
    )
    session.flush()


def _release_best(context: Context, sweep: RunSweep, runs: list[Run], trials: Trials | None) -> SweepState:
    """Choose the best trial, and delete the models, scores and problems of the others.

    Files are removed before the transaction commits. The choice depends only on stored data, so a second try chooses
    the same.

    Args:
        context: The process's context.
        sweep: The sweep.
        runs: All runs of the sweep.
        trials: Its trials. None if the sweep differs from its entry in the register; then nothing of it is released.
    """
    counted = [] if trials is None else [run for run in runs if trials.counts(run.id)]
    candidates = [run for run in counted if run.state == RunState.SUCCEEDED]
    best = None if sweep.is_cancelled else best_of(candidates)
    for run in runs:
        if run is not best:
            artifacts.remove_models(context, run)
            run.result = run.problem = None
    if sweep.is_cancelled:
        return SweepState.CANCELLED
    if best is not None:
        artifacts.publish_model(context, best)
        sweep.best_run_id = best.id
        return SweepState.SUCCEEDED
    # If a sweep draws no trial, an empty result is its success.
    is_empty = trials is not None and trials.drawn == 0 and sweep.started_at is not None
    return SweepState.SUCCEEDED if is_empty else SweepState.FAILED


def _show(session: Session, sweep: RunSweep) -> list[Registration]:
    """Show the best run without revealing which trial it was."""
    assert sweep.best_run_id is not None, "there is one"
    best = session.get_one(Run, sweep.best_run_id)
    best.is_withheld = False
    best.created_at, best.started_at, best.finished_at = sweep.created_at, sweep.started_at, sweep.finished_at
    best.release_at = sweep.release_at
    return [Registration(kind, Subject.RUN, best.id) for kind in (EntryKind.REGISTER, EntryKind.END)]
