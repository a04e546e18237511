"""Means of records' gradients, or of their changes between two points, each clipped in an l_q norm, q >= 2.

Why a margin of 1e-5 covers rounding. All sums are in float64, in pieces of at most `PIECE` records, added in order: the
sum of m contributions of size c is off by at most (PIECE + m / PIECE) m 2^-53 c, twice that between neighbours, which
is below 0.48e-5 c up to m = `MAX_RECORDS`. What a record contributes is a function of the record and of the points
alone, bit by bit, so that the other contributions are those of the neighbour. Each entry's error is bounded by the
sizes of the same entry, so that the bound holds in every l_q norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from accounting.errors import Unsupported
from trainer.arrays import Array, as_float64
from trainer.clipping import MARGINS, SMALLEST_MAX_GRAD_NORMS, clip_factors
from trainer.gradients import PIECE_ROWS, Layer, OuterProducts
from trainer.models import LinearModel, Model
from trainer.records import Block, Indices, Records

#: Records summed by one product.
PIECE = 8 * PIECE_ROWS
#: Records of a sum, up to which the margin covers rounding.
MAX_RECORDS = 1 << 22
MARGIN = MARGINS["float64"]
#: Smaller bounds on gradients are refused.
SMALLEST = SMALLEST_MAX_GRAD_NORMS["float64"]


class ClippedMeans:
    """Means over some of the records.

    Args:
        records: All of them.
        model: What is trained; its gradients are outer products of one layer.
        algorithm: Which one asks, for the refusal.
        dual_order: q; infinity measures the largest entry.

    Guarantees:
        - one_record_moves_a_mean_by_at_most_its_bound: over the divisor, in the l_q norm, for any losses.
        - non_finite_gradients_become_zero: such a record contributes nothing.

    Raises:
        Unsupported: the model is not linear.
    """

    def __init__(self, records: Records, model: Model, algorithm: str, dual_order: float = math.inf) -> None:
        if not isinstance(model, LinearModel):
            raise Unsupported(
                f"{algorithm} clips gradients and their changes in a dual norm, which factorises for linear models "
                f"alone; {model.kind} is none",
                code="unsupported_model",
                pointer=("model", "kind"),
            )
        self._records, self._model, self._dual_order = records, model, dual_order

    def of_gradients(self, rows: Indices, divisor: int, point: Array, bound: float) -> Array:
        """The sum over ``rows`` of gradients at ``point`` clipped to ``bound``, over ``divisor``: shape (d,), float64.

        Args:
            rows: Positions of records.
            divisor: A public number, whatever the number of rows.
            bound: On each gradient's l_q norm.
        """
        here = self._in_dtype(point)
        return self._mean(rows, divisor, bound, lambda block: self._layer(here, block))

    def of_changes(self, rows: Indices, divisor: int, point: Array, earlier: Array, bound: float) -> Array:
        """The same of each gradient's change from ``earlier`` to ``point``.

        The bound may depend on the two points: they are what was selected.
        """
        here, there = self._in_dtype(point), self._in_dtype(earlier)

        def change(block: Block) -> Layer:
            new, old = self._layer(here, block), self._layer(there, block)
            return Layer(new.inputs, new.deltas - old.deltas, new.has_bias)

        return self._mean(rows, divisor, bound, change)

    def _mean(self, rows: Indices, divisor: int, bound: float, layer_of: Callable[[Block], Layer]) -> Array:
        xp = self._records.xp
        total = xp.zeros(self._model.num_parameters, dtype=xp.float64)
        if bound < SMALLEST:  # of changes alone, where the point has hardly moved
            return total
        for start in range(0, rows.size, PIECE):
            block = self._records.block(rows[start : start + PIECE], self._model.piece_rows)
            gradients = OuterProducts(xp, (layer_of(block),))
            sizes = self._sizes(gradients)
            usable = xp.isfinite(sizes) & (sizes > 0.0)
            if not bool(xp.all(usable)):
                gradients, sizes = gradients.keep(usable), xp.where(usable, sizes, xp.ones_like(sizes))
            total = total + gradients.weighted_sum(clip_factors(sizes, bound, MARGIN) * block.valid, wide=True)
        return total / divisor

    def _sizes(self, gradients: OuterProducts) -> Array:
        if math.isinf(self._dual_order):
            return gradients.dual_norms()
        return gradients.norms_of_order(self._dual_order)

    def _layer(self, point: Array, block: Block) -> Layer:
        """The gradients' only layer, with derivatives in float64."""
        [layer] = self._model.gradients(point, block).layers
        return Layer(as_float64(block.xp, layer.inputs), as_float64(block.xp, layer.deltas), layer.has_bias)

    def _in_dtype(self, point: Array) -> Array:
        return self._records.xp.astype(point, self._records.all.features.dtype)
