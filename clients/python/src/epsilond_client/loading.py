"""Models by the id of their run, or from a file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from epsilond_client.answers import Run
from epsilond_client.client import Client

if TYPE_CHECKING:
    from epsilond_client.models import Model

_RUN_ID = re.compile(r"run_[a-z0-9]+")


def load(run_or_path: Run | str | os.PathLike[str], *, client: Client | None = None) -> Model:
    """Return the released model of a run, or the one in a file, ready to predict (needs NumPy).

    Args:
        run_or_path: A run, its id, or the path of a model file, which is read without a server.
        client: A client of the server that has the run; ``Client()`` if it is left out.

    Raises:
        ValueError: the file is not a model file, or does not describe its columns.
        Conflict: the run has not succeeded.
    """
    from epsilond_client.models import Model  # noqa: PLC0415 (the package does without NumPy)

    is_run = isinstance(run_or_path, Run) or (isinstance(run_or_path, str) and _RUN_ID.fullmatch(run_or_path))
    if not is_run:
        assert not isinstance(run_or_path, Run)
        return Model.from_bytes(Path(run_or_path).read_bytes())
    assert isinstance(run_or_path, Run | str)
    if client is not None:
        return client.runs.load(run_or_path)
    with Client() as own:
        return own.runs.load(run_or_path)
