"""What is left of runs when all is quiet: as the service shows them, in the data folder, and in the table of runs."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import sqlalchemy

from tests.crash.connection import Connection
from tests.crash.history import Json
from tests.crash.ledger_view import BudgetView, read_ledger, read_list

_RUNS = sqlalchemy.table("runs", *map(sqlalchemy.column, ("id", "state", "epoch", "workers_lost", "stream_id")))


@dataclass(frozen=True)
class StoredModel:
    """A model file.

    Attributes:
        file: Its name.
        plan_hash: As it says; None where it cannot be read.
        run_id: Likewise.
        parameters: The bytes of its arrays by name.
    """

    file: str
    plan_hash: str | None = None
    run_id: str | None = None
    parameters: dict[str, bytes] = field(default_factory=dict)
    is_finite: bool = False


@dataclass
class RunView:
    """One run.

    Attributes:
        body: The answer of `GET /v1/runs/{id}`.
        released: The status of `GET /v1/runs/{id}/model`.
        epoch: How often it was claimed.
        workers_lost: How many workers died or stalled at it.
        models: Its model files.
    """

    body: Json
    released: int
    epoch: int
    workers_lost: int
    models: list[StoredModel] = field(default_factory=list)


@dataclass
class Books:
    """Everything that is left.

    Attributes:
        runs: By identifier.
        budgets: With their entries and reservations.
        left_over: Files in the data folder that belong to no run that succeeded: checkpoints, drafts, models.
        is_valid: Whether the ledger verifies.
    """

    runs: dict[str, RunView]
    budgets: list[BudgetView]
    left_over: list[str]
    is_valid: bool


class RunTable:
    """The table of runs, read from outside of the service."""

    def __init__(self, database_url: str) -> None:
        self._engine = sqlalchemy.create_engine(database_url, poolclass=sqlalchemy.NullPool)

    def started(self) -> int:
        """Runs that a worker is at, and whose keys are kept."""
        return self._count(_RUNS.c.state.in_(("running", "cancelling")), _RUNS.c.stream_id.is_not(None))

    def unfinished(self) -> int:
        return self._count(_RUNS.c.state.in_(("queued", "running", "cancelling")))

    def claims(self) -> dict[str, tuple[int, int]]:
        """How often each run was claimed, and how many workers it lost."""
        with self._engine.connect() as connection:
            rows = connection.execute(sqlalchemy.select(_RUNS.c.id, _RUNS.c.epoch, _RUNS.c.workers_lost))
            return {run_id: (epoch, lost) for run_id, epoch, lost in rows}

    def _count(self, *conditions: sqlalchemy.ColumnElement[bool]) -> int:
        statement = sqlalchemy.select(sqlalchemy.func.count()).select_from(_RUNS).where(*conditions)
        with self._engine.connect() as connection:
            return connection.execute(statement).scalar_one()


def read_books(connection: Connection, table: RunTable, data_dir: Path) -> Books:
    claims, models = table.claims(), _models(data_dir / "models")
    runs: dict[str, RunView] = {}
    for body in read_list(connection, "/v1/runs"):
        epoch, lost = claims[body["id"]]
        released = connection.get(f"/v1/runs/{body['id']}/model").status_code
        runs[body["id"]] = RunView(body, released, epoch, lost, models.pop(body["id"], []))
    left_over = [model.file for each in models.values() for model in each]
    left_over += [path.name for path in _files(data_dir / "models") if path.suffix != ".npz"]
    left_over += [path.name for path in _files(data_dir / "checkpoints")]
    verdict = connection.send("POST", "/v1/ledger/verify").json()
    return Books(runs, read_ledger(connection), left_over, verdict["valid"])


def _models(folder: Path) -> dict[str, list[StoredModel]]:
    found: defaultdict[str, list[StoredModel]] = defaultdict(list)
    for path in _files(folder):
        if path.suffix == ".npz":
            found[path.name.partition(".")[0]].append(_read_model(path))
    return found


def _read_model(path: Path) -> StoredModel:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return StoredModel(path.name)
    parameters = {name: array for name, array in arrays.items() if array.dtype == np.float64}
    return StoredModel(
        path.name,
        str(arrays["plan_hash"]),
        str(arrays["run_id"]),
        {name: array.tobytes() for name, array in parameters.items()},
        all(np.isfinite(array).all() for array in parameters.values()),
    )


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
