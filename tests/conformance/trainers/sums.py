"""Sums of contributions, watched where they leave the records.

An algorithm may do with a noisy sum what it likes, so a sum cannot be read off the points that it leads to. It is
watched instead; and that the points depend on the records by nothing else is seen by giving other sums in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from calibrators.plan import GradientBound
from trainer.grid import Grid
from trainer.kept_contributions import KeptContributions
from trainer.records import Selection
from trainer.sums import BoundedSum

#: From any point to the sum of what the step's records contribute there, in whole steps of the grid.
SumAt = Callable[[np.ndarray], np.ndarray]


@contextmanager
def given_sums(give: Callable[[SumAt, Grid], np.ndarray]) -> Iterator[None]:
    """Give whatever asks for a sum of contributions what ``give`` makes of the records' own."""
    true_sum, true_init, true_over = BoundedSum.at, KeptContributions.__init__, KeptContributions.over

    def at(sums: BoundedSum, point: np.ndarray, slots: Selection, bound: GradientBound, grid: Grid) -> np.ndarray:
        return give(lambda other: np.array(true_sum(sums, np.asarray(other), slots, bound, grid)), grid)

    def init(kept: KeptContributions, sums: BoundedSum, point: np.ndarray, *rest: Any) -> None:
        true_init(kept, sums, point, *rest)
        vars(kept)["elsewhere"] = lambda other: KeptContributions(sums, np.asarray(other), *rest)

    def over(kept: KeptContributions, slots: Selection) -> np.ndarray:
        elsewhere = vars(kept)["elsewhere"]
        return give(lambda other: np.array(true_over(elsewhere(other), slots)), vars(kept)["_grid"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundedSum, "at", at)
        patch.setattr(KeptContributions, "__init__", init)
        patch.setattr(KeptContributions, "over", over)
        yield
