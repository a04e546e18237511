"""Private rows, made ready once: what is not finite becomes zero, what is huge gets its scale taken out.

All of it is row by row, so no row changes how another is read, and nothing here raises or warns because of a value.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.errors import InvalidValue
from trainer.arrays import Array, Namespace, as_float64, float_dtype, namespace_of, silent
from trainer.clipping import row_norms
from trainer.models import Model
from trainer.samplers import Selection

#: Rows handled at a time: bounds the memory of float64 intermediates.
BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Records:
    """Augmented inputs x~ = scale * input, and labels.

    Attributes:
        xp: The arrays' namespace.
        inputs: shape (n, num_inputs), the run's dtype; all zero for a row that was not finite.
        input_norms: shape (n,), float64: l2 norms of ``inputs``.
        scales: shape (n,), float64: a power of two, 1 unless an entry of the row exceeds 1.
        labels: shape (n,), integers in [0, num_classes).
    """

    xp: Namespace
    inputs: Array
    input_norms: Array
    scales: Array
    labels: Array

    def select(self, rows: Selection) -> Records:
        """The records of one batch, or of a part of it."""
        xp = self.xp
        arrays = (self.inputs, self.input_norms, self.scales, self.labels)
        if isinstance(rows, slice):
            return Records(xp, *(array[rows, ...] for array in arrays))
        indices = xp.asarray(rows)
        return Records(xp, *(xp.take(array, indices, axis=0) for array in arrays))


def prepare(model: Model, features: Array, labels: Array, dtype: str) -> Records:
    """Copy features and labels into the form that training reads.

    Args:
        features: shape (n, p); n may be 0.
        labels: shape (n,). A label between two classes is rounded, one outside their range is clipped to it.
        dtype: "float64" or "float32", of the stored inputs.

    Guarantees:
        - non_finite_rows_become_zero: a NaN or an infinity in a row's features or label zeroes the whole row, intercept
          included; its gradient is exactly zero at any parameters.
        - huge_rows_keep_their_direction: scale * input equals the row, up to one rounding, however large its entries.
        - rows_are_independent: replacing a row changes nothing that is kept of the others.
        - silent: no value raises or warns.

    Raises:
        InvalidValue: the shapes are not (n, p) and (n,), or dtype is unknown. Sizes of the data are not in the message.
    """
    xp = namespace_of(features)
    storage = float_dtype(xp, dtype)
    features, labels = xp.asarray(features), xp.asarray(labels)
    if len(features.shape) != 2 or features.shape[1] != model.num_features:
        raise InvalidValue(f"features must be of shape (n, {model.num_features})", pointer=("features",))
    if len(labels.shape) != 1 or labels.shape[0] != features.shape[0]:
        raise InvalidValue("labels must be of shape (n,), with one label for each row of features", pointer=("labels",))
    rows = features.shape[0]
    records = Records(
        xp,
        inputs=xp.zeros((rows, model.num_inputs), dtype=storage),
        input_norms=xp.zeros(rows, dtype=xp.float64),
        scales=xp.ones(rows, dtype=xp.float64),
        labels=xp.zeros(rows, dtype=xp.int64),
    )
    with silent():
        for start in range(0, rows, BLOCK_ROWS):
            block = slice(start, min(start + BLOCK_ROWS, rows))
            _fill(records.select(block), model, features[block, :], labels[block])
    return records


def _fill(into: Records, model: Model, features: Array, labels: Array) -> None:
    """Write one block; ``into`` holds views of the whole."""
    xp = into.xp
    values, classes = as_float64(xp, features), as_float64(xp, labels)
    finite = xp.all(xp.isfinite(values), axis=1) & xp.isfinite(classes)
    values = xp.where(finite[:, None], values, xp.zeros_like(values))
    classes = xp.where(finite, classes, xp.zeros_like(classes))
    largest = xp.max(xp.abs(values), axis=1)
    exponents = xp.floor(xp.log2(xp.where(largest > 1.0, largest, xp.ones_like(largest))))
    scales = 2.0**exponents
    into.scales[...] = scales
    into.inputs[:, : model.num_features] = xp.astype(values / scales[:, None], into.inputs.dtype)
    if model.fit_intercept:
        intercept = xp.where(finite, 1.0 / scales, xp.zeros_like(scales))
        into.inputs[:, model.num_features] = xp.astype(intercept, into.inputs.dtype)
    into.input_norms[...] = row_norms(xp, as_float64(xp, into.inputs))
    highest = xp.full_like(classes, float(model.num_classes - 1))
    classes = xp.minimum(xp.maximum(xp.round(classes), xp.zeros_like(classes)), highest)
    into.labels[...] = xp.astype(classes, xp.int64)
