"""Model files: written by a worker before the run succeeds, served only after it has."""

from __future__ import annotations

import io
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from app.kit.context import Context
from app.runs.binding import DataDescription
from app.runs.models import Run
from app.settings import make_private_folder
from trainer.run import RunResult


def model_path(context: Context, run_id: str) -> Path:
    return context.settings.data_dir / "models" / f"{run_id}.npz"


def write_model(context: Context, run: Run, data: DataDescription, result: RunResult) -> None:
    """Store the parameters and what is needed to use them, readable by this user alone; atomic."""
    arrays: dict[str, Any] = {
        **result.parameters,
        "feature_names": np.array([column.name for column in data.features]),
        "classes": np.array(data.classes()),
        "plan_hash": np.array(run.plan_hash),
        "run_id": np.array(run.id),
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    path = model_path(context, run.id)
    make_private_folder(path.parent)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read_parameters(context: Context, run: Run) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """The model's arrays by name."""
    assert run.result is not None, "only a run that succeeded has a model"
    with np.load(model_path(context, run.id), allow_pickle=False) as stored:
        return {name: stored[name] for name in run.result["parameters"]}
