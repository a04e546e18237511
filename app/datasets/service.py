"""Data sets as the rest of the service uses them: metadata for everyone, rows for the worker alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import cast

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from app.auth import reach
from app.auth.principal import SERVICE, Principal
from app.budgets.service import get_budget
from app.datasets import bundled, repository
from app.datasets.columns import Column, split_label
from app.datasets.files import DatasetFiles
from app.datasets.models import Dataset
from app.datasets.schemas import DatasetBody
from app.datasets.table import FloatArray, LabelArray
from app.kit.context import Context
from app.kit.pagination import Page, cut_page, decode_cursor
from app.problems import Problem, not_found

_COLUMNS: TypeAdapter[list[Column]] = TypeAdapter(list[Column])


@dataclass(frozen=True, eq=False)
class LoadedDataset:
    """Rows in memory, for the process that trains on them.

    Attributes:
        id: The data set's id; None for inline data.
        public: Whether every row may be published.
        declared_size: The public number of records. Use it wherever a size is needed; ``len(labels)`` is private.
        columns: The feature columns, with their declared bounds or categories.
        label: The label's column.
        features: Shape (rows, columns), in the columns' order and units, inside their bounds; a category is its code.
        labels: Shape (rows,): integer codes where the label is a category, else numbers.
    """

    id: str | None
    public: bool
    declared_size: int
    columns: tuple[Column, ...]
    label: Column
    features: FloatArray
    labels: LabelArray

    @property
    def capacity(self) -> int:
        """Slots that a run puts the rows into. Of private data it is a public number, whatever the number of rows."""
        return max(capacity_of(self.declared_size), len(self.labels) if self.public else 0)

    @property
    def is_too_full(self) -> bool:
        """Whether there are more rows than slots: such data cannot be trained on without showing their number."""
        return len(self.labels) > self.capacity


def capacity_of(declared_size: int) -> int:
    """Return how many rows a private data set may have: twice its declared size."""
    return 2 * declared_size


def get(session: Session, dataset_id: str) -> Dataset:
    """A data set's metadata; its file is not opened.

    Raises:
        Problem: 404 if there is none, or it is deleted.
    """
    dataset = repository.find(session, dataset_id)
    if dataset is None or dataset.deleted_at is not None:
        raise not_found("data set", dataset_id)
    return dataset


def columns_of(dataset: Dataset) -> list[Column]:
    """The declared columns, the label's among them."""
    return _COLUMNS.validate_python(dataset.columns)


def body_of(dataset: Dataset, principal: Principal = SERVICE) -> DatasetBody:
    """What everyone may see who reaches the data set; its root budget is named where that is reached, too."""
    is_bound_in_reach = dataset.budget_id is not None and principal.reaches(dataset.budget_id)
    return DatasetBody(
        id=dataset.id,
        name=dataset.name,
        public=dataset.is_public,
        bundled=dataset.is_bundled,
        declared_size=dataset.declared_size,
        privacy_unit=dataset.privacy_unit,
        columns=columns_of(dataset),
        label=dataset.label,
        budget_id=dataset.budget_id if is_bound_in_reach else None,
        created_at=dataset.created_at,
    )


def list_page(session: Session, cursor: str | None, limit: int, principal: Principal) -> Page[DatasetBody]:
    """Data sets that are not deleted, oldest first; those that come with the service lead."""
    after = cast(tuple[datetime, str] | None, decode_cursor(cursor, datetime, str))
    found = repository.list_living(session, after, limit + 1, reach.datasets(principal))
    rows, next_cursor = cut_page(found, limit, lambda dataset: (dataset.created_at, dataset.id))
    return Page[DatasetBody](items=[body_of(dataset, principal) for dataset in rows], next_cursor=next_cursor)


def delete(context: Context, dataset_id: str, principal: Principal = SERVICE) -> None:
    """Remove the rows for good. The declaration stays, marked, and so does the content's bond to its root budget.

    Asked again, it does the same again: a file that a crash left behind goes then.

    Raises:
        Problem: 404 if there never was one; 403 where the principal does not reach all that is charged for the rows;
            409 ``dataset_is_bundled``.
    """
    with context.database.write() as session:
        dataset = repository.find(session, dataset_id)
        if dataset is None:
            raise not_found("data set", dataset_id)
        if principal.budgets is not None and (dataset.budget_id is None or not principal.reaches(dataset.budget_id)):
            raise reach.beyond("a data set is deleted by who reaches the root budget that it is bound to")
        if dataset.is_bundled:
            raise Problem(409, "dataset_is_bundled", "This data set comes with the service and cannot be deleted.")
        repository.mark_deleted(session, dataset_id, context.clock())
    DatasetFiles(context.settings.data_dir, context.settings.encryption).remove(dataset_id)


def check_run_binding(session: Session, dataset: Dataset, budget_id: str) -> None:
    """Check that a run on ``dataset`` may be charged to a budget. Public data may be charged to any.

    Raises:
        Problem: 404 if there is no such budget; 409 ``budget_not_bound`` if the data are private and the budget is
            neither their root budget nor under it.
    """
    budget = get_budget(session, budget_id)
    if not dataset.is_public and budget.root_id != dataset.budget_id:
        detail = "A private data set is charged to its own root budget, or to one under it; this is another one."
        raise Problem(409, "budget_not_bound", detail)


def load(context: Context, session: Session, dataset_id: str) -> LoadedDataset:
    """A data set with its rows.

    Raises:
        Problem: 404 if there is none, or it is deleted.
    """
    dataset = get(session, dataset_id)
    columns, label = split_label(columns_of(dataset), dataset.label)
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    features, labels = bundled.load(dataset.id) if dataset.is_bundled else files.read(dataset.id)
    return LoadedDataset(dataset.id, dataset.is_public, dataset.declared_size, columns, label, features, labels)
