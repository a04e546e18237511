"""Predict rows with a released model. Rows come in a request and are forgotten afterwards, or they are in a file.

Everybody who may have the model may also predict with it: a prediction is post-processing and costs no privacy. The
rows may be anybody's, so no log line, table, file or error message contains a cell of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.algorithms.binding import DataDescription, build_model
from app.algorithms.model_choice import MODEL_CHOICE, ModelChoice
from app.context import Context
from app.datasets.columns import COLUMN, Column
from app.datasets.inline import read_cell
from app.datasets.schemas import InlineCell
from app.kit.limits import LISTED_FAULTS
from app.problems import Problem, ProblemItem, json_pointer, unprocessable
from app.runs import artifacts
from app.runs.model_schemas import ModelBody
from app.runs.schemas import PredictionRequest, PredictionsBody
from app.tables.runs import Run
from trainer.models import TASKS, Model, Parameters, Task
from trainer.scores import row_blocks

#: The largest number of rows times classes in an answer. It keeps answers below a few megabytes.
MOST_PROBABILITIES = 100_000


@dataclass(frozen=True)
class Predictor:
    """A released model with what a prediction needs.

    Attributes:
        run_id, plan_hash: The run and the plan that it comes from.
        data: The description of its columns.
        model: The model that computes with the parameters.
        parameters: Its arrays by name.
    """

    run_id: str
    plan_hash: str
    data: DataDescription
    model: Model
    parameters: Parameters

    @classmethod
    def of_run(cls, context: Context, run: Run) -> Predictor:
        """Return the predictor of a run whose model is released.

        Raises:
            Problem: 422 ``unsupported_model``: a mean.
        """
        data = DataDescription.model_validate(run.description)
        model = _build(MODEL_CHOICE.validate_python(run.model), data)
        return cls(run.id, run.plan_hash, data, model, artifacts.read_parameters(context, run))

    @classmethod
    def of_file(cls, content: bytes) -> Predictor:
        """Return the predictor of a model file.

        Raises:
            ValueError: the bytes are not those of a model file, or the file lacks the declared columns.
            Problem: 422 ``unsupported_model``: a mean.
        """
        document, parameters = artifacts.read_model_file(content)
        # Predictions do not need the card, and the arrays are checked below.
        body = ModelBody.model_validate({**document, "parameters": {}, "card": None, "card_hash": None})
        columns = [COLUMN.validate_python(column) for column in [*body.features, body.label]]
        data = DataDescription.of_columns(columns[:-1], columns[-1])
        model = _build(body.model, data)
        shapes = {name: array.shape for name, array in model.parameters(np.zeros(model.num_parameters)).items()}
        if {name: array.shape for name, array in parameters.items()} != shapes:
            raise ValueError("the file's arrays do not match its model")
        return cls(body.run_id, body.plan_hash, data, model, parameters)

    def predict(self, values: npt.NDArray[np.float64]) -> PredictionsBody:
        """Predict rows of declared values, of shape (n, columns), with each category as its code.

        Raises:
            Problem: 422 ``not_finite``.
        """
        predicted: list[str | float] = []
        shown: list[list[float]] = []
        for block in row_blocks(self.model, len(values)):
            features = self.data.scale(values[block])
            predicted += _named(self.data, self.model.predict(self.parameters, features))
            probabilities = self.model.probabilities(self.parameters, features)
            shown += [] if probabilities is None else _finite(probabilities).tolist()
        return PredictionsBody(
            run_id=self.run_id,
            plan_hash=self.plan_hash,
            classes=list(self.data.classes),
            predictions=predicted,
            probabilities=shown or None,
        )


def predict(context: Context, run: Run, request: PredictionRequest) -> PredictionsBody:
    """Predict the rows once the processor is free for the caller.

    Args:
        context: The process's context.
        run: A run whose model is released.
        request: Rows with the declared columns.

    Raises:
        Problem: 422 with pointers to the columns and cells that do not fit, without their values; 429 or 503 if the
            processor is busy.
    """
    predictor = Predictor.of_run(context, run)
    data = predictor.data
    if len(request.rows) * len(data.classes) > MOST_PROBABILITIES:
        most = MOST_PROBABILITIES // len(data.classes)
        detail = f"A model of {len(data.classes)} classes predicts at most {most} rows at a time."
        raise unprocessable("out_of_range", detail, "rows")
    order = _order(request.columns, [column.name for column in data.features])
    values = _read(request.rows, data.features, order)
    with context.numerics:
        return predictor.predict(values)


def _build(choice: ModelChoice, data: DataDescription) -> Model:
    if TASKS[choice.kind] is Task.MEAN:
        raise unprocessable("unsupported_model", "A mean predicts no label; its model has the mean of the features.")
    return build_model(choice, data)


def _named(data: DataDescription, predicted: npt.NDArray[np.generic]) -> list[str] | list[float]:
    """Return predictions in terms of the label: names of classes, or numbers in its unit."""
    if data.classes:
        return [data.classes[int(code)] for code in predicted]
    numbers: list[float] = _finite(data.unscaled_labels(predicted.astype(np.float64))).tolist()
    return numbers


def _finite(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not np.isfinite(numbers).all():
        raise unprocessable("not_finite", "The model's numbers are so large that a prediction is not finite.", "rows")
    return numbers


def _order(given: Sequence[str] | None, declared: Sequence[str]) -> list[int]:
    """Return the position of each declared column's cell in a row.

    Raises:
        Problem: 422 ``columns_differ``.
    """
    if given is None:
        return list(range(len(declared)))
    places = {name: place for place, name in enumerate(given)}
    missing = [name for name in declared if name not in places]
    if missing or len(given) != len(declared):
        lacks = f" It lacks {', '.join(map(repr, missing[:8]))}." if missing else ""
        detail = f"The columns must be the {len(declared)} columns of the model's features, each once.{lacks}"
        raise unprocessable("columns_differ", detail, "columns")
    return [places[name] for name in declared]


def _read(
    rows: Sequence[Sequence[InlineCell]], columns: Sequence[Column], order: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Return the rows as numbers, of shape (n, columns), in declared order.

    Raises:
        Problem: 422 with a fault for each cell that its column does not admit.
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
        detail = "Some rows do not fit the model's columns; `errors` says where."
        raise Problem(422, "invalid_request", detail, errors=faults[:LISTED_FAULTS])
    return values
