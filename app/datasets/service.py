"""Data sets for the rest of the service: metadata for everyone, rows only for the worker."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from app.auth import reach
from app.auth.principal import SERVICE, Principal, Scope
from app.context import Context
from app.datasets import bundled, repository, versions
from app.datasets.columns import Column, as_scaled, split_label
from app.datasets.files import DatasetFiles
from app.datasets.held_out import split_size
from app.datasets.schemas import DatasetBody, DatasetWarning, SharedContent, VersionBody
from app.datasets.table import FloatArray, LabelArray
from app.datasets.versions import Version
from app.entries import registering
from app.entries.kinds import ChargedData, EntryKind
from app.entries.registered import charged_data
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.kit.encryption import FileUnreadable
from app.kit.pagination import Page, cut_page, decode_cursor
from app.ledger.repository import get_budget
from app.problems import Problem, not_found
from app.tables.datasets import Dataset
from trainer.scaling import memory_of_rows

_COLUMNS: TypeAdapter[list[Column]] = TypeAdapter(list[Column])

#: The warning for an old data set with more rows than its capacity. Newer uploads with too many rows are refused.
TOO_FULL = DatasetWarning(
    code="dataset_too_full",
    detail="The data set has more rows than its capacity. Its runs fail without a charge, because they could not hide "
    "the number of rows. Upload the file again under the same root budget with a larger capacity, and delete this "
    "one.",
)


@dataclass(frozen=True, eq=False)
class LoadedDataset:
    """Rows in memory, for the process that trains on them.

    Attributes:
        id: The data set's id; None for inline data.
        public: Whether every row may be published.
        declared_size: The public number of records that are trained on. Use it wherever a size is needed;
            ``len(labels)`` is private.
        capacity: The number of slots into which a run puts the rows. For private data it is a public number, whatever
            the number of rows.
        columns: The feature columns, with their declared bounds or categories.
        label: The label's column.
        features: An array of shape (rows, columns) of the rows that are trained on, in the columns' order and units,
            within their bounds; a category is its code.
        labels: An array of shape (rows,): integer codes if the label is a category, otherwise numbers.
        held_out: Features and labels of the held-out rows; None if the data set holds no rows out.
    """

    id: str | None
    public: bool
    declared_size: int
    capacity: int
    columns: tuple[Column, ...]
    label: Column
    features: FloatArray
    labels: LabelArray
    held_out: tuple[FloatArray, LabelArray] | None = None

    @property
    def is_too_full(self) -> bool:
        """Return whether there are more rows than slots. Training on such data would reveal the number of rows."""
        held_out = 0 if self.held_out is None else len(self.held_out[1])
        return len(self.labels) + held_out > self.capacity


def get(session: Session, dataset_id: str) -> Dataset:
    """Return a data set's metadata, without opening its file.

    Raises:
        Problem: 404 if there is no such data set, or it is deleted.
    """
    dataset = repository.find(session, dataset_id)
    if dataset is None or dataset.deleted_at is not None:
        raise not_found("data set", dataset_id)
    return dataset


def columns_of(dataset: Dataset) -> list[Column]:
    """Return the declared columns, including the label's."""
    return _COLUMNS.validate_python(dataset.columns)


def body_of(
    dataset: Dataset, newest: Version, principal: Principal = SERVICE, warnings: Sequence[DatasetWarning] = ()
) -> DatasetBody:
    """Return what everyone who reaches the data set may see. Add its root budget if the principal reaches the budget as
    well."""
    columns = columns_of(dataset)
    features, _ = split_label(columns, dataset.label)
    is_bound_in_reach = dataset.budget_id is not None and principal.reaches(dataset.budget_id)
    return DatasetBody(
        id=dataset.id,
        name=dataset.name,
        public=dataset.is_public,
        bundled=dataset.is_bundled,
        version=newest.number,
        declared_size=newest.declared_size,
        capacity=newest.capacity,
        run_memory_bytes=memory_of_rows([as_scaled(column) for column in features], newest.capacity),
        privacy_unit=dataset.privacy_unit,
        columns=columns,
        label=dataset.label,
        person_column=dataset.person_column,
        rows_per_person=dataset.rows_per_person,
        held_out_share=dataset.held_out_share,
        budget_id=dataset.budget_id if is_bound_in_reach else None,
        created_at=dataset.created_at,
        warnings=list(warnings),
    )


