"""The principal of a request and what it may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Depends, Request

from app.problems import Problem


class Scope(StrEnum):
    """What a key allows. ``admin`` implies every other."""

    OWNER = "owner"
    ANALYST = "analyst"
    AUDITOR = "auditor"
    LIMITS = "limits"
    CORRECTIONS = "corrections"
    ADMIN = "admin"


@dataclass(frozen=True)
class Principal:
    """Who a request acts for: a key's id, or ``loopback`` on a server without keys."""

    id: str
    scopes: frozenset[Scope]

    def may(self, *scopes: Scope) -> bool:
        """Whether any of ``scopes`` is held."""
        return Scope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)


#: Everyone on a server without keys. The guard lets nobody in but the machine itself.
LOOPBACK = Principal("loopback", frozenset(Scope))


async def get_principal(request: Request) -> Principal:
    """The principal that the guard found; outside the guarded paths there is none."""
    principal = getattr(request.state, "principal", None)
    if not isinstance(principal, Principal):
        raise Problem(401, "unauthenticated", "This path needs an API key.", headers={"WWW-Authenticate": "Bearer"})
    return principal


CurrentPrincipal = Annotated[Principal, Depends(get_principal)]


def requires(*scopes: Scope) -> Any:
    """A dependency that returns the principal if it holds one of ``scopes``, and answers 403 otherwise.

    Usage: ``principal: Annotated[Principal, requires(Scope.OWNER)]``.
    """
    return Depends(_check(scopes))


def _check(scopes: tuple[Scope, ...]) -> Callable[[Request], Awaitable[Principal]]:
    needed = " or ".join(sorted({*scopes, Scope.ADMIN}))

    async def check(request: Request) -> Principal:
        principal = await get_principal(request)
        if not principal.may(*scopes):
            raise Problem(403, "forbidden", f"This call needs a key with the scope {needed}.")
        return principal

    return check
