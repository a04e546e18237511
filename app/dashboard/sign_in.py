"""Signing in with an API key, and out again."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.auth import sessions
from app.auth.sessions import COOKIE, COOKIE_OF_HTTPS, PAGES, SIGN_IN, START, Session
from app.dashboard.asking import ask
from app.dashboard.forms import read_form
from app.dashboard.pages import page
from app.kit.context import CurrentContext

router = APIRouter(include_in_schema=False)

_WRONG = "This key is unknown, revoked or expired."


@router.get(SIGN_IN)
async def show(request: Request, next: str = START) -> Response:
    """The form; a server without keys has nothing to sign in to."""
    address = sessions.own_address(next)
    if getattr(request.state, "principal", None) is not None:
        return RedirectResponse(address, 303)
    return page(request, "sign_in.html", next=address, fault=None)


@router.post(SIGN_IN)
async def sign_in(request: Request, context: CurrentContext) -> Response:
    """Ask who the key is, as any client does: so attempts that fail are counted, and slowed down, as everywhere."""
    form = await read_form(request)
    address = sessions.own_address(form.get("next", START))
    answer = await ask(request, "GET", "/v1/keys/self", token=form.get("key", ""))
    session = None
    if answer.is_good and answer.body["id"] != "loopback":
        until = answer.body["valid_until"]
        valid_until = None if until is None else datetime.fromisoformat(until)
        session = await run_in_threadpool(sessions.begin, context, answer.body["id"], valid_until)
    elif answer.is_good:
        return RedirectResponse(address, 303)
    if session is None:
        fault = _WRONG if answer.status in (200, 401) else answer.body["detail"]
        status = 401 if answer.is_good else answer.status
        return page(request, "sign_in.html", status=status, next=address, fault=fault)
    response = RedirectResponse(address, 303)
    _set(response, session, is_https=_is_https(request))
    return response


@router.get(PAGES)
async def start(_: Request) -> Response:
    """The first page, for whoever types the address."""
    return RedirectResponse(START, 303)


@router.post("/dashboard/sign-out")
async def sign_out(_: Request) -> Response:
    """Let the browser forget the session. Whoever fears that it was copied rotates the key, which ends all of them."""
    response = RedirectResponse(SIGN_IN, 303)
    for name, is_https in ((COOKIE, False), (COOKIE_OF_HTTPS, True)):
        response.delete_cookie(name, path="/", secure=is_https, httponly=True, samesite="strict")
    return response


def _set(response: Response, session: Session, *, is_https: bool) -> None:
    response.set_cookie(
        COOKIE_OF_HTTPS if is_https else COOKIE,
        session.cookie,
        max_age=session.seconds,
        path="/",
        secure=is_https,
        httponly=True,
        samesite="strict",
    )


def _is_https(request: Request) -> bool:
    """Whether the browser speaks https, to us or a proxy before us; the guard has held its Origin against the Host."""
    return request.url.scheme == "https" or request.headers.get("origin", "").lower().startswith("https://")
