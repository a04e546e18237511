"""This module sums over the slots of a step. Only whole numbers of a grid's steps leave the records.

Slots are read block by block. The number of slots, and so every shape, is public. A record is in one place of one
block. Its contribution is a function of the record, its place and the point. The other contributions do not depend on
it, bit by bit, since every row of a product with a matrix is computed from that row alone. Each block's sum is rounded
to the grid in pieces, and whole numbers are added exactly. So two neighbouring sums differ by one piece's rounding,
whatever the number of slots. `trainer.grid` has the inequality.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibrators.plan import GradientBound
from trainer.arrays import TINY, Array, as_float64, cleared, float_dtype, flushed, on_host
from trainer.clipping import contribution_factors
from trainer.gradients import Gradients
from trainer.grid import Grid
from trainer.models import Model
from trainer.records import Records, Selection

#: The number of blocks that one call to a device handles, since starting a call takes as long as the work of a block.
_DEVICE_BLOCKS = 8

#: A function from slots to their gradients, and to factors that make each gradient a contribution no longer than 1.
Contributions = Callable[[Selection], tuple[Gradients, Array]]


def summed(records: Records, slots: Selection, dimension: int, block_rows: int, grid: Grid, of: Contributions) -> Array:
    """Return the sum of the contributions of these slots in whole steps of the grid: shape (dimension,), float64.

    Args:
        records: All slots.
        slots: The slots that take part, padding included.
        dimension: The dimension d.
        block_rows: The number of slots that the host reads at a time.
        grid: The grid on which the sum lies.
        of: The function that computes the contributions of slots, in units of the contribution bound.

    Guarantees:
        - non_finite_gradients_become_zero, unusable_rows_contribute_nothing: since ``of`` gives them the factor 0.
        - one_record_moves_the_sum_by_at_most_the_bound: by 1 / ``grid.step`` in the norm of the claim.
    """
    xp = records.xp
    total = xp.zeros(dimension, dtype=xp.float64)
    block_rows = block_rows if on_host(xp) else _DEVICE_BLOCKS * block_rows
    first, last = (slots.start, slots.stop) if isinstance(slots, slice) else (0, slots.size)
    for start in range(first, last, block_rows):
        chosen = slice(start, min(start + block_rows, last))
        gradients, factors = of(chosen if isinstance(slots, slice) else slots[chosen])
        gradients.add_to(total, factors, grid.steps_per_unit)
    return total


@dataclass(frozen=True)
class BoundedSum:
    """Sums of gradients that are clipped or normalised in the l2 norm.

    A record of weight w in (0, 1] contributes w times its bounded gradient, which is also no longer than the bound.

    Attributes:
        model: The model whose gradients are taken.
        records: All slots.
        dtype: The numeric type of the run: of the stored rows, the logits and the sums of pieces.
    """

    model: Model
    records: Records
    dtype: str

    def at(self, point: Array, slots: Selection, bound: GradientBound, grid: Grid) -> Array:
        """Return the sum of the slots' contributions at a point, in whole steps: shape (d,), float64.

        Args:
            point: shape (d,), float64.
            slots: The slots that take part.
            bound: The rule by which gradients are bounded; contributions are in units of its ``contribution_bound``.
            grid: The grid on which the sum lies.
        """
        contributions = self.contributions(point, bound, grid.margin)
        return summed(self.records, slots, point.shape[0], self.model.block_rows, grid, contributions)

    def contributions(self, point: Array, bound: GradientBound, margin: float) -> Contributions:
        """Return the contributions of slots at a point.

        Args:
            point: shape (d,), float64.
            bound: The rule by which gradients are bounded; contributions are in units of its ``contribution_bound``.
            margin: The relative distance of the contributions from the contribution bound.
        """
        narrow = narrowed(self.records, point, self.dtype)

        def contributions(slots: Selection) -> tuple[Gradients, Array]:
            block = self.records.block(slots)
            gradients, xp = self.model.gradients(narrow, block), block.xp
            norms, weights = gradients.norms(), self.model.record_weights(block)
            if weights is not None:
                # These are norms of gradients without weights: bounding the weighted gradients would undo the weights.
                norms = norms / weights
            usable = xp.isfinite(norms)
            factors = contribution_factors(bound, xp.where(usable, norms, xp.ones_like(norms)), margin)
            return gradients.keep(usable), cleared(xp, factors, xp.logical_not(usable & block.valid))

        return contributions


def narrowed(records: Records, point: Array, dtype: str) -> Array:
    """Return the point in the run's dtype, for products with records. Numbers that are too small become zero."""
    xp = records.xp
    return flushed(xp, xp.astype(as_float64(xp, point), float_dtype(xp, dtype)), TINY[dtype])