def read(context: Context, dataset_id: str, principal: Principal) -> DatasetBody:
    """Return a data set's declaration as the principal may see it.

    Raises:
        Problem: 404 if there is no such data set, or it is deleted.
    """
    with context.database.read() as session:
        dataset = get(session, dataset_id)
        newest = versions.newest(session, dataset)
    return body_of(dataset, newest, principal, _warnings(context, dataset, newest, principal))


def list_page(context: Context, cursor: str | None, limit: int, principal: Principal) -> Page[DatasetBody]:
    """Return a page of the data sets that are not deleted, oldest first. Those that come with the service lead the
    list."""
    after = cast(tuple[datetime, str] | None, decode_cursor(cursor, datetime, str))
    with context.database.read() as session:
        found = repository.list_living(session, after, limit + 1, reach.datasets(principal))
        newest = versions.newest_of_each(session, found)
    rows, next_cursor = cut_page(found, limit, lambda dataset: (dataset.created_at, dataset.id))
    items = [
        body_of(dataset, newest[dataset.id], principal, _warnings(context, dataset, newest[dataset.id], principal))
        for dataset in rows
    ]
    return Page[DatasetBody](items=items, next_cursor=next_cursor)


def list_versions(session: Session, dataset_id: str, cursor: str | None, limit: int) -> Page[VersionBody]:
    """Return the declarations of a data set's versions, oldest first.

    Raises:
        Problem: 404 if there is no such data set, or it is deleted.
    """
    after = cast(tuple[int] | None, decode_cursor(cursor, int))
    found = versions.list_after(session, get(session, dataset_id), 0 if after is None else after[0], limit + 1)
    rows, next_cursor = cut_page(found, limit, lambda version: (version.number,))
    return Page[VersionBody](items=[version_body(version) for version in rows], next_cursor=next_cursor)


def version_body(version: Version) -> VersionBody:
    """Return what everyone who reaches the data set may see of one of its versions."""
    return VersionBody(
        id=version.id,
        dataset_id=version.dataset_id,
        version=version.number,
        change=version.change,
        reason=version.reason,
        declared_size=version.declared_size,
        capacity=version.capacity,
        erased=version.is_erased,
        created_at=version.created_at,
    )


def _warnings(context: Context, dataset: Dataset, newest: Version, principal: Principal) -> list[DatasetWarning]:
    """Return warnings for the owner of private rows. For others no file is opened, so that timing reveals nothing."""
    if dataset.budget_id is None or not (principal.may(Scope.OWNER) and principal.reaches(dataset.budget_id)):
        return []
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    try:
        is_too_full = files.count_rows(newest.id) > newest.capacity
    except (OSError, FileUnreadable):
        # The declaration is shown all the same; a run on the data set will report the fault.
        return []
    return [TOO_FULL] if is_too_full else []


def list_shared_contents(session: Session, cursor: str | None, limit: int, principal: Principal) -> Page[SharedContent]:
    """Return rows that are private under more than one root budget.

    Raises:
        Problem: 403 for a key of some budgets, which may not learn which rows are the same.
    """
    if principal.budgets is not None:
        raise reach.beyond("only a key that reaches all budgets may learn which data sets have the same rows")
    after = cast(tuple[str] | None, decode_cursor(cursor, str))
    found = repository.shared_contents(session, None if after is None else after[0], limit + 1)
    rows, next_cursor = cut_page(found, limit, lambda content: (content[1][0],))
    items = [SharedContent(root_budget_ids=roots, dataset_ids=datasets) for roots, datasets in rows]
    return Page[SharedContent](items=items, next_cursor=next_cursor)


