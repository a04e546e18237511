"""Gradients of a batch in factorised form, and the one thing that leaves it: the sum of bounded contributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from trainer.arrays import Array, as_float64, on_host
from trainer.clipping import row_norms
from trainer.models import Model
from trainer.records import BLOCK_ROWS, Records
from trainer.samplers import Selection

#: From norms |v| and scales, both of shape (B,), to factors on v: what `trainer.clipping` makes.
Factors = Callable[[Array, Array], Array]

#: Rows converted to float64 at a time, so that the conversion stays in a processor's cache.
_CACHED_ROWS = 64


class Batch(Protocol):
    """What an update may see of the records of one step."""

    def bounded_sum(self, factors: Factors) -> Array:
        """Sum over the batch of ``factor_i v_i``, for gradients ``scale_i v_i``; the shape of the parameters."""
        ...


@dataclass(frozen=True)
class FactorisedGradients:
    """Gradients ``scale_i * outer(inputs_i, residuals_i)`` of up to `BLOCK_ROWS` records.

    Attributes:
        records: B records with m inputs each.
        residuals: shape (B, K), float64, finite.
    """

    records: Records
    residuals: Array

    @property
    def norms(self) -> Array:
        """shape (B,), float64: l2 norms of the gradients over their scales, |input| |residual|."""
        return self.records.input_norms * row_norms(self.records.xp, self.residuals)

    def bounded_sum(self, factors: Factors) -> Array:
        """Sum of ``factor_i * outer(inputs_i, residuals_i)``: two row norms and one matrix product.

        The sum is accumulated in float64, whatever the inputs' dtype: products of float32 numbers are exact there. In
        float32 the rounding of a sum over a thousand aligned records is some 1e-3 of the bound, a hundred times the
        margin of the clip, and one record more or less changes all of it.

        Returns:
            shape (m, K), float64.

        Guarantees:
            - the_sum_is_accurate: with n records, within n (4096 + n / 4096) 2^-53 of the exact sum, in units of the
              bound. That is below half the margin of 1e-5 up to n = 5 million, so neighbouring sums as computed
              differ by no more than was accounted.
        """
        xp, inputs = self.records.xp, self.records.inputs
        weighted = factors(self.norms, self.records.scales)[:, None] * self.residuals
        total = xp.zeros((inputs.shape[1], weighted.shape[1]), dtype=xp.float64)
        step = _CACHED_ROWS if on_host(xp) else BLOCK_ROWS
        rows = inputs.shape[0]
        for start in range(0, rows, step):
            part = slice(start, min(start + step, rows))
            total = total + as_float64(xp, inputs[part, :]).T @ weighted[part, :]
        return total


def gradients(model: Model, point: Array, records: Records) -> FactorisedGradients:
    """The gradients of the records' losses at the point.

    Args:
        point: shape (num_inputs, num_outputs), float64.
        records: at most `BLOCK_ROWS` of them; logits are computed in their dtype.

    Guarantees:
        - non_finite_gradients_become_zero: where a residual is not finite (an overflowing logit), the row is zero.
    """
    xp = records.xp
    logits = as_float64(xp, records.inputs @ xp.astype(point, records.inputs.dtype)) * records.scales[:, None]
    residuals = model.residuals(xp, logits, records.labels)
    finite = xp.all(xp.isfinite(residuals), axis=1)
    return FactorisedGradients(records, xp.where(finite[:, None], residuals, xp.zeros_like(residuals)))


@dataclass(frozen=True)
class SelectedBatch:
    """The gradients of the selected records at a point, formed block by block when they are summed.

    Attributes:
        records: All of them.
        rows: Which ones take part.
        point: shape (num_inputs, num_outputs), float64.
    """

    model: Model
    records: Records
    rows: Selection
    point: Array

    def bounded_sum(self, factors: Factors) -> Array:
        total = self.records.xp.zeros_like(self.point)
        for rows in _blocks(self.rows):
            total = total + gradients(self.model, self.point, self.records.select(rows)).bounded_sum(factors)
        return total


def _blocks(rows: Selection) -> Iterator[Selection]:
    if isinstance(rows, slice):
        for start in range(rows.start, rows.stop, BLOCK_ROWS):
            yield slice(start, min(start + BLOCK_ROWS, rows.stop))
    else:
        for start in range(0, rows.size, BLOCK_ROWS):
            yield rows[start : start + BLOCK_ROWS]
