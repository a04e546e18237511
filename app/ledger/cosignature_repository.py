"""All SQL of cosignatures. What is read is not verified here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Select, Table, func, select, union_all
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.ledger.checkpoints import Signature
from app.ledger.cosignatures import WitnessKey
from app.ledger.stored_values import rows as checked_rows
from app.tables.ledger import MerkleCosignature

COSIGNATURES = cast(Table, MerkleCosignature.__table__)


def of_size(session: Session, size: int, keys: Sequence[WitnessKey]) -> list[Signature]:
    """Return the cosignatures of these witnesses of the tree of a size, in the order of the witnesses."""
    columns = (COSIGNATURES.c.witness, COSIGNATURES.c.signature)
    statement = select(*columns).where(COSIGNATURES.c.tree_size == size)
    found = {row.witness: row.signature for row in checked_rows(session, _of(statement, keys), *columns)}
    return [Signature(key.name, key.key_id, found[str(key)]) for key in keys if str(key) in found]


def last(session: Session, keys: Sequence[WitnessKey]) -> dict[str, tuple[int, datetime]]:
    """Return the largest size that each witness has cosigned, and when, by its key as text; others are left out.

    One statement asks for all of them, and each part of it reads one row.
    """
    if not keys:
        return {}
    columns = (COSIGNATURES.c.witness, COSIGNATURES.c.tree_size, COSIGNATURES.c.cosigned_at)
    size = COSIGNATURES.c.tree_size
    parts = (_of(select(*columns), [key]).order_by(size.desc()).limit(1).subquery() for key in keys)
    found = union_all(*map(select, parts)).subquery()
    rows = checked_rows(session, select(found), *columns)
    return {row.witness: (row.tree_size, row.cosigned_at) for row in rows}


def newest_size(session: Session, keys: Sequence[WitnessKey], quorum: int) -> int | None:
    """Return the largest size that at least ``quorum`` of these witnesses have cosigned; None if there is none."""
    size = COSIGNATURES.c.tree_size
    statement = _of(select(size), keys).group_by(size).having(func.count() >= quorum)
    found: int | None = session.scalar(statement.order_by(size.desc()).limit(1))
    return found


def keep(session: Session, size: int, key: WitnessKey, cosigned_at: datetime, signature: bytes) -> None:
    """Store a cosignature, in place of an older one of the same tree."""
    dialect = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    values = {"cosigned_at": cosigned_at, "signature": signature}
    made = dialect.insert(COSIGNATURES).values(tree_size=size, witness=str(key), **values)
    session.execute(made.on_conflict_do_update(index_elements=["tree_size", "witness"], set_=values))


def _of(statement: Select[Any], keys: Sequence[WitnessKey]) -> Select[Any]:
    return statement.where(COSIGNATURES.c.witness.in_([str(key) for key in keys]))
