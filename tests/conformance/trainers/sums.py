"""Sums of contributions, watched where they leave the records.

An algorithm may do with a noisy sum what it likes, so a sum cannot be read off the points that it leads to. It is
watched instead; and that the points depend on the records by nothing else is seen by giving other sums in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from calibrators.plan import GradientBound
from trainer.grid import Grid
from trainer.records import Selection
from trainer.sums import BoundedSum

#: From any point to the sum of what the step's records contribute there, in whole steps of the grid.
SumAt = Callable[[np.ndarray], np.ndarray]


@contextmanager
def given_sums(give: Callable[[SumAt, Grid], np.ndarray]) -> Iterator[None]:
    """Give whatever asks for a sum of contributions what ``give`` makes of the records' own."""
    true_sum = BoundedSum.at

    def at(sums: BoundedSum, point: np.ndarray, slots: Selection, bound: GradientBound, grid: Grid) -> np.ndarray:
        return give(lambda other: np.array(true_sum(sums, np.asarray(other), slots, bound, grid)), grid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundedSum, "at", at)
        yield
