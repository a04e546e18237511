"""This module forms groups of records with clamped coordinates, their sums on a grid, and medians over the groups.

A record contributes minus its gradient at the point: for the model `mean` at 0, the record itself. A record contributes
only to the sum of its own group. Sums are whole numbers of a grid's steps, and so is their median, which is one of
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from accounting.errors import InvalidValue
from trainer.arrays import Array, Namespace, cleared
from trainer.clipped_sums import SMALLEST
from trainer.clipping import MARGINS
from trainer.grid import Grid, grid_for
from trainer.loop import State, Task
from trainer.slots import SecretSlots
from trainer.sums import narrowed

__all__ = ["MARGIN", "ClampedGroups", "check_groups", "lower_median"]

#: The relative margin by which coordinates stay below the radius if no grid needs more.
MARGIN = MARGINS["float64"]
#: The number of records whose coordinates are formed together.
_PIECE = 1024


class ClampedGroups:
    """Groups of records. They are blocks of the declared places in a secret order, taken one after the other.

    Args:
        task: The task of a plan under whose relation neighbours have the same places.
        group_size: The number b of places of a group: the public divisor of its mean, whatever the number of its rows.
        radius: The bound of coordinates: they are clamped to [-radius, radius], less the margin.

    Guarantees:
        - no_record_is_in_two_groups: rows beyond the declared size are in no group.
        - coordinates_are_within_the_radius: for all records.
        - non_finite_records_become_zero: so does a row that is no valid record.
        - an_empty_slot_is_a_record_of_zeros.
    """

    def __init__(self, task: Task, group_size: int, radius: float) -> None:
        self._records, self._model, self._dtype = task.records, task.model, task.plan.dtype
        self._size, self._radius = group_size, radius
        self._slots = SecretSlots(task)

    def grid(self, noise_multiplier: float) -> Grid:
        """Return the grid of a group's sums over the radius, with noise of ``noise_multiplier`` times the radius."""
        return grid_for(noise_multiplier, self._model.num_parameters, "float64", self._size, norm_order=math.inf)

    def next_group(self, point: Array, margin: float = MARGIN) -> Iterator[Array]:
        """Yield the next group's clamped contributions, piece by piece: shape (B, d), float64, a row for each slot.

        Args:
            point: The point at which gradients are taken, shape (d,), float64.
            margin: The relative margin by which coordinates stay below the radius.
        """
        records, slots = self._records, self._slots.take(self._size)
        xp, here, radius = records.xp, narrowed(records, point, self._dtype), self._radius * (1.0 - margin)
        for start in range(0, slots.size, _PIECE):
            block = records.block(slots[start : start + _PIECE])
            entries = -self._model.gradients(here, block).entries()
            usable = xp.all(xp.isfinite(entries), axis=1) & block.valid
            yield xp.clip(cleared(xp, entries, xp.logical_not(usable)[:, None]), -radius, radius)

    def next_sum(self, point: Array, grid: Grid) -> Array:
        """Return the sum of the next group's clamped contributions over the radius, in whole steps: shape (d,)."""
        xp = self._records.xp
        total = xp.zeros(point.shape, dtype=xp.float64)
        for piece in self.next_group(point, grid.margin):
            total += xp.round(xp.sum(piece, axis=0) / self._radius * grid.steps_per_unit)
        return total

    def state(self) -> State:
        return self._slots.state()

    def restore(self, state: State) -> None:
        self._slots.restore(state)


def lower_median(xp: Namespace, rows: Array) -> Array:
    """Return the middle number of each column, the lower of the two if there are two in the middle.

    Guarantees:
        - medians_move_no_more_than_what_moves_most: in each column, for any changed rows.

    >>> import numpy as np
    >>> lower_median(np, np.array([[3.0, 1.0], [2.0, 9.0], [7.0, 1.0], [4.0, 5.0]])).tolist()
    [3.0, 1.0]
    """
    return xp.sort(rows, axis=0)[(rows.shape[0] - 1) // 2, :]


def check_groups(dataset_size: int, groups: int, group_size: int, radius: float) -> None:
    """Refuse a plan whose first phase has groups with more places than are declared, or a radius that floating point
    cannot keep.

    Raises:
        InvalidValue: If there are more places than are declared, or if floating point cannot keep the radius.
    """
    if groups * group_size > dataset_size:
        raise InvalidValue(
            f"{groups} groups of {group_size} need more than the {dataset_size} declared records",
            pointer=("phases", 0, "group_size"),
        )
    if radius < SMALLEST:
        raise InvalidValue(
            f"truncation_radius must be at least {SMALLEST:g} to be kept in floating point; rescale the features",
            pointer=("phases", 0, "truncation_radius"),
        )
