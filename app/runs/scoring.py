"""A score of a trial on its own training rows: a release about them, with the noise that the sweep is charged for."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from app.kit.context import Context
from app.runs.job import Job
from trainer.models import Model
from trainer.noise import GaussianNoise
from trainer.streams import random_streams

#: What a row adds is a whole number of these: sums of them are exact, so that no row moves the rounding of the others.
_GRAIN = 2.0**-20


def noisy_score(
    context: Context, job: Job, parameters: Mapping[str, npt.NDArray[np.float64]], noise_multiplier: float
) -> float:
    """The noisy sum of what each training row adds, over the declared size.

    The noise is drawn under a key of this run's own, which is derived from the service's secret: a trial that goes on
    after its worker was lost releases the same score again, and no second one.

    Args:
        context: The process's context.
        job: The trial.
        parameters: Of its model.
        noise_multiplier: Standard deviation of the noise on the sum; a row adds 1 at most.

    Guarantees:
        - each_row_adds_at_most_one: the sum changes by at most 1 with a row, whatever the row.
        - one_run_is_one_score: the same run has the same noise.
    """
    features, labels = job.scaled_rows()
    total = sum(contribution(job.model, parameters, row, label) for row, label in zip(features, labels, strict=True))
    key = context.keyed_hash("selection score", job.run.id.encode())[:32]
    noise = GaussianNoise(random_streams(int(key, 16)).noise)
    return (total + noise_multiplier * float(noise.standard_normal((1,))[0])) / job.training.declared_size


def contribution(
    model: Model, parameters: Mapping[str, npt.NDArray[np.float64]], row: npt.NDArray[np.float64], label: float | int
) -> float:
    """What a row adds, in [0, 1]: 1 where its class is predicted; of a real label, less the nearer to 1 the error is.

    Each row is predicted alone: in a product of many rows its last bits might depend on the others.
    """
    [predicted] = model.predict(parameters, row[np.newaxis])
    if model.num_classes:
        return float(predicted == label)
    error = abs(float(predicted) - float(label))
    return math.floor(max(0.0, 1.0 - error) / _GRAIN) * _GRAIN if np.isfinite(error) else 0.0
