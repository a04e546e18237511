"""Data sets, runs, sweeps of runs, audits: `client.datasets`, `client.runs`, `client.run_sweeps`, `client.audits`."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, overload

from epsilond_client.answers import Answer, Card, Dataset, DatasetVersion, ProgressMessage, Run
from epsilond_client.budgets import PAGE
from epsilond_client.following import follow, wait_for
from epsilond_client.naming import DatasetId, dataset_id, with_ids
from epsilond_client.transport import Content, Resource, path_to, plain

if TYPE_CHECKING:
    import numpy as np

    from epsilond_client.models import Model

RunId = str | Run
_TYPES = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet", ".npz": "application/octet-stream"}


class Datasets(Resource):
    """Rows that runs train on: declared in public, uploaded once, never returned.

    A data set is given by its id, its name, or as an object.
    """

    def upload(
        self,
        file: str | os.PathLike[str] | bytes | BinaryIO,
        *,
        name: str,
        filename: str | None = None,
        idempotency_key: str | None = None,
        **metadata: Any,
    ) -> Dataset:
        """Upload CSV, Parquet or NPZ. The data set is private unless ``public=True``, which needs a key with the scope
        admin.

        A file is read while it is sent.

        Args:
            file: A path, bytes, or an open file, which is read from its beginning.
            name: The name of the data set.
            filename: A name that shows the format, if `file` is not a path.
            idempotency_key: The caller's own idempotency key; a fresh one if it is left out.
            metadata: `declared_size`, `capacity`, `columns`, `label`, `budget_id`, `privacy_unit`, `public`;
                `person_column` and `rows_per_person`, if the file has ids of persons; `held_out_share`, if runs must
                not train on a part of the rows. All of it is public. A file with more rows than `capacity` is refused;
                by default it is an eighth more than `declared_size`, and at least 8 more.
        """
        with _multipart(file, filename, {"name": name} | with_ids(self._http, metadata)) as body:
            return self._http.write("/v1/datasets", body, Dataset, idempotency_key)

    def add_version(
        self,
        dataset: DatasetId,
        file: str | os.PathLike[str] | bytes | BinaryIO,
        *,
        change: str,
        reason: str,
        filename: str | None = None,
        idempotency_key: str | None = None,
        **metadata: Any,
    ) -> DatasetVersion:
        """Upload the whole content of a private data set as it is now; runs that name no version train on it.

        Args:
            dataset: The data set. Its columns, label and root budget stay the same.
            file: As in `upload`.
            change: What happened: ``"appended"``, ``"deleted"``, ``"corrected"``, or ``"replaced"`` for any change.
            reason: The reason. Change and reason are public.
            filename: A name that shows the format, if `file` is not a path.
            idempotency_key: The caller's own idempotency key; a fresh one if it is left out.
            metadata: `declared_size`, `capacity`; `erase_earlier` removes the rows of all earlier versions.
        """
        with _multipart(file, filename, {"change": change, "reason": reason} | metadata) as body:
            path = self._path("/v1/datasets/{}/versions", dataset)
            return self._http.write(path, body, DatasetVersion, idempotency_key)

    def delete_persons(
        self,
        dataset: DatasetId,
        persons: Sequence[str],
        *,
        reason: str,
        idempotency_key: str | None = None,
        **stated: Any,
    ) -> DatasetVersion:
        """Make a version without some persons, of a data set that has ids of persons (`person_column`).

        The new version has none of their rows. The answer does not tell whether the old one had any.

        Args:
            dataset: The data set.
            persons: The ids of the persons, as in the file. The service does not keep them.
            reason: The reason. It is public, and must not name a person.
            idempotency_key: The caller's own idempotency key; a fresh one if it is left out.
            stated: `change`, which may be ``"replaced"``; and `erase_earlier`. Unless it is false, the rows of all
                earlier versions are removed, too.
        """
        body = {"persons": list(persons), "reason": reason} | stated
        path = self._path("/v1/datasets/{}/versions", dataset)
        return self._http.write(path, body, DatasetVersion, idempotency_key)

    def versions(self, dataset: DatasetId, *, page_size: int = PAGE) -> Iterator[DatasetVersion]:
        """Return the versions of a data set, oldest first."""
        return self._http.pages(self._path("/v1/datasets/{}/versions", dataset), DatasetVersion, page_size)

    def generate(self, *, name: str, idempotency_key: str | None = None, **fields: Any) -> Dataset:
        """Make a public data set from a seed.

        Args:
            name: The name of the data set.
            idempotency_key: The caller's own idempotency key; a fresh one if it is left out.
            fields: `features`, `rows`, `seed`, `task` and the other documented fields.
        """
        request = {"kind": "synthetic", "name": name} | fields
        return self._http.write("/v1/datasets", request, Dataset, idempotency_key)

    def get(self, dataset: DatasetId) -> Dataset:
        """Return the declaration of a data set."""
        return self._http.get(self._path("/v1/datasets/{}", dataset), Dataset)

    def list(self, *, page_size: int = PAGE) -> Iterator[Dataset]:
        """Iterate over all data sets within reach, page by page."""
        return self._http.pages("/v1/datasets", Dataset, page_size)

    def shared_contents(self, *, page_size: int = PAGE) -> Iterator[Answer]:
        """Return contents that are private under several root budgets. It is for auditors whose keys reach all
        budgets."""
        return self._http.pages("/v1/datasets/shared-contents", Answer, page_size)

    def delete(self, dataset: DatasetId) -> None:
        """Remove the rows permanently. Private rows stay bound to their budget."""
        self._http.delete(self._path("/v1/datasets/{}", dataset))

    def _path(self, pattern: str, dataset: DatasetId) -> str:
        return path_to(pattern, dataset_id(self._http, dataset))


class Runs(Resource):
    """Private training that the service carries out."""

    def create(
        self,
        *,
        model: Mapping[str, Any],
        target: Mapping[str, Any],
        algorithm: str | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Run:
        """Calibrate, charge and queue a run.

        Model, target and `dataset_id` are enough. The service chooses the rest from public numbers only. The run's
        `choices` list the chosen values, the reasons, and what the paper's theorem would have chosen.

        Args:
            model: The model, such as ``{"kind": "logistic_regression"}``.
            target: The guarantee to meet.
            algorithm: The name of the algorithm; if left out, the service's preset `practical` chooses one.
            idempotency_key: The caller's own idempotency key; a fresh one if it is left out.
            fields: `dataset_id`, `dataset_version`, `budget_id`, `batch_size`, `iterations`, `sampling`,
                `gradient_bound` and the other fields of a calibration; ``evaluation={}`` for metrics on held-out rows,
                which are then in `result.held_out`.

        Raises:
            BudgetExceeded: the plan does not fit; nothing is held and nothing runs.
        """
        named = {} if algorithm is None else {"algorithm": algorithm}
        request = with_ids(self._http, {**named, "model": model, "target": target, **fields})
        return self._http.write("/v1/runs", request, Run, idempotency_key)

    def get(self, run: RunId) -> Run:
        """Return the present state of a run."""
        return self._http.get(path_to("/v1/runs/{}", run), Run)

    def list(self, *, page_size: int = PAGE) -> Iterator[Run]:
        """Iterate over all runs within reach, newest first."""
        return self._http.pages("/v1/runs", Run, page_size)

    def cancel(self, run: RunId, *, idempotency_key: str | None = None) -> Run:
        """Cancel a run. A run that has started is charged for the noise that it may have drawn."""
        return self._http.write(path_to("/v1/runs/{}/cancel", run), None, Run, idempotency_key)

    def events(self, run: RunId) -> Iterator[ProgressMessage]:
        """Iterate over the progress of a run until it ends; a stream that breaks off is resumed."""
        return follow(self._http, path_to("/v1/runs/{}", run))

    def wait(
        self,
        run: RunId,
        *,
        on_progress: Callable[[ProgressMessage], object] | None = None,
        timeout: float | None = None,
        check: bool = True,
    ) -> Run:
        """Return the run once it has ended. If streams are refused, it is polled.

        Args:
            run: The run.
            on_progress: Called with each message.
            timeout: The time limit in seconds; None for no limit.
            check: Whether a run that has not succeeded is an error.

        Raises:
            RunFailed: the run has failed or was cancelled, and `check` is true.
            TimeoutError: the run has not ended within `timeout`; it goes on.
        """
        return wait_for(self._http, path_to("/v1/runs/{}", run), on_progress, timeout, check=check)

    def model(self, run: RunId) -> Answer:
        """Return the released model as JSON: parameters, features, classes."""
        return self._http.get(path_to("/v1/runs/{}/model", run), Answer)

    def predict(self, run: RunId, rows: Sequence[Sequence[Any]], *, columns: Sequence[str] | None = None) -> Answer:
        """Let the service predict a small batch, without NumPy here: ``.predictions`` and ``.probabilities``.

        Args:
            run: The run.
            rows: Lists of numbers and texts, at most 1000.
            columns: The names of the columns, if the cells are not in the order of the model's features.

        Raises:
            Conflict: the run has not succeeded.
            InvalidRequest: a cell is not what its column holds; `errors` says which.
            TypeError: a row is not a list of cells. The model of `load` takes dicts and tables.
        """
        for number, row in enumerate(rows):
            if isinstance(row, (Mapping, str)) or not isinstance(row, Iterable):
                raise TypeError(
                    f"row {number} is a {type(row).__name__}, not a list of cells in the order of the model's "
                    "features or of columns; client.runs.load(run).predict(rows) takes dicts and tables"
                )
        request = {"rows": [list(row) for row in rows], "columns": None if columns is None else list(columns)}
        return self._http.ask(path_to("/v1/runs/{}/predictions", run), request, Answer)

    def load(self, run: RunId) -> Model:
        """Return the released model, ready to predict (needs NumPy).

        Raises:
            Conflict: the run has not succeeded.
        """
        from epsilond_client.models import Model  # noqa: PLC0415 (the package does without NumPy)

        return Model.from_bytes(self._http.get_bytes(path_to("/v1/runs/{}/model", run), format="npz"))

    def download(self, run: RunId, path: str | os.PathLike[str]) -> Path:
        """Write the model file, which `epsilond_client.load` reads without a server.

        Raises:
            Conflict: the run has not succeeded.
        """
        content = self._http.get_bytes(path_to("/v1/runs/{}/model", run), format="npz")
        Path(path).write_bytes(content)
        return Path(path)

    def arrays(self, run: RunId) -> dict[str, np.ndarray[Any, Any]]:
        """Return the released model's arrays (needs NumPy)."""
        import numpy as np  # noqa: PLC0415 (the package does without NumPy)

        content = self._http.get_bytes(path_to("/v1/runs/{}/model", run), format="npz")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}

    @overload
    def report(self, run: RunId, format: Literal["json"] = "json") -> Card: ...
    @overload
    def report(self, run: RunId, format: Literal["markdown", "html"]) -> str: ...
    def report(self, run: RunId, format: Literal["json", "markdown", "html"] = "json") -> Card | str:
        """Return the privacy card; with ``format="json"`` it is a `Card`, which notebooks display."""
        path = path_to("/v1/runs/{}/report", run)
        if format == "json":
            return self._http.get(path, Card, format=format)
        return self._http.get_bytes(path, format=format).decode()


