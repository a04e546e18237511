"""Names of principals, for answers that say who has done something, because ids mean nothing to people.

Everybody who may read that a key has done something may also read the key's name. Only administrators see what the key
allows.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from app.auth import repository
from app.auth.principal import LOOPBACK, SERVICE

_WITHOUT_A_KEY = {each.id: each.name for each in (LOOPBACK, SERVICE)}


def names_of(session: Session, principal_ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of principals by their ids, including revoked keys.

    Args:
        session: A session.
        principal_ids: Ids of keys, or ``loopback`` and ``service``; None and unknown ids are left out.
    """
    asked = {each for each in principal_ids if each is not None}
    known = {id: name for id, name in _WITHOUT_A_KEY.items() if id in asked}
    keys = asked - known.keys()
    return known | (repository.names(session, keys) if keys else {})


def ids_of(session: Session, principal: str) -> set[str]:
    """Return the ids of all principals that have this id or this name, revoked keys included.

    Several keys may share a name; filtering by the name shows what any of them has done.
    """
    unkeyed = {id for id, name in _WITHOUT_A_KEY.items() if name == principal}
    return {principal} | unkeyed | repository.ids_named(session, principal)
