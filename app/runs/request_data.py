"""The data that a request for a run names: their declaration, and whether the run may use them."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.algorithms.binding import DataDescription
from app.datasets import service as datasets
from app.datasets import versions
from app.datasets.inline import load_inline
from app.problems import unprocessable
from app.runs.schemas import RunRequest
from trainer.models import TASKS, Task


def describe(session: Session, request: RunRequest) -> tuple[DataDescription, int | None]:
    """Return the declaration of the data and the version on which to train. The version is None for public data.

    Raises:
        Problem: 422 if the request names no data set or several, or a version of data that have no versions; 404 for an
            unknown data set.
    """
    if (request.dataset_id is None) == (request.dataset is None):
        raise unprocessable("missing", "give either dataset_id, or dataset with public rows", "dataset_id")
    if request.dataset is not None:
        if request.dataset_version is not None:
            raise unprocessable(
                "overdetermined", "rows in a request have no versions: leave dataset_version out", "dataset_version"
            )
        return DataDescription.of_inline(load_inline(request.dataset, "dataset")), None
    assert request.dataset_id is not None
    dataset = datasets.get(session, request.dataset_id)
    version = versions.get(session, dataset, request.dataset_version)
    return DataDescription.of(dataset, version), None if dataset.is_public else version.number


def check_test_data(session: Session, request: RunRequest, data: DataDescription) -> None:
    if request.test_dataset_id is None:
        return
    test = datasets.get(session, request.test_dataset_id)
    if not test.is_public:
        raise unprocessable(
            "test_dataset_not_public",
            "a score on private rows would be a release of its own: the test data set must be declared public",
            "test_dataset_id",
        )
    if not DataDescription.of(test, versions.newest(session, test)).has_columns_of(data):
        raise unprocessable(
            "columns_differ",
            "the test data set must declare the same columns (names, order, bounds, categories) and the same label",
            "test_dataset_id",
        )


def check_evaluation(request: RunRequest, data: DataDescription) -> None:
    if request.evaluation is None:
        return
    if data.held_out_size is None:
        detail = (
            "no rows of this data set are held out: register a private data set with held_out_share, or score the "
            "model on public rows with test_dataset_id"
        )
        raise unprocessable("no_held_out_rows", detail, "evaluation")
    if TASKS[request.model.kind] is Task.MEAN:
        raise unprocessable("unsupported", "a mean predicts no label: leave evaluation out", "evaluation")


def check_privacy(session: Session, request: RunRequest, *, public: bool) -> None:
    if not public and request.seed is not None:
        raise unprocessable(
            "seed_on_private_data",
            "a seed is only for public data: anybody who knows it can subtract the noise",
            "seed",
        )
    if not public and request.budget_id is None:
        assert request.dataset_id is not None, "rows in a request are public"
        own = datasets.get(session, request.dataset_id).budget_id
        detail = (
            f"private data need a budget that pays for the run: give {own}, the budget to which this data set is "
            "bound, or a budget under it"
        )
        raise unprocessable("missing", detail, "budget_id")
