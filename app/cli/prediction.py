"""`epsilond run predict`: a released model predicts the rows of a CSV file."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.refusals import fail, refuse_problem
from app.cli.server import Server, segment
from app.kit import collector

if TYPE_CHECKING:
    from app.runs.schemas import PredictionsBody

_RUN_ID = re.compile(r"run_[a-z0-9]+")


def predictions(model: str, rows: Path, url: str) -> tuple[str, PredictionsBody]:
    """Predict the rows of a file. They stay on this machine; the model of a run is fetched from the server.

    Args:
        model: The id of a run, or the path of a model file, which is read without a server.
        rows: A CSV file with the columns of the model's features; a column of what is predicted is ignored.
        url: The address of the server that has the run.

    Returns:
        The name of what is predicted, and the predictions in the order of the rows.
    """
    # Imported here, because `--help` does not need it.
    from app.datasets.csv_file import read_features
    from app.problems import Problem
    from app.runs.predictions import Predictor

    content = _model(model, url)
    collector.resume()
    try:
        predictor = Predictor.of_file(content)
    except ValueError:
        fail(f"{model} is not a model file of this epsilond; `run model RUN --format npz --output FILE` writes one.")
    except Problem as problem:
        refuse_problem(problem)
    try:
        with rows.open("rb") as file:
            label = predictor.data.label.name
            return label, predictor.predict(read_features(file, predictor.data.features, label))
    except OSError as error:
        fail(f"Cannot read {rows}: {error.strerror}.")
    except Problem as problem:
        refuse_problem(problem, {"/file": str(rows)})


def as_csv(label: str, found: PredictionsBody, *, with_probabilities: bool) -> bytes:
    """Return CSV with a header and a line for each row: the prediction and, if requested, the probability of each
    class."""
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    if not with_probabilities:
        lines.writerows([[label], *([each] for each in found.predictions)])
        return text.getvalue().encode()
    if found.probabilities is None and found.predictions:
        fail("This kind of model gives no probabilities: leave out --probabilities.")
    lines.writerow([label, *(f"probability of {name}" for name in found.classes)])
    lines.writerows([each, *shown] for each, shown in zip(found.predictions, found.probabilities or (), strict=True))
    return text.getvalue().encode()


def _model(model: str, url: str) -> bytes:
    """Return the bytes of a model file."""
    if _RUN_ID.fullmatch(model):
        return Server(url).get(f"/v1/runs/{segment(model)}/model", {"format": "npz"}, accept="*/*")
    try:
        return Path(model).read_bytes()
    except OSError as error:
        fail(f"Cannot read {model}: {error.strerror}. A model is the id of a run, or the path of a model file.")
