"""This module measures the time that a run takes beside its training: queueing, waking and claiming, the charge, the
checkpoint, and the model.

A server with one worker of its own gets one request for a short, charged run after the other. The measured overhead is
the time from the answer to the end of the run, less the time of the same training in this process. The time until the
answer, in which the service calibrates, reserves and queues, is reported separately.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.runs import repository
from app.runs.execution import load_job
from app.runs.lifecycle import read_plan
from app.settings import Settings
from app.tables.runs import Run
from app.tables.states import IN_PROGRESS, RunState
from benchmarks.http_servers import Server, client, migrated, service
from benchmarks.runs.work import BUDGET, run_request
from trainer.run import run as train

WARM_UP = 3
LOOK_S = 0.002


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The medians over the runs, in milliseconds.

    Attributes:
        answering: The time from the request to its answer.
        ending: The time from the answer to the run's end, training included.
        training: The time of the same training in this process.
        overhead: The ending less the training.
        largest_overhead: The largest overhead of all runs.
        runs: The number of runs.
    """

    answering: float
    ending: float
    training: float
    overhead: float
    largest_overhead: float
    runs: int


def dispatch(url: str, folder: Path, runs: int) -> Dispatch:
    """Measure ``runs`` runs, one after the other, on the database at ``url``."""
    context = fenced_context(Settings(data_dir=folder, database_url=migrated(url)), Database(url))
    try:
        with service(url, folder, workers=1) as server:
            budget_id = _post(server, "/v1/budgets", BUDGET, 201)
            request = run_request(budget_id, "ds_breast_cancer", "logistic_regression", iterations=5)
            measured = [_one(context, server, request) for _ in range(WARM_UP + runs)][WARM_UP:]
    finally:
        context.database.dispose()
    overheads = [one.ending - one.training for one in measured]
    return Dispatch(
        answering=statistics.median(one.answering for one in measured),
        ending=statistics.median(one.ending for one in measured),
        training=statistics.median(one.training for one in measured),
        overhead=statistics.median(overheads),
        largest_overhead=max(overheads),
        runs=runs,
    )


class _One(NamedTuple):
    answering: float
    ending: float
    training: float


def _one(context: Context, server: Server, request: Mapping[str, Any]) -> _One:
    moments = [time.perf_counter()]
    run_id = _post(server, "/v1/runs", request, 202)
    moments.append(time.perf_counter())
    run = _ended(context, run_id)
    moments.append(time.perf_counter())
    job = load_job(context, run, read_plan(run))
    features = job.description.scale(job.training.features)
    labels = job.description.scale_labels(job.training.labels)
    moments.append(time.perf_counter())
    train(job.plan, job.model, features, labels)
    moments.append(time.perf_counter())
    asked, answered, ended, prepared, trained = moments
    return _One(*(1e3 * span for span in (answered - asked, ended - answered, trained - prepared)))


def _post(server: Server, path: str, body: Mapping[str, Any], status: int) -> str:
    # Each request has a new connection, since the server may close an idle one while a run goes on.
    with client(server) as http:
        return str(http.post(path, body, status)["id"])


def _ended(context: Context, run_id: str) -> Run:
    while True:
        with context.database.read() as session:
            run = repository.find(session, run_id)
        assert run is not None, "it was acknowledged"
        if run.state not in (RunState.QUEUED, *IN_PROGRESS):
            assert run.state == RunState.SUCCEEDED, run.problem
            return run
        time.sleep(LOOK_S)
