"""Sums of records' gradients, or of their changes between two points, each clipped in an l_q norm, q >= 2.

Everything is formed in float64, and summed on a public grid as `trainer.sums` does: a record's contribution is a
function of the record, its slot and the points alone, and moves the sum by at most one bound in the l_q norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.errors import Unsupported
from trainer.arrays import Array, as_float64, cleared
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS, clip_factors
from trainer.gradients import Gradients, Layer, OuterProducts
from trainer.grid import Grid, grid_for
from trainer.models import LinearModel, Model
from trainer.records import Block, Records, Selection
from trainer.sums import narrowed, summed

#: The smallest bound on gradients that is accepted.
SMALLEST = SMALLEST_MAX_GRAD_NORMS["float64"]
_DTYPE = "float64"


@dataclass(frozen=True)
class Term:
    """A record's contribution to a sum: its clipped gradient, or its gradient's clipped change, times a weight.

    Attributes:
        point: The point at which gradients are taken, shape (d,), float64.
        bound: The bound on the l_q norm of a gradient, or of a change.
        earlier: The point from which a change is taken; None for gradients.
        weight: A public number.
    """

    point: Array
    bound: float
    earlier: Array | None = None
    weight: float = 1.0


class ClippedSums:
    """Sums over some of the slots, in whole steps of a grid.

    Args:
        records: All slots.
        model: The trained model; its gradients are outer products of one layer.
        algorithm: The name of the algorithm, for a refusal.
        dual_order: The order q of the dual norm; infinity measures the largest entry.

    Guarantees:
        - one_record_moves_a_sum_by_at_most_its_bound: in the l_q norm, for any losses.
        - non_finite_gradients_become_zero: such a record contributes nothing.

    Raises:
        Unsupported: If the model is not linear.
    """

    def __init__(self, records: Records, model: Model, algorithm: str, dual_order: float = math.inf) -> None:
        if not isinstance(model, LinearModel):
            raise Unsupported(
                f"{algorithm} clips gradients and their changes in a dual norm, which factorises only for linear "
                f"models; {model.kind} is not linear",
                code="unsupported_model",
                pointer=("model", "kind"),
            )
        self._records, self._model, self._dual_order = records, model, dual_order
        self._dtype = "float64" if records.all.features.dtype == records.xp.float64 else "float32"

    def grid(self, noise_multiplier: float, spread: float = 1.0) -> Grid:
        """Return the grid of sums whose noise is this multiple of their bound; 0 means sums without noise.

        Args:
            noise_multiplier: The noise's scale over the bound.
            spread: The largest scale of one coordinate of the noise, over the noise's scale.
        """
        return grid_for(
            noise_multiplier,
            self._model.num_parameters,
            _DTYPE,
            self._records.capacity,
            norm_order=self._dual_order,
            spread=spread,
        )

    def of(self, slots: Selection, grid: Grid, unit: float, *terms: Term) -> Array:
        """Return the sum of the slots' contributions over ``unit``, in whole steps: shape (d,), float64.

        Args:
            slots: The slots that take part.
            grid: The grid on which the sum lies.
            unit: The charged bound on a contribution, which is at least the sum of the terms' bounds times their
                weights. It is a public number, as is each bound, although bounds may depend on the points.
            terms: The terms of each record's contribution. A term whose bound is below `SMALLEST` contributes nothing.
        """
        used = [
            (term, self._narrow(term.point), None if term.earlier is None else self._narrow(term.earlier))
            for term in terms
            if term.bound >= SMALLEST
        ]
        if not used:
            return self._records.xp.zeros(self._model.num_parameters, dtype=self._records.xp.float64)

        def contributions(slots: Selection) -> tuple[Gradients, Array]:
            block = self._records.block(slots)
            xp, deltas, layer = block.xp, None, None
            for term, here, there in used:
                layer = self._layer(here, block)
                if there is not None:
                    layer = Layer(layer.inputs, layer.deltas - self._layer(there, block).deltas, layer.has_bias)
                sizes = self._sizes(OuterProducts(xp, (layer,)))
                usable = xp.isfinite(sizes) & (sizes > 0.0)
                factors = clip_factors(xp.where(usable, sizes, xp.ones_like(sizes)), term.bound, grid.margin)
                factors = cleared(xp, factors * (term.weight / unit), xp.logical_not(usable))
                part = cleared(xp, layer.deltas, xp.logical_not(usable)[:, None]) * factors[:, None]
                deltas = part if deltas is None else deltas + part
            assert layer is not None
            return OuterProducts(xp, (Layer(layer.inputs, deltas, layer.has_bias),)), as_float64(xp, block.valid)

        block_rows = self._model.block_rows
        return summed(self._records, slots, self._model.num_parameters, block_rows, grid, contributions)

    def mean(self, slots: Selection, divisor: int, term: Term) -> Array:
        """Return the sum of one term, divided by a public divisor, in gradient units and without noise. Selections use
        it."""
        grid = self.grid(0.0)
        return grid.decoded(self.of(slots, grid, term.bound, term), term.bound / divisor)

    def _sizes(self, gradients: OuterProducts) -> Array:
        if math.isinf(self._dual_order):
            return gradients.dual_norms()
        return gradients.norms_of_order(self._dual_order)

    def _layer(self, point: Array, block: Block) -> Layer:
        """Return the gradients' only layer, with derivatives in float64."""
        [layer] = self._model.gradients(point, block).layers
        return Layer(as_float64(block.xp, layer.inputs), as_float64(block.xp, layer.deltas), layer.has_bias)

    def _narrow(self, point: Array) -> Array:
        return narrowed(self._records, point, self._dtype)
