"""The worker process: claim a queued run, execute its plan, store the model, settle its charge.

Nothing that leaves this module depends on a private record, the model aside: problems have constant texts, logs hold
the type of an exception and never its message, progress is a counter written once a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from accounting.errors import AccountingError
from app.budgets import service as budgets
from app.datasets import service as datasets
from app.datasets.inline import load_inline
from app.datasets.schemas import InlineDataset
from app.datasets.service import LoadedDataset
from app.kit.context import Context
from app.problems import Problem
from app.runs import artifacts, repository
from app.runs.binding import DataDescription, build_model
from app.runs.models import Run, RunState
from app.runs.schemas import LinearModelChoice, MetricBody
from calibrators.plan import Plan, plan_from_canonical
from trainer.models import Model
from trainer.run import RunCancelled, RunResult, run

log = structlog.get_logger()

POLL_INTERVAL_S = 0.2
PROGRESS_INTERVAL_S = 1.0

FAILED = {
    "code": "run_failed",
    "detail": "The run did not finish. Its charge stands in full; the operator's log has the run's id.",
}
WORKER_LOST = {
    "code": "worker_lost",
    "detail": "The worker process ended before the run did. Its charge stands in full, as noise may have been drawn.",
}
HOLD_LOST = {
    "code": "reservation_lost",
    "detail": "The run waited longer than its hold on the budget lasts. Nothing was charged; ask for it again.",
}
DATASET_GONE = {
    "code": "dataset_deleted",
    "detail": "A data set of the run was deleted before a worker took it. Nothing was charged.",
}
PLAN_REFUSED = {
    "code": "plan_hash_mismatch",
    "detail": "The stored plan is not the one that was charged, so the worker refused it. Nothing was charged.",
}


class _RefusedError(Exception):
    """A run that must not start; its transaction's start is rolled back."""

    def __init__(self, problem: dict[str, str]) -> None:
        super().__init__(problem["code"])
        self.problem = problem


@dataclass(frozen=True)
class Claim:
    """A run that this worker is at; read once, so that no session stays open while it trains."""

    run: Run
    plan: Plan


def work(context: Context, worker_id: str, should_stop: Callable[[], bool]) -> None:
    """Execute queued runs until told to stop; a run in progress is then given up and charged in full."""
    log.info("worker_started", worker_id=worker_id)
    while not should_stop():
        if not work_once(context, worker_id, should_stop):
            time.sleep(POLL_INTERVAL_S)
    log.info("worker_stopped", worker_id=worker_id)


def work_once(context: Context, worker_id: str, should_stop: Callable[[], bool] = lambda: False) -> bool:
    """Claim and execute the oldest queued run; False when there was none."""
    with context.database.read() as session:
        if not repository.has_queued(session):
            return False
    claim = _claim(context, worker_id)
    if claim is None:
        return True
    try:
        result, metrics = _execute(context, claim, should_stop)
    except RunCancelled:
        if should_stop():
            _finish(context, claim.run.id, RunState.FAILED, WORKER_LOST)
        else:
            _finish(context, claim.run.id, RunState.CANCELLED, None)
    except Exception as error:
        # The type alone: a message could hold a value of a row.
        log.error("run_failed", run_id=claim.run.id, error_type=type(error).__name__)
        _finish(context, claim.run.id, RunState.FAILED, FAILED)
    else:
        _finish(context, claim.run.id, RunState.SUCCEEDED, None, result, metrics)
    return True


def give_up_runs_of(context: Context, worker_id: str) -> int:
    """Settle what a worker that is gone left behind: charged in full, marked failed. Returns how many there were."""
    with context.database.write() as session:
        lost = repository.in_progress_of(session, worker_id)
        for orphan in lost:
            log.warning("worker_lost", run_id=orphan.id, worker_id=worker_id)
            _settle(session, context, orphan, RunState.FAILED, WORKER_LOST)
    return len(lost)


