"""The score of a trial on its own training rows, which is a release with noise that the sweep's charge covers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from app.runs.job import Job
from trainer.exact.gaussian import RoundedGaussian
from trainer.models import Model
from trainer.streams import random_streams

#: The unit of scores, called a grain. Each row adds a whole number of grains, so sums are exact and no row changes the
#: rounding of others.
_GRAIN = 2.0**-20


def noisy_score(
    job: Job,
    parameters: Mapping[str, npt.NDArray[np.float64]],
    noise_multiplier: float,
    key: int,
    capacity: int | None = None,
) -> float:
    """Return the noisy sum of the training rows' contributions, divided by the declared size.

    Sum and noise are whole numbers of grains, so the last digits of the score reveal nothing.

    Args:
        job: The trial.
        parameters: The parameters of its model.
        noise_multiplier: The standard deviation of the noise on the sum; a row adds at most 1.
        key: The key of the noise (`app.runs.score_keys`). A trial that continues after its worker was lost still has
            this key, so it releases the same score again.
        capacity: The public number of slots in the sum. Default: the declared size.

    Guarantees:
        - each_row_adds_at_most_one: adding or removing any row changes the sum by at most 1.
        - one_key_is_one_score: the same key gives the same noise, and different keys give different noise.
        - the_work_is_that_of_the_slots: as long as the rows fit into the slots, the number of predictions does not
          depend on the number of rows.
    """
    features, labels = job.scaled_rows()
    total = sum_of_contributions(job.model, parameters, features, labels, capacity or job.training.declared_size)
    grains = total / _GRAIN + rounded_normal(key, noise_multiplier / _GRAIN)
    return grains * _GRAIN / job.training.declared_size


def rounded_normal(key: int, scale: float) -> float:
    """Return the rounded normal variate of a key with this standard deviation, as a whole number of grains."""
    return float(RoundedGaussian(random_streams(key).noise).rounded(1, scale)[0])


def sum_of_contributions(
    model: Model,
    parameters: Mapping[str, npt.NDArray[np.float64]],
    features: npt.NDArray[np.float64],
    labels: npt.NDArray[np.generic],
    capacity: int,
) -> float:
    """Return the sum of the rows' contributions. An empty slot takes the same work and adds nothing.

    Rows beyond the capacity count as well, because leaving one out would be a choice that depends on the others.
    """
    rows, slots = len(labels), max(capacity, len(labels))
    padded = np.zeros((slots, *features.shape[1:]))
    padded[:rows] = features
    expected = np.zeros(slots, dtype=labels.dtype)
    expected[:rows] = labels
    counts = np.zeros(slots)
    counts[:rows] = 1.0
    parts = [contribution(model, parameters, row, label) for row, label in zip(padded, expected, strict=True)]
    # A sum of whole multiples of the unit is exact in any order.
    return float(counts @ np.array(parts))


def contribution(
    model: Model, parameters: Mapping[str, npt.NDArray[np.float64]], row: npt.NDArray[np.float64], label: float | int
) -> float:
    """Return a row's contribution to the score, in [0, 1]. It is 1 if the row's class is predicted. For a real label,
    it is larger if the error is smaller.

    Each row is predicted alone, because in a matrix product its last bits might depend on the other rows. No branch
    depends on the row's content. An error that is not a number adds nothing.
    """
    [predicted] = model.predict(parameters, row[np.newaxis])
    if model.num_classes:
        return float(predicted == label)
    with np.errstate(all="ignore"):
        left = np.nan_to_num(1.0 - np.abs(np.float64(predicted) - np.float64(label)), nan=0.0, posinf=0.0, neginf=0.0)
        return float(np.floor(np.clip(left, 0.0, 1.0) / _GRAIN) * _GRAIN)
