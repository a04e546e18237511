"""Accounts: the people and machines of the provider, each by its issuer and subject, never by an e-mail address.

An account is a row among the keys, so that the ledger, the quotas and the limits know it as they know a key. The row
has no rights and no token. An account may do what the configuration gives it and its groups at the time of its request
(`app.auth.oidc.principals`). Revoking the row bars the account.
"""

from __future__ import annotations

import secrets

import structlog
from sqlalchemy.orm import Session

from app.auth import repository, service
from app.auth.oidc.asking import Unavailable
from app.auth.oidc.configuration import Configuration
from app.auth.oidc.principals import principal_of
from app.auth.oidc.provider import provider_of
from app.auth.oidc.tokens import Claims, Refused, bearer_claims
from app.auth.principal import SERVICE, Principal
from app.context import Context
from app.entries.kinds import EntryKind
from app.kit.ids import new_id
from app.problems import Problem
from app.secrets import versions
from app.secrets.material import Purpose
from app.tables.access import ApiKey

log = structlog.get_logger("epsilond.auth")

_NO_RIGHTS = (
    "The provider has said who you are, but neither you nor your groups have rights here. The operator of this server "
    "gives rights in the file of EPSILOND_OIDC_FILE."
)


def authenticate(context: Context, token: str) -> Principal:
    """Return the principal of a bearer token that the provider has made.

    Raises:
        Problem: 401 ``invalid_token``; 403 ``no_rights``; 503 ``provider_unavailable``.
    """
    provider = provider_of(context)
    if provider is None:
        raise _invalid("this server accepts only API keys")
    try:
        claims = bearer_claims(provider, token)
    except Refused as refusal:
        raise _invalid(str(refusal)) from None
    except Unavailable as failure:
        raise unavailable(failure) from None
    account = admit(context, provider.configuration, claims)
    with context.database.read() as session:
        principal = principal_of(session, context, account, claims.groups, claims.ends)
    if principal is None:
        raise no_rights()
    return principal


def admit(context: Context, configuration: Configuration, claims: Claims) -> ApiKey:
    """Return the row of an account, which is made at its first request.

    Raises:
        Problem: 403 ``no_rights``: nobody without rights gets a row.
    """
    if configuration.right_of(claims.subject, claims.groups) is None:
        raise no_rights()
    with context.database.read() as session:
        account = repository.find_account(session, configuration.issuer, claims.subject)
    if account is not None:
        return account
    with context.database.write() as session:
        version = versions.newest_kept(session, Purpose.KEYS)
        repository.lock_all(session)
        account = repository.find_account(session, configuration.issuer, claims.subject)
        if account is None:
            account = _new_account(session, context, configuration, claims, version)
        session.expunge(account)
    service.tell_of_change(context)
    return account


def _new_account(
    session: Session, context: Context, configuration: Configuration, claims: Claims, version: int
) -> ApiKey:
    account = ApiKey(
        id=new_id("key"),
        name=claims.shown_name,
        scopes=[],
        budgets=[],
        # No token has this hash. It signs the sessions of the account, which therefore end when it changes.
        token_hash=secrets.token_hex(32),
        secret_version=version,
        created_at=context.clock(),
        issuer=configuration.issuer,
        subject=claims.subject,
    )
    repository.add(session, account)
    service.enter(session, context, EntryKind.REGISTER, account.id, SERVICE.id)
    return account


def unavailable(failure: Unavailable) -> Problem:
    """Return a problem with status 503; details about the provider go to the log."""
    log.warning("provider_unavailable", reason=str(failure))
    detail = "The provider of accounts does not answer. Try again soon; API keys still work meanwhile."
    return Problem(503, "provider_unavailable", detail, headers={"Retry-After": "10"})


def no_rights() -> Problem:
    """Return a problem with status 403 for somebody whom the provider knows but the configuration does not."""
    return Problem(403, "no_rights", _NO_RIGHTS)


def _invalid(reason: str) -> Problem:
    challenge = {"WWW-Authenticate": 'Bearer realm="epsilond", error="invalid_token"'}
    return Problem(401, "invalid_token", f"The token is not accepted: {reason}.", headers=challenge)
