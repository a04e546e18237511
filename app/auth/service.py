"""Make, check, rotate, list and revoke API keys."""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from sqlalchemy.orm import Session

from app.auth import local_token, repository
from app.auth.principal import SERVICE, Principal, Scope
from app.context import Context
from app.db.database import Database
from app.db.failures import DATABASE_FAILURES
from app.entries import registering
from app.entries.kinds import WITHOUT_A_KEY, EntryKind
from app.entries.metering import used_by
from app.entries.quotas import Quota, Quotas
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.kit.ids import new_id
from app.kit.timestamps import format_moment
from app.problems import Problem, not_found, unprocessable
from app.secrets import versions
from app.secrets.material import Purpose, SecretUnavailable
from app.tables.access import ApiKey

#: A token contains the id of its key, by which the key is found, and 256 random bits. The whole token proves the key.
TOKEN = re.compile(r"epsilond_([a-z2-7]{24})_([a-z2-7]{52})")

#: The most budgets that one key may name.
MAX_BUDGETS = 50
#: The longest time for which the old token of a rotated key stays valid.
MAX_OVERLAP_S = 7 * 24 * 3600
_NO_HASH = "0" * 64


@dataclass(frozen=True)
class Terms:
    """The rights of a key, and how long it is valid.

    Attributes:
        name: The purpose of the key, in its owner's words.
        scopes: What it allows.
        budgets: Ids of the budgets that it reaches, with all below them; None for all budgets.
        expires_at: When it ends; None for never.
        requests_per_second, concurrent_requests: Its own limits; 0 for none, None for those of the settings.
    """

    name: str
    scopes: tuple[Scope, ...]
    budgets: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    requests_per_second: float | None = None
    concurrent_requests: int | None = None


