"""The worker process's loop: claim a queued run, load its rows, start its charge, train, store the model, settle.

Nothing that leaves this module depends on a private record, except the model. Problems have constant texts, and logs
hold types and places of exceptions but never their messages. Everything that a worker does with a private run is shown
at a public time (`app.runs.timetable`): its start, its progress, its end, and the claim of the next run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from app.context import Context
from app.db.failures import DATABASE_FAILURES
from app.fence.watching import fence_of
from app.observability.stack import stack_lines
from app.runs import artifacts, declarations, lifecycle
from app.runs.checkpoint_files import sweep_checkpoints
from app.runs.doorbell import Doorbell
from app.runs.execution import load_job, summarize, train
from app.runs.executors.interface import Executor, MachinesLost, TrainingFailed
from app.runs.executors.local import LOCAL
from app.runs.failures import DEVICE_TOO_SMALL, FAILED, NOT_STARTED, WORKER_LOST, RefusedError
from app.runs.job import Job
from app.runs.leases import Heartbeat
from app.runs.phases import Phases
from app.runs.resumption import Keeper, begin
from app.runs.settling import Ending
from app.runs.timetable import Timetable, timetable_for
from app.tables.runs import Run
from app.tables.states import RunState
from calibrators.plan import Plan
from trainer.devices import DeviceFull
from trainer.run import RunCancelled

log = structlog.get_logger()

#: The seconds that an idle worker waits for its bell before it looks for runs by itself.
LOOK_INTERVAL_S = 0.5
#: The shortest and the longest pause between attempts while the database is unavailable.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0

T = TypeVar("T")
ShouldStop = Callable[[], bool]


def work(context: Context, worker_id: str, bell: Doorbell, should_stop: ShouldStop, executor: Executor = LOCAL) -> None:
    """Execute queued runs until told to stop. A run that is then in progress is left to the next worker."""
    log.info("worker_started", worker_id=worker_id)
    while not should_stop():
        if not work_once(context, worker_id, should_stop, executor):
            bell.wait(LOOK_INTERVAL_S)
    log.info("worker_stopped", worker_id=worker_id)


def work_once(
    context: Context, worker_id: str, should_stop: ShouldStop = lambda: False, executor: Executor = LOCAL
) -> bool:
    """Claim and carry out the oldest queued run. Return False if no run is queued, or no executor is ready."""
    if not executor.is_ready() or not fence_of(context).look():
        return False
    claimed = persist(lambda: lifecycle.claim(context, worker_id), should_stop)
    if claimed is None:
        return False
    phases = Phases(claimed)
    with Heartbeat(context, claimed) as heartbeat:
        ending = _carry_out(context, claimed, heartbeat, should_stop, executor, phases)
        if ending is None:
            persist(lambda: lifecycle.hand_back(context, claimed), should_stop)
        elif not persist(lambda: lifecycle.end(context, claimed, ending), should_stop):
            artifacts.remove_model(context, claimed)
    phases.end("end")
    phases.record("handed_back" if ending is None else ending.state)
    # Every worker removes checkpoints of ended runs, since a worker that lost its run may have written one after the
    # run's end.
    sweep_checkpoints(context)
    return True


def persist(action: Callable[[], T], should_stop: ShouldStop) -> T:
    """Call ``action``, and repeat the call while the database is unavailable, so that work that is paid for is not
    lost.

    Raises:
        DBAPIError: the database is still unavailable, and the worker is to stop.
    """
    pause = SHORTEST_PAUSE_S
    while True:
        try:
            return action()
        except DATABASE_FAILURES as error:
            if should_stop():
                raise
            log.warning("database_away", error_type=type(error).__name__, seconds=pause)
            time.sleep(pause)
            pause = min(2.0 * pause, LONGEST_PAUSE_S)


@dataclass(frozen=True)
class _Outcome:
    """The outcome of a claim, and what is logged about it when it may be shown.

    Attributes:
        ending: How the run ended; None if it is left to the next worker.
        problem: The name of the error that is logged; None for no error.
        facts: The facts that are logged with it.
    """

    ending: Ending | None
    problem: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def _carry_out(
    context: Context, claimed: Run, heartbeat: Heartbeat, should_stop: ShouldStop, executor: Executor, phases: Phases
) -> Ending | None:
    """Return how the run ended; None if it is left to the next worker. For a private run, return at a public time."""

    def must_stop() -> bool:
        return heartbeat.is_lost or should_stop()

    try:
        # No private row is read here, so a refusal may be published at once.
        plan = lifecycle.read_plan(claimed)
        persist(lambda: declarations.check(context, claimed), should_stop)
        timetable = persist(lambda: timetable_for(context, claimed, executor), should_stop)
        phases.end("check")
        phases.is_private = timetable is not None
    except DATABASE_FAILURES:
        raise
    except Exception as error:
        phases.end("check")
        outcome = _not_started(error)
    else:
        if timetable is None:
            outcome = _outcome(context, claimed, plan, must_stop, executor, None, phases)
        else:
            with timetable:
                outcome = _outcome(context, claimed, plan, must_stop, executor, timetable, phases)
                outcome = _held_back(outcome, timetable, must_stop)
        phases.end("train")
    if outcome.problem is not None:
        log.error(outcome.problem, run_id=claimed.id, **outcome.facts)
    return outcome.ending


def _held_back(outcome: _Outcome, timetable: Timetable, must_stop: ShouldStop) -> _Outcome:
    """Wait until the outcome may be shown, and return it."""
    if outcome.ending is None:
        timetable.wait_for_tick()
        return outcome
    if not timetable.wait_for_release(must_stop):
        # The worker stops, and another one continues the run. The checkpoint of the last step gives the same model.
        return _Outcome(None)
    # A run cancelled while it waits must be indistinguishable from one cancelled while it trains.
    return _Outcome(Ending(RunState.CANCELLED)) if timetable.is_cancelled else outcome


def _outcome(
    context: Context,
    claimed: Run,
    plan: Plan,
    must_stop: ShouldStop,
    executor: Executor,
    timetable: Timetable | None,
    phases: Phases,
) -> _Outcome:
    try:
        try:
            job = persist(lambda: load_job(context, claimed, plan), must_stop)
            if timetable is not None:
                job.make_ready()
        finally:
            # The start of the charge is public. So its time must not reveal how long loading took, or that loading
            # failed.
            if timetable is not None:
                timetable.wait_for_training()
            phases.end("load")
        beginning = begin(context, job, executor.device)
        steps = beginning.steps if timetable is None else min(beginning.steps, timetable.first)
        mark = timetable.first_mark if timetable is not None and executor.tells_before_each_step else None
        marked = persist(
            lambda: lifecycle.start(context, job.run, job.plan, beginning.stream_id, steps, mark=mark), must_stop
        )
        # The entry of the start has the values of the reservation's row. If somebody altered the row, no noise is
        # drawn.
        persist(lambda: declarations.check(context, job.run, is_started=True), must_stop)
    except DATABASE_FAILURES:
        raise
    except Exception as error:
        if timetable is not None and isinstance(error, RefusedError) and error.problem is None:
            timetable.give_up()
        return _not_started(error)
    if timetable is not None:
        timetable.begin(marked)
    keeper = Keeper(context, job, beginning, must_stop, keeps_last=timetable is not None)
    return _train(context, job, keeper, executor, timetable)


def _not_started(error: Exception) -> _Outcome:
    if isinstance(error, DeviceFull):
        error = RefusedError(DEVICE_TOO_SMALL)
    if not isinstance(error, RefusedError):
        return _Outcome(Ending(RunState.FAILED, NOT_STARTED), "run_not_started", {"stack_trace": stack_lines(error)})
    state = RunState.CANCELLED if error.problem is None else RunState.FAILED
    return _Outcome(Ending(state, error.problem), "run_refused", {"reason": str(error)})


def _train(context: Context, job: Job, keeper: Keeper, executor: Executor, timetable: Timetable | None) -> _Outcome:
    try:
        trained = train(context, job, keeper.checkpoints(), lambda: keeper.has_stopped, executor, timetable)
        summary = summarize(job, trained, keeper.score_key, executor.device)
        artifacts.write_model(context, job.run, job.description, trained)
    except RunCancelled:
        return _Outcome(None if keeper.has_stopped else Ending(RunState.CANCELLED))
    except MachinesLost:
        return _Outcome(Ending(RunState.FAILED, WORKER_LOST), "machines_lost")
    except TrainingFailed as failed:
        return _Outcome(Ending(RunState.FAILED, FAILED), "run_failed", {"stack_trace": failed.stack})
    except Exception as error:
        return _Outcome(Ending(RunState.FAILED, FAILED), "run_failed", {"stack_trace": stack_lines(error)})
    return _Outcome(Ending(RunState.SUCCEEDED, result=summary))
