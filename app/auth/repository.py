"""The SQL of API keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import exists, select, text, update
from sqlalchemy.orm import Session

from app.auth.models import ApiKey


def any_key(session: Session) -> bool:
    """Whether a key was ever created, revoked ones included."""
    return bool(session.scalar(select(exists().select_from(ApiKey))))


def find(session: Session, key_id: str) -> ApiKey | None:
    """The key of that id, revoked or not."""
    return session.get(ApiKey, key_id)


def list_all(session: Session) -> Sequence[ApiKey]:
    """Every key, oldest first."""
    return session.scalars(select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)).all()


def add(session: Session, key: ApiKey) -> None:
    """Store a new key."""
    session.add(key)
    session.flush()


def revoke(session: Session, key_id: str, moment: datetime) -> bool:
    """Mark the key revoked; whether there was one to revoke."""
    statement = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).values(revoked_at=moment)
    return bool(session.execute(statement.returning(ApiKey.id)).scalar())


def lock_creation(session: Session) -> None:
    """Let one transaction at a time decide whether a first key is needed. SQLite's write lock does that already."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE"))