@dataclass(frozen=True)
class CreatedKey:
    """A key with a fresh token, which is stored nowhere."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    token: str = field(repr=False)


def create_key(
    context: Context,
    name: str,
    scopes: Iterable[Scope],
    *,
    budgets: Iterable[str] | None = None,
    expires_at: datetime | None = None,
    requests_per_second: float | None = None,
    concurrent_requests: int | None = None,
    if_none: bool = False,
) -> CreatedKey | None:
    """Create a key in a transaction of its own.

    Args:
        context: The application's context.
        name, scopes, budgets, expires_at, requests_per_second, concurrent_requests: As in `Terms`.
        if_none: Create it only if no key was ever created; two such calls at the same time make one key.

    Returns:
        The key with its token, or None if ``if_none`` and there is one already.

    Raises:
        Problem: as `add_key`.
    """
    chosen = tuple(sorted(set(scopes)))
    reached = None if budgets is None else tuple(budgets)
    terms = Terms(name, chosen, reached, expires_at, requests_per_second, concurrent_requests)
    with context.database.write() as session:
        versions.newest_kept(session, Purpose.KEYS)
        if if_none:
            repository.lock_all(session)
            if repository.any_key(session, with_accounts=False):
                return None
        row, token = add_key(session, context, terms, SERVICE.id)
    tell_of_change(context)
    local_token.remove(context)
    return CreatedKey(row.id, name, chosen, token)


def add_key(session: Session, context: Context, terms: Terms, principal_id: str) -> tuple[ApiKey, str]:
    """Create a key in the caller's transaction. The caller commits, and then calls `tell_of_change`.

    Args:
        session: A write session.
        context: The process's context.
        terms: What the key may do.
        principal_id: The principal who makes it.

    Returns:
        The key, and its token.

    Raises:
        Problem: 422 if a budget does not exist, or if a key of some budgets has the scope `admin`.
    """
    paths = None if terms.budgets is None else _paths(session, terms)
    key_id = new_id("key")
    token, version = _new_token(key_id), versions.newest_kept(session, Purpose.KEYS)
    row = ApiKey(
        id=key_id,
        name=terms.name,
        scopes=[str(scope) for scope in sorted(set(terms.scopes))],
        budgets=paths,
        requests_per_second=terms.requests_per_second,
        concurrent_requests=terms.concurrent_requests,
        token_hash=token_hash(context, token, version),
        secret_version=version,
        created_at=context.clock(),
        expires_at=terms.expires_at,
    )
    repository.add(session, row)
    enter(session, context, EntryKind.REGISTER, key_id, principal_id)
    return row, token


def enter(session: Session, context: Context, kind: EntryKind, key_id: str, principal_id: str) -> None:
    """Enter a change of a key or an account in the register."""
    registering.enter(session, context.clock(), [Registration(kind, Subject.KEY, key_id, principal_id)])


def _paths(session: Session, terms: Terms) -> list[str]:
    assert terms.budgets is not None, "the caller looked"
    if Scope.ADMIN in terms.scopes:
        detail = (
            "a key with the scope admin can make keys with every right, so it cannot be limited to some budgets: "
            "leave out the scope admin or the budgets"
        )
        raise unprocessable("contradiction", detail, "budgets")
    paths = []
    for number, budget_id in enumerate(terms.budgets):
        path = repository.path_of_budget(session, budget_id)
        if path is None:
            detail = f"there is no budget with the id {budget_id!r}"
            raise unprocessable("unknown_budget", detail, "budgets", number)
        paths.append(path)
    return sorted(set(paths))


def authenticate(context: Context, token: str) -> Principal | None:
    """Return the principal of a token; None if no usable key has it."""
    parts = TOKEN.fullmatch(token)
    if parts is None:
        return None
    with context.database.read() as session:
        key = repository.find(session, f"key_{parts[1]}")
        newest = versions.newest(session, Purpose.KEYS)
    # Both comparisons are always made, and each takes the same time whichever characters differ.
    given = token_hash(context, token, newest if key is None else key.secret_version)
    is_newest = hmac.compare_digest(_NO_HASH if key is None else key.token_hash.ljust(64, "0"), given)
    previous = None if key is None else key.previous_token_hash
    earlier = token_hash(context, token, newest if key is None else key.previous_secret_version)
    is_previous = hmac.compare_digest((previous or "").ljust(64, "0"), earlier)
    now = context.clock()
    if key is None or key.has_ended(now) or not (is_newest or is_previous):
        return None
    ends = [key.expires_at] if is_newest else [key.expires_at, key.previous_token_until]
    valid_until = min((end for end in ends if end is not None), default=None)
    if valid_until is not None and valid_until <= now:
        return None
    if (key.secret_version if is_newest else key.previous_secret_version) < newest:
        _hash_anew(context, key.id, token, given if is_newest else earlier)
    return principal_of(key, valid_until)


def _hash_anew(context: Context, key_id: str, token: str, before: str) -> None:
    """Replace the stored hash of a token that was just used by its hash under the newest secret. If this fails, the
    next use tries again.
    """
    try:
        with context.database.write() as session:
            version = versions.newest_kept(session, Purpose.KEYS)
            if repository.hash_anew(session, key_id, before, token_hash(context, token, version), version):
                enter(session, context, EntryKind.CHANGE, key_id, SERVICE.id)
    except (*DATABASE_FAILURES, SecretUnavailable):
        return


def principal_of(key: ApiKey, valid_until: datetime | None) -> Principal:
    """Return the principal that a key acts for, until ``valid_until``."""
    return Principal(
        key.id,
        frozenset(Scope(scope) for scope in key.scopes),
        key.name,
        budgets=None if key.budgets is None else tuple(key.budgets),
        valid_until=valid_until,
        requests_per_second=key.requests_per_second,
        concurrent_requests=key.concurrent_requests,
    )


def rotate_key(
    session: Session, context: Context, key_id: str, overlap: timedelta, principal_id: str = SERVICE.id
) -> tuple[ApiKey, str]:
    """Give the key another token in the caller's transaction. The caller commits, and then calls `tell_of_change`.

    Args:
        session: A write session.
        context: The process's context.
        key_id: Which key.
        overlap: How long the old token stays valid. Zero ends every older token now.
        principal_id: The principal who rotates it.

    Returns:
        The key, and its new token.

    Raises:
        Problem: 404; 409 ``account_has_no_token``; 409 ``key_has_ended``; 409 ``rotation_in_progress`` while an older
            token is valid, so that of two simultaneous rotations the second does not end the token that the first has
            just given out.
    """
    version = versions.newest_kept(session, Purpose.KEYS)
    repository.lock_all(session)
    key, now = get_key(session, key_id), context.clock()
    if key.is_account:
        detail = (
            "This is an account of a provider, so the service has made no token that it could replace. To bar the "
            "account, revoke it."
        )
        raise Problem(409, "account_has_no_token", detail)
    if key.has_ended(now):
        raise _has_ended(key)
    until = key.previous_token_until
    if overlap and until is not None and until > now:
        detail = (
            f"The key was rotated shortly before, and its previous token is valid until {format_moment(until)}. "
            "Wait, or give overlap_s 0, which ends every older token at once."
        )
        raise Problem(409, "rotation_in_progress", detail)
    token = _new_token(key.id)
    key.previous_token_hash = key.token_hash if overlap else None
    key.previous_token_until = now + overlap if overlap else None
    key.previous_secret_version = key.secret_version
    key.token_hash, key.secret_version, key.rotated_at = token_hash(context, token, version), version, now
    enter(session, context, EntryKind.CHANGE, key_id, principal_id)
    return key, token


def end_sessions(session: Session, context: Context, account: ApiKey) -> None:
    """End all sessions of an account in the caller's transaction. The caller commits, and then calls
    `tell_of_change`."""
    account.token_hash, account.secret_version = secrets.token_hex(32), versions.newest_kept(session, Purpose.KEYS)
    session.flush()
    enter(session, context, EntryKind.CHANGE, account.id, SERVICE.id)


def revoke_unless_last(session: Session, context: Context, key_id: str, principal_id: str) -> ApiKey:
    """Revoke a key for ever in the caller's transaction. The caller commits, and then calls `tell_of_change`.

    Raises:
        Problem: 404; 409 ``last_admin_key`` if nobody could make keys over HTTP afterwards.
    """
    repository.lock_all(session)
    key, now = get_key(session, key_id), context.clock()
    if Scope.ADMIN in key.scopes and not key.has_ended(now):
        others = [each for each in repository.unended(session, now) if each.id != key_id]
        if not any(Scope.ADMIN in each.scopes for each in others):
            detail = (
                "This is the last key with the scope admin that has not ended. Make another one first, or revoke it on "
                "the machine itself: `epsilond keys revoke`."
            )
            raise Problem(409, "last_admin_key", detail)
    if repository.revoke(session, key_id, now):
        enter(session, context, EntryKind.END, key_id, principal_id)
    session.refresh(key)
    return key


def get_key(session: Session, key_id: str) -> ApiKey:
    """Return the key, ended or not.

    Raises:
        Problem: 404.
    """
    key = repository.find(session, key_id)
    if key is None:
        raise not_found("key", key_id)
    return key


def keys_exist(context: Context) -> bool:
    """Return whether the server has, or ever had, a key, or has a sign-in provider whose accounts are used in place of
    keys.
    """
    if context.settings.oidc_file is not None:
        return True
    with context.database.read() as session:
        return repository.any_key(session)


def any_key_was_made(context: Context) -> bool:
    """Return whether the server has, or ever had, a key; accounts of a provider do not count."""
    with context.database.read() as session:
        return repository.any_key(session, with_accounts=False)


def list_keys(context: Context) -> Sequence[ApiKey]:
    """Return every key, revoked ones included, oldest first."""
    with context.database.read() as session:
        return repository.list_all(session)


def state_of(key: ApiKey, now: datetime) -> str:
    """Return whether a key is active, expired or revoked."""
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.has_ended(now) else "active"


def budget_ids(paths: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the id of each budget whose path is given: the last id of the path."""
    return None if paths is None else tuple(path.rpartition("/")[2] for path in paths)


