"""The rights that a route requires: a scope, and a key that reaches the objects in the path.

This module is separate from `app.auth.principal`, which the commands about keys import, because the rule of reach needs
every table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from app.auth import reach
from app.auth.principal import Principal, Scope
from app.problems import Problem


async def get_principal(request: Request) -> Principal:
    """Return the principal that the guard found; there is none outside the guarded paths.

    The objects in the path must be within its reach. This is checked here, so that no route can forget it.
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
        await run_in_threadpool(reach.check_path, request.app.state.context, principal, request.path_params)


CurrentPrincipal = Annotated[Principal, Depends(get_principal)]


def requires(*scopes: Scope) -> Any:
    """Return a dependency that gives the principal if it has one of ``scopes``, and answers 403 otherwise.

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
