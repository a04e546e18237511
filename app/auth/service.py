"""Make, check, list and revoke API keys."""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakKeyDictionary

from app.auth import repository
from app.auth.models import ApiKey
from app.auth.principal import Principal, Scope
from app.db.database import Database
from app.kit.context import Context
from app.kit.ids import new_id

#: A key names its own row, then 256 random bits: found by the first part, proved by all of it.
TOKEN = re.compile(r"epsilond_([a-z2-7]{24})_([a-z2-7]{52})")


@dataclass(frozen=True)
class CreatedKey:
    """A new key. ``token`` exists here and with its holder, nowhere else."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    token: str


@dataclass(frozen=True)
class StoredKey:
    """What the service knows of a key, without what authenticates."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    is_revoked: bool


def create_key(context: Context, name: str, scopes: Iterable[Scope], *, if_none: bool = False) -> CreatedKey | None:
    """Create a key.

    Args:
        context: The application's context.
        name: What the key is for, in its owner's words.
        scopes: What it allows.
        if_none: Create it only where no key was ever created; two that start together make one.

    Returns:
        The key with its token, or None if ``if_none`` and there is one already.
    """
    key_id = new_id("key")
    secret = base64.b32encode(secrets.token_bytes(32)).decode().rstrip("=").lower()
    token = f"epsilond_{key_id.removeprefix('key_')}_{secret}"
    chosen = tuple(sorted(set(scopes)))
    with context.database.write() as session:
        if if_none:
            repository.lock_creation(session)
            if repository.any_key(session):
                return None
        row = ApiKey(
            id=key_id,
            name=name,
            scopes=[str(scope) for scope in chosen],
            token_hash=token_hash(context, token),
            created_at=context.clock(),
        )
        repository.add(session, row)
    _tell_of_change(context)
    return CreatedKey(key_id, name, chosen, token)


def authenticate(context: Context, token: str) -> Principal | None:
    """The principal of a token, or None if no usable key has it."""
    parts = TOKEN.fullmatch(token)
    if parts is None:
        return None
    with context.database.read() as session:
        key = repository.find(session, f"key_{parts[1]}")
        stored = key.token_hash if key is not None else ""
        # The comparison is made for an unknown id as well, and looks at every character whatever the first ones are.
        matches = hmac.compare_digest(stored.ljust(64, "0"), token_hash(context, token))
        if key is None or not matches or key.revoked_at is not None:
            return None
        if key.expires_at is not None and key.expires_at <= context.clock():
            return None
        return Principal(key.id, frozenset(Scope(scope) for scope in key.scopes))


def keys_exist(context: Context) -> bool:
    """Whether the server has, or ever had, a key."""
    with context.database.read() as session:
        return repository.any_key(session)


def list_keys(context: Context) -> list[StoredKey]:
    """Every key, revoked ones included, oldest first."""
    with context.database.read() as session:
        return [
            StoredKey(key.id, key.name, tuple(key.scopes), key.created_at, is_revoked=key.revoked_at is not None)
            for key in repository.list_all(session)
        ]


def revoke_key(context: Context, key_id: str) -> bool:
    """Revoke a key for ever; whether there was an unrevoked one of that id."""
    with context.database.write() as session:
        revoked = repository.revoke(session, key_id, context.clock())
    _tell_of_change(context)
    return revoked


# How often this process has changed the keys of a database.
_CHANGES: WeakKeyDictionary[Database, int] = WeakKeyDictionary()


def changes(context: Context) -> int:
    """A number that differs once this process has changed the keys."""
    return _CHANGES.get(context.database, 0)


def _tell_of_change(context: Context) -> None:
    _CHANGES[context.database] = changes(context) + 1


def token_hash(context: Context, token: str) -> str:
    """What is stored in place of a token."""
    return context.keyed_hash("api_key", token.encode())
