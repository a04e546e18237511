"""The numerical work of a run in the worker: load the rows, train, score the model. Nothing here writes to the
ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import structlog

from app.algorithms.binding import DataDescription, build_model
from app.algorithms.model_choice import MODEL_CHOICE
from app.context import Context
from app.datasets import service as datasets
from app.datasets.inline import load_inline
from app.datasets.schemas import InlineDataset
from app.datasets.service import LoadedDataset
from app.db.failures import DATABASE_FAILURES
from app.problems import Problem
from app.runs import declarations, repository
from app.runs.evaluating import held_out_body
from app.runs.executors.interface import Executor
from app.runs.failures import DATASET_GONE, DATASET_TOO_FULL, RefusedError
from app.runs.job import Job
from app.runs.schemas import MetricBody
from app.runs.score_keys import evaluation_key
from app.runs.scoring import noisy_score
from app.runs.timetable import Timetable
from app.runs.versions import versions
from app.tables.runs import Run
from app.tables.states import RunState
from calibrators.plan import Plan
from trainer.checkpoint import Checkpoints
from trainer.devices import Device
from trainer.models import TASKS, Task
from trainer.run import RunResult
from trainer.scores import class_scores, number_scores

log = structlog.get_logger()

PROGRESS_INTERVAL_S = 1.0


def load_job(context: Context, run: Run, plan: Plan) -> Job:
    """Read the rows and build the model, before the charge starts.

    Raises:
        RefusedError: a data set is deleted, its version is erased, it has more rows than its capacity, or something has
            changed since the run was claimed.
    """
    try:
        with declarations.checked(context, run) as session:
            test = None if run.test_dataset_id is None else datasets.load(context, session, run.test_dataset_id)
            if run.dataset_id is not None:
                training = datasets.load(context, session, run.dataset_id, run.dataset_version or 1)
            else:
                training = load_inline(InlineDataset.model_validate(run.inline_dataset))
    except Problem:
        raise RefusedError(DATASET_GONE) from None
    if training.is_too_full:
        raise RefusedError(DATASET_TOO_FULL)
    description = DataDescription.model_validate(run.description)
    model = build_model(MODEL_CHOICE.validate_python(run.model), description)
    return Job(run, plan, model, description, training, test)


def train(
    context: Context,
    job: Job,
    checkpoint: Checkpoints,
    has_stopped: Callable[[], bool],
    executor: Executor,
    timetable: Timetable | None = None,
) -> RunResult:
    """Carry out the plan. Once a second, report the number of steps: to the timetable for a private run, and to the
    database for others.

    Args:
        context: The process's context.
        job: The run.
        checkpoint: Where to continue, and where later checkpoints are kept.
        has_stopped: Says whether the worker is to stop and its work is kept.
        executor: The executor that takes the steps.
        timetable: The timetable of a private run.

    Raises:
        RunCancelled: the run is being cancelled or was taken over, or the worker has stopped.
        MachinesLost: too many machines have died while they trained it.
    """
    if timetable is not None:
        return executor.train(job, checkpoint, timetable.on_progress, lambda: timetable.is_cancelled or has_stopped())
    cancelled = False
    last_told = time.monotonic()

    def on_progress(done: int, _total: int) -> None:
        nonlocal cancelled, last_told
        now = time.monotonic()
        if now - last_told < PROGRESS_INTERVAL_S:
            return
        last_told = now
        try:
            with context.database.write() as session:
                cancelled = repository.record_progress(session, job.run, done) != RunState.RUNNING
        except DATABASE_FAILURES as error:
            # A run that is paid for must not fail because a counter was not stored. The database may be back before the
            # end.
            log.warning("progress_not_stored", run_id=job.run.id, error_type=type(error).__name__)

    return executor.train(job, checkpoint, on_progress, lambda: cancelled or has_stopped())


def summarize(job: Job, result: RunResult, score_key: int | None, device: Device) -> dict[str, Any]:
    """Return the part of a result that is stored in the database: shapes, public scores, and scores that were charged.

    Args:
        job: The run.
        result: What the run releases.
        score_key: The key of the noise of the score, or of the evaluation.
        device: The device that computed it.
    """
    public = [data for data in (job.test, job.training) if data is not None and data.public]
    if TASKS[job.model.kind] is Task.MEAN:
        public = []  # a mean predicts no label
    scores: dict[str, Any] = {}
    if job.plan.evaluation is not None:
        assert score_key is not None, "a run with an evaluation begins with its key"
        # The score of a trial uses the key itself for its noise, so the evaluation uses a key derived from it.
        key = score_key if job.run.score_noise_multiplier is None else evaluation_key(score_key)
        scores["held_out"] = held_out_body(job, result.parameters, key).model_dump(mode="json")
    if job.run.score_noise_multiplier is not None:
        assert score_key is not None, "a trial with a score begins with its key"
        scores["noisy_score"] = noisy_score(
            job, result.parameters, job.run.score_noise_multiplier, score_key, job.training.capacity
        )
    return {
        **scores,
        "parameters": {name: list(array.shape) for name, array in result.parameters.items()},
        "metrics": [_score(job, result, data).model_dump(mode="json") for data in public if len(data.labels)],
        "assumptions": job.run.provenance["assumptions"],
        "device": device.name,
        "versions": versions(job.plan.engine, device),
    }


def _score(job: Job, result: RunResult, data: LoadedDataset) -> MetricBody:
    """Return every score of the model on public rows."""
    assert data.public, "a score on private rows is a release of its own"
    description, parameters = job.description, result.parameters
    features, labels = description.scale(data.features), description.scale_labels(data.labels)
    if description.classes:
        scores = asdict(class_scores(job.model, parameters, features, labels))
    else:
        found, unit = number_scores(job.model, parameters, features, labels), description.label_half_width
        root = found.root_mean_squared_error
        scores = {
            "mean_absolute_error": found.mean_absolute_error * unit,
            "root_mean_squared_error": None if root is None else root * unit,
            "r_squared": found.r_squared,
        }
    return MetricBody(
        dataset_id=data.id, rows="test" if data is job.test else "training", records=len(data.labels), **scores
    )
