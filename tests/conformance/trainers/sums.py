"""Sums of contributions, watched where they leave the records.

An algorithm may do with a noisy sum what it likes, so a sum cannot be read off the points that it leads to. It is
watched instead; and that the points depend on the records by nothing else is seen by giving other sums in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from trainer.batches import SelectedBatch
from trainer.gradients import Factors

#: From any point to the sum of what the step's records contribute there.
SumAt = Callable[[np.ndarray], np.ndarray]


@contextmanager
def given_sums(give: Callable[[SumAt], np.ndarray]) -> Iterator[None]:
    """Whatever asks for a sum of contributions is given what ``give`` makes of the records' own."""
    true_sum = SelectedBatch.bounded_sum

    def bounded_sum(batch: SelectedBatch, factors: Factors) -> np.ndarray:
        def sum_at(point: np.ndarray) -> np.ndarray:
            narrow = np.asarray(point, dtype=batch.point.dtype)
            return np.array(true_sum(replace(batch, point=narrow), factors))

        return give(sum_at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SelectedBatch, "bounded_sum", bounded_sum)
        yield
