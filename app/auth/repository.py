"""The SQL of API keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, String, column, exists, or_, select, table, text, true, update
from sqlalchemy.orm import Session

from app.tables.access import ApiKey

#: The columns of budgets that are read here. Their model would load the accounting, which commands about keys need not
#: wait for.
_BUDGETS = table("budgets", column("id", String), column("path", String))


def any_key(session: Session, *, with_accounts: bool = True) -> bool:
    """Return whether a key was ever created, even if revoked since; ``with_accounts`` counts provider accounts, too."""
    counted = true() if with_accounts else ApiKey.issuer.is_(None)
    return bool(session.scalar(select(exists().where(counted).select_from(ApiKey))))


def find(session: Session, key_id: str) -> ApiKey | None:
    """Return the key of that id, revoked or not."""
    return session.get(ApiKey, key_id)


def find_account(session: Session, issuer: str, subject: str) -> ApiKey | None:
    """Return the account of a provider, barred or not."""
    return session.scalar(select(ApiKey).where(ApiKey.issuer == issuer, ApiKey.subject == subject))


def names(session: Session, key_ids: Collection[str]) -> dict[str, str]:
    """Return the names of these keys by their ids, revoked ones included."""
    return {key.id: key.name for key in session.execute(select(ApiKey.id, ApiKey.name).where(ApiKey.id.in_(key_ids)))}


def ids_named(session: Session, name: str) -> set[str]:
    """Return the ids of the keys with this name, revoked ones included."""
    return set(session.scalars(select(ApiKey.id).where(ApiKey.name == name)))


def list_all(session: Session) -> Sequence[ApiKey]:
    """Return every key, oldest first."""
    return session.scalars(select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)).all()


def page(session: Session, before: tuple[datetime, str] | None, limit: int) -> list[ApiKey]:
    """Return a page of keys, newest first, from just after the cursor."""
    statement = select(ApiKey).order_by(ApiKey.created_at.desc(), ApiKey.id.desc()).limit(limit)
    if before is not None:
        moment, key_id = before
        statement = statement.where(
            (ApiKey.created_at < moment) | ((ApiKey.created_at == moment) & (ApiKey.id < key_id))
        )
    return list(session.scalars(statement))


def unended(session: Session, now: datetime) -> list[ApiKey]:
    """Return the keys that have not ended."""
    is_open = or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now)
    return list(session.scalars(select(ApiKey).where(ApiKey.revoked_at.is_(None), is_open)))


def path_of_budget(session: Session, budget_id: str) -> str | None:
    """Return the ids from the root to the budget, as they are in its row; None if there is no such budget."""
    return session.scalar(select(_BUDGETS.c.path).where(_BUDGETS.c.id == budget_id))


def add(session: Session, key: ApiKey) -> None:
    """Store a new key."""
    session.add(key)
    session.flush()


def revoke(session: Session, key_id: str, moment: datetime) -> bool:
    """Mark the key revoked, and return whether there was one to revoke."""
    statement = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).values(revoked_at=moment)
    return bool(session.execute(statement.returning(ApiKey.id)).scalar())


def note_use(connection: Connection, key_id: str, minute: datetime) -> None:
    """Record that the key was used, unless a later use is recorded."""
    is_older = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < minute)
    connection.execute(update(ApiKey).where(ApiKey.id == key_id, is_older).values(last_used_at=minute))


def hash_anew(session: Session, key_id: str, before: str, after: str, version: int) -> bool:
    """Replace a token's hash by the hash under another version of the secret, and return whether there was one to
    replace. If the token was replaced meanwhile, or its key revoked, nothing changes.
    """
    found = False
    for digest, number in (
        (ApiKey.token_hash, ApiKey.secret_version),
        (ApiKey.previous_token_hash, ApiKey.previous_secret_version),
    ):
        of_token = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None), digest == before)
        replaced = session.execute(
            of_token.values({digest: after, number: version}).returning(ApiKey.id),
            execution_options={"synchronize_session": False},
        )
        found |= replaced.scalar() is not None
    return found


def lock_all(session: Session) -> None:
    """Let only one transaction at a time change keys, because decisions about the first key, the last key and the
    newest token depend on the existing rows. On SQLite the write lock already ensures this.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE"))
