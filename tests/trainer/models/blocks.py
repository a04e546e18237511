"""Blocks of given rows, for tests of models and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.models import Model
from trainer.records import Block, prepare
from trainer.streams import random_streams


def block_of(model: Model, features: Any, labels: Any, dtype: str = "float64", piece: int = 0) -> Block:
    """All rows in their order, and padding behind them."""
    records = prepare(model, features, labels, dtype, 1, random_streams(0).lanes, piece or model.piece_rows)
    return records.block(slice(0, records.count), piece or model.piece_rows)


def rows_of(gradients: Any, count: int) -> np.ndarray:
    """Each record's gradient, shape (count, d), by weighted sums of one record each."""
    found = []
    for index in range(count):
        weights = np.zeros(gradients.norms().shape[0])
        weights[index] = 1.0
        found.append(np.asarray(gradients.weighted_sum(weights)))
    return np.array(found)
