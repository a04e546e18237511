"""Principals of accounts: the rights that the configuration gives now, and no others."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy.orm import Session

from app.auth import repository
from app.auth.oidc.configuration import configuration_of
from app.auth.principal import Principal
from app.context import Context
from app.tables.access import ApiKey


def principal_of(
    session: Session, context: Context, account: ApiKey, groups: Collection[str], valid_until: datetime
) -> Principal | None:
    """Return whom an account acts as, until ``valid_until``.

    Args:
        session: A session.
        context: The process's context.
        account: Its row among the keys.
        groups: Those that the provider has counted it in.
        valid_until: The end of the token or session.

    Returns:
        None if the account is barred, is another provider's, or has no rights. A budget that does not exist is not
        reached.
    """
    configuration = configuration_of(context.settings)
    if configuration is None or account.issuer != configuration.issuer or account.subject is None:
        return None
    right = configuration.right_of(account.subject, groups)
    if right is None or account.has_ended(context.clock()):
        return None
    paths = None
    if right.budgets != "all":
        found = (repository.path_of_budget(session, budget_id) for budget_id in right.budgets)
        paths = tuple(sorted({path for path in found if path is not None}))
    return Principal(
        account.id,
        frozenset(right.scopes),
        account.name,
        budgets=paths,
        valid_until=valid_until,
        requests_per_second=account.requests_per_second,
        concurrent_requests=account.concurrent_requests,
    )