def _claim(context: Context, worker_id: str) -> Claim | None:
    """Take the oldest queued run and start its reservation, in one transaction: no noise is drawn before.

    A run that cannot start fails, and gives back what it held.
    """
    with context.database.write() as session:
        run = repository.next_queued(session)
        if run is None:
            return None
        run.worker_id, run.started_at, run.state = worker_id, context.clock(), RunState.RUNNING
        try:
            with session.begin_nested():
                return Claim(run, _start(session, context, run))
        except _RefusedError as refused:
            log.warning("run_refused", run_id=run.id, code=refused.problem["code"])
            with suppress(Problem), session.begin_nested():  # a hold that is lost already needs no release
                if run.reservation_id is not None:
                    budgets.void(session, context, run.reservation_id)
            run.state, run.problem, run.finished_at = RunState.FAILED, refused.problem, context.clock()
        return None


def _start(session: Session, context: Context, run: Run) -> Plan:
    """The plan to execute, once its reservation is started and found to hold this plan's events."""
    try:
        plan = plan_from_canonical(run.plan, run.plan_hash)
    except AccountingError:
        raise _RefusedError(PLAN_REFUSED) from None
    try:
        for dataset_id in filter(None, (run.dataset_id, run.test_dataset_id)):
            datasets.get(session, dataset_id)
    except Problem:
        raise _RefusedError(DATASET_GONE) from None
    if run.reservation_id is None:
        return plan
    try:
        reservation = budgets.start(session, context, run.reservation_id)
    except Problem:
        raise _RefusedError(HOLD_LOST) from None
    if reservation.events != plan.events:
        raise _RefusedError(PLAN_REFUSED)
    return plan


def _execute(context: Context, claim: Claim, should_stop: Callable[[], bool]) -> tuple[RunResult, list[MetricBody]]:
    training, test = _load(context, claim.run)
    description = DataDescription.model_validate(claim.run.description)
    model = build_model(LinearModelChoice.model_validate(claim.run.model), description)
    cancelled = False
    last_written = time.monotonic()

    def on_progress(done: int, _total: int) -> None:
        nonlocal cancelled, last_written
        now = time.monotonic()
        if now - last_written < PROGRESS_INTERVAL_S:
            return
        last_written = now
        try:
            with context.database.write() as session:
                cancelled = repository.record_progress(session, claim.run.id, done) != RunState.RUNNING
        except SQLAlchemyError as error:
            # A counter is not worth a run that is paid for: the database may be back before the end.
            log.warning("progress_not_stored", run_id=claim.run.id, error_type=type(error).__name__)

    result = run(
        claim.plan,
        model,
        description.scale(training.features),
        training.labels,
        seed=claim.run.seed,
        on_progress=on_progress,
        is_cancelled=lambda: cancelled or should_stop(),
    )
    public = [test] if test is not None else []
    if training.public:
        public.append(training)
    metrics = [_score(model, result, description, data) for data in public]
    artifacts.write_model(context, claim.run, description, result)
    return result, metrics


def _load(context: Context, run: Run) -> tuple[LoadedDataset, LoadedDataset | None]:
    with context.database.read() as session:
        if run.dataset_id is not None:
            training = datasets.load(context, session, run.dataset_id)
        else:
            training = load_inline(InlineDataset.model_validate(run.inline_dataset))
        test = None if run.test_dataset_id is None else datasets.load(context, session, run.test_dataset_id)
    return training, test


def _score(model: Model, result: RunResult, description: DataDescription, data: LoadedDataset) -> MetricBody:
    accuracy = model.accuracy(result.parameters, description.scale(data.features), data.labels)
    return MetricBody(dataset_id=data.id, records=len(data.labels), accuracy=accuracy)


def _finish(
    context: Context,
    run_id: str,
    state: RunState,
    problem: dict[str, str] | None,
    result: RunResult | None = None,
    metrics: list[MetricBody] | None = None,
) -> None:
    with context.database.write() as session:
        run = repository.find_for_update(session, run_id)
        assert run is not None, "runs are never deleted"
        if result is not None:
            run.steps_done = result.steps
            run.result = {
                "parameters": {name: list(array.shape) for name, array in result.parameters.items()},
                "metrics": [metric.model_dump(mode="json") for metric in metrics or []],
                "assumptions": run.provenance["assumptions"],
            }
        _settle(session, context, run, state, problem)
    log.info("run_ended", run_id=run_id, state=str(state))


def _settle(session: Session, context: Context, run: Run, state: RunState, problem: dict[str, str] | None) -> None:
    """End a started run: its charge is committed in full, whatever became of it."""
    if run.reservation_id is not None:
        budgets.commit(session, context, run.reservation_id)
    run.state, run.problem, run.finished_at = state, problem, context.clock()