def delete(context: Context, dataset_id: str, principal: Principal = SERVICE) -> None:
    """Remove the rows for good. The declaration is kept and marked as deleted, and the content remains bound to its
    root budget.

    The call may be repeated. This removes a file that a crash left behind.

    Raises:
        Problem: 404 if there never was such a data set; 403 if the principal does not reach every budget that is
            charged for the rows; 409 ``dataset_is_bundled``.
    """
    with context.database.write() as session:
        dataset = repository.find(session, dataset_id)
        if dataset is None:
            raise not_found("data set", dataset_id)
        if principal.budgets is not None and (dataset.budget_id is None or not principal.reaches(dataset.budget_id)):
            raise reach.beyond("only a key that reaches the root budget of a data set may delete it")
        if dataset.is_bundled:
            raise Problem(409, "dataset_is_bundled", "This data set comes with the service and cannot be deleted.")
        now = context.clock()
        if repository.mark_deleted(session, dataset_id, now):
            ended = Registration(EntryKind.END, Subject.DATASET, dataset_id, principal.id)
            registering.enter(session, now, [ended])
        kept = versions.list_after(session, dataset, 0, sys.maxsize)
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    for version in kept:
        files.remove(version.id)


def sweep_files(context: Context) -> None:
    """Remove files of rows that are marked as deleted or erased, which a crash may have left behind."""
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    with context.database.read() as session:
        files.sweep(lambda ids: repository.gone(session, ids))


def charged_by_run(session: Session, dataset_id: str | None, version: int | None, budget_id: str) -> ChargedData | None:
    """Return the data that a run's charge names; None for public data, for which any budget may be charged.

    Args:
        session: A session.
        dataset_id: The data set; None for rows in a request.
        version: The version for which the run was prepared.
        budget_id: The budget that is charged.

    Raises:
        Problem: 404 if there is no such budget, or no such data set; 422 if the version is erased; 409
            ``budget_not_bound`` if the data are private and the budget is neither their root budget nor under it.
    """
    budget = get_budget(session, budget_id)
    dataset = None if dataset_id is None else get(session, dataset_id)
    if dataset is None or dataset.is_public:
        return None
    if budget.root_id != dataset.budget_id:
        detail = (
            "Runs on a private data set are charged to its own root budget, or to a budget under it: this budget "
            "is neither."
        )
        raise Problem(409, "budget_not_bound", detail)
    assert version is not None, "a run on private data is prepared for a version"
    return charged_data(dataset, version, versions.get(session, dataset, version).content_hash)


def load(context: Context, session: Session, dataset_id: str, number: int = 1) -> LoadedDataset:
    """Load a version of a data set with its rows; public data have one version.

    Raises:
        Problem: 404 if there is no such data set, or it is deleted; 422 if there is no such version, or it is erased.
    """
    dataset = get(session, dataset_id)
    version = versions.get(session, dataset, number)
    columns, label = split_label(columns_of(dataset), dataset.label)
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    features, labels = bundled.load(dataset.id) if dataset.is_bundled else files.read(version.id)
    # Public data from before capacities existed may have more rows than slots, and their number need not be hidden.
    capacity = max(version.capacity, len(labels)) if dataset.is_public else version.capacity
    held_out = None
    if dataset.held_out_share is not None:
        is_held_out = files.read_held_out(version.id)
        held_out = features[is_held_out], labels[is_held_out]
        features, labels = features[~is_held_out], labels[~is_held_out]
    return LoadedDataset(
        id=dataset.id,
        public=dataset.is_public,
        declared_size=split_size(version.declared_size, dataset.held_out_share)[0],
        capacity=capacity,
        columns=columns,
        label=label,
        features=features,
        labels=labels,
        held_out=held_out,
    )
