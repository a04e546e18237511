"""Blocks of given rows, for tests of models and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.models import Model
from trainer.records import Block, prepare
from trainer.streams import random_streams


def block_of(model: Model, features: Any, labels: Any, dtype: str = "float64") -> Block:
    """Return all rows in their order."""
    count = np.asarray(features).shape[0]
    records = prepare(model, features, labels, dtype, count, random_streams(0).slots)
    return records.block(records.positions)


def rows_of(gradients: Any, count: int) -> np.ndarray:
    """Return each record's gradient, shape (count, d), by weighted sums of one record each, on a fine grid."""
    found = []
    step = 2.0**-40
    for index in range(count):
        weights = np.zeros(gradients.norms().shape[0])
        weights[index] = 1.0
        total = np.zeros(gradients.entries().shape[1])
        gradients.add_to(total, weights, 1.0 / step)
        found.append(total * step)
    return np.array(found)
