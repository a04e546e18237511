"""The SQL of data sets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, distinct, exists, func, or_, select, text, update
from sqlalchemy.orm import Session

from app.tables.datasets import Dataset

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


def mark_deleted(session: Session, dataset_id: str, moment: datetime) -> bool:
    """Mark the data set deleted, and return whether it was not before: one that was keeps its moment."""
    living = update(Dataset).where(Dataset.id == dataset_id, Dataset.deleted_at.is_(None))
    return bool(session.execute(living.values(deleted_at=moment).returning(Dataset.id)).scalar())


def deleted(session: Session, dataset_ids: Collection[str]) -> set[str]:
    """Return those of the ids that are marked deleted; an unknown id is not among them."""
    found: set[str] = set()
    ids = sorted(dataset_ids)
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        found |= set(session.scalars(select(Dataset.id).where(Dataset.id.in_(batch), Dataset.deleted_at.is_not(None))))
    return found


def lock_content(session: Session, content_hash: str) -> None:
    """Lock the content's row until the transaction ends, and make it if there is none.

    One row is written in either case, so that the time does not tell whether somebody had registered the content. An
    upload of the same content at the same moment waits for this one's transaction, which has no slow work in it.
    """
    session.execute(
        text(
            "INSERT INTO dataset_contents (content_hash) VALUES (:content_hash) "
            "ON CONFLICT (content_hash) DO UPDATE SET content_hash = excluded.content_hash"
        ),
        {"content_hash": content_hash},
    )


def roots_of_content(session: Session, content_hash: str) -> set[str]:
    """The root budgets that private data sets with this content were ever registered under."""
    statement = select(Dataset.budget_id).where(Dataset.content_hash == content_hash, Dataset.budget_id.is_not(None))
    return {root for root in session.scalars(statement) if root is not None}


def is_public_somewhere(session: Session, content_hash: str) -> bool:
    """Whether a public data set that is not deleted has this content."""
    statement = select(
        exists().where(Dataset.content_hash == content_hash, Dataset.is_public, Dataset.deleted_at.is_(None))
    )
    return bool(session.scalar(statement))


def shared_contents(session: Session, after: str | None, count: int) -> list[tuple[list[str], list[str]]]:
    """Contents that are private under more than one root budget: those budgets, and the data sets, deleted or not.

    Args:
        session: A session.
        after: The first data set of the last content that was listed; None begins at the beginning.
        count: How many, at most.

    Returns:
        Ids, sorted; the contents in the order of their first data set.
    """
    first = func.min(Dataset.id)
    shared = (
        select(Dataset.content_hash)
        .where(Dataset.budget_id.is_not(None))
        .group_by(Dataset.content_hash)
        .having(func.count(distinct(Dataset.budget_id)) > 1)
        .order_by(first)
        .limit(count)
    )
    if after is not None:
        shared = shared.having(first > after)
    found: dict[str, list[Dataset]] = {content: [] for content in session.scalars(shared) if content is not None}
    members = select(Dataset).where(Dataset.content_hash.in_(found), Dataset.budget_id.is_not(None))
    for dataset in session.scalars(members.order_by(Dataset.id)):
        assert dataset.content_hash is not None, "it was found by it"
        found[dataset.content_hash].append(dataset)
    return [
        (sorted({dataset.budget_id for dataset in each if dataset.budget_id}), [dataset.id for dataset in each])
        for each in found.values()
    ]
