"""The worker process's loop: claim a queued run, load its rows, start its charge, train, store the model, settle.

Nothing that leaves this module depends on a private record, the model aside: problems have constant texts, logs hold
types and places of exceptions and never their messages, and whatever a worker did with a private run ends a whole
number of seconds after it began: the run itself, or this worker's part of one that another goes on with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from app.db.failures import DATABASE_FAILURES
from app.kit.context import Context
from app.observability.stack import stack_lines
from app.runs import artifacts, lifecycle
from app.runs.checkpoint_files import sweep_checkpoints
from app.runs.doorbell import Doorbell
from app.runs.execution import load_job, summarize, train
from app.runs.executors.interface import Executor, MachinesLost
from app.runs.executors.local import LOCAL
from app.runs.job import Job
from app.runs.leases import Heartbeat
from app.runs.lifecycle import FAILED, NOT_STARTED, WORKER_LOST, Ending, RefusedError
from app.runs.models import Run, RunState
from app.runs.resumption import Keeper, begin
from trainer.run import RunCancelled

log = structlog.get_logger()

#: How long an idle worker waits for its bell before it looks by itself.
LOOK_INTERVAL_S = 0.5
#: Pauses between attempts while the database is away.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0

T = TypeVar("T")
ShouldStop = Callable[[], bool]


def work(context: Context, worker_id: str, bell: Doorbell, should_stop: ShouldStop, executor: Executor = LOCAL) -> None:
    """Execute queued runs until told to stop; a run in progress is then left to the next worker."""
    log.info("worker_started", worker_id=worker_id)
    while not should_stop():
        if not work_once(context, worker_id, should_stop, executor):
            bell.wait(LOOK_INTERVAL_S)
    log.info("worker_stopped", worker_id=worker_id)


def work_once(
    context: Context, worker_id: str, should_stop: ShouldStop = lambda: False, executor: Executor = LOCAL
) -> bool:
    """Claim and carry out the oldest queued run; False when there was none, or nothing to carry it out."""
    if not executor.is_ready():
        return False
    claimed = persist(lambda: lifecycle.claim(context, worker_id), should_stop)
    if claimed is None:
        return False
    with Heartbeat(context, claimed) as heartbeat:
        ending = _carry_out(context, claimed, heartbeat, should_stop, executor)
        if ending is None:
            persist(lambda: lifecycle.hand_back(context, claimed), should_stop)
        elif not persist(lambda: lifecycle.end(context, claimed, ending), should_stop):
            artifacts.remove_model(context, claimed)
    # Whoever ended it: a worker that lost its run may have kept a checkpoint after that.
    sweep_checkpoints(context)
    return True


def persist(action: Callable[[], T], should_stop: ShouldStop) -> T:
    """Do ``action``, again and again while the database is away: work that is paid for is not thrown away for that.

    Raises:
        DBAPIError: the database is still away, and the worker is to stop.
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


def _carry_out(
    context: Context, claimed: Run, heartbeat: Heartbeat, should_stop: ShouldStop, executor: Executor
) -> Ending | None:
    """How the run ended; None where it is left to the next worker."""
    began = time.monotonic()
    job: Job | None = None
    try:
        plan = lifecycle.read_plan(claimed)
        job = persist(lambda: load_job(context, claimed, plan), should_stop)
        return _start_and_train(context, job, lambda: heartbeat.is_lost or should_stop(), executor)
    except RefusedError as refused:
        log.warning("run_refused", run_id=claimed.id, reason=str(refused))
        return Ending(RunState.CANCELLED if refused.problem is None else RunState.FAILED, refused.problem)
    except DATABASE_FAILURES:
        raise
    except Exception as error:
        log.error("run_not_started", run_id=claimed.id, stack_trace=stack_lines(error))
        return Ending(RunState.FAILED, NOT_STARTED)
    finally:
        if job is not None and not job.training.public:
            _wait_for_whole_second(began)


def _start_and_train(context: Context, job: Job, should_stop: ShouldStop, executor: Executor) -> Ending | None:
    beginning = begin(context, job)
    persist(
        lambda: lifecycle.start(context, job.run, job.plan, beginning.stream_id, beginning.steps),
        should_stop,
    )
    return _train(context, job, Keeper(context, job, beginning, should_stop), executor)


def _train(context: Context, job: Job, keeper: Keeper, executor: Executor) -> Ending | None:
    try:
        trained = train(context, job, keeper.checkpoints(), lambda: keeper.has_stopped, executor)
        summary = summarize(job, trained, keeper.score_key)
        artifacts.write_model(context, job.run, job.description, trained)
    except RunCancelled:
        return None if keeper.has_stopped else Ending(RunState.CANCELLED)
    except MachinesLost:
        log.error("machines_lost", run_id=job.run.id)
        return Ending(RunState.FAILED, WORKER_LOST)
    except Exception as error:
        log.error("run_failed", run_id=job.run.id, stack_trace=stack_lines(error))
        return Ending(RunState.FAILED, FAILED)
    return Ending(RunState.SUCCEEDED, result=summary)


def _wait_for_whole_second(began: float) -> None:
    """How long a private run took shows in whole seconds only: finer, it would tell how many rows there are."""
    elapsed = time.monotonic() - began
    time.sleep(math.ceil(elapsed) - elapsed)
