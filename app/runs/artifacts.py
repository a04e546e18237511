"""Model files. A worker writes the model before its run succeeds, and the model is served only afterwards.

Each claim of a run has a file of its own, named by the epoch. A run succeeds under the epoch of its last claim, so a
worker that has lost the run can neither replace nor remove its successor's model.

The model of a hidden trial has another file name until the service publishes it. So nobody can have the model served by
editing the database.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from app.algorithms.binding import DataDescription
from app.context import Context
from app.kit.private_files import write_private
from app.tables.runs import Run
from app.tables.states import RunState
from trainer.models import Parameters
from trainer.run import RunResult

#: The members of a stored file besides the parameters.
_TOLD = ("feature_names", "classes", "plan_hash", "run_id")


def model_path(context: Context, run: Run) -> Path:
    """Return the file of the run's model. A hidden trial has another file than a run that is shown."""
    return _path(context, run, is_withheld=run.is_withheld)


def _path(context: Context, run: Run, *, is_withheld: bool) -> Path:
    # Runs from before epochs existed have epoch 0.
    name = f"{run.id}.{run.epoch}" if run.epoch else run.id
    return context.settings.data_dir / "models" / f"{name}{'.withheld' if is_withheld else ''}.npz"


def publish_model(context: Context, run: Run) -> None:
    """Let the model of a trial be served; do nothing if it is served already."""
    withheld, shown = (_path(context, run, is_withheld=each) for each in (True, False))
    if withheld.exists() or not shown.exists():
        withheld.rename(shown)


def write_model(context: Context, run: Run, data: DataDescription, result: RunResult) -> None:
    """Store the parameters and what is needed to use them, atomically, in a file that only this user can read."""
    told = ([column.name for column in data.features], data.classes, run.plan_hash, run.id)
    arrays: dict[str, Any] = {
        **result.parameters,
        **dict(zip(_TOLD, map(np.array, told), strict=True)),
    }

    def write(file: IO[bytes]) -> None:
        np.savez(file, **arrays)

    write_private(model_path(context, run), write)


def remove_model(context: Context, run: Run) -> None:
    """Remove the model that a claim of the run wrote but did not keep."""
    model_path(context, run).unlink(missing_ok=True)


def remove_models(context: Context, run: Run) -> None:
    """Remove every model that a claim of the run wrote."""
    for path in model_path(context, run).parent.glob(f"{run.id}.*npz*"):
        path.unlink(missing_ok=True)


def remove_unkept_models(context: Context, run: Run) -> None:
    """Remove files that claims of an ended run wrote but did not keep, including unfinished ones."""
    # Both paths are kept, since the file may be moved from one to the other at this moment.
    own = [_path(context, run, is_withheld=each) for each in (True, False)]
    for path in own[0].parent.glob(f"{run.id}.*npz*"):
        if path not in own or run.state != RunState.SUCCEEDED:
            path.unlink(missing_ok=True)


def model_file(context: Context, run: Run, document: Mapping[str, Any]) -> bytes:
    """Return the model as one file: the stored arrays, and as JSON everything else that a prediction needs.

    The document is made from the run's row at each request, so the file is complete even if an earlier version stored
    the model. The bytes depend only on the arrays and the row; the archive contains no time.
    """
    content = io.BytesIO()
    with np.load(model_path(context, run), allow_pickle=False) as stored:
        arrays: dict[str, Any] = {name: stored[name] for name in stored.files}
    np.savez(content, **arrays, document=np.array(json.dumps(document, allow_nan=False).encode()))
    return content.getvalue()


def read_model_file(content: bytes) -> tuple[Mapping[str, Any], Parameters]:
    """Return the document of a file that `model_file` made, and the model's arrays by name.

    Raises:
        ValueError: the bytes are not those of such a file.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        document = json.loads(arrays.pop("document").item())
    except (OSError, LookupError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError("the file is not an NPZ archive with a document") from error
    return document, {name: array for name, array in arrays.items() if name not in _TOLD}


def read_parameters(context: Context, run: Run) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the model's arrays by name."""
    assert run.result is not None, "only a run that succeeded has a model"
    with np.load(model_path(context, run), allow_pickle=False) as stored:
        return {name: stored[name] for name in run.result["parameters"]}
