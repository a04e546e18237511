"""Released models, with everything that offline predictions need (needs NumPy).

    model = epsilond_client.load("run_...")     # or the file that `client.runs.download` wrote
    model.predict([{"age": 40, "smoker": "no"}])

Columns are clipped and scaled, and logits are computed, as the service does when it trains and when it scores.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from epsilond_client.answers import Answer

#: The format of model files that this package reads.
FORMAT_VERSION = 1

FloatArray = npt.NDArray[np.float64]
#: Rows: a table with column names (pandas, Polars, a dict of columns), a list of dicts, or a 2-D array.
Rows = Any


class Model:
    """A released model.

    Args:
        document: What the service says about the model: declared columns, kind, classes, guarantee.
        parameters: The model's arrays by name.

    Attributes:
        document: Every field of the file except the arrays.
        parameters: The arrays, as the service released them.
        feature_names: Names of the declared columns, in the order of an array's columns.
        classes: Names of the classes in the order of `predict_proba`; none for a regression.
        card: The parts of the privacy card that never change: guarantee, events, noise, scores. None in a file of an
            earlier version. The path of the whole card is ``document.guarantee.card``.

    Raises:
        ValueError: this package does not read the file's format, or the card does not match its hash.
    """

    def __init__(self, document: Mapping[str, Any], parameters: Mapping[str, npt.NDArray[np.float64]]) -> None:
        version = document.get("format_version")
        if version != FORMAT_VERSION:
            raise ValueError(
                f"the model has format_version {version!r}, and this package reads {FORMAT_VERSION}: install a "
                "version of epsilond-client that is as new as the service"
            )
        card = document.get("card")
        if card is not None and _hash_of(card) != document.get("card_hash"):
            raise ValueError(
                "the privacy card in the file does not match its hash, so it was altered: download the model of "
                f"{document['run_id']} again"
            )
        self.document = Answer(document)
        self.card = None if card is None else Answer(card)
        self.parameters = {name: np.asarray(array, dtype=np.float64) for name, array in parameters.items()}
        self.feature_names: tuple[str, ...] = tuple(column["name"] for column in document["features"])
        self.classes: tuple[str, ...] = tuple(document["classes"])
        self._columns: Sequence[Mapping[str, Any]] = document["features"]

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read a model file (``GET /v1/runs/{id}/model?format=npz``).

        Raises:
            ValueError: these are not the bytes of a model file, or the file is from a version whose files were
                incomplete.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except (OSError, ValueError, EOFError) as error:
            raise ValueError("this is not a model file of epsilond, which is an NPZ archive") from error
        if "document" not in arrays:
            run = str(arrays["run_id"]) if "run_id" in arrays else "the run"
            raise ValueError(
                "the file does not describe its columns: it was made by an earlier version of the service. "
                f"Download the model of {run} again from a newer service"
            )
        document = json.loads(arrays.pop("document").item())
        told = ("feature_names", "classes", "plan_hash", "run_id")
        return cls(document, {name: array for name, array in arrays.items() if name not in told})

    @property
    def kind(self) -> str:
        """Return the kind of model, such as ``"softmax_regression"``."""
        return str(self.document["kind"])

    @property
    def has_probabilities(self) -> bool:
        """Return whether the model has probabilities, which `predict_proba` returns."""
        return self.kind in ("logistic_regression", "softmax_regression", "mlp")

    def __repr__(self) -> str:
        return f"Model({self.document['run_id']!r}, kind={self.kind!r}, columns={len(self.feature_names)})"

    def predict(self, rows: Rows) -> npt.NDArray[Any]:
        """Predict each row: the name of its class, or a number in the label's unit; shape (n,).

        Args:
            rows: A table by column names, a list of dicts, or an array whose columns are `feature_names`. Numbers
                beyond their declared bounds are moved to the bound, as in training.

        Raises:
            ValueError: columns are missing or unknown, or a cell is not what its column holds.
            TypeError: the rows have another type, or the model predicts nothing (a mean).
        """
        logits = self.decision_function(rows)
        if self.classes:
            codes = (logits > 0.0).astype(np.intp) if logits.ndim == 1 else np.argmax(logits, axis=1)
            return np.asarray(np.array(self.classes)[codes])
        label = self.document["label"]
        middle = label["upper"] / 2.0 + label["lower"] / 2.0
        return np.asarray(middle + (label["upper"] / 2.0 - label["lower"] / 2.0) * logits)

    def predict_proba(self, rows: Rows) -> FloatArray:
        """Return the probability of each class, in the order of `classes`; shape (n, number of classes).

        Raises:
            ValueError: as `predict`.
            TypeError: the model has no probabilities: a regression, a mean or `q_norm_hinge`.
        """
        if not self.has_probabilities:
            raise TypeError(f"a model of kind {self.kind} has no probabilities; use predict")
        logits = self.decision_function(rows)
        with np.errstate(over="ignore"):
            if logits.ndim == 1:
                return np.asarray(1.0 / (1.0 + np.exp(np.stack([logits, -logits], axis=1))))
            powers = np.exp(logits - np.max(logits, axis=1, keepdims=True))
        return np.asarray(powers / np.sum(powers, axis=1, keepdims=True))

    def decision_function(self, rows: Rows) -> FloatArray:
        """Return the logits: shape (n,) for a model with one logit, else (n, number of classes). For a regression,
        return the scaled label.

        Raises:
            ValueError, TypeError: as `predict`.
        """
        if self.kind == "mean":
            raise TypeError("a mean makes no predictions: parameters['mean'] is the mean of the scaled features")
        values = self.scale(rows)
        if self.kind != "mlp":
            logits = values @ self.parameters["weights"]
            return np.asarray(logits + self.parameters["bias"] if "bias" in self.parameters else logits)
        layers = sum(name.startswith("weights_") for name in self.parameters)
        for number in range(1, layers + 1):
            values = values @ self.parameters[f"weights_{number}"] + self.parameters[f"bias_{number}"]
            if number < layers:
                is_tanh = self.document["model"]["activation"] == "tanh"
                values = np.tanh(values) if is_tanh else np.maximum(values, 0.0)
        return values

    def scale(self, rows: Rows) -> FloatArray:
        """Return the model's inputs: each number in [-1, 1], and a 0 or 1 for each declared category.

        Raises:
            ValueError, TypeError: as `predict`.
        """
        cells = columns_of(rows, self.feature_names, self.document["label"]["name"])
        scaled = [_scaled(column, cells[column["name"]]) for column in self._columns]
        return np.concatenate(scaled, axis=1)


def _hash_of(card: Mapping[str, Any]) -> str:
    text = json.dumps(card, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def columns_of(rows: Rows, names: Sequence[str], label: str | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the rows as columns by name, each of shape (n,).

    Args:
        rows: A table by column names, a list of dicts, or a 2-D array.
        names: The names of the required columns, in the order of an array's columns.
        label: The name of the predicted column, for a hint if the rows contain it.

    Raises:
        ValueError: columns are missing, unknown, repeated or of different lengths; an array has another shape.
        TypeError: the rows have another type.
    """
    named = names_of(rows)
    if named is not None:
        _check_names(named, names, label)
        return {name: _as_array(rows[name]) for name in names}
    if isinstance(rows, Mapping):
        _check_names(list(rows), names, label)
        found = {name: _as_array(rows[name]) for name in names}
        if len({array.shape for array in found.values()}) > 1 or any(array.ndim != 1 for array in found.values()):
            raise ValueError("every column must be one-dimensional and as long as the others")
        return found
    if isinstance(rows, Sequence) and not isinstance(rows, str) and rows and isinstance(rows[0], Mapping):
        for number, row in enumerate(rows):
            _check_names(list(row), names, label, f"row {number}")
        return {name: _of_cells([row[name] for row in rows]) for name in names}
    return _columns_of_array(rows, names)


