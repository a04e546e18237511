"""Synthetic data: public by construction, since they are computed from a seed and public parameters alone.

The same request gives the same rows, on every machine and with every version of NumPy: the generator's raw bits are
part of its definition, the transforms below are our own, and values are rounded to far fewer digits than those in which
libraries differ.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import scipy
from pydantic import Field, ValidationInfo, field_validator

from app.datasets.columns import CategoryColumn, Column, NumberColumn
from app.datasets.schemas import DatasetMetadata
from app.datasets.table import FloatArray, Table, TableBuilder, TypedBlock
from app.kit.fields import Integer, Name, Schema

MAX_FEATURES = 1000
MAX_CLASSES = 100
MAX_CELLS = 10_000_000

_LABEL = "label"
_DIGITS = 6


class SyntheticRequest(Schema):
    """A public data set that is generated: `features` numbers in [-1, 1] and a label."""

    kind: Literal["synthetic"]
    name: Name
    task: Literal["classification", "regression"] = Field(
        "classification",
        description="What the label is. `classification`: A category, around whose centre the features lie. "
        "`regression`: A number in [-1, 1], linear in the features, with noise.",
    )
    features: Integer = Field(ge=1, le=MAX_FEATURES)
    rows: Integer = Field(
        ge=1, le=1_000_000, description="Number of rows, and the declared size. Rows times columns: 1e7 at most."
    )
    classes: Integer = Field(2, ge=2, le=MAX_CLASSES, description="Categories of the label, for classification.")
    separation: float = Field(
        2.0, ge=0.0, le=100.0, description="Distance of a class's centre from the origin, in deviations of the noise."
    )
    noise: float = Field(0.1, ge=0.0, le=10.0, description="Standard deviation on the label, for regression.")
    seed: Integer = Field(ge=0, le=2**63 - 1)

    @field_validator("rows")
    @classmethod
    def _is_not_too_large(cls, rows: int, info: ValidationInfo) -> int:
        if rows * (info.data.get("features", 0) + 1) > MAX_CELLS:
            raise ValueError(f"Rows times columns, the label among them, must not exceed {MAX_CELLS}.")
        return rows

    @property
    def declaration(self) -> DatasetMetadata:
        """Return the declaration that an owner would make about the table."""
        columns: list[Column] = [
            NumberColumn(name=f"feature_{index}", type="number", lower=-1.0, upper=1.0)
            for index in range(1, self.features + 1)
        ]
        if self.task == "classification":
            categories = [str(code) for code in range(self.classes)]
            columns.append(CategoryColumn(name=_LABEL, type="category", categories=categories))
        else:
            columns.append(NumberColumn(name=_LABEL, type="number", lower=-1.0, upper=1.0))
        return DatasetMetadata(
            name=self.name, public=True, declared_size=self.rows, columns=columns, label=_LABEL, budget_id=None
        )


def generate(request: SyntheticRequest) -> Table:
    """Generate the rows; they are checked, clipped and hashed like those of a file."""
    draws = _Draws(request.seed)
    shape = (request.rows, request.features)
    if request.task == "classification":
        centres = _unit_rows(draws.normal((request.classes, request.features)))
        labels = np.floor(draws.uniform((request.rows,)) * request.classes)
        features = request.separation * centres[labels.astype(np.intp)] + draws.normal(shape)
        # This division puts nearly all features inside the bounds.
        features /= request.separation + 3.0
    else:
        (weights,) = _unit_rows(draws.normal((1, request.features)))
        features = np.round(2.0 * draws.uniform(shape) - 1.0, _DIGITS)
        labels = np.sum(features * weights, axis=1) / 2.0 + request.noise * draws.normal((request.rows,))
    builder = TableBuilder(request.declaration.columns, _LABEL)
    columns = [*np.round(features, _DIGITS).T, np.round(labels, _DIGITS)]
    faults = builder.add_typed([TypedBlock(column) for column in columns], first_row=1)
    assert not faults, "what is generated is as declared"
    return builder.build()


class _Draws:
    """Numbers from the raw bits of Philox, whose sequence is part of its definition."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)

    def uniform(self, shape: tuple[int, ...]) -> FloatArray:
        """Draw uniform numbers from the open interval (0, 1)."""
        raw = self._bits.random_raw(math.prod(shape))
        return ((raw >> np.uint64(11)).astype(np.float64) + 0.5).reshape(shape) * 2.0**-53

    def normal(self, shape: tuple[int, ...]) -> FloatArray:
        values: FloatArray = scipy.special.ndtri(self.uniform(shape))
        return values


def _unit_rows(rows: FloatArray) -> FloatArray:
    norms: FloatArray = np.sqrt(np.sum(rows * rows, axis=1, keepdims=True))
    return rows / norms