def revoke_key(context: Context, key_id: str) -> bool:
    """Revoke a key for ever, and return whether it was not revoked before. Only code that runs on this machine, such as
    the command line, calls this.
    """
    with context.database.write() as session:
        repository.lock_all(session)
        revoked = repository.revoke(session, key_id, context.clock())
        if revoked:
            enter(session, context, EntryKind.END, key_id, SERVICE.id)
    tell_of_change(context)
    return revoked


def note_use(context: Context, key_id: str) -> None:
    """Record the minute in which a key was used; if the database is busy, the next use tries again."""
    minute = context.clock().replace(second=0, microsecond=0)
    try:
        with context.database.write_briefly() as connection:
            repository.note_use(connection, key_id, minute)
    except DATABASE_FAILURES:
        return


# The number of changes that this process has made to the keys of each database.
_CHANGES: WeakKeyDictionary[Database, int] = WeakKeyDictionary()


def changes(context: Context) -> int:
    """Return a number that changes whenever this process changes the keys."""
    return _CHANGES.get(context.database, 0)


def tell_of_change(context: Context) -> None:
    """Make this process forget what it remembers about keys. Call this after committing a change."""
    _CHANGES[context.database] = changes(context) + 1


def token_hash(context: Context, token: str, version: int = 1) -> str:
    """Return the hash that is stored in place of a token, under one version of the secret of keys."""
    return context.keyed_hash("api_key", token.encode(), version)


def _new_token(key_id: str) -> str:
    secret = base64.b32encode(secrets.token_bytes(32)).decode().rstrip("=").lower()
    return f"epsilond_{key_id.removeprefix('key_')}_{secret}"


def _has_ended(key: ApiKey) -> Problem:
    how = "revoked" if key.revoked_at is not None else "past its time"
    return Problem(409, "key_has_ended", f"The key is {how}, and a new token would not revive it: create another key.")


def quotas_of(session: Session, context: Context, principal: Principal) -> list[tuple[Quota, int, int]]:
    """Return a key's use of its quotas, with their limits; an empty list if nothing is counted."""
    if principal.id in WITHOUT_A_KEY or not principal.id.startswith("key_"):
        return []
    limits = Quotas.of(context.settings)
    used = used_by(session, principal.id, context.clock())
    return [(quota, number, getattr(limits, quota)) for quota, number in used.items()]
