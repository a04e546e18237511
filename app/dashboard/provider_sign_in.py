"""Signing in with the provider of accounts: the way there and back."""

from __future__ import annotations

import structlog
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response

from app.auth import sessions
from app.auth.oidc import flow
from app.auth.oidc.accounts import no_rights, unavailable
from app.auth.oidc.asking import Unavailable
from app.auth.oidc.provider import Provider, provider_of
from app.auth.oidc.tokens import Refused
from app.context import Context, CurrentContext
from app.dashboard.pages import page
from app.dashboard.sign_in import after_sign_in, is_https, keep_session
from app.problems import Problem

router = APIRouter(include_in_schema=False)
log = structlog.get_logger("epsilond.auth")

_BARRED = "This account may not sign in: the operator of this server has revoked it."


@router.api_route(flow.START, methods=["GET", "HEAD"])
async def start(request: Request, context: CurrentContext, next: str = sessions.START) -> Response:
    """Lead the browser to the provider."""
    provider = _provider(context)
    try:
        attempt = await run_in_threadpool(flow.begin, context, provider, sessions.own_address(next))
    except Unavailable as failure:
        return _refusal(request, unavailable(failure))
    response = RedirectResponse(attempt.address, 303)
    https = is_https(request)
    name, path = flow.cookie_place(context.settings, is_https=https)
    # SameSite is Lax, because the provider's page leads back here, and the browser must send the cookie then.
    seconds = int(flow.LIFETIME.total_seconds())
    response.set_cookie(name, attempt.cookie, max_age=seconds, path=path, secure=https, httponly=True, samesite="lax")
    return response


@router.get(flow.BACK)
async def back(request: Request, context: CurrentContext) -> Response:
    """Sign in the person whom the provider has sent back.

    The answer is a page that leads on and not a redirect, because browsers do not send the session's cookie with a
    redirect that another site began. HEAD is refused, because it would use up the code.
    """
    provider = _provider(context)
    name, path = flow.cookie_place(context.settings, is_https=is_https(request))
    cookie = cookie_parser("; ".join(Headers(scope=request.scope).getlist("cookie"))).get(name)
    query = dict(request.query_params)
    try:
        session, address = await run_in_threadpool(flow.finish, context, provider, cookie, query)
    except Refused as refusal:
        log.info("sign_in_refused", reason=str(refusal))
        problem = Problem(401, "invalid_token", f"You are not signed in: {refusal}. Try again.")
        response = _refusal(request, problem)
    except Unavailable as failure:
        response = _refusal(request, unavailable(failure))
    except Problem as problem:
        response = _refusal(request, problem)
    else:
        if session is None:
            response = _refusal(request, Problem(403, no_rights().code, _BARRED))
        else:
            response = page(
                request, "signed_in.html", next=after_sign_in(address), public_path=context.settings.public_path
            )
            keep_session(request, response, session)
    response.delete_cookie(name, path=path, secure=is_https(request), httponly=True, samesite="lax")
    return response


def _provider(context: Context) -> Provider:
    """Return the provider.

    Raises:
        Problem: 404 if the server has no provider.
    """
    provider = provider_of(context)
    if provider is None:
        raise Problem(404, "not_found", "This server has no provider of accounts: sign in with a key.")
    return provider


def _refusal(request: Request, problem: Problem) -> Response:
    return page(request, "not_signed_in.html", status=problem.status, fault=problem.detail)
