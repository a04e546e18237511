"""Signing in with an API key, or on a server without keys with a code or the local token, and out again."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.auth import service as keys
from app.auth import sessions, sign_in_codes
from app.auth.oidc.configuration import configuration_of
from app.auth.principal import ANYBODY, LOOPBACK, Principal, Scope
from app.auth.sessions import PAGES, SIGN_IN, START, Session
from app.context import Context, CurrentContext
from app.dashboard.asking import ask
from app.dashboard.forms import read_form
from app.dashboard.pages import page

router = APIRouter(include_in_schema=False)

_WRONG = "This key is unknown, revoked or expired."
_CODE_IS_OVER = (
    "This code has expired: it works once, for five minutes. `epsilond sign-in`, on the machine of the server, prints "
    "another address, and so does a new start."
)
_CODE_WITH_KEYS = "This server has keys now, so codes no longer work: sign in with a key."


@router.api_route(SIGN_IN, methods=["GET", "HEAD"])
async def show(request: Request, context: CurrentContext, next: str = START, code: str = "") -> Response:
    """Show the form. Looking at the page does not use up a code, since programs that preview addresses open it."""
    return await _form(request, context, sessions.own_address(next), code=code)


@router.post(SIGN_IN)
async def sign_in(request: Request, context: CurrentContext) -> Response:
    """Sign in with a key, the local token, or a code.

    A key is checked as for any client, so failed attempts are counted and slowed down as usual.
    """
    form = await read_form(request)
    address = sessions.own_address(form.get("next", START))
    if "code" in form:
        return await _with_code(request, context, form["code"], address)
    answer = await ask(request, "GET", "/v1/keys/self", token=form.get("key", ""))
    session = None
    if answer.is_good and answer.body["id"] == LOOPBACK.id:
        session = await run_in_threadpool(sessions.begin_with_local_token, context)
    elif answer.is_good:
        until = answer.body["valid_until"]
        valid_until = None if until is None else datetime.fromisoformat(until)
        session = await run_in_threadpool(sessions.begin, context, answer.body["id"], valid_until)
    if session is None:
        fault = _WRONG if answer.status in (200, 401) else answer.body["detail"]
        status = 401 if answer.is_good else answer.status
        return await _form(request, context, address, fault=fault, status=status)
    return _signed_in(request, address, session)


async def _with_code(request: Request, context: Context, code: str, address: str) -> Response:
    if await run_in_threadpool(keys.keys_exist, context):
        return await _form(request, context, address, fault=_CODE_WITH_KEYS, status=401)
    session = None
    if await run_in_threadpool(sign_in_codes.redeem, context, code):
        session = await run_in_threadpool(sessions.begin_with_local_token, context)
    if session is None:
        return await _form(request, context, address, fault=_CODE_IS_OVER, status=401)
    return _signed_in(request, address, session)


async def _form(
    request: Request, context: Context, address: str, *, code: str = "", fault: str | None = None, status: int = 200
) -> Response:
    has_keys = await run_in_threadpool(keys.keys_exist, context)
    configuration = configuration_of(context.settings)
    return page(
        request,
        "sign_in.html",
        status=status,
        next=address,
        code=code,
        fault=fault,
        has_keys=has_keys,
        provider=None if configuration is None else configuration.name,
    )


def _signed_in(request: Request, address: str, session: Session) -> Response:
    response = RedirectResponse(after_sign_in(address), 303)
    keep_session(request, response, session)
    return response


def keep_session(request: Request, response: Response, session: Session) -> None:
    """Have the browser keep the session that the answer begins."""
    settings, https = request.app.state.context.settings, is_https(request)
    name, path = sessions.cookie_place(settings, is_https=https)
    response.set_cookie(
        name,
        session.cookie,
        max_age=session.seconds,
        path=path,
        secure=https,
        httponly=True,
        samesite="strict",
    )


def after_sign_in(address: str) -> str:
    """Return the page that follows signing in: the one that the person wanted, else their first page."""
    return PAGES if address == START else address


@router.get(PAGES)
async def start(request: Request) -> Response:
    """Lead to the reader's first page: budgets for those who manage them, runs for those who train, else a
    calibration."""
    return RedirectResponse(_first_page(request.state.principal), 303)


def _first_page(principal: Principal) -> str:
    if principal in (LOOPBACK, ANYBODY):  # on a server without keys, there are no keys to show yet
        return START
    if principal.may(Scope.OWNER, Scope.AUDITOR):
        return f"{PAGES}/budgets"
    return f"{PAGES}/runs" if principal.may(Scope.ANALYST) else START


@router.post("/dashboard/sign-out")
async def sign_out(context: CurrentContext) -> Response:
    """Make the browser forget the session. If the session may have been copied, rotate the key, which ends all its
    sessions."""
    response = RedirectResponse(SIGN_IN, 303)
    for is_https in (False, True):
        name, path = sessions.cookie_place(context.settings, is_https=is_https)
        response.delete_cookie(name, path=path, secure=is_https, httponly=True, samesite="strict")
    return response


def is_https(request: Request) -> bool:
    """Return whether the browser uses https, to this service or to a proxy in front of it.

    The guard has compared the Origin of a command with the Host.
    """
    known = request.app.state.context.settings.public_address
    if known is not None:
        return bool(known.scheme == "https")
    return request.url.scheme == "https" or request.headers.get("origin", "").lower().startswith("https://")