class RunSweeps(Resource):
    """Grids of runs under one charge."""

    def create(self, *, select: Literal["all", "best"], idempotency_key: str | None = None, **fields: Any) -> Answer:
        """Charge and queue a grid: the fields of a run, some of them lists.

        Raises:
            BudgetExceeded: the sweep does not fit; nothing is held and nothing runs.
        """
        return self._http.write("/v1/run-sweeps", self._request(select, fields), Answer, idempotency_key)

    def quote(self, *, select: Literal["all", "best"], **fields: Any) -> Answer:
        """Return what a sweep would cost; nothing is written."""
        return self._http.ask("/v1/run-sweeps", self._request(select, fields), Answer, dry_run=True)

    def _request(self, select: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"select": select} | with_ids(self._http, fields)

    def get(self, sweep: str | Answer) -> Answer:
        """Return the present state of a sweep."""
        return self._http.get(path_to("/v1/run-sweeps/{}", sweep), Answer)

    def list(self, *, page_size: int = PAGE) -> Iterator[Answer]:
        """Iterate over all sweeps within reach."""
        return self._http.pages("/v1/run-sweeps", Answer, page_size)

    def cancel(self, sweep: str | Answer, *, idempotency_key: str | None = None) -> Answer:
        """Cancel a sweep. Its charge is settled when all of its runs have ended."""
        return self._http.write(path_to("/v1/run-sweeps/{}/cancel", sweep), None, Answer, idempotency_key)

    def heat_map(self, sweep: str | Answer, format: Literal["svg", "html"] = "svg") -> str:
        """Return the scores of a sweep of two fields as a picture, or as a page with the picture and a table."""
        return self._http.get_bytes(path_to("/v1/run-sweeps/{}/heat-map", sweep), format=format).decode()