def names_of(rows: Rows) -> list[Any] | None:
    """Return the names of a table's columns; None if the rows are no table of pandas, Polars or Arrow."""
    # Arrow's tables have both names and columns.
    named = getattr(rows, "column_names", getattr(rows, "columns", None))
    return None if named is None else list(named)


def _columns_of_array(rows: Rows, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(rows, np.ndarray) and not (isinstance(rows, Sequence) and not isinstance(rows, str)):
        raise TypeError(
            f"rows must be a table with column names, a list of dicts, or a 2-D array, not {type(rows).__name__}"
        )
    if not isinstance(rows, np.ndarray) and len({_length(row) for row in rows}) > 1:
        raise ValueError("every row must have as many cells as the others")
    table = rows if isinstance(rows, np.ndarray) else _of_cells(rows)
    if table.ndim == 1 and table.shape != (0,):
        raise ValueError(f"rows must be of shape (n, {len(names)}), not {table.shape}: reshape(1, -1) makes it one row")
    if table.shape == (0,):
        table = table.reshape(0, len(names))
    if table.ndim != 2 or table.shape[1] != len(names):
        raise ValueError(f"rows must be of shape (n, {len(names)}), one column for each feature, not {table.shape}")
    return {name: table[:, place] for place, name in enumerate(names)}


def _length(row: Any) -> int | None:
    return len(row) if isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) else None


