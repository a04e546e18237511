"""The SQL of data sets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, distinct, exists, func, or_, select, text, union_all, update
from sqlalchemy.orm import Session, aliased

from app.tables.datasets import Dataset, DatasetVersion

# The root budget of each content, over all versions, deleted or not.
_PRIVATE_CONTENTS = union_all(
    select(Dataset.content_hash, Dataset.budget_id, Dataset.id.label("dataset_id")).where(
        Dataset.budget_id.is_not(None)
    ),
    select(DatasetVersion.content_hash, DatasetVersion.budget_id, DatasetVersion.dataset_id),
).subquery()

# The largest number of ids in one statement, since databases limit the number of parameters.
_BATCH = 500


def find(session: Session, dataset_id: str) -> Dataset | None:
    """Return the data set, deleted or not."""
    return session.get(Dataset, dataset_id)


def find_for_update(session: Session, dataset_id: str) -> Dataset | None:
    """Lock the data set's row until the transaction ends, and read it as it is now. Inserting rows that refer to the
    data set needs no such lock."""
    return session.get(Dataset, dataset_id, with_for_update={"key_share": True}, populate_existing=True)


def add(session: Session, row: Dataset | DatasetVersion) -> None:
    """Insert the row at once, so that a violated constraint is noticed here."""
    session.add(row)
    session.flush()


def list_living(
    session: Session, after: tuple[datetime, str] | None, count: int, within: ColumnElement[bool]
) -> Sequence[Dataset]:
    """Return the data sets that are not deleted and that the reader may see, oldest first. ``after`` is the time of
    creation and the id of the last data set on the previous page.
    """
    statement = select(Dataset).where(Dataset.deleted_at.is_(None), within).order_by(Dataset.created_at, Dataset.id)
    if after is not None:
        moment, dataset_id = after
        is_later = and_(Dataset.created_at == moment, Dataset.id > dataset_id)
        statement = statement.where(or_(Dataset.created_at > moment, is_later))
    return session.scalars(statement.limit(count)).all()


def mark_deleted(session: Session, dataset_id: str, moment: datetime) -> bool:
    """Mark the data set as deleted. Return False and keep the earlier time of deletion if it was deleted before."""
    living = update(Dataset).where(Dataset.id == dataset_id, Dataset.deleted_at.is_(None))
    return bool(session.execute(living.values(deleted_at=moment).returning(Dataset.id)).scalar())


def newest_versions(session: Session, dataset_ids: Collection[str]) -> dict[str, DatasetVersion]:
    """Return the newest version of each data set that has more than one."""
    newer = aliased(DatasetVersion)
    is_newest = ~exists().where(newer.dataset_id == DatasetVersion.dataset_id, newer.version > DatasetVersion.version)
    statement = select(DatasetVersion).where(DatasetVersion.dataset_id.in_(dataset_ids), is_newest)
    return {row.dataset_id: row for row in session.scalars(statement)}


def find_version(session: Session, dataset_id: str, number: int) -> DatasetVersion | None:
    """Return a version after the first, erased or not."""
    statement = select(DatasetVersion).where(DatasetVersion.dataset_id == dataset_id, DatasetVersion.version == number)
    return session.scalars(statement).one_or_none()


def versions(session: Session, dataset_id: str, after: int, count: int) -> Sequence[DatasetVersion]:
    """Return the versions after the first with numbers above ``after``, oldest first."""
    statement = select(DatasetVersion).where(DatasetVersion.dataset_id == dataset_id, DatasetVersion.version > after)
    return session.scalars(statement.order_by(DatasetVersion.version).limit(count)).all()


def first_kept_version(session: Session, dataset_id: str) -> int:
    """Return the number of the first version whose rows are not erased."""
    erasing = select(func.max(DatasetVersion.version)).where(
        DatasetVersion.dataset_id == dataset_id, DatasetVersion.erases_earlier
    )
    return session.scalar(erasing) or 1


def stored(session: Session) -> list[str]:
    """Return the ids of the versions whose rows are kept in files."""
    living = Dataset.deleted_at.is_(None)
    first = select(Dataset.id).where(living, Dataset.is_bundled.is_(False), ~_is_first_erased())
    later = _later_versions().where(living, ~_is_erased())
    return sorted([*session.scalars(first), *session.scalars(later)])


def gone(session: Session, version_ids: Collection[str]) -> set[str]:
    """Return those of the given ids whose versions have deleted or erased rows. Unknown ids are left out."""
    found: set[str] = set()
    ids = sorted(version_ids)
    is_deleted = Dataset.deleted_at.is_not(None)
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        first = select(Dataset.id).where(Dataset.id.in_(batch), is_deleted | _is_first_erased())
        later = _later_versions().where(DatasetVersion.id.in_(batch), is_deleted | _is_erased())
        found |= {*session.scalars(first), *session.scalars(later)}
    return found


def lock_rows(session: Session, version_id: str) -> bool | None:
    """Prevent the rows of a version from being deleted or erased until the transaction ends.

    Returns:
        Whether they are kept in a file; None if there is no such version.
    """
    later = session.get(DatasetVersion, version_id)
    if find_for_update(session, version_id if later is None else later.dataset_id) is None:
        return None
    return version_id not in gone(session, [version_id])


def _later_versions() -> Select[str]:
    return select(DatasetVersion.id).join(Dataset, Dataset.id == DatasetVersion.dataset_id)


def _is_first_erased() -> ColumnElement[bool]:
    erasing = aliased(DatasetVersion)
    return exists().where(erasing.dataset_id == Dataset.id, erasing.erases_earlier)


def _is_erased() -> ColumnElement[bool]:
    erasing = aliased(DatasetVersion)
    return exists().where(
        erasing.dataset_id == DatasetVersion.dataset_id,
        erasing.version > DatasetVersion.version,
        erasing.erases_earlier,
    )


def lock_content(session: Session, content_hash: str) -> None:
    """Lock the content's row until the transaction ends. Make the row first if it does not exist.

    One row is written in either case, so the time does not reveal whether somebody had registered the content. A
    simultaneous upload of the same content waits for this transaction, which does no slow work.
    """
    session.execute(
        text(
            "INSERT INTO dataset_contents (content_hash) VALUES (:content_hash) "
            "ON CONFLICT (content_hash) DO UPDATE SET content_hash = excluded.content_hash"
        ),
        {"content_hash": content_hash},
    )


def roots_of_content(session: Session, content_hash: str) -> set[str]:
    """Return the root budgets under which this content was ever registered as private, in any version of any data
    set."""
    contents = _PRIVATE_CONTENTS
    return set(session.scalars(select(contents.c.budget_id).where(contents.c.content_hash == content_hash)))


def is_public_somewhere(session: Session, content_hash: str) -> bool:
    """Return whether a public data set that is not deleted has this content."""
    statement = select(
        exists().where(Dataset.content_hash == content_hash, Dataset.is_public, Dataset.deleted_at.is_(None))
    )
    return bool(session.scalar(statement))


def shared_contents(session: Session, after: str | None, count: int) -> list[tuple[list[str], list[str]]]:
    """Return the contents that are private under more than one root budget, each with these budgets and its data sets,
    deleted or not.

    Args:
        session: A session.
        after: The first data set of the last content that was listed; None for the beginning.
        count: The largest number of contents.

    Returns:
        Ids, sorted; the contents in the order of their first data set.
    """
    contents = _PRIVATE_CONTENTS
    first = func.min(contents.c.dataset_id)
    shared = (
        select(contents.c.content_hash)
        .group_by(contents.c.content_hash)
        .having(func.count(distinct(contents.c.budget_id)) > 1)
        .order_by(first)
        .limit(count)
    )
    if after is not None:
        shared = shared.having(first > after)
    found: dict[str, tuple[set[str], set[str]]] = {content: (set(), set()) for content in session.scalars(shared)}
    for content, budget_id, dataset_id in session.execute(select(contents).where(contents.c.content_hash.in_(found))):
        found[content][0].add(budget_id)
        found[content][1].add(dataset_id)
    return [(sorted(budget_ids), sorted(dataset_ids)) for budget_ids, dataset_ids in found.values()]
