"""Three well-known public data sets that come with the service. Their bounds are published with them.

The declarations are in `bundled_bounds/*.json`, the rows in `bundled_rows/*.npz`. Nothing is downloaded. The migration
that made the table of data sets registers them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from app.datasets.columns import NumberColumn, split_label
from app.datasets.schemas import DatasetMetadata
from app.datasets.table import FloatArray, LabelArray
from app.kit.fields import Identifier, Schema

_BOUNDS = Path(__file__).with_name("bundled_bounds")
_ROWS = Path(__file__).with_name("bundled_rows")


class BundledDataset(Schema):
    """The declaration of a bundled data set, and the source of its bounds."""

    id: Identifier
    source: str
    metadata: DatasetMetadata


@cache
def declaration(dataset_id: str) -> BundledDataset:
    """Return the committed declaration of a bundled data set."""
    path = _BOUNDS / f"{dataset_id.removeprefix('ds_')}.json"
    return BundledDataset.model_validate(json.loads(path.read_text(encoding="utf-8")))


@cache
def load(dataset_id: str) -> tuple[FloatArray, LabelArray]:
    """Return features, of shape (rows, features), clipped to their declared bounds, and labels, of shape (rows,).

    Args:
        dataset_id: ``ds_breast_cancer``, ``ds_digits`` or ``ds_diabetes``.

    Returns:
        Read-only arrays in the declared order and units; labels are integer codes if the label is a category.
    """
    metadata = declaration(dataset_id).metadata
    features, labels = _read(dataset_id)
    columns, label = split_label(metadata.columns, metadata.label)
    numbers = [column for column in columns if isinstance(column, NumberColumn)]
    assert len(numbers) == len(columns), "the bundled sets' features are numbers"
    bounded = np.clip(features, [column.lower for column in numbers], [column.upper for column in numbers])
    targets: LabelArray = labels.astype(np.int64)
    if isinstance(label, NumberColumn):
        targets = np.clip(labels.astype(np.float64), label.lower, label.upper)
    for array in (bounded, targets):
        array.setflags(write=False)
    return bounded, targets


def _read(dataset_id: str) -> tuple[FloatArray, Any]:
    with np.load(_ROWS / f"{dataset_id.removeprefix('ds_')}.npz", allow_pickle=False) as arrays:
        return arrays["features"].astype(np.float64), arrays["label"]
