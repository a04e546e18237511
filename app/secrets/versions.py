"""The SQL of versions of secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.secrets.material import Purpose
from app.tables.access import SecretVersion


def all_versions(session: Session) -> Sequence[SecretVersion]:
    """Return every version of every secret, including retired ones."""
    order = (SecretVersion.purpose, SecretVersion.version)
    return session.scalars(select(SecretVersion).order_by(*order)).all()


def newest(session: Session, purpose: Purpose) -> int:
    """Return the version for new hashes and signatures; 1 before the first start has entered any."""
    statement = select(func.max(SecretVersion.version)).where(SecretVersion.purpose == purpose)
    return session.scalar(statement) or 1


def newest_kept(session: Session, purpose: Purpose) -> int:
    """Return the same as `newest`. Nobody can retire or replace this version until the caller's write session ends.

    Call it before locking API keys, since retiring a version takes its locks in the same order.
    """
    session.execute(select(SecretVersion.version).where(SecretVersion.purpose == purpose).with_for_update(read=True))
    return newest(session, purpose)


def lock(session: Session, purpose: Purpose) -> None:
    """Let one write session at a time change the versions. Meanwhile, no other one can hash under them."""
    session.execute(select(SecretVersion.version).where(SecretVersion.purpose == purpose).with_for_update())


def public_keys(session: Session) -> list[bytes]:
    """Return the public keys whose signatures count as the ledger's own, which are all that are not retired."""
    statement = select(SecretVersion.check_value).where(
        SecretVersion.purpose == Purpose.SIGNATURES, SecretVersion.retired_at.is_(None)
    )
    return [bytes.fromhex(value) for value in session.scalars(statement.order_by(SecretVersion.version))]


def enter_first(session: Session, values: dict[Purpose, str], moment: datetime) -> None:
    """Enter version 1 of these secrets. If another start was first, its rows stay."""
    rows = [
        {"purpose": purpose, "version": 1, "check_value": values[purpose], "created_at": moment}
        for purpose in sorted(values)
    ]
    dialect = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    session.execute(dialect.insert(SecretVersion).values(rows).on_conflict_do_nothing())
