"""Versions of a data set: its content at different times. The first version is the row of the data set itself.

Only private data have more. All of them have the columns, the label, the privacy unit and the root budget of
the data set, and each has a size, a capacity and a file of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from app.datasets import repository
from app.problems import Problem, unprocessable
from app.tables.datasets import Dataset, DatasetVersion
from app.tables.states import Change


@dataclass(frozen=True)
class Version:
    """A version as it was declared.

    Attributes:
        id: The id of its file and of its entry in the register; the first version has the id of its data set.
        number: 1 for the first.
        content_hash: The keyed hash of its rows; None for data that come with the service.
        change, reason: What the owner says about it; None for the first.
        is_erased: Whether a later version has erased its rows.
    """

    id: str
    dataset_id: str
    number: int
    content_hash: str | None
    declared_size: int
    capacity: int
    change: Change | None
    reason: str | None
    created_at: datetime
    is_erased: bool


def newest(session: Session, dataset: Dataset) -> Version:
    """Return the version on which a run trains if it names none."""
    return newest_of_each(session, [dataset])[dataset.id]


def newest_of_each(session: Session, datasets: Collection[Dataset]) -> Mapping[str, Version]:
    """Return the newest version of each data set, by the id of the data set."""
    later = repository.newest_versions(session, [dataset.id for dataset in datasets])
    return {
        dataset.id: _later(later[dataset.id], 1) if dataset.id in later else _first(dataset, 1) for dataset in datasets
    }


def find(session: Session, dataset: Dataset, number: int | None) -> Version | None:
    """Return a version by its number, erased or not; None names the newest."""
    if number is None:
        return newest(session, dataset)
    first_kept = repository.first_kept_version(session, dataset.id)
    if number == 1:
        return _first(dataset, first_kept)
    row = repository.find_version(session, dataset.id, number)
    return None if row is None else _later(row, first_kept)


def get(session: Session, dataset: Dataset, number: int | None) -> Version:
    """Return a version that can be trained on; None names the newest.

    Raises:
        Problem: 422 ``unknown_version`` or ``version_erased``.
    """
    version = find(session, dataset, number)
    if version is None:
        detail = "The data set has no version with this number; GET /v1/datasets/{id}/versions lists them."
        raise unprocessable("unknown_version", detail, "dataset_version")
    if version.is_erased:
        raise unprocessable("version_erased", ERASED, "dataset_version")
    return version


def list_after(session: Session, dataset: Dataset, after: int, count: int) -> Sequence[Version]:
    """Return the versions with numbers above ``after``, oldest first."""
    first_kept = repository.first_kept_version(session, dataset.id)
    first = [_first(dataset, first_kept)] if after < 1 else []
    return [*first, *(_later(row, first_kept) for row in repository.versions(session, dataset.id, after, count))]


ERASED = "The rows of this version were erased when a later one came; train on a later one."


def refuse_public(dataset: Dataset) -> None:
    """Refuse a further version of public data. Nothing is charged for public data, so a new data set does as well.

    Raises:
        Problem: 409 ``dataset_is_public``.
    """
    if dataset.is_public:
        detail = "Only private data sets have versions. Upload the new rows as another public data set."
        raise Problem(409, "dataset_is_public", detail)


def _first(dataset: Dataset, first_kept: int) -> Version:
    return Version(
        id=dataset.id,
        dataset_id=dataset.id,
        number=1,
        content_hash=dataset.content_hash,
        declared_size=dataset.declared_size,
        capacity=dataset.capacity,
        change=None,
        reason=None,
        created_at=dataset.created_at,
        is_erased=first_kept > 1,
    )


def _later(row: DatasetVersion, first_kept: int) -> Version:
    return Version(
        id=row.id,
        dataset_id=row.dataset_id,
        number=row.version,
        content_hash=row.content_hash,
        declared_size=row.declared_size,
        capacity=row.capacity,
        change=Change(row.change),
        reason=row.reason,
        created_at=row.created_at,
        is_erased=row.version < first_kept,
    )
