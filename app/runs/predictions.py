"""Predictions of a released model for rows in the request. The rows are read, predicted and forgotten.

Whoever may have the model may predict with it, and could do so elsewhere: a prediction is post-processing, and costs
nothing. Rows may be anybody's, so no log line, table, file or error message has one of their cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from app.algorithms.binding import DataDescription, build_model
from app.algorithms.model_choice import MODEL_CHOICE
from app.context import Context
from app.datasets.columns import Column
from app.datasets.inline import read_cell
from app.datasets.schemas import InlineCell
from app.kit.limits import LISTED_FAULTS
from app.problems import Problem, ProblemItem, json_pointer, unprocessable
from app.runs import artifacts
from app.runs.schemas import PredictionRequest, PredictionsBody
from app.tables.runs import Run
from trainer.models import TASKS, Task
from trainer.scores import row_blocks

#: Rows times classes: what is answered stays below a few megabytes.
MOST_PROBABILITIES = 100_000


def predict(context: Context, run: Run, request: PredictionRequest) -> PredictionsBody:
    """Predict the rows, in a turn at the cores.

    Args:
        context: The process's context.
        run: One whose model is released.
        request: Rows with the declared columns.

    Raises:
        Problem: 422 that points at columns and cells which do not fit, and never shows one; 429 or 503 where the cores
            are busy.
    """
    data = DataDescription.model_validate(run.description)
    if TASKS[run.model["kind"]] is Task.MEAN:
        raise unprocessable("unsupported_model", "A mean predicts no label; its model has the mean of the features.")
    if len(request.rows) * len(data.classes) > MOST_PROBABILITIES:
        most = MOST_PROBABILITIES // len(data.classes)
        detail = f"A model of {len(data.classes)} classes predicts at most {most} rows at a time."
        raise unprocessable("out_of_range", detail, "rows")
    order = _order(request.columns, [column.name for column in data.features])
    values = _read(request.rows, data.features, order)
    model = build_model(MODEL_CHOICE.validate_python(run.model), data)
    parameters = artifacts.read_parameters(context, run)
    predicted: list[str | float] = []
    shown: list[list[float]] = []
    with context.numerics:
        for block in row_blocks(model, len(values)):
            features = data.scale(values[block])
            predicted += _named(data, model.predict(parameters, features))
            probabilities = model.probabilities(parameters, features)
            shown += [] if probabilities is None else _finite(probabilities).tolist()
    return PredictionsBody(
        run_id=run.id,
        plan_hash=run.plan_hash,
        classes=list(data.classes),
        predictions=predicted,
        probabilities=shown or None,
    )


def _named(data: DataDescription, predicted: npt.NDArray[np.generic]) -> list[str] | list[float]:
    """Predictions as the label has them: names of classes, or numbers in its unit."""
    if data.classes:
        return [data.classes[int(code)] for code in predicted]
    numbers: list[float] = _finite(data.unscaled_labels(predicted.astype(np.float64))).tolist()
    return numbers


def _finite(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not np.isfinite(numbers).all():
        raise unprocessable("not_finite", "The model's numbers are so large that a prediction is not finite.", "rows")
    return numbers


def _order(given: Sequence[str] | None, declared: Sequence[str]) -> list[int]:
    """Return where the cell of each declared column stands in a row.

    Raises:
        Problem: 422 ``columns_differ``.
    """
    if given is None:
        return list(range(len(declared)))
    places = {name: place for place, name in enumerate(given)}
    missing = [name for name in declared if name not in places]
    if missing or len(given) != len(declared):
        lacks = f" It lacks {', '.join(map(repr, missing[:8]))}." if missing else ""
        detail = f"The columns are those {len(declared)} of the model's features, each once.{lacks}"
        raise unprocessable("columns_differ", detail, "columns")
    return [places[name] for name in declared]


def _read(
    rows: Sequence[Sequence[InlineCell]], columns: Sequence[Column], order: Sequence[int]
) -> npt.NDArray[np.float64]:
    """The rows as numbers, shape (n, columns), in declared order.

    Raises:
        Problem: 422 with a fault for each cell that its column does not hold.
    """
    faults: list[ProblemItem] = []
    values = np.zeros((len(rows), len(columns)))
    for number, row in enumerate(rows):
        if len(faults) >= LISTED_FAULTS:
            break
        if len(row) != len(columns):
            detail = f"The row has {len(row)} cells where there are {len(columns)} columns."
            faults.append(ProblemItem(pointer=json_pointer(("rows", number)), code="ragged_row", detail=detail))
            continue
        for place, (column, at) in enumerate(zip(columns, order, strict=True)):
            try:
                values[number, place] = read_cell(row[at], column, "rows", number, at)
            except Problem as problem:
                faults += problem.errors
    if faults:
        detail = "Some rows are not what the model's columns hold; `errors` says where."
        raise Problem(422, "invalid_request", detail, errors=faults[:LISTED_FAULTS])
    return values