class Audits(Resource):
    """Attacks on the trainer, and the claims that they test."""

    def create(self, *, idempotency_key: str | None = None, **fields: Any) -> Answer:
        """Attack the plan of a run (`run_id`) or of a calibration (`calibration`). This takes up to two minutes."""
        return self._http.write("/v1/audits", fields, Answer, idempotency_key)

    def get(self, audit: str | Answer) -> Answer:
        """Return an audit."""
        return self._http.get(path_to("/v1/audits/{}", audit), Answer)

    def list(self, *, run: RunId | None = None, page_size: int = PAGE) -> Iterator[Answer]:
        """Iterate over the audits within reach, or those of one run."""
        run_id = run.id if isinstance(run, Run) else run
        return self._http.pages("/v1/audits", Answer, page_size, run_id=run_id)


@contextmanager
def _multipart(
    file: str | os.PathLike[str] | bytes | BinaryIO, filename: str | None, metadata: Mapping[str, Any]
) -> Iterator[Content]:
    """Return the body of an upload. The HTTP library reads a file from its beginning at each attempt."""
    if isinstance(file, str | os.PathLike):
        with Path(file).open("rb") as opened, _multipart(opened, filename or Path(file).name, metadata) as body:
            yield body
        return
    if filename is None:
        raise ValueError("if file is not a path, filename must show the format (rows.csv, rows.parquet, rows.npz)")
    if Path(filename).suffix not in _TYPES:
        raise ValueError(f"the format follows from the file's name, which must end in one of {', '.join(_TYPES)}")
    source = io.BytesIO(file) if isinstance(file, bytes) else file
    if not source.seekable():
        raise ValueError(
            "an upload may have to be sent twice, so the file must be one that can be read twice, not a pipe"
        )
    declared = json.dumps(plain(metadata), allow_nan=False)
    parts = {
        "file": (filename, source, _TYPES[Path(filename).suffix]),
        "metadata": (None, declared, "application/json"),
    }
    yield lambda: {"files": parts}
