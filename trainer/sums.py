"""Sums over the slots of a step: whole numbers of a grid's steps are all that leaves the records.

Slots are read block by block; how many there are, and so every shape, is public. A record is in one place of one block.
What it contributes is a function of the record, its place and the point; the other contributions do not depend on it,
bit by bit, since every row of a product with a matrix is made of its own row alone. Each block's sum is rounded to the
grid in pieces, and whole numbers are added exactly: so two neighbouring sums differ by one piece's rounding, whatever
the number of slots. `trainer.grid` has the inequality.
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

#: The blocks whose work a device begins at once, because starting a call takes it as long as the work of a block.
_DEVICE_BLOCKS = 8

#: From slots to their gradients and to factors that make each of them a contribution no longer than 1.
Contributions = Callable[[Selection], tuple[Gradients, Array]]


def summed(records: Records, slots: Selection, dimension: int, block_rows: int, grid: Grid, of: Contributions) -> Array:
    """Return the sum of the contributions of these slots in whole steps of the grid: shape (dimension,), float64.

    Args:
        records: All slots.
        slots: Those that take part, padding included.
        dimension: The dimension d.
        block_rows: Slots that the host reads at a time.
        grid: The grid on which the sum lies.
        of: Computes the contributions of slots, in units of the contribution bound.

    Guarantees:
        - non_finite_gradients_become_zero, unusable_rows_contribute_nothing: as ``of`` gives them the factor 0.
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

    A record of weight w in (0, 1] contributes w times its bounded gradient, which is no longer than the bound either.

    Attributes:
        model: The model whose gradients are taken.
        records: All slots.
        dtype: The run's: of the stored rows, the logits and the sums of pieces.
    """

    model: Model
    records: Records
    dtype: str

    def at(self, point: Array, slots: Selection, bound: GradientBound, grid: Grid) -> Array:
        """Return the sum of the slots' contributions at a point, in whole steps: shape (d,), float64.

        Args:
            point: shape (d,), float64.
            slots: Those that take part.
            bound: The rule by which gradients are bounded; contributions are in units of its ``contribution_bound``.
            grid: The grid on which the sum lies.
        """
        contributions = self.contributions(point, bound, grid.margin)
        return summed(self.records, slots, point.shape[0], self.model.block_rows, grid, contributions)

    def contributions(self, point: Array, bound: GradientBound, margin: float) -> Contributions:
        """Return what slots contribute at a point.

        Args:
            point: shape (d,), float64.
            bound: The rule by which gradients are bounded; contributions are in units of its ``contribution_bound``.
            margin: The relative distance that they keep from it.
        """
        narrow = narrowed(self.records, point, self.dtype)

        def contributions(slots: Selection) -> tuple[Gradients, Array]:
            block = self.records.block(slots)
            gradients, xp = self.model.gradients(narrow, block), block.xp
            norms, weights = gradients.norms(), self.model.record_weights(block)
            if weights is not None:
                # These norms are of gradients without weights: a bound on weighted ones would undo the weights.
                norms = norms / weights
            usable = xp.isfinite(norms)
            factors = contribution_factors(bound, xp.where(usable, norms, xp.ones_like(norms)), margin)
            return gradients.keep(usable), cleared(xp, factors, xp.logical_not(usable & block.valid))

        return contributions


def narrowed(records: Records, point: Array, dtype: str) -> Array:
    """Return the point in the run's dtype, as products with records take it: without numbers that are too small."""
    xp = records.xp
    return flushed(xp, xp.astype(as_float64(xp, point), float_dtype(xp, dtype)), TINY[dtype])