def _check_names(given: Sequence[Any], names: Sequence[str], label: str | None, where: str = "the table") -> None:
    known, found = set(names), set(given)
    if len(found) < len(given):
        repeated = [name for place, name in enumerate(given) if name in given[:place]]
        raise ValueError(f"{where} has the columns {_listed(repeated)} more than once")
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{where} lacks the columns {_listed(missing)}")
    if unknown := [name for name in given if name not in known]:
        hint = f"; {label!r} is the column that the model predicts" if label in unknown else ""
        raise ValueError(f"the model has no columns {_listed(unknown)}, which {where} has: leave them out{hint}")


def _listed(names: Sequence[Any], most: int = 8) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _as_array(column: Any) -> npt.NDArray[Any]:
    """Return a column of a pandas or Polars table, or a list, as an array."""
    if hasattr(column, "to_numpy"):
        return np.asarray(column.to_numpy())
    return column if isinstance(column, np.ndarray) else _of_cells(column)


def _of_cells(cells: Any) -> npt.NDArray[Any]:
    """Return cells unchanged. NumPy itself would turn numbers beside texts into texts."""
    return np.array(cells, dtype=object)


def _scaled(column: Mapping[str, Any], cells: npt.NDArray[Any]) -> FloatArray:
    """Scale a column as the service does, from shape (n,) to (n, width)."""
    if column["type"] == "category":
        codes = _codes(column["name"], column["categories"], cells)
        return np.equal(codes[:, None], np.arange(len(column["categories"]))).astype(np.float64)
    values, lower, upper = numbers_in(column["name"], cells), column["lower"], column["upper"]
    if lower == upper:
        return np.zeros((len(values), 1))
    # These are the service's operations in the service's order: another order would change the last bits.
    half_width, middle = upper / 2.0 - lower / 2.0, upper / 2.0 + lower / 2.0
    clipped = np.clip(values, lower, upper)
    return np.asarray(np.clip((clipped - middle) / half_width, -1.0, 1.0).reshape(-1, 1))


def numbers_in(name: str, cells: npt.NDArray[Any]) -> FloatArray:
    """Return the cells of a column of numbers.

    Raises:
        ValueError: a cell is not a number, or not finite.
    """
    if cells.dtype.kind not in "biufO":
        raise ValueError(f"the column {name!r} needs numbers, but these cells have the type {cells.dtype}")
    if cells.dtype.kind == "O":
        for row, cell in enumerate(cells):
            if not isinstance(cell, Real):
                raise ValueError(f"the column {name!r} needs numbers, but the cell in row {row} is not a number")
    try:
        values: FloatArray = cells.astype(np.float64)
    except OverflowError:
        raise ValueError(f"the column {name!r} has an integer that is too large for a number") from None
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise ValueError(
            f"the column {name!r} has NaN or infinity in row {wrong[0]}: every cell must be a finite number, as in "
            "the training"
        )
    return values


def _codes(name: str, categories: Sequence[str], cells: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    places = {category: code for code, category in enumerate(categories)}
    codes = [places.get(cell, -1) if isinstance(cell, str) else -1 for cell in cells]
    if -1 in codes:
        row = codes.index(-1)
        raise ValueError(
            f"the column {name!r} has a cell in row {row} that is not one of its declared categories, which are "
            f"the strings {_listed(categories)}"
        )
    return np.array(codes, dtype=np.intp)
