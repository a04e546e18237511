"""The principal of a request and what it may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from app.problems import Problem


class Scope(StrEnum):
    """What a key allows. ``admin`` implies every other."""

    OWNER = "owner"
    """Opens budgets, registers data, raises charges by corrections, and may all that analysts and auditors may."""
    ANALYST = "analyst"
    """Calibrates, reserves, starts, commits, and runs."""
    AUDITOR = "auditor"
    """Reads all of budgets, entries and spending; exports and verifies the ledger."""
    LIMITS = "limits"
    """Changes a budget's limit."""
    CORRECTIONS = "corrections"
    """Lowers a charge that was wrong."""
    METRICS = "metrics"
    """Reads `/metrics`."""
    ADMIN = "admin"
    """May all of it, and makes, rotates and revokes keys."""


@dataclass(frozen=True)
class Principal:
    """Who a request acts for: a key's id, or ``loopback`` on a server without keys.

    Attributes:
        id: Of the key.
        scopes: What it allows.
        budgets: Paths of the budgets that it reaches, with all below them; None for all budgets.
        valid_until: When the token that it came with ends; None for never.
        requests_per_second, concurrent_requests: Limits of the key's own; 0 for none, None for those of the settings.
    """

    id: str
    scopes: frozenset[Scope]
    budgets: tuple[str, ...] | None = None
    valid_until: datetime | None = None
    requests_per_second: float | None = None
    concurrent_requests: int | None = None

    def may(self, *scopes: Scope) -> bool:
        """Whether any of ``scopes`` is held."""
        return Scope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)

    def reaches(self, path: str) -> bool:
        """Whether the budget at ``path`` (ids from the root on, as in its row) is one of the key's, or below one."""
        return self.budgets is None or any(path == each or path.startswith(f"{each}/") for each in self.budgets)

    def acts_for(self, principal_id: str) -> bool:
        """Whether it may go on with, or end, what a principal has begun: its own, and as an owner anybody's."""
        return self.id == principal_id or self.may(Scope.OWNER)

    def visible_part(self, path: str) -> list[str]:
        """The ids in ``path`` of the budgets that the key reaches: what is above them is nobody's business here.

        >>> Principal("key_1", frozenset(), budgets=("bud_a/bud_b",)).visible_part("bud_a/bud_b/bud_c")
        ['bud_b', 'bud_c']
        """
        ids = path.split("/")
        return [each for place, each in enumerate(ids, 1) if self.reaches("/".join(ids[:place]))]


#: Everyone on a server without keys. The guard lets nobody in but the machine itself.
LOOPBACK = Principal("loopback", frozenset(Scope))
#: The service itself, where nobody's request is behind what is done.
SERVICE = Principal("service", frozenset())


async def get_principal(request: Request) -> Principal:
    """The principal that the guard found; outside the guarded paths there is none.

    What the path names must be within its reach: asked here, so that no route can forget it.
    """
    principal = _principal_of(request)
    await _check_path(request, principal)
    return principal


def _principal_of(request: Request) -> Principal:
    principal = getattr(request.state, "principal", None)
    if not isinstance(principal, Principal):
        raise Problem(401, "unauthenticated", "This path needs an API key.", headers={"WWW-Authenticate": "Bearer"})
    return principal


async def _check_path(request: Request, principal: Principal) -> None:
    if principal.budgets is not None and request.path_params:
        # Imported here: the rule knows every table, and the commands of keys need none of them.
        from app.auth import reach  # noqa: PLC0415

        await run_in_threadpool(reach.check_path, request.app.state.context, principal, request.path_params)


CurrentPrincipal = Annotated[Principal, Depends(get_principal)]


def requires(*scopes: Scope) -> Any:
    """A dependency that returns the principal if it holds one of ``scopes``, and answers 403 otherwise.

    Usage: ``principal: Annotated[Principal, requires(Scope.OWNER)]``.
    """
    return Depends(_check(scopes))


def _check(scopes: tuple[Scope, ...]) -> Callable[[Request], Awaitable[Principal]]:
    needed = " or ".join(sorted({*scopes, Scope.ADMIN}))

    async def check(request: Request) -> Principal:
        principal = _principal_of(request)
        if not principal.may(*scopes):
            raise Problem(403, "forbidden", f"This call needs a key with the scope {needed}.")
        await _check_path(request, principal)
        return principal

    return check
