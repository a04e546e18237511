"""Principals of accounts, with the rights that the present configuration gives."""

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
    """Return the principal of an account, valid until ``valid_until``.

    Args:
        session: A session.
        context: The process's context.
        account: The row of the account among the keys.
        groups: The groups to which the provider assigns it.
        valid_until: The end of the token or session.

    Returns:
        None if the account is barred, belongs to another provider, or has no rights. A budget that does not exist is
        not reached.
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
