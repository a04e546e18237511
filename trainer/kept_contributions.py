"""This module keeps the contributions of records at one point, so that sums over some records contain them bit for bit.

A gradient that is computed again at the same point, but at another place of a block, may differ: the rounding of matrix
products depends on the place, and for some records the rounding decides the gradient. If a record's part in one sum has
to cancel its part in another sum, both sums are made of the contributions that are kept here.
"""

from __future__ import annotations

import numpy as np

from calibrators.plan import GradientBound
from trainer.arrays import Array, on_host
from trainer.gradients import Gradients
from trainer.grid import Grid
from trainer.records import Indices, Selection
from trainer.sums import BoundedSum, summed


class KeptContributions:
    """Contributions of some slots at one point, for sums over any of them.

    Args:
        sums: The sums of a model and its records.
        point: shape (d,), float64.
        slots: The slots whose contributions are kept.
        bound: The rule by which gradients are bounded.
        grid: The grid on which sums lie.

    Guarantees:
        - a_record_contributes_the_same_to_every_sum: bit by bit, whatever else is summed.
        - one_record_moves_a_sum_by_at_most_the_bound: as `trainer.sums.summed` guarantees.
    """

    def __init__(self, sums: BoundedSum, point: Array, slots: Indices, bound: GradientBound, grid: Grid) -> None:
        self._sums, self._grid, self._dimension = sums, grid, point.shape[0]
        xp = sums.records.xp
        self._place_of: Indices = np.full(sums.records.capacity + 1, -1, dtype=np.intp)
        self._place_of[slots] = np.arange(slots.size)
        self._kept: tuple[Array, ...] = ()
        self._factors = xp.zeros(slots.size, dtype=xp.float64)
        contributions, rows = sums.contributions(point, bound, grid.margin), sums.model.block_rows
        for start in range(0, slots.size, rows):
            chosen = slice(start, min(start + rows, slots.size))
            gradients, self._factors[chosen] = contributions(slots[chosen])
            parts = gradients.parts()
            if not self._kept:
                self._like = gradients
                self._kept = tuple(xp.empty((slots.size, *part.shape[1:]), dtype=part.dtype) for part in parts)
            for kept, part in zip(self._kept, parts, strict=True):
                kept[chosen, ...] = part

    def over(self, slots: Selection) -> Array:
        """Return the sum of the contributions of these slots, in whole steps of the grid: shape (d,), float64.

        Args:
            slots: Some of the slots whose contributions are kept.
        """
        sums = self._sums
        return summed(sums.records, slots, self._dimension, sums.model.block_rows, self._grid, self._again)

    def _again(self, slots: Selection) -> tuple[Gradients, Array]:
        records = self._sums.records
        xp, places = records.xp, self._place_of[slots]
        indices = places if on_host(xp) else xp.asarray(places)
        parts = tuple(xp.take(kept, indices, axis=0) for kept in self._kept)
        return self._like.of_parts(records.block(slots), parts), xp.take(self._factors, indices, axis=0)
