"""The SQL of data sets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, exists, or_, select, text, update
from sqlalchemy.orm import Session

from app.datasets.models import Dataset, DatasetContent

# Databases bound the number of parameters of one statement.
_BATCH = 500


def find(session: Session, dataset_id: str) -> Dataset | None:
    """The data set, deleted or not."""
    return session.get(Dataset, dataset_id)


def add(session: Session, dataset: Dataset) -> None:
    """Insert now, so that a broken constraint shows here."""
    session.add(dataset)
    session.flush()


def list_living(
    session: Session, after: tuple[datetime, str] | None, count: int, within: ColumnElement[bool]
) -> Sequence[Dataset]:
    """Data sets that are not deleted and that the reader reaches, oldest first, from the one after ``after`` (moment of
    creation, id).
    """
    statement = select(Dataset).where(Dataset.deleted_at.is_(None), within).order_by(Dataset.created_at, Dataset.id)
    if after is not None:
        moment, dataset_id = after
        is_later = and_(Dataset.created_at == moment, Dataset.id > dataset_id)
        statement = statement.where(or_(Dataset.created_at > moment, is_later))
    return session.scalars(statement.limit(count)).all()


def mark_deleted(session: Session, dataset_id: str, moment: datetime) -> None:
    """Mark the data set deleted; one that is already keeps its moment."""
    session.execute(
        update(Dataset).where(Dataset.id == dataset_id, Dataset.deleted_at.is_(None)).values(deleted_at=moment)
    )


def deleted(session: Session, dataset_ids: Collection[str]) -> set[str]:
    """Those of the ids that are marked deleted; one that is not known is not among them."""
    found: set[str] = set()
    ids = sorted(dataset_ids)
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        found |= set(session.scalars(select(Dataset.id).where(Dataset.id.in_(batch), Dataset.deleted_at.is_not(None))))
    return found


def lock_content(session: Session, content_hash: str) -> DatasetContent:
    """The content's row, made if there is none, and locked until the transaction ends."""
    session.execute(
        text("INSERT INTO dataset_contents (content_hash) VALUES (:content_hash) ON CONFLICT DO NOTHING"),
        {"content_hash": content_hash},
    )
    # SQLite has no row locks and needs none: the transaction holds its one write lock.
    statement = select(DatasetContent).where(DatasetContent.content_hash == content_hash).with_for_update()
    return session.scalars(statement, execution_options={"populate_existing": True}).one()


def is_public_somewhere(session: Session, content_hash: str) -> bool:
    """Whether a public data set that is not deleted has this content."""
    statement = select(
        exists().where(Dataset.content_hash == content_hash, Dataset.is_public, Dataset.deleted_at.is_(None))
    )
    return bool(session.scalar(statement))
